//! `rng_bit_generator`.

use super::expect_operands;
use super::indexing::scalar;
use super::slice::Slice;
use crate::attr::{AttrMap, AttrReader, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::EvalCx;
use crate::location::LocId;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Storage, Tensor};
use crate::types::TensorType;
use smallvec::SmallVec;

/// The bit generator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    /// Philox, as on XLA's CPU back end.
    Default,
    /// Threefry2x32 with 20 rounds; the state is a key and a counter, `u64[2]`.
    ThreeFry,
    /// Philox4x32 with 10 rounds; the state is a key and a counter of 64 or 128 bits, `u64[2]` or `u64[3]`.
    Philox,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Default, Algorithm::ThreeFry, Algorithm::Philox];

    fn name(self) -> &'static str {
        match self {
            Algorithm::Default => "DEFAULT",
            Algorithm::ThreeFry => "THREE_FRY",
            Algorithm::Philox => "PHILOX",
        }
    }
}

/// `rng_bit_generator`: `u64[k] → u64[k], i[…]`: the next state and uniform random bits (StableHLO specification,
/// "rng_bit_generator"). Which bit lands where is XLA's choice, kept here so that results agree with it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RngBitGenerator {
    /// The generator.
    pub algorithm: Algorithm,
    /// Type of the bits.
    pub ty: TensorType,
}

impl RngBitGenerator {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<RngBitGenerator>> {
        if name != "rng_bit_generator" {
            return Ok(None);
        }
        let find = |w: &str| Algorithm::ALL.into_iter().find(|x| x.name() == w);
        let dtype = a.word_as("dtype", DType::from_name)?;
        Ok(Some(RngBitGenerator {
            algorithm: a.word_as("algorithm", find)?,
            ty: TensorType { dtype, shape: a.indices("shape")? },
        }))
    }

    /// `n` words of 32 bits in row-major order, and by how much the counter moves.
    fn words(&self, state: &[u64], words: usize) -> (Vec<u32>, u64) {
        match self.algorithm {
            Algorithm::ThreeFry if self.ty.dtype.size_bytes() == 8 => {
                let n = words / 2;
                let out = (0..n as u64).flat_map(|i| threefry(state[0], state[1].wrapping_add(i)));
                (out.collect(), n as u64)
            }
            Algorithm::ThreeFry => threefry_halves(state, &self.ty.shape),
            Algorithm::Default | Algorithm::Philox => {
                let n = words.div_ceil(4);
                let counter = counter(state);
                let mut out: Vec<u32> =
                    (0..n as u128).flat_map(|i| philox(counter.wrapping_add(i), state[0])).collect();
                out.truncate(words);
                (out, n as u64)
            }
        }
    }
}

/// Philox's counter: the state's second and third word; in place of a missing third stands the key, as
/// in XLA.
fn counter(state: &[u64]) -> u128 {
    let high = state.get(2).copied().unwrap_or(state[0]);
    u128::from(high) << 64 | u128::from(state[1])
}

