//! What `gather` and `scatter` share: index vectors, and indices relative to a shard of a table.

use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::Start;
use crate::graph::{Graph, ValueId};
use crate::location::LocId;
use crate::module::Module;
use crate::ops::binary::BinaryKind;
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::compare::{Compare, Direction};
use crate::ops::concatenate::Concatenate;
use crate::ops::constant::splat;
use crate::ops::convert::Convert;
use crate::ops::reshape::Reshape;
use crate::ops::select::Select;
use crate::ops::slice::Slice;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType, strides};
use smallvec::SmallVec;

/// The element of `indices` for component `c` of the index vector at batch position `batch`.
pub(crate) fn index_at(indices: &Tensor, vector_dim: usize, batch: &[usize], c: usize) -> i64 {
    let st = strides(&indices.shape);
    let mut at = 0;
    let mut b = batch.iter();
    for d in 0..indices.shape.len() {
        at += st[d] * if d == vector_dim { c } else { b.next().copied().unwrap_or(0) };
    }
    indices.data.get_i64(at)
}

/// Verifies the shape of index vectors against the number of addressed dimensions.
pub(crate) fn expect_index_vectors(
    op: &str,
    indices: &TensorType,
    vector_dim: usize,
    components: usize,
) -> Result<()> {
    if !indices.dtype.is_int() || vector_dim > indices.rank() {
        return Err(IrError::ty(
            op,
            format!("indices {indices} should be integers with dimension {vector_dim}"),
        ));
    }
    let n = indices.shape.get(vector_dim).copied().unwrap_or(1);
    if n != components {
        return Err(IrError::ty(
            op,
            format!("index vectors of {indices} have {n} components for {components} dimensions"),
        ));
    }
    Ok(())
}

/// A component of the index vectors that addresses a split dimension of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitComponent {
    /// Which component.
    pub component: usize,
    /// Where the table's shard starts.
    pub start: Start,
    /// Size of the table's shard along the dimension.
    pub local: usize,
}

/// Whether an index past the table's ends is brought back to it (`gather`) or left outside (`scatter`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutOfRange {
    Clamp,
    Keep,
}

/// Indices relative to a shard, and where they are clamped the `i1` mask over the batch positions of those that
/// lie in it.
///
/// The result's indices are `i32`, or 64 bits wide as the original's: narrower types may not hold a start.
pub(crate) fn relative_indices(
    module: &mut Module,
    graph: &mut Graph,
    indices: ValueId,
    vector_dim: usize,
    split: &[SplitComponent],
    out_of_range: OutOfRange,
    loc: LocId,
) -> Result<(ValueId, Option<ValueId>)> {
    let ty = graph.ty(indices).clone();
    let vectors = vector_dim < ty.rank();
    let components = if vectors { ty.shape[vector_dim] } else { 1 };
    let wide = match ty.dtype {
        DType::I64 | DType::U64 => DType::I64,
        DType::U32 if out_of_range == OutOfRange::Keep => DType::I64,
        _ => DType::I32,
    };
    let mut mask: Option<ValueId> = None;
    let mut parts = Vec::with_capacity(components);
    for c in 0..components {
        let mut part =
            if vectors { one_component(module, graph, indices, vector_dim, c, loc)? } else { indices };
        let shape = graph.ty(part).shape.clone();
        let mine = split.iter().find(|s| s.component == c);
        if let Some(s) = mine
            && out_of_range == OutOfRange::Clamp
        {
            // Clamped before it is shifted, so that an index past the table's end is one of its last shard.
            let low = scalar(module, graph, ty.dtype, 0.0, loc)?;
            let high = scalar(module, graph, ty.dtype, s.start.global.saturating_sub(1) as f64, loc)?;
            part = graph.add1(module, Select::Clamp, &[low, part, high], loc)?;
        }
        if ty.dtype != wide {
            part = graph.add1(module, Convert::Value(wide), &[part], loc)?;
        }
        if let Some(s) = mine {
            let start = graph.add1(module, Convert::Value(wide), &[s.start.value], loc)?;
            let start = graph.add1(module, BroadcastInDim::scalar(&shape), &[start], loc)?;
            part = graph.add1(module, BinaryKind::Subtract, &[part, start], loc)?;
            if out_of_range == OutOfRange::Clamp {
                let inside = in_range(module, graph, part, s.local, loc)?;
                mask = Some(match mask {
                    Some(m) => graph.add1(module, BinaryKind::And, &[m, inside], loc)?,
                    None => inside,
                });
            }
        }
        if vectors {
            let mut one = graph.ty(part).shape.clone();
            one.insert(vector_dim, 1);
            part = graph.add1(module, Reshape { shape: one }, &[part], loc)?;
        }
        parts.push(part);
    }
    let local = match parts.as_slice() {
        [one] => *one,
        _ => graph.add1(module, Concatenate { dim: vector_dim }, &parts, loc)?,
    };
    Ok((local, mask))
}

/// A splat constant of rank 0.
pub(crate) fn scalar(
    module: &mut Module,
    graph: &mut Graph,
    dtype: DType,
    value: f64,
    loc: LocId,
) -> Result<ValueId> {
    splat(module, graph, TensorType::scalar(dtype), value, loc)
}

fn one_component(
    module: &Module,
    graph: &mut Graph,
    indices: ValueId,
    vector_dim: usize,
    c: usize,
    loc: LocId,
) -> Result<ValueId> {
    let ty = graph.ty(indices).clone();
    let mut start: Shape = SmallVec::from_elem(0, ty.rank());
    let mut limit = ty.shape.clone();
    start[vector_dim] = c;
    limit[vector_dim] = c + 1;
    let stride = SmallVec::from_elem(1, ty.rank());
    let one = graph.add1(module, Slice::Static { start, limit, stride }, &[indices], loc)?;
    let shape: Shape = (0..ty.rank()).filter(|&d| d != vector_dim).map(|d| ty.shape[d]).collect();
    graph.add1(module, Reshape { shape }, &[one], loc)
}

/// `0 ≤ x < size`, element by element.
fn in_range(module: &mut Module, graph: &mut Graph, x: ValueId, size: usize, loc: LocId) -> Result<ValueId> {
    let ty = graph.ty(x).clone();
    let mut against = |direction, bound: f64| -> Result<ValueId> {
        let b = splat(module, graph, ty.clone(), bound, loc)?;
        graph.add1(module, Compare { direction, total_order: false }, &[x, b], loc)
    };
    let ge = against(Direction::Ge, 0.0)?;
    let lt = against(Direction::Lt, size as f64)?;
    graph.add1(module, BinaryKind::And, &[ge, lt], loc)
}
