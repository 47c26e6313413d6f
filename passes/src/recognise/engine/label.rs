//! Labels of dimensions: what a dimension of a class means in the frame of a root.
//!
//! A class is looked at together with one label per dimension. Layout ops (broadcasts, transposes, reshapes that
//! insert or drop dimensions of size 1) only move labels about; that is how a view sees through them.

use egg::Id;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::permute::Permute;
use msc_ir::{Op, TensorType};
use smallvec::SmallVec;

/// What a dimension means. Row dimensions count from 0.
pub type Label = u8;

/// A dimension of size 1: it means nothing.
pub const UNIT: Label = 255;
/// The last dimension of a row.
pub const COL: Label = 100;
/// First label of dimensions that a sum binds; each nesting level has [`BOUND_STEP`] of them, counted from the
/// inside.
pub const BOUND: Label = 128;
/// First label of dimensions of sums whose body is still being read, counted from the outside.
pub const PENDING: Label = BOUND + MAX_DEPTH * BOUND_STEP;
/// Labels a nesting level has: no op reduces more dimensions than this in practice; one that does is opaque.
pub const BOUND_STEP: Label = 8;
/// Nesting of sums that labels can tell apart.
pub const MAX_DEPTH: u8 = 6;

/// One label per dimension; empty for a scalar, and for every class in a frame without labels.
pub type Labels = SmallVec<[Label; 4]>;

/// A class with the meaning of its dimensions.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Indexed {
    /// The class.
    pub class: Id,
    /// A label per dimension.
    pub labels: Labels,
}

impl Indexed {
    /// A class whose dimensions mean nothing.
    pub fn unlabelled(class: Id) -> Indexed {
        Indexed { class, labels: Labels::new() }
    }

    /// The labels that mean something, in order.
    pub fn proper(&self) -> Labels {
        self.labels.iter().copied().filter(|&l| l != UNIT).collect()
    }
}

/// Labels 0, 1, … for the dimensions of a type that are not of size 1; the last one is [`COL`] where `cols`.
pub fn positional(ty: &TensorType, cols: bool) -> Labels {
    let last = ty.shape.iter().rposition(|&n| n != 1);
    let mut next = 0;
    ty.shape
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            if n == 1 {
                UNIT
            } else if cols && Some(i) == last {
                COL
            } else {
                next += 1;
                next - 1
            }
        })
        .collect()
}

/// Labels of the operand of a layout op, given those of its result; `None` if the op is not one.
pub fn through_layout(
    op: &Op,
    operand: &TensorType,
    result: &TensorType,
    labels: &[Label],
) -> Option<Labels> {
    let unit = |n: usize, l: Label| if n == 1 { UNIT } else { l };
    match op {
        Op::Broadcast(b) => {
            Some(operand.shape.iter().zip(&b.dims).map(|(&n, &d)| unit(n, labels[d])).collect())
        }
        Op::Permute(Permute::Transpose(p)) => {
            let mut out: Labels = SmallVec::from_elem(UNIT, p.len());
            for (i, &from) in p.iter().enumerate() {
                out[from] = labels[i];
            }
            Some(out)
        }
        Op::Reshape(_) => {
            let proper = |t: &TensorType| t.shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
            if proper(operand) != proper(result) {
                return None;
            }
            let mut kept = result.shape.iter().zip(labels).filter(|&(&n, _)| n != 1).map(|(_, &l)| l);
            Some(
                operand
                    .shape
                    .iter()
                    .map(|&n| if n == 1 { UNIT } else { kept.next().unwrap_or(UNIT) })
                    .collect(),
            )
        }
        Op::Reduce(r) if r.dims.iter().all(|&d| operand.shape[d] == 1) => {
            let mut kept = labels.iter().copied();
            Some(
                (0..operand.rank())
                    .map(|d| if r.dims.contains(&d) { UNIT } else { kept.next().unwrap_or(UNIT) })
                    .collect(),
            )
        }
        _ => None,
    }
}

/// The layout ops, first to last, that bring a value of type `from` with labels `labels` to type `to` with
/// labels `want`; `None` where labels are missing or repeated. Every proper label of `labels` must be in `want`.
pub fn relayout(from: &TensorType, labels: &[Label], to: &TensorType, want: &[Label]) -> Option<Vec<Op>> {
    if from == to && labels == want {
        return Some(Vec::new());
    }
    // One broadcast does everything but permuting: drop the unit dimensions first.
    let proper: Labels = labels.iter().copied().filter(|&l| l != UNIT).collect();
    let mut dims: SmallVec<[usize; 4]> = SmallVec::new();
    for l in &proper {
        dims.push(want.iter().position(|w| w == l)?);
    }
    let mut ops = Vec::new();
    let shape: SmallVec<[usize; 4]> =
        from.shape.iter().zip(labels).filter(|&(_, &l)| l != UNIT).map(|(&n, _)| n).collect();
    if shape.iter().zip(&dims).any(|(&n, &d)| to.shape[d] != n) {
        return None;
    }
    if dims.is_sorted() && dims.len() == from.rank() {
        ops.push(BroadcastInDim { shape: to.shape.clone(), dims }.into());
        return Some(ops);
    }
    if shape.len() != from.rank() {
        ops.push(Op::Reshape(msc_ir::ops::reshape::Reshape { shape: shape.clone() }));
    }
    if to.shape == shape && dims.is_sorted() {
        return Some(ops);
    }
    // `broadcast_in_dim` may list dimensions in any order.
    ops.push(BroadcastInDim { shape: to.shape.clone(), dims }.into());
    Some(ops)
}
