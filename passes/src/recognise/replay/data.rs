//! Random inputs of a replay, and how far apart two outcomes are.

use crate::recognise::check::random::Random;
use msc_ir::{DType, Tensor, TensorType};

/// Draws of a fresh replay.
pub(super) const DRAWS: usize = 6;

/// Sizes of all inputs together in the first draws: where numbers are about 1 an epsilon of 1e-8 does nothing.
const TOGETHER: [f64; 3] = [1.0, 1e-3, 1e-6];

/// Sizes of which later draws take one for each input: what is added to something larger shows where that is small.
const APART: [f64; 4] = [1.0, 1e-2, 1e-4, 1e-8];

/// Inputs for one draw.
pub(super) fn inputs(types: &[TensorType], draw: usize, rng: &mut Random) -> Vec<Tensor> {
    // Integers are mostly indices: of something that is as long as some dimension. Outside of it exporters' guards give no
    // number, which would hide all that follows; inside the shortest dimension no index is outside of anything.
    let lengths = || types.iter().flat_map(|t| t.shape.iter().copied()).filter(|&n| n > 1);
    let length = if draw.is_multiple_of(2) { lengths().max() } else { lengths().min() }.unwrap_or(2);
    let one = |t: &TensorType, rng: &mut Random| {
        // A scalar is a count, a rate or a factor of everything: small, it would only scale what is looked at.
        let size = match TOGETHER.get(draw) {
            _ if t.rank() == 0 => 1.0,
            Some(&s) => s,
            None => rng.pick(&APART),
        };
        let positive = t.rank() == 0 && draw % 2 == 1;
        let number = |rng: &mut Random| match t.dtype {
            DType::I1 => f64::from(rng.chance(70)),
            d if d.is_float() && positive => 1.0 + rng.small() / 4.0,
            d if d.is_float() => rng.small() * size,
            _ => rng.below(length) as f64,
        };
        let values: Vec<f64> = (0..t.elements()).map(|_| number(rng)).collect();
        Tensor::from_f64s(t, &values)
    };
    types.iter().map(|t| one(t, rng)).collect()
}

/// The largest difference of two outcomes where the first is finite, relative to its largest element, however small
/// that is; `None` where it is finite nowhere.
pub(super) fn apart(a: &Tensor, b: &Tensor) -> Option<f64> {
    if a.ty() != b.ty() {
        return Some(f64::INFINITY);
    }
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    let scale = a
        .iter()
        .filter(|x| x.is_finite())
        .map(|x| x.abs())
        .fold(None, |m: Option<f64>, x| Some(m.map_or(x, |m| m.max(x))))?;
    let each = a.iter().zip(&b).filter(|(x, _)| x.is_finite()).map(|(x, y)| {
        let d = (x - y).abs();
        if d.is_nan() { f64::INFINITY } else { d }
    });
    let worst = each.fold(0.0, f64::max);
    Some(if worst == 0.0 { 0.0 } else { worst / scale })
}

/// Whether two outcomes have the same infinities, and none a number where the other has none.
pub(super) fn same_no_numbers(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x == y || x.is_nan() && y.is_nan())
}

/// Whether a type rounds visibly.
pub(super) fn is_narrow(t: &TensorType) -> bool {
    matches!(t.dtype, DType::BF16 | DType::F16)
}

/// How far `a` is from `exact`, in terms of how far `b` is (root mean squares, where all are finite).
pub(super) fn worse(a: &Tensor, b: &Tensor, exact: &Tensor) -> f64 {
    let exact = exact.data.to_f64s();
    let apart = |t: &Tensor| {
        let t = t.data.to_f64s();
        let each = t.iter().zip(&exact).map(|(x, y)| x - y).filter(|d| d.is_finite());
        each.map(|d| d * d).sum::<f64>().sqrt()
    };
    match (apart(a), apart(b)) {
        (0.0, _) => 0.0,
        (a, b) => a / b,
    }
}
