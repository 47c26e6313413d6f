//! Constant folding, through the interpreter.
//!
//! Only ops whose result every machine computes alike are folded: arithmetic that IEEE 754 rounds exactly,
//! integer arithmetic, conversion, comparison and movement. Exponentials, trigonometry and the like depend on the
//! host's mathematical library, and a plan must not.

use msc_ir::constant::{ConstData, Constant};
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::tensor::{Storage, Tensor};
use msc_ir::{ConstId, DType, Graph, Module, TensorType, ValueId};
use smallvec::SmallVec;

/// Most elements that operands and result of a folded op may have, splats aside (they cost one element whatever
/// their shape). 65,536 elements are interpreted in about a millisecond; larger tables are cheaper to compute on
/// the device than to carry in the plan.
pub const FOLD_ELEMENTS: usize = 1 << 16;

/// A result with no more elements than this may be larger than the operands it is folded from; beyond it a
/// folded broadcast would only carry the same bytes several times.
pub const FOLD_GROWTH: usize = 64;

/// The constant that `op` computes, if all operands are constants and the limits allow it.
pub(super) fn fold(
    module: &mut Module,
    graph: &Graph,
    op: &Op,
    operands: &[ValueId],
    ty: &TensorType,
) -> Option<ConstId> {
    match compute(module, graph, op, operands, ty)? {
        Folded::Splat(element) => Some(module.constants.intern_splat_bytes(ty.clone(), &element)),
        Folded::Dense(t) => Some(module.constants.intern_tensor(&t)),
    }
}

enum Folded {
    Splat(SmallVec<[u8; 8]>),
    Dense(Tensor),
}

fn compute(module: &Module, graph: &Graph, op: &Op, operands: &[ValueId], ty: &TensorType) -> Option<Folded> {
    if operands.is_empty() || !foldable(op) || ty.elements() == 0 {
        return None;
    }
    let inputs: SmallVec<[&Constant; 3]> =
        operands.iter().map(|&v| constant(module, graph, v)).collect::<Option<_>>()?;
    if let Some(element) = splat(module, op, &inputs, ty) {
        return Some(Folded::Splat(element));
    }
    let held: usize = inputs.iter().map(|c| c.ty.elements()).sum();
    let dense: usize =
        inputs.iter().filter(|c| matches!(c.data, ConstData::Dense(_))).map(|c| c.ty.elements()).sum();
    let n = ty.elements();
    if held.saturating_add(n) > FOLD_ELEMENTS || n > dense.max(FOLD_GROWTH) {
        return None;
    }
    let tensors: SmallVec<[Tensor; 3]> = inputs.iter().map(|c| c.tensor()).collect();
    let refs: SmallVec<[&Tensor; 3]> = tensors.iter().collect();
    let out = EvalCx::new(module, Mode::Spec, 0).eval(op, &refs, std::slice::from_ref(ty)).ok()?;
    out.into_iter().next().filter(|t| t.ty() == *ty).map(Folded::Dense)
}

/// The constant that defines a value.
pub(super) fn constant<'a>(module: &'a Module, graph: &Graph, v: ValueId) -> Option<&'a Constant> {
    let (def, _) = graph.def(v)?;
    match &graph.op(def).op {
        Op::Constant(c) => module.constants.try_get(c.id),
        _ => None,
    }
}

fn foldable(op: &Op) -> bool {
    match op {
        Op::Unary(u) => {
            use UnaryKind::*;
            matches!(
                u.kind,
                Abs | Ceil
                    | CountLeadingZeros
                    | Floor
                    | IsFinite
                    | Negate
                    | Not
                    | Popcnt
                    | RoundNearestAfz
                    | RoundNearestEven
                    | Sign
                    | Sqrt
            )
        }
        Op::Binary(b) => !matches!(b.kind, BinaryKind::Atan2 | BinaryKind::Power),
        Op::Compare(_)
        | Op::Select(_)
        | Op::Convert(_)
        | Op::Broadcast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concatenate(_)
        | Op::Reduce(_) => true,
        _ => false,
    }
}

/// The element of the result where every operand is a splat and the result is one too.
fn splat(module: &Module, op: &Op, inputs: &[&Constant], ty: &TensorType) -> Option<SmallVec<[u8; 8]>> {
    let elements: SmallVec<[&[u8]; 3]> = inputs
        .iter()
        .map(|c| match &c.data {
            ConstData::Splat(e) => Some(&e[..]),
            ConstData::Dense(_) => None,
        })
        .collect::<Option<_>>()?;
    match op {
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_) => {
            let scalars: SmallVec<[Tensor; 3]> =
                inputs.iter().zip(&elements).map(|(c, e)| scalar(c.ty.dtype, e)).collect();
            let refs: SmallVec<[&Tensor; 3]> = scalars.iter().collect();
            let out =
                EvalCx::new(module, Mode::Spec, 0).eval(op, &refs, &[TensorType::scalar(ty.dtype)]).ok()?;
            out.first().map(|t| t.data.bytes().into())
        }
        Op::Broadcast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Slice(Slice::Static { .. } | Slice::Dynamic { .. }) => Some(elements[0].into()),
        Op::Slice(Slice::Update) if elements[0] == elements[1] => Some(elements[0].into()),
        Op::Pad(_) | Op::Concatenate(_) if elements.iter().all(|e| *e == elements[0]) => {
            Some(elements[0].into())
        }
        _ => None,
    }
}

fn scalar(dtype: DType, element: &[u8]) -> Tensor {
    Tensor::new([], Storage::from_bytes(dtype, element))
}