/// Threefry2x32 with 20 rounds of a 64-bit counter (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
fn threefry(key: u64, counter: u64) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let k = [key as u32, (key >> 32) as u32];
    let k = [k[0], k[1], k[0] ^ k[1] ^ 0x1bd1_1bda];
    let mut x = [(counter as u32).wrapping_add(k[0]), ((counter >> 32) as u32).wrapping_add(k[1])];
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(r) ^ x[0];
        }
        x[0] = x[0].wrapping_add(k[(round + 1) % 3]);
        x[1] = x[1].wrapping_add(k[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    x
}

/// Words of 32 bits from the generator's pairs: the first even dimension (or the largest, rounded up) holds the two
/// words of a pair side by side; counters run over the halved shape.
fn threefry_halves(state: &[u64], shape: &[usize]) -> (Vec<u32>, u64) {
    let Some(d) = shape.iter().position(|n| n % 2 == 0).or_else(|| {
        let largest = shape.iter().max()?;
        shape.iter().position(|n| n == largest)
    }) else {
        return (vec![threefry(state[0], state[1])[0]], 1);
    };
    let mut half: Vec<usize> = shape.to_vec();
    half[d] = half[d].div_ceil(2);
    let st = crate::types::strides(&half);
    let word = |ix: SmallVec<[usize; 6]>| {
        let at: usize =
            ix.iter().zip(&st).enumerate().map(|(k, (i, s))| s * if k == d { i / 2 } else { *i }).sum();
        threefry(state[0], state[1].wrapping_add(at as u64))[ix[d] % 2]
    };
    (IndexSpace::new(shape).map(word).collect(), half.iter().product::<usize>() as u64)
}

/// Philox4x32 with 10 rounds (Salmon et al.).
fn philox(counter: u128, key: u64) -> [u32; 4] {
    let mut x = [0u32; 4];
    for (i, w) in x.iter_mut().enumerate() {
        *w = (counter >> (32 * i)) as u32;
    }
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(x[0]) * 0xd251_1f53;
        let b = u64::from(x[2]) * 0xcd9e_8d57;
        x = [(b >> 32) as u32 ^ x[1] ^ k[0], b as u32, (a >> 32) as u32 ^ x[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

impl Operation for RngBitGenerator {
    fn name(&self) -> &'static str {
        "rng_bit_generator"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("algorithm", word(self.algorithm.name())),
            ("dtype", word(self.ty.dtype.name())),
            ("shape", ints(&self.ty.shape)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let state = operands[0];
        let sizes = if self.algorithm == Algorithm::ThreeFry { 2..=2 } else { 2..=3 };
        if state.dtype != DType::U64 || state.rank() != 1 || !sizes.contains(&state.shape[0]) {
            return Err(IrError::ty(
                self.name(),
                format!("state {state} should be u64 of {sizes:?} elements for {}", self.algorithm.name()),
            ));
        }
        if !self.ty.dtype.is_int() {
            return Err(IrError::ty(self.name(), format!("bits of type {} are not integers", self.ty)));
        }
        Ok(vec![state.clone(), self.ty.clone()])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let Storage::U64(state) = &inputs[0].data else {
            return Err(IrError::ty(self.name(), "the state is not u64"));
        };
        let n = self.ty.elements();
        let wide = self.ty.dtype.size_bytes() == 8;
        let (words, moved) = self.words(state, if wide { 2 * n } else { n });
        let bits: Vec<u64> = match wide {
            true => words.chunks_exact(2).map(|w| u64::from(w[1]) << 32 | u64::from(w[0])).collect(),
            false => words.iter().map(|&w| u64::from(w)).collect(),
        };
        // Narrower integers take the low bits.
        let bits = Tensor::new(self.ty.shape.iter().copied(), Storage::U64(bits)).converted(self.ty.dtype);
        let mut next = state.clone();
        match next.len() {
            2 => next[1] = next[1].wrapping_add(moved),
            _ => {
                let c = counter(state).wrapping_add(u128::from(moved));
                (next[1], next[2]) = (c as u64, (c >> 64) as u64);
            }
        }
        Ok(vec![Tensor::new([next.len()], Storage::U64(next)), bits])
    }

    /// A shard of the bits is the part of all bits where it starts; the state is whole.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in self.ty.shape.iter().enumerate() {
            let f = r.factor(n, FactorKind::Offset);
            r.on_result(1, d, f);
        }
        let f = r.factor(operands[0].shape[0], FactorKind::Whole);
        r.on_operand(0, 0, f);
        r.on_result(0, 0, f);
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let mut whole = graph.add(module, self.clone(), operands, loc)?;
        if results[1] == self.ty {
            return Ok(whole);
        }
        let mut args = vec![whole[1]];
        for d in 0..self.ty.rank() {
            // Factor `d` is dimension `d`.
            args.push(match starts.get(&d) {
                Some(s) => s.value,
                None if self.ty.shape[d] == results[1].shape[d] => {
                    scalar(module, graph, Slice::START, 0.0, loc)?
                }
                None => {
                    let message = format!("bits of type {} at {} without a start", self.ty, results[1]);
                    return Err(IrError::unsupported(self.name(), message));
                }
            });
        }
        whole[1] = graph.add1(module, Slice::Dynamic { sizes: results[1].shape.clone() }, &args, loc)?;
        Ok(whole)
    }
}
