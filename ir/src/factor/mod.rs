//! Factor rules: an op's dimensions named as an einsum does.
//!
//! A rule lists the op's *factors* and says of every operand and result dimension which factors it is made of
//! (outermost first; an empty list is a dimension of size 1 or one that no other tensor shares and no one may
//! split). `dot_general` of `[b,m,k]` and `[b,k,n]` has the factors b, m, n (pass) and k (reduce sum).
//! Partitioning, microbatching, tiling, fusion and resizing read this one table; nobody keeps another.
//!
//! What holds: the product of the sizes of a dimension's factors is the dimension's size; splitting a factor of
//! kind [`FactorKind::Pass`] in every tensor that has it and running the op's
//! [local form](crate::Operation::build_shard) on each shard gives the shards of the results; the other kinds
//! say what else is needed. Every rule is tested by doing exactly that (see `ir/tests/splitting.rs`).

pub mod graph;
pub(crate) mod region;
pub mod resize;
pub mod solve;

use crate::graph::ValueId;
use crate::monoid::Monoid;
use crate::types::TensorType;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Index of a factor in its rule.
pub type FactorId = usize;

/// What splitting a factor means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactorKind {
    /// Shards are independent.
    Pass,
    /// The factor is in operands only; the shards' results are partial and combine by the monoid.
    Reduce(Monoid),
    /// Shards are independent, but the local op needs to know where its shard starts (`iota`).
    Offset,
    /// The factor is the indexed dimension of a table: the local op masks indices outside its shard, and where
    /// the table is read the shards' results are partial sums.
    Range,
    /// A shard needs `lo` elements before and `hi` elements after its own.
    Halo {
        /// Elements needed before the shard.
        lo: usize,
        /// Elements needed after the shard.
        hi: usize,
    },
    /// The op needs the whole dimension: splitting it means gathering first.
    Whole,
}

/// One factor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Factor {
    /// Size.
    pub size: usize,
    /// Kind.
    pub kind: FactorKind,
}

/// The factors of one dimension, outermost first.
pub type DimFactors = SmallVec<[FactorId; 2]>;

/// An op's factors, and what each dimension of each operand and result is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FactorRule {
    /// The factors.
    pub factors: Vec<Factor>,
    /// `operands[o][d]`: factors of dimension `d` of operand `o`.
    pub operands: Vec<Vec<DimFactors>>,
    /// `results[r][d]`: factors of dimension `d` of result `r`.
    pub results: Vec<Vec<DimFactors>>,
}

/// Where a shard of one split factor starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The shard's first index, an `i32[]` value of the graph.
    pub value: ValueId,
    /// The factor's size before splitting.
    pub global: usize,
    /// Whether the factor is reduced by the op.
    pub reduced: bool,
}

/// The greatest number that divides all of some numbers; 0 if all are 0.
pub fn common_divisor(numbers: impl IntoIterator<Item = usize>) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    numbers.into_iter().fold(0, gcd)
}

/// The start of each split factor.
pub type Starts = BTreeMap<FactorId, Start>;

impl FactorRule {
    /// A rule without factors over tensors of the given types: every dimension's list is empty.
    pub fn empty(operands: &[&TensorType], results: &[TensorType]) -> FactorRule {
        FactorRule {
            factors: Vec::new(),
            operands: operands.iter().map(|t| vec![DimFactors::new(); t.rank()]).collect(),
            results: results.iter().map(|t| vec![DimFactors::new(); t.rank()]).collect(),
        }
    }

    /// Adds a factor and returns its id.
    pub fn factor(&mut self, size: usize, kind: FactorKind) -> FactorId {
        self.factors.push(Factor { size, kind });
        self.factors.len() - 1
    }

    /// Appends a factor to an operand's dimension.
    pub fn on_operand(&mut self, operand: usize, dim: usize, f: FactorId) {
        self.operands[operand][dim].push(f);
    }

    /// Appends a factor to a result's dimension.
    pub fn on_result(&mut self, result: usize, dim: usize, f: FactorId) {
        self.results[result][dim].push(f);
    }

    /// A rule in which every dimension of every tensor must be whole.
    pub fn whole(operands: &[&TensorType], results: &[TensorType]) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (o, t) in operands.iter().enumerate() {
            for (d, &n) in t.shape.iter().enumerate() {
                let f = r.factor(n, FactorKind::Whole);
                r.on_operand(o, d, f);
            }
        }
        for (i, t) in results.iter().enumerate() {
            for (d, &n) in t.shape.iter().enumerate() {
                let f = r.factor(n, FactorKind::Whole);
                r.on_result(i, d, f);
            }
        }
        r
    }

    /// The rule of an elementwise op: all operands and results share one shape, except scalars (rank 0).
    pub fn elementwise(operands: &[&TensorType], results: &[TensorType]) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for d in 0..results[0].rank() {
            let f = r.factor(results[0].shape[d], FactorKind::Pass);
            for (o, t) in operands.iter().enumerate() {
                if t.rank() == results[0].rank() {
                    r.on_operand(o, d, f);
                }
            }
            for i in 0..results.len() {
                r.on_result(i, d, f);
            }
        }
        r
    }

    /// Factors of a dimension of `n` elements that an op treats in pieces whose borders are multiples of `piece`: which
    /// piece, and the place in it. Pieces cannot be split over ranks, but each of them can.
    pub fn pieces(&mut self, n: usize, piece: FactorId) -> DimFactors {
        let size = self.factors[piece].size;
        if n == size {
            return DimFactors::from_slice(&[piece]);
        }
        let which = self.factor(n / size, FactorKind::Whole);
        DimFactors::from_slice(&[which, piece])
    }

    /// Whether a factor occurs in an operand.
    pub fn in_operand(&self, operand: usize, f: FactorId) -> bool {
        self.operands[operand].iter().any(|d| d.contains(&f))
    }

    /// Whether a factor occurs in a result.
    pub fn in_result(&self, result: usize, f: FactorId) -> bool {
        self.results[result].iter().any(|d| d.contains(&f))
    }
}
