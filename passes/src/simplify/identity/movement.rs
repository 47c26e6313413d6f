//! Identities and compositions of ops that only move elements.

use super::{Rewrite, View};
use msc_ir::constant::ConstData;
use msc_ir::op::Op;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::pad::Pad;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::types::Shape;
use msc_ir::{TensorType, ValueId};

/// To the same shape; of a broadcast.
pub(super) fn broadcast(view: &View<'_>, op: &BroadcastInDim, operands: &[ValueId]) -> Option<Rewrite> {
    let x = operands[0];
    if view.ty(x).shape == op.shape && op.dims.iter().copied().eq(0..op.dims.len()) {
        return Some(Rewrite::Value(x));
    }
    let inner = view.def(x)?;
    let Op::Broadcast(b) = &inner.op else { return None };
    // A dimension that the inner broadcast grew is either kept by the outer one or was 1 and is grown now.
    let dims = b.dims.iter().map(|&d| op.dims[d]).collect();
    Rewrite::op(BroadcastInDim { shape: op.shape.clone(), dims }, &inner.operands)
}

/// To the same shape; of a reshape.
pub(super) fn reshape(view: &View<'_>, op: &Reshape, operands: &[ValueId]) -> Option<Rewrite> {
    let x = operands[0];
    if view.ty(x).shape == op.shape {
        return Some(Rewrite::Value(x));
    }
    let inner = view.def(x)?;
    matches!(inner.op, Op::Reshape(_)).then(|| Rewrite::Op(op.clone().into(), inner.operands.clone()))
}

/// A permutation that keeps the order; of a permutation. A reversal of nothing.
pub(super) fn permute(view: &View<'_>, op: &Permute, operands: &[ValueId]) -> Option<Rewrite> {
    let x = operands[0];
    match op {
        Permute::Reverse(dims) => dims.iter().all(|&d| view.ty(x).shape[d] <= 1).then_some(Rewrite::Value(x)),
        Permute::Transpose(p) => {
            if p.iter().copied().eq(0..p.len()) {
                return Some(Rewrite::Value(x));
            }
            let inner = view.def(x)?;
            let Op::Permute(Permute::Transpose(q)) = &inner.op else { return None };
            let both: Shape = p.iter().map(|&d| q[d]).collect();
            Rewrite::op(Permute::Transpose(both), &inner.operands)
        }
    }
}

/// A selection by a constant between what was padded and the padding: the gradient of a slice, as it is written where
/// views are taken apart.
pub(super) fn select(view: &View<'_>, op: Select, operands: &[ValueId]) -> Option<Rewrite> {
    if op != Select::Select {
        return None;
    }
    let ConstData::Dense(mask) = &view.table(operands[0])?.data else { return None };
    [(operands[1], operands[2], 1), (operands[2], operands[1], 0)].into_iter().find_map(
        |(padded, fill, side)| {
            let inner = view.def(padded)?;
            let Op::Pad(p) = &inner.op else { return None };
            let (ConstData::Splat(x), ConstData::Splat(y)) =
                (&view.constant(inner.operands[1])?.data, &view.constant(fill)?.data)
            else {
                return None;
            };
            if x != y || p.interior.iter().any(|&n| n > 0) {
                return None;
            }
            let shape = &view.ty(padded).shape;
            let inside: Vec<std::ops::Range<i64>> =
                shape.iter().zip(p.low.iter().zip(&p.high)).map(|(&n, (&l, &h))| l..n as i64 - h).collect();
            let mut at = Shape::from_elem(0, shape.len());
            for &m in mask.iter() {
                if m != side && at.iter().zip(&inside).all(|(&i, r)| r.contains(&(i as i64))) {
                    return None;
                }
                for d in (0..at.len()).rev() {
                    at[d] += 1;
                    if at[d] < shape[d] {
                        break;
                    }
                    at[d] = 0;
                }
            }
            Some(Rewrite::Value(padded))
        },
    )
}

/// A slice of everything; a dynamic slice at constant indices; an update of everything.
pub(super) fn slice(view: &View<'_>, op: &Slice, operands: &[ValueId], ty: &TensorType) -> Option<Rewrite> {
    let x = operands[0];
    let whole = view.ty(x).shape.clone();
    match op {
        // With a stride above 1 the size can only stay where it is 1 or 0, and then the stride takes no step.
        Slice::Static { .. } => (ty.shape == whole).then_some(Rewrite::Value(x)),
        Slice::Dynamic { sizes } => {
            if *sizes == whole {
                return Some(Rewrite::Value(x));
            }
            let start: Shape = operands[1..]
                .iter()
                .zip(whole.iter().zip(sizes))
                .map(|(&v, (&n, &k))| {
                    let t = view.constant(v)?.tensor();
                    Some(t.data.get_i64(0).clamp(0, (n - k) as i64) as usize)
                })
                .collect::<Option<_>>()?;
            let limit = start.iter().zip(sizes).map(|(a, b)| a + b).collect();
            let stride = Shape::from_elem(1, start.len());
            Rewrite::op(Slice::Static { start, limit, stride }, &[x])
        }
        Slice::Update => (view.ty(operands[1]).shape == whole).then_some(Rewrite::Value(operands[1])),
    }
}

pub(super) fn pad(op: &Pad, operands: &[ValueId]) -> Option<Rewrite> {
    let nothing = op.low.iter().chain(&op.high).all(|&n| n == 0) && op.interior.iter().all(|&n| n == 0);
    nothing.then_some(Rewrite::Value(operands[0]))
}

pub(super) fn concatenate(operands: &[ValueId]) -> Option<Rewrite> {
    (operands.len() == 1).then_some(Rewrite::Value(operands[0]))
}

/// Over dimensions of one element only: nothing is combined.
pub(super) fn reduce(view: &View<'_>, op: &Reduce, operands: &[ValueId], ty: &TensorType) -> Option<Rewrite> {
    let x = operands[0];
    let t = view.ty(x);
    if op.dims.iter().any(|&d| t.shape[d] != 1) {
        return None;
    }
    if op.dims.is_empty() {
        return Some(Rewrite::Value(x));
    }
    Rewrite::op(Reshape { shape: ty.shape.clone() }, &[x])
}
