//! Combining the elements of several ranks, in rank order.

use half::{bf16, f16};
use msc_ir::tensor::{bf16_from_f64, f16_from_f64};
use msc_ir::{DType, Monoid};

/// Elements combined at a time: they stay in the first-level cache.
const BLOCK: usize = 512;

/// Combines `inputs`, each of `out.len()` bytes, element by element in order, into `out`.
///
/// The result has the bits of [`msc_ir::ops::collective::Collective::combine_group`].
///
/// # Panics
/// If lengths differ or are not whole elements, or if there is no input.
pub fn reduce(dtype: DType, monoid: Monoid, inputs: &[&[u8]], out: &mut [u8]) {
    assert!(!inputs.is_empty() && inputs.iter().all(|i| i.len() == out.len()), "inputs of a reduction");
    assert_eq!(out.len() % dtype.size_bytes(), 0, "whole elements");
    let pointers: Vec<*const u8> = inputs.iter().map(|i| i.as_ptr()).collect();
    // SAFETY: slices of the length that is read and written.
    unsafe { reduce_at(dtype, monoid, &pointers, out.as_mut_ptr(), out.len()) }
}

/// [`reduce`] on memory of any alignment. `out` may be the very memory of one of the inputs.
///
/// # Safety
/// Each input is valid for reading and `out` for writing `bytes` bytes, a multiple of the element size; there is
/// an input; no other thread writes the inputs or touches `out` meanwhile; `out` is apart from each input, or
/// equal to it.
pub(super) unsafe fn reduce_at(
    dtype: DType,
    monoid: Monoid,
    inputs: &[*const u8],
    out: *mut u8,
    bytes: usize,
) {
    /// Which function of two elements, chosen once.
    macro_rules! each {
        ($t:ty, $f:expr) => {
            // SAFETY: passed on.
            unsafe { fold::<$t, $t>(inputs, out, bytes, None, |x| x, $f, |x| x) }
        };
    }
    macro_rules! sum {
        ($t:ty, $wide:expr, $narrow:expr) => {
            // SAFETY: passed on.
            unsafe { fold::<$t, f64>(inputs, out, bytes, Some(0.0), $wide, |a, b| a + b, $narrow) }
        };
    }
    macro_rules! float {
        ($t:ty, $wide:expr, $narrow:expr, $to:expr, $from:expr) => {
            match monoid {
                Monoid::Sum => sum!($t, $wide, $narrow),
                Monoid::Product => each!($t, |a: $t, b: $t| $from($to(a) * $to(b))),
                Monoid::Max => each!($t, |a: $t, b: $t| $from(greater($to(a), $to(b)))),
                Monoid::Min => each!($t, |a: $t, b: $t| $from(-greater(-$to(a), -$to(b)))),
                // Not defined on floats; verified programs do not ask for them.
                Monoid::And | Monoid::Or => each!($t, |a: $t, _| a),
            }
        };
    }
    macro_rules! int {
        ($t:ty) => {
            match monoid {
                Monoid::Sum => each!($t, |a: $t, b: $t| a.wrapping_add(b)),
                Monoid::Product => each!($t, |a: $t, b: $t| a.wrapping_mul(b)),
                Monoid::Max => each!($t, |a: $t, b: $t| a.max(b)),
                Monoid::Min => each!($t, |a: $t, b: $t| a.min(b)),
                Monoid::And => each!($t, |a: $t, b: $t| a & b),
                Monoid::Or => each!($t, |a: $t, b: $t| a | b),
            }
        };
    }
    match dtype {
        DType::F32 => float!(f32, f64::from, |x| x as f32, |x: f32| x, |x: f32| x),
        DType::F64 => float!(f64, |x| x, |x| x, |x: f64| x, |x: f64| x),
        DType::F16 => float!(f16, f16::to_f64, f16_from_f64, f16::to_f32, f16::from_f32),
        DType::BF16 => float!(bf16, bf16::to_f64, bf16_from_f64, bf16::to_f32, bf16::from_f32),
        DType::I1 => match monoid {
            Monoid::Sum | Monoid::Max | Monoid::Or => each!(u8, |a: u8, b: u8| a | b),
            Monoid::Product | Monoid::Min | Monoid::And => each!(u8, |a: u8, b: u8| a & b),
        },
        DType::I8 => int!(i8),
        DType::I16 => int!(i16),
        DType::I32 => int!(i32),
        DType::I64 => int!(i64),
        DType::U8 => int!(u8),
        DType::U16 => int!(u16),
        DType::U32 => int!(u32),
        DType::U64 => int!(u64),
    }
}

