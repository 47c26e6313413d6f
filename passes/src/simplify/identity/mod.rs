//! Ops that are identities bit for bit, and chains of data movement that one op can say.
//!
//! Every rule holds for all inputs, infinities, NaN and both zeros included (only the payload of a NaN may
//! differ); the tests run each on such values. What is not here on purpose: `x + 0.0` (turns −0 into +0),
//! `x · 0`, and everything that moves a rounding.

mod elementwise;
mod indexing;
mod movement;

use super::fold::constant;
use msc_ir::constant::{ConstData, Constant};
use msc_ir::op::Op;
use msc_ir::tensor::Storage;
use msc_ir::{ConstId, Graph, Module, OpData, TensorType, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What an op is replaced by. Short-lived, so the size of its larger variant does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Rewrite {
    /// An existing value.
    Value(ValueId),
    /// A simpler op of the same result type.
    Op(Op, SmallVec<[ValueId; 3]>),
}

impl Rewrite {
    fn op(op: impl Into<Op>, operands: &[ValueId]) -> Option<Rewrite> {
        Some(Rewrite::Op(op.into(), operands.into()))
    }
}

/// The graph under construction, as rules see it.
pub(super) struct View<'a> {
    /// For constants.
    pub module: &'a Module,
    /// Holds everything defined so far.
    pub graph: &'a Graph,
    /// Constants that became expressions, by what stands for them.
    pub tables: &'a FxHashMap<ValueId, ConstId>,
}

impl<'a> View<'a> {
    /// The op that defines a value.
    fn def(&self, v: ValueId) -> Option<&'a OpData> {
        self.graph.def(v).map(|(op, _)| self.graph.op(op))
    }

    fn ty(&self, v: ValueId) -> &'a TensorType {
        self.graph.ty(v)
    }

    fn constant(&self, v: ValueId) -> Option<&'a Constant> {
        constant(self.module, self.graph, v)
    }

    /// The constant that a value is or stands for.
    fn table(&self, v: ValueId) -> Option<&'a Constant> {
        self.constant(v).or_else(|| self.tables.get(&v).map(|&id| self.module.constants.get(id)))
    }

    /// Whether a value is the constant whose every element has the bits of `x` in the value's type.
    fn is(&self, v: ValueId, x: f64) -> bool {
        match self.constant(v) {
            Some(Constant { ty, data: ConstData::Splat(e) }) => {
                Storage::from_f64s(ty.dtype, &[x]).bytes() == &e[..]
            }
            _ => false,
        }
    }

    /// Whether a value is the integer or boolean constant with all bits set.
    fn is_ones(&self, v: ValueId) -> bool {
        match self.constant(v) {
            Some(Constant { ty, data: ConstData::Splat(e) }) if ty.dtype.is_int() => {
                e.iter().all(|&b| b == 0xff)
            }
            Some(Constant { ty, data: ConstData::Splat(e) }) if !ty.dtype.is_float() => e[0] != 0,
            _ => false,
        }
    }
}

/// The simpler form of a one-result op of result type `ty`, if a rule knows one.
pub(super) fn identity(view: &View<'_>, op: &Op, operands: &[ValueId], ty: &TensorType) -> Option<Rewrite> {
    match op {
        Op::Unary(u) => elementwise::unary(view, u.kind, operands),
        Op::Binary(b) => elementwise::binary(view, b.kind, operands),
        Op::Select(s) => {
            elementwise::select(view, *s, operands).or_else(|| movement::select(view, *s, operands))
        }
        Op::Convert(c) => elementwise::convert(view, *c, operands),
        Op::Compare(c) => elementwise::compare(view, *c, operands),
        Op::Broadcast(b) => movement::broadcast(view, b, operands),
        Op::Reshape(r) => movement::reshape(view, r, operands),
        Op::Permute(p) => movement::permute(view, p, operands),
        Op::Slice(s) => movement::slice(view, s, operands, ty),
        Op::Pad(p) => movement::pad(p, operands),
        Op::Gather(g) => indexing::gather(view, g, operands),
        Op::Scatter(s) => indexing::scatter(view, s, operands),
        Op::Concatenate(_) => movement::concatenate(operands),
        Op::Reduce(r) => movement::reduce(view, r, operands, ty),
        _ => None,
    }
}
