//! Definitions of named operations: for each kind the one graph of plain ops that it computes.
//!
//! Rules build a named op through here and nowhere else, so an op of one kind on operands of given types has
//! one meaning, whoever found it.

pub mod activation;
pub mod attention;
pub mod balance;
pub mod capacity;
pub mod clip;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod experts;
pub mod layer_norm;
pub mod optimizer;
pub mod permute;
pub mod ragged;
pub mod rms_norm;
pub mod rope;
pub mod route;
pub mod softmax;
pub mod squares;
pub mod z_loss;

use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Number};
use msc_ir::ops::reduce::Reduce;
use msc_ir::{DType, Graph, IrError, LocId, Module, Monoid, Op, Result, Shape, TensorType, ValueId};

/// The definition of a named op that a probe finds.
///
/// # Errors
/// If the operands' types do not fit.
pub fn build(module: &mut Module, kind: &FusedKind, types: &[TensorType]) -> Result<Graph> {
    match kind {
        FusedKind::Attention(form) => attention::forward(module, types, form),
        FusedKind::AttentionGrad { form, output } => attention::backward(module, types, form, *output),
        &FusedKind::Rope { interleaved, transposed, rotated } => {
            rope::rope(module, types, rope::Rotation { interleaved, transposed, rotated })
        }
        FusedKind::Softmax => softmax::forward(module, types),
        FusedKind::SoftmaxGrad => softmax::backward(module, types),
        FusedKind::Embedding { outside } => embedding::forward(module, types, *outside),
        FusedKind::EmbeddingGrad { rows } => embedding::backward(module, types, *rows),
        FusedKind::CrossEntropy { outside, smoothing } => {
            cross_entropy::forward(module, types, *outside, *smoothing)
        }
        FusedKind::CrossEntropyGrad { outside, weight, normalizer, smoothing } => {
            let form = cross_entropy::Form {
                outside: *outside,
                weight: *weight,
                normalizer: *normalizer,
                smoothing: *smoothing,
            };
            cross_entropy::backward(module, types, form)
        }
        &FusedKind::Dropout { scale, divides } => dropout::dropout(module, types, scale, divides),
        FusedKind::MoeRoute(op) => route::forward(module, types, op),
        FusedKind::MoeRouteGrad(op) => route::backward(module, types, op),
        FusedKind::MoeLoad(op) => balance::load(module, types, op),
        &FusedKind::MoeBalance { scale } => balance::loss(module, types, scale),
        &FusedKind::MoeBalanceGrad { scale, seeded } => balance::backward(module, types, scale, seeded),
        FusedKind::MoeDispatch(op) => capacity::dispatch(module, types, op),
        FusedKind::MoeDispatchGrad(op) => capacity::dispatch_grad(module, types, op),
        FusedKind::MoeCombine(op) => capacity::combine(module, types, op),
        FusedKind::MoeCombineGrad(op) => capacity::combine_grad(module, types, op),
        FusedKind::MoeSort { experts } => permute::sort(module, types, *experts),
        FusedKind::MoePermute => permute::forward(module, types),
        FusedKind::MoePermuteGrad { chosen } => permute::backward(module, types, *chosen),
        FusedKind::MoeUnpermute => permute::unpermute(module, types),
        FusedKind::MoeUnpermuteGrad => permute::unpermute_grad(module, types),
        FusedKind::GroupedMatmul { ragged: false } => experts::forward(module, types),
        FusedKind::GroupedMatmul { ragged: true } => ragged::forward(module, types),
        FusedKind::GroupedMatmulGrad { ragged: false } => experts::backward(module, types),
        FusedKind::GroupedMatmulGrad { ragged: true } => ragged::backward(module, types),
        &FusedKind::MoeZLoss { scale } => z_loss::loss(module, types, scale),
        &FusedKind::MoeZLossGrad { scale, seeded } => z_loss::backward(module, types, scale, seeded),
        FusedKind::SumOfSquares => squares::sum(module, types),
        FusedKind::Sgd(op) => optimizer::sgd(module, types, op),
        FusedKind::Lion(op) => optimizer::lion(module, types, op),
        kind => Err(IrError::unsupported(kind.name(), "no probe defines it")),
    }
}

/// A graph under construction, without source locations.
pub(crate) struct Definition<'m> {
    /// The module that holds constants.
    module: &'m mut Module,
    graph: Graph,
}

impl<'m> Definition<'m> {
    /// An empty definition.
    pub(crate) fn new(module: &'m mut Module, name: &str) -> Definition<'m> {
        Definition { module, graph: Graph::new(name) }
    }

    pub(crate) fn param(&mut self, ty: &TensorType) -> ValueId {
        self.graph.add_param(ty.clone())
    }

    pub(crate) fn ty(&self, v: ValueId) -> TensorType {
        self.graph.ty(v).clone()
    }

    pub(crate) fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.graph.add1(self.module, op, operands, LocId::UNKNOWN)
    }

