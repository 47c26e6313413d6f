//! Initial values that depend on a seed and a name alone: not on the order of tensors, on ranks, or on threads.
//!
//! Element `i` of a tensor is made from the `i`-th output of a SplitMix64 generator (Steele, Lea & Flood, "Fast
//! Splittable Pseudorandom Number Generators") whose key is the BLAKE3 hash of seed and name, by the method of Box
//! and Muller, in double precision with functions that are the same on every machine. So any block of a tensor
//! can be made without the rest.

use msc_ir::{DType, Storage, Tensor, TensorType};

/// Standard deviation of initial weights.
pub const DEVIATION: f64 = 0.02;

/// The base of rotary frequencies where the user gives none (Su et al., "RoFormer").
pub const ROTARY_BASE: f64 = 10_000.0;

/// Random numbers of one tensor.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    key: u64,
}

impl Source {
    /// The source for a seed and a name.
    pub fn new(seed: u64, name: &str) -> Source {
        let mut hasher = blake3::Hasher::new_derive_key("msc 2026 initial values of a tensor");
        hasher.update(&seed.to_le_bytes());
        hasher.update(name.as_bytes());
        let mut key = [0; 8];
        hasher.finalize_xof().fill(&mut key);
        Source { key: u64::from_le_bytes(key) }
    }

    /// 64 random bits for element `i`.
    pub fn bits(self, i: u64) -> u64 {
        let mut z = self.key.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the standard normal distribution for element `i`.
    pub fn normal(self, i: u64) -> f64 {
        let bits = self.bits(i);
        // Two numbers in (0, 1]: the first is never 0, so its logarithm is finite.
        let unit = |x: u64| ((x & 0xffff_ffff) + 1) as f64 / 4_294_967_296.0;
        let radius = libm::sqrt(-2.0 * libm::log(unit(bits >> 32)));
        radius * libm::cos(std::f64::consts::TAU * unit(bits))
    }
}

/// A tensor of normal numbers of this standard deviation.
pub fn normal(ty: &TensorType, source: Source, deviation: f64) -> Tensor {
    let n = ty.elements() as u64;
    let data = match ty.dtype {
        DType::F32 => Storage::F32((0..n).map(|i| (source.normal(i) * deviation) as f32).collect()),
        other => {
            let values: Vec<f64> = (0..n).map(|i| source.normal(i) * deviation).collect();
            Storage::from_f64s(other, &values)
        }
    };
    Tensor::new(ty.shape.iter().copied(), data)
}

/// A tensor of random bits: the key of a generator.
pub fn key(ty: &TensorType, source: Source) -> Tensor {
    let width = ty.dtype.size_bytes();
    let bytes: Vec<u8> =
        (0..ty.elements() as u64).flat_map(|i| source.bits(i).to_le_bytes()[..width].to_vec()).collect();
    Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, &bytes))
}

/// Rotary frequencies: `base^(−i/n)` for the `n` elements.
pub fn frequencies(ty: &TensorType, base: f64) -> Tensor {
    let n = ty.elements();
    let values: Vec<f64> = (0..n).map(|i| libm::pow(base, -(i as f64) / n as f64)).collect();
    Tensor::from_f64s(ty, &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_moments_of_the_distribution() {
        let ty = TensorType::new(DType::F32, [200, 500]);
        let x = normal(&ty, Source::new(3, "w"), DEVIATION).data.to_f64s();
        let n = x.len() as f64;
        let moment = |k: i32| x.iter().map(|v| (v / DEVIATION).powi(k)).sum::<f64>() / n;
        // Five standard errors of each moment: sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n).
        for (k, want, error) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0f64)] {
            assert!((moment(k) - want).abs() < 5.0 * (error / n).sqrt(), "moment {k} is {}", moment(k));
        }
        // Neighbours do not go together.
        let pairs = x.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n / DEVIATION.powi(2);
        assert!(pairs.abs() < 5.0 / n.sqrt(), "{pairs}");
    }

    #[test]
    fn values_depend_on_seed_and_name_alone() {
        let ty = TensorType::new(DType::F32, [64]);
        let of = |seed, name| normal(&ty, Source::new(seed, name), 1.0);
        assert_eq!(of(1, "a"), of(1, "a"));
        assert_ne!(of(1, "a"), of(2, "a"));
        assert_ne!(of(1, "a"), of(1, "b"));
        // The same elements whatever the size: blocks can be made alone.
        let longer = normal(&TensorType::new(DType::F32, [128]), Source::new(1, "a"), 1.0);
        assert_eq!(longer.block(&[0], &[64]), of(1, "a"));
    }

    /// The generator's published first outputs for this key, and what Box and Muller make of them.
    #[test]
    fn values_are_the_same_in_every_release() {
        let s = Source { key: 1_234_567 };
        assert_eq!(
            [0, 1, 2].map(|i| s.bits(i)),
            [6457827717110365317, 3203168211198807973, 9817491932198370423]
        );
        let normal = [0, 1, 2].map(|i| format!("{:.12}", s.normal(i)));
        assert_eq!(normal, ["1.438114275479", "-1.052103947029", "-0.713636993503"]);
    }
}
