//! A small deterministic generator: the same seed gives the same case on every machine and in every version.

use crate::dtype::DType;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};

/// SplitMix64 (Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators").
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..high`; `low` where the range is empty.
    pub fn below(&mut self, low: usize, high: usize) -> usize {
        if high <= low { low } else { low + (self.bits() % (high - low) as u64) as usize }
    }

    /// A number in `low..=high`.
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1) as u64) as i64
    }

    /// A number in [-2, 2) with 10 binary digits after the point.
    pub fn float(&mut self) -> f64 {
        self.int(-2048, 2047) as f64 / 1024.0
    }

    /// True in one of two cases.
    pub fn coin(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// One of a list that is not empty.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(0, list.len())].clone()
    }

    /// A shape of `rank` dimensions of 1 to 6.
    pub fn shape(&mut self, rank: usize) -> Shape {
        (0..rank).map(|_| self.below(1, 7)).collect()
    }

    /// The numbers `0..n` in random order.
    pub fn permutation(&mut self, n: usize) -> Shape {
        let mut p: Shape = (0..n).collect();
        for i in (1..n).rev() {
            p.swap(i, self.below(0, i + 1));
        }
        p
    }

    /// `k` distinct numbers of `0..n`, ascending.
    pub fn subset(&mut self, n: usize, k: usize) -> Shape {
        let mut p: Shape = self.permutation(n).into_iter().take(k).collect();
        p.sort();
        p
    }

    /// A tensor of small values: floats in [-2, 2), integers in -9..=9 or 0..=9, booleans.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let ty = TensorType::new(dtype, shape.iter().copied());
        let values: Vec<f64> = (0..ty.elements())
            .map(|_| match dtype {
                DType::I1 => f64::from(u8::from(self.coin())),
                d if d.is_float() => self.float(),
                d if d.is_unsigned() => self.int(0, 9) as f64,
                _ => self.int(-9, 9) as f64,
            })
            .collect();
        Tensor::from_f64s(&ty, &values)
    }

    /// A tensor of integers in `low..=high`, clamped to what the type holds.
    pub fn ints(&mut self, dtype: DType, shape: &[usize], low: i64, high: i64) -> Tensor {
        let ty = TensorType::new(dtype, shape.iter().copied());
        let values: Vec<f64> = (0..ty.elements()).map(|_| self.int(low, high) as f64).collect();
        Tensor::from_f64s(&ty, &values)
    }
}