    /// The constant of a type with every element `value`.
    pub(crate) fn splat(&mut self, ty: TensorType, value: f64) -> Result<ValueId> {
        let id = self.module.constants.intern_splat(ty, value);
        self.op(ConstantOp { id }, &[])
    }

    /// A number as every element of a type: a constant, or the next of the `operands` spread out.
    pub(crate) fn number(
        &mut self,
        n: Number,
        ty: TensorType,
        operands: &mut impl Iterator<Item = ValueId>,
    ) -> Result<ValueId> {
        let Some(v) = n.value() else {
            let scalar = operands.next().ok_or_else(|| IrError::ty("fused", "an operand is missing"))?;
            return match ty.rank() {
                0 => Ok(scalar),
                _ => self.op(BroadcastInDim { shape: ty.shape, dims: Shape::new() }, &[scalar]),
            };
        };
        self.splat(ty, v)
    }

    /// `v` in another element type, itself if it has it.
    pub(crate) fn convert(&mut self, v: ValueId, dtype: DType) -> Result<ValueId> {
        if self.graph.ty(v).dtype == dtype { Ok(v) } else { self.op(Convert::Value(dtype), &[v]) }
    }

    /// Whether integers lie in `0..n`.
    pub(crate) fn is_inside(&mut self, v: ValueId, n: usize) -> Result<ValueId> {
        let ty = self.ty(v);
        let compare = |direction| Compare { direction, total_order: false };
        let first = self.splat(ty.clone(), 0.0)?;
        let last = self.splat(ty, n.saturating_sub(1) as f64)?;
        let above = self.op(compare(Direction::Ge), &[v, first])?;
        let below = self.op(compare(Direction::Le), &[v, last])?;
        self.op(BinaryKind::And, &[above, below])
    }

    /// A statistic per row `[…]` as `[…, D]`, of the shape of `like`.
    pub(crate) fn over_row(&mut self, v: ValueId, like: &TensorType) -> Result<ValueId> {
        let dims = (0..like.rank() - 1).collect();
        self.op(BroadcastInDim { shape: like.shape.clone(), dims }, &[v])
    }

    /// The rows that a norm takes: x, or its sum with a residual, a further parameter; and the sum, if it is one.
    pub(crate) fn summed(
        &mut self,
        x: ValueId,
        residual: Option<&TensorType>,
    ) -> Result<(ValueId, Option<ValueId>)> {
        let Some(ty) = residual else { return Ok((x, None)) };
        let r = self.param(ty);
        let h = self.op(BinaryKind::Add, &[x, r])?;
        Ok((h, Some(h)))
    }

    /// One row `[D]` as `[…, D]`, of the shape of `like`.
    pub(crate) fn over_rows(&mut self, v: ValueId, like: &TensorType) -> Result<ValueId> {
        let dims = [like.rank() - 1].into_iter().collect();
        self.op(BroadcastInDim { shape: like.shape.clone(), dims }, &[v])
    }

    /// `[…, D] → […]`: the sum of each row.
    pub(crate) fn row_sum(&mut self, v: ValueId) -> Result<ValueId> {
        let rank = self.graph.ty(v).rank();
        self.op(Reduce { dims: [rank - 1].into_iter().collect(), monoid: Monoid::Sum }, &[v])
    }

    /// `[…, D] → [D]`: the sum over rows.
    pub(crate) fn column_sum(&mut self, v: ValueId) -> Result<ValueId> {
        let rank = self.graph.ty(v).rank();
        self.op(Reduce { dims: (0..rank - 1).collect(), monoid: Monoid::Sum }, &[v])
    }

    pub(crate) fn finish(mut self, results: Vec<ValueId>) -> Graph {
        self.graph.set_results(results);
        self.graph
    }
}

/// The operands of an op that are none of its numbers, and whether the rest are `numbers` scalars of a type.
pub(crate) fn split_numbers(
    types: &[TensorType],
    numbers: usize,
    dtype: impl Fn(&[TensorType]) -> Option<DType>,
) -> Option<&[TensorType]> {
    let (rest, scalars) = types.split_at_checked(types.len().checked_sub(numbers)?)?;
    let dtype = dtype(rest)?;
    scalars.iter().all(|t| t.rank() == 0 && t.dtype == dtype).then_some(rest)
}

/// The type in which a row operation on elements of `dtype` computes: f32 for the narrow floats.
pub fn compute_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}
