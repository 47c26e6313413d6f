//! Rows of a table by index, and the gradient of the table.

use super::Definition;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::fused::Outside;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::select::Select;
use msc_ir::{Graph, IrError, Module, Monoid, Result, Shape, TensorType};

/// `table[V,H], ids[…] → y[…,H]`, see [`FusedKind::Embedding`](msc_ir::ops::fused::FusedKind::Embedding).
///
/// # Errors
/// If the types are not those of a table of floats and of integers that can name its rows.
pub fn forward(module: &mut Module, types: &[TensorType], outside: Outside) -> Result<Graph> {
    let [table, ids] = types else {
        return Err(IrError::ty("embedding", format!("takes 2 operands, has {}", types.len())));
    };
    if table.rank() != 2 || !table.dtype.is_float() || table.elements() == 0 || !ids.dtype.is_int() {
        return Err(IrError::ty("embedding", format!("{table} is no table for {ids}")));
    }
    let rank = ids.rank();
    let rows: Shape = (0..rank).collect();
    let mut d = Definition::new(module, "embedding");
    let (t, i) = (d.param(table), d.param(ids));
    let one = |n: usize| -> Shape { [n].into_iter().collect() };
    let gather = Gather {
        offset_dims: one(rank),
        collapsed_slice_dims: one(0),
        operand_batching_dims: Shape::new(),
        start_indices_batching_dims: Shape::new(),
        start_index_map: one(0),
        index_vector_dim: rank,
        slice_sizes: [1, table.shape[1]].into_iter().collect(),
    };
    let mut y = d.op(gather, &[t, i])?;
    let fill = match outside {
        Outside::Nan => Some(f64::NAN),
        Outside::Zero | Outside::Nothing => Some(0.0),
        Outside::Nearest => None,
    };
    if let Some(fill) = fill {
        let ty = d.ty(y);
        let inside = d.is_inside(i, table.shape[0])?;
        let inside = d.op(BroadcastInDim { shape: ty.shape.clone(), dims: rows }, &[inside])?;
        let fill = d.splat(ty, fill)?;
        y = d.op(Select::Select, &[inside, y, fill])?;
    }
    Ok(d.finish(vec![y]))
}

/// `dy[…,H], ids[…] → dtable[rows,H]`, see
/// [`FusedKind::EmbeddingGrad`](msc_ir::ops::fused::FusedKind::EmbeddingGrad).
///
/// # Errors
/// If the types are not those of rows of floats and an integer for each.
pub fn backward(module: &mut Module, types: &[TensorType], rows: usize) -> Result<Graph> {
    let [dy, ids] = types else {
        return Err(IrError::ty("embedding_grad", format!("takes 2 operands, has {}", types.len())));
    };
    let rank = ids.rank();
    let fits = dy.rank() == rank + 1 && dy.shape[..rank] == ids.shape[..];
    if !fits || !dy.dtype.is_float() || !ids.dtype.is_int() || rows == 0 {
        return Err(IrError::ty("embedding_grad", format!("{dy} and {ids} do not fit {rows} rows")));
    }
    let mut d = Definition::new(module, "embedding_grad");
    let (g, i) = (d.param(dy), d.param(ids));
    let one = |n: usize| -> Shape { [n].into_iter().collect() };
    let zeros = d.splat(TensorType::new(dy.dtype, [rows, dy.shape[rank]]), 0.0)?;
    let scatter = Scatter {
        update_window_dims: one(rank),
        inserted_window_dims: one(0),
        input_batching_dims: Shape::new(),
        scatter_indices_batching_dims: Shape::new(),
        scatter_dims_to_operand_dims: one(0),
        index_vector_dim: rank,
        combine: Some(Monoid::Sum),
        unique_indices: false,
    };
    let dtable = d.op(scatter, &[zeros, i, g])?;
    Ok(d.finish(vec![dtable]))
}