/// A float with the two facts that a maximum needs beside comparison.
trait Float: Copy + PartialOrd + std::ops::Neg<Output = Self> {
    const NAN: Self;
    fn is_positive(self) -> bool;
}

impl Float for f32 {
    const NAN: f32 = f32::NAN;
    fn is_positive(self) -> bool {
        self.is_sign_positive()
    }
}

impl Float for f64 {
    const NAN: f64 = f64::NAN;
    fn is_positive(self) -> bool {
        self.is_sign_positive()
    }
}

/// IEEE 754-2019 maximum: NaN wins, +0 is above −0.
fn greater<T: Float>(a: T, b: T) -> T {
    if a.partial_cmp(&b).is_none() {
        T::NAN
    } else if a > b || (a == b && a.is_positive()) {
        a
    } else {
        b
    }
}

/// Folds the elements at each place in order, beginning with `start` or else with the first input's.
///
/// # Safety
/// As [`reduce_at`].
#[allow(clippy::too_many_arguments, reason = "the four functions are one algebra")]
unsafe fn fold<T: bytemuck::Pod, A: Copy + Default>(
    inputs: &[*const u8],
    out: *mut u8,
    bytes: usize,
    start: Option<A>,
    load: impl Fn(T) -> A,
    combine: impl Fn(A, A) -> A,
    store: impl Fn(A) -> T,
) {
    let n = bytes / size_of::<T>();
    let mut acc = [A::default(); BLOCK];
    let mut row = [T::zeroed(); BLOCK];
    for first in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - first);
        for (k, input) in inputs.iter().enumerate() {
            // SAFETY: `first + len <= n`; the block is a private copy, so alignment and later writes to `out` do
            // not matter.
            unsafe {
                let from = input.add(first * size_of::<T>());
                std::ptr::copy_nonoverlapping(from, row.as_mut_ptr().cast::<u8>(), len * size_of::<T>());
            }
            match (k, start) {
                (0, None) => acc[..len].iter_mut().zip(&row).for_each(|(a, &x)| *a = load(x)),
                (0, Some(s)) => acc[..len].iter_mut().zip(&row).for_each(|(a, &x)| *a = combine(s, load(x))),
                _ => acc[..len].iter_mut().zip(&row).for_each(|(a, &x)| *a = combine(*a, load(x))),
            }
        }
        row[..len].iter_mut().zip(&acc).for_each(|(x, &a)| *x = store(a));
        // SAFETY: as above; all inputs' blocks at this place have been read.
        unsafe {
            let to = out.add(first * size_of::<T>());
            std::ptr::copy_nonoverlapping(row.as_ptr().cast::<u8>(), to, len * size_of::<T>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msc_ir::ops::collective::Collective;
    use msc_ir::{Storage, Tensor};

    /// Bytes that are valid elements, with every special value among them.
    fn sample(dtype: DType, n: usize, seed: u64) -> Storage {
        let special =
            [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65504.0, 1e-7, 3e38, 1e-40];
        let mut state = seed;
        let values: Vec<f64> = (0..n)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let r = (state >> 33) as usize;
                if r.is_multiple_of(3) {
                    special[r / 3 % special.len()]
                } else {
                    (r % 2001) as f64 / 7.0 - 140.0
                }
            })
            .collect();
        Storage::from_f64s(dtype, &values)
    }

    #[test]
    fn has_the_bits_of_the_reference_for_every_type_and_monoid() {
        for dtype in DType::ALL {
            for monoid in Monoid::ALL.into_iter().filter(|m| m.supports(dtype)) {
                for ranks in [1usize, 2, 3, 7] {
                    let n = 1500;
                    let tensors: Vec<Tensor> =
                        (0..ranks).map(|r| Tensor::new([n], sample(dtype, n, 17 * r as u64 + 1))).collect();
                    let refs: Vec<&Tensor> = tensors.iter().collect();
                    let op = Collective::AllReduce { monoid, axes: Default::default() };
                    let want = op.combine_group(&refs).expect("one type").remove(0);
                    let inputs: Vec<&[u8]> = tensors.iter().map(|t| t.data.bytes()).collect();
                    let mut got = vec![0u8; inputs[0].len()];
                    reduce(dtype, monoid, &inputs, &mut got);
                    let w = dtype.size_bytes();
                    for (i, (g, e)) in got.chunks(w).zip(want.data.bytes().chunks(w)).enumerate() {
                        let nan = dtype.is_float()
                            && Storage::from_bytes(dtype, g).get_f64(0).is_nan()
                            && Storage::from_bytes(dtype, e).get_f64(0).is_nan();
                        assert!(g == e || nan, "{monoid} of {dtype} at {i}, {ranks} ranks: {g:?} {e:?}");
                    }
                }
            }
        }
    }
}
