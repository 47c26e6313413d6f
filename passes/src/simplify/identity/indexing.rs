//! Lookups whose index vectors count along a dimension of their own: that dimension is paired with the operand's.

use super::{Rewrite, View};
use msc_ir::ValueId;
use msc_ir::op::Op;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::select::Select;
use msc_ir::types::Shape;

/// Ops between an index and what it is counted by; exporters have up to six.
const MAX_STEPS: usize = 12;

/// A component of index vectors that is its own place along a dimension of the indices.
struct Paired {
    /// The components that are left.
    rest: ValueId,
    /// The dimension of the indices.
    along: usize,
    /// Which component it was.
    component: usize,
}

/// The one component of two that counts along a dimension as long as the operand's is.
fn paired(view: &View<'_>, shape: &Shape, indices: ValueId, vector: usize, map: &Shape) -> Option<Paired> {
    let both = view.def(indices)?;
    let (Op::Concatenate(c), &[a, b]) = (&both.op, both.operands.as_slice()) else { return None };
    let size = |v: ValueId| view.ty(v).shape.get(vector).copied();
    if c.dim != vector || size(a) != Some(1) || size(b) != Some(1) {
        return None;
    }
    [(a, b, 0), (b, a, 1)].into_iter().find_map(|(counts, rest, component)| {
        let along = counted(view, counts, MAX_STEPS).filter(|&d| d != vector)?;
        (view.ty(indices).shape[along] == shape[map[component]]).then_some(Paired { rest, along, component })
    })
}

/// The dimension along which a value is the index.
fn counted(view: &View<'_>, v: ValueId, steps: usize) -> Option<usize> {
    let data = view.def(v).filter(|_| steps > 0)?;
    let inner = || counted(view, *data.operands.first()?, steps - 1);
    match &data.op {
        Op::Iota(i) => Some(i.dim),
        Op::Convert(Convert::Value(d)) if d.is_int() && d.size_bytes() >= 4 => inner(),
        Op::Broadcast(b) => {
            let d = inner()?;
            let n = view.ty(data.operands[0]).shape[d];
            // A dimension of one element may be repeated: the index is 0 all along it.
            (view.ty(v).shape[b.dims[d]] == n).then(|| b.dims[d])
        }
        Op::Reshape(r) => {
            let d = inner()?;
            let from = &view.ty(data.operands[0]).shape;
            // Dimensions of size 1 come and go.
            let before = |shape: &Shape, d: usize| shape[..d].iter().filter(|&&n| n != 1).count();
            let proper = |shape: &Shape| shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
            let same = from[d] != 1 && proper(from) == proper(&r.shape);
            let to = (0..r.shape.len()).filter(|&e| r.shape[e] != 1);
            same.then(|| to.into_iter().nth(before(from, d))).flatten()
        }
        // What counts from the end where it is negative: an index is not.
        Op::Select(Select::Select) => {
            let negative = view.def(data.operands[0])?;
            let Op::Compare(c) = &negative.op else { return None };
            let of_it = negative.operands[0] == data.operands[2] && view.is(negative.operands[1], 0.0);
            let is = c.direction == Direction::Lt && of_it;
            is.then(|| counted(view, data.operands[2], steps - 1)).flatten()
        }
        _ => None,
    }
}

/// A list without one of its elements.
fn without(list: &Shape, value: usize) -> Shape {
    list.iter().copied().filter(|&d| d != value).collect()
}

/// By a row and a place in it, where rows are counted.
pub(super) fn gather(view: &View<'_>, op: &Gather, operands: &[ValueId]) -> Option<Rewrite> {
    if !op.operand_batching_dims.is_empty() || op.start_index_map.len() != 2 {
        return None;
    }
    let shape = &view.ty(operands[0]).shape;
    let p = paired(view, shape, operands[1], op.index_vector_dim, &op.start_index_map)?;
    let dim = op.start_index_map[p.component];
    if !op.collapsed_slice_dims.contains(&dim) {
        return None;
    }
    let new = Gather {
        collapsed_slice_dims: without(&op.collapsed_slice_dims, dim),
        operand_batching_dims: [dim].into_iter().collect(),
        start_indices_batching_dims: [p.along].into_iter().collect(),
        start_index_map: without(&op.start_index_map, dim),
        ..op.clone()
    };
    Rewrite::op(new, &[operands[0], p.rest])
}

/// The same of what is added or written there.
pub(super) fn scatter(view: &View<'_>, op: &Scatter, operands: &[ValueId]) -> Option<Rewrite> {
    if !op.input_batching_dims.is_empty() || op.scatter_dims_to_operand_dims.len() != 2 {
        return None;
    }
    let shape = &view.ty(operands[0]).shape;
    let p = paired(view, shape, operands[1], op.index_vector_dim, &op.scatter_dims_to_operand_dims)?;
    let dim = op.scatter_dims_to_operand_dims[p.component];
    if !op.inserted_window_dims.contains(&dim) {
        return None;
    }
    let new = Scatter {
        inserted_window_dims: without(&op.inserted_window_dims, dim),
        input_batching_dims: [dim].into_iter().collect(),
        scatter_indices_batching_dims: [p.along].into_iter().collect(),
        scatter_dims_to_operand_dims: without(&op.scatter_dims_to_operand_dims, dim),
        ..op.clone()
    };
    Rewrite::op(new, &[operands[0], p.rest, operands[2]])
}
