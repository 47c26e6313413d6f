//! Distances between tensors of one type.

use super::Tolerance;
use msc_ir::{DType, Tensor};

/// The difference of two elements: 0 for equal ones (infinities included) and for two NaNs, infinite if only
/// one is finite.
fn difference(a: f64, b: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let d = (a - b).abs();
    if d.is_nan() { f64::INFINITY } else { d }
}

/// `max|a−b| / max|b|`, and which element it is. Where the reference is all zero, so must be `a`.
pub(super) fn max_ratio(a: &Tensor, b: &Tensor) -> (f64, String) {
    let (mut worst, mut at, mut scale) = (0.0f64, 0, 0.0f64);
    for i in 0..b.len() {
        let (x, y) = (a.data.get_f64(i), b.data.get_f64(i));
        if y.is_finite() {
            scale = scale.max(y.abs());
        }
        let d = difference(x, y);
        if d > worst {
            (worst, at) = (d, i);
        }
    }
    if worst == 0.0 {
        return (0.0, String::new());
    }
    let note = format!("element {at} is {}, should be {}", a.data.get_f64(at), b.data.get_f64(at));
    (worst / scale, note)
}

/// `‖a−b‖ / ‖b−x₀‖`, and the most that is allowed.
///
/// Beside the bound on the update, stored values round. In f32 nearly every element may round the other way, by
/// one unit in the last place of `x₀`: `‖ulp(x₀)‖` is allowed. In 16 bits that would be more than the whole
/// update; one element is allowed to.
pub(super) fn update(a: &Tensor, b: &Tensor, x: &Tensor, t: &Tolerance) -> (f64, f64, String) {
    let narrow = matches!(b.dtype(), DType::F16 | DType::BF16);
    let (mut apart, mut moved, mut ulps, mut largest) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for i in 0..b.len() {
        let (va, vb, vx) = (a.data.get_f64(i), b.data.get_f64(i), x.data.get_f64(i));
        apart += difference(va, vb).powi(2);
        // A state that is not finite has no update to be measured by; the others still count.
        if vb.is_finite() && vx.is_finite() {
            moved += (vb - vx).powi(2);
            let u = ulp(vx, b.dtype());
            ulps += u * u;
            largest = largest.max(u);
        }
    }
    let (apart, moved) = (apart.sqrt(), moved.sqrt());
    let slack = if narrow { largest } else { ulps.sqrt() };
    let bound = if narrow { t.update_16 } else { t.update };
    if apart == 0.0 {
        return (0.0, bound, String::new());
    }
    let unchanged = (0..b.len()).all(|i| difference(a.data.get_f64(i), x.data.get_f64(i)) == 0.0);
    let note = if unchanged && moved > 0.0 { "is as it was before the step" } else { "" };
    if moved == 0.0 {
        // No update to relate to: in units of the slack instead.
        return (apart / slack, 1.0, "should not change".to_string());
    }
    (apart / moved, bound + slack / moved, note.to_string())
}

/// The distance from `|x|` to the next larger value of a float type.
fn ulp(x: f64, dtype: DType) -> f64 {
    // Bits of the fraction, and the exponent of the smallest normal number.
    let (fraction, lowest) = match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = if x == 0.0 { lowest } else { (x.abs().log2().floor() as i32).max(lowest) };
    2f64.powi(exponent - fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_in_the_last_place() {
        for x in [1.0f32, 1.5, 0.999, 3e-40, 0.0, -7.25, 1e30] {
            let next = f32::from_bits(x.abs().to_bits() + 1);
            assert_eq!(ulp(f64::from(x), DType::F32), f64::from(next) - f64::from(x.abs()), "{x}");
        }
        assert_eq!(ulp(1.0, DType::BF16), 2f64.powi(-7));
        assert_eq!(ulp(1.0, DType::F16), 2f64.powi(-10));
    }
}
