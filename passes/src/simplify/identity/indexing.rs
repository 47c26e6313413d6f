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
use smallvec::SmallVec;

/// Ops between an index and what it is counted by; exporters have up to six.
const MAX_STEPS: usize = 12;

/// Index vectors all of whose components but one are their own places along dimensions of the indices.
struct Paired {
    /// The component that is left.
    rest: ValueId,
    /// The operand's dimensions of the others, in order, each with the dimension of the indices.
    pairs: SmallVec<[(usize, usize); 2]>,
}

impl Paired {
    fn of_operand(&self) -> Shape {
        self.pairs.iter().map(|p| p.0).collect()
    }

    fn of_indices(&self) -> Shape {
        self.pairs.iter().map(|p| p.1).collect()
    }
}

/// The components that count along a dimension as long as the operand's is, if they are all but one.
fn paired(view: &View<'_>, shape: &Shape, indices: ValueId, vector: usize, map: &Shape) -> Option<Paired> {
    let all = view.def(indices)?;
    let Op::Concatenate(c) = &all.op else { return None };
    let single = |v: &ValueId| view.ty(*v).shape.get(vector) == Some(&1);
    if c.dim != vector || all.operands.len() != map.len() || !all.operands.iter().all(single) {
        return None;
    }
    let mut pairs: SmallVec<[(usize, usize); 2]> = SmallVec::new();
    let mut rest = None;
    for (&v, &dim) in all.operands.iter().zip(map) {
        let fits = |d: &usize| *d != vector && view.ty(indices).shape[*d] == shape[dim];
        match counted(view, v, MAX_STEPS).filter(fits).filter(|d| pairs.iter().all(|p| p.1 != *d)) {
            Some(along) => pairs.push((dim, along)),
            None if rest.replace(v).is_some() => return None,
            None => {}
        }
    }
    pairs.sort_unstable();
    let rest = rest.filter(|_| !pairs.is_empty())?;
    Some(Paired { rest, pairs })
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

/// A list without some of its elements.
fn without(list: &Shape, some: &Shape) -> Shape {
    list.iter().copied().filter(|d| !some.contains(d)).collect()
}

/// By a row and a place in it, where rows are counted.
pub(super) fn gather(view: &View<'_>, op: &Gather, operands: &[ValueId]) -> Option<Rewrite> {
    if !op.operand_batching_dims.is_empty() {
        return None;
    }
    let shape = &view.ty(operands[0]).shape;
    let p = paired(view, shape, operands[1], op.index_vector_dim, &op.start_index_map)?;
    let dims = p.of_operand();
    if !dims.iter().all(|d| op.collapsed_slice_dims.contains(d)) {
        return None;
    }
    let new = Gather {
        collapsed_slice_dims: without(&op.collapsed_slice_dims, &dims),
        start_index_map: without(&op.start_index_map, &dims),
        operand_batching_dims: dims,
        start_indices_batching_dims: p.of_indices(),
        ..op.clone()
    };
    Rewrite::op(new, &[operands[0], p.rest])
}

/// The same of what is added or written there.
pub(super) fn scatter(view: &View<'_>, op: &Scatter, operands: &[ValueId]) -> Option<Rewrite> {
    if !op.input_batching_dims.is_empty() {
        return None;
    }
    let shape = &view.ty(operands[0]).shape;
    let p = paired(view, shape, operands[1], op.index_vector_dim, &op.scatter_dims_to_operand_dims)?;
    let dims = p.of_operand();
    if !dims.iter().all(|d| op.inserted_window_dims.contains(d)) {
        return None;
    }
    let new = Scatter {
        inserted_window_dims: without(&op.inserted_window_dims, &dims),
        scatter_dims_to_operand_dims: without(&op.scatter_dims_to_operand_dims, &dims),
        input_batching_dims: dims,
        scatter_indices_batching_dims: p.of_indices(),
        ..op.clone()
    };
    Rewrite::op(new, &[operands[0], p.rest, operands[2]])
}
