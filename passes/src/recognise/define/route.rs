//! The choice of experts and its gradient (Shazeer et al., "Outrageously Large Neural Networks").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::Route;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::sort::Sort;
use msc_ir::{DType, Graph, GraphId, IrError, LocId, Module, Monoid, Result, TensorType, ValueId};

/// The comparator of a descending sort of `dtype` that carries `i32` along; NaN is above every number.
pub(super) fn descending(module: &mut Module, dtype: DType) -> Result<GraphId> {
    let mut g = Graph::new("descending");
    let pair = [dtype, dtype, DType::I32, DType::I32].map(|d| g.add_param(TensorType::scalar(d)));
    let greater = Compare { direction: Direction::Gt, total_order: true };
    let r = g.add1(module, greater, &pair[..2], LocId::UNKNOWN)?;
    g.set_results(vec![r]);
    Ok(module.add_graph(g))
}

fn scores(name: &str, ty: &TensorType, op: &Route) -> Result<TensorType> {
    let experts = ty.shape.last().copied().unwrap_or(0);
    if !ty.dtype.is_float() || op.chosen == 0 || op.chosen > experts {
        return Err(IrError::ty(name, format!("{ty} are no scores of {} of the experts", op.chosen)));
    }
    let mut chosen = ty.clone();
    if let Some(last) = chosen.shape.last_mut() {
        *last = op.chosen;
    }
    Ok(chosen)
}

/// The largest scores of each row in descending order, of type `chosen`, and their places.
pub(super) fn largest(
    d: &mut Definition<'_>,
    x: ValueId,
    comparator: GraphId,
    chosen: &TensorType,
) -> Result<[ValueId; 2]> {
    let ty = d.ty(x);
    let dim = ty.rank() - 1;
    let places = d.op(Iota { ty: ty.with_dtype(DType::I32), dim }, &[])?;
    let sorted =
        d.graph.add(d.module, Sort { dim, stable: true, comparator }, &[x, places], LocId::UNKNOWN)?;
    let first = Slice::Static {
        start: chosen.shape.iter().map(|_| 0).collect(),
        limit: chosen.shape.clone(),
        stride: chosen.shape.iter().map(|_| 1).collect(),
    };
    Ok([d.op(first.clone(), &[sorted[0]])?, d.op(first, &[sorted[1]])?])
}

/// `x[…,E] (, s[…,E]) → w[…,k], i[…,k]`.
///
/// # Errors
/// If the types are none of scores.
pub fn forward(module: &mut Module, types: &[TensorType], op: &Route) -> Result<Graph> {
    let (ty, apart) = match (types, op.apart) {
        ([x], false) => (x, None),
        ([x, s], true) if s == x => (x, Some(s)),
        _ => return Err(IrError::ty("moe_route", format!("{types:?} are no scores of experts"))),
    };
    let chosen = scores("moe_route", ty, op)?;
    let comparator = descending(module, ty.dtype)?;
    let mut d = Definition::new(module, "moe_route");
    let x = d.param(ty);
    let apart = apart.map(|s| d.param(s));
    let [mut weights, places] = largest(&mut d, x, comparator, &chosen)?;
    if let Some(s) = apart {
        weights = picked(&mut d, s, places)?;
    }
    if op.shares {
        let sum = d.row_sum(weights)?;
        let sum = d.over_row(sum, &chosen)?;
        weights = d.op(Divide, &[weights, sum])?;
    }
    Ok(d.finish(vec![weights, places]))
}

/// What `s[…,E]` is at `places[…,k]`.
fn picked(d: &mut Definition<'_>, s: ValueId, places: ValueId) -> Result<ValueId> {
    let (mut wide, rank) = (d.ty(s), d.ty(s).rank());
    wide.shape.insert(rank - 1, d.ty(places).shape[rank - 1]);
    let spread =
        |d: &mut Definition<'_>, v, dims| d.op(BroadcastInDim { shape: wide.shape.clone(), dims }, &[v]);
    let here = spread(d, places, (0..rank).collect())?;
    let there = d.op(Iota { ty: wide.with_dtype(DType::I32), dim: rank }, &[])?;
    let is = d.op(Compare { direction: Direction::Eq, total_order: false }, &[here, there])?;
    let s = spread(d, s, (0..rank - 1).chain([rank]).collect())?;
    let zero = d.splat(wide.clone(), 0.0)?;
    let one = d.op(Select::Select, &[is, s, zero])?;
    d.op(Reduce { dims: [rank].into_iter().collect(), monoid: Monoid::Sum }, &[one])
}

/// `dw[…,k], x[…,E], w[…,k], i[…,k] → dx[…,E]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], op: &Route) -> Result<Graph> {
    let [dw, x, w, i] = types else {
        return Err(IrError::ty("moe_route_grad", format!("takes 4 operands, has {}", types.len())));
    };
    let chosen = scores("moe_route_grad", x, op)?;
    if *dw != chosen || *w != chosen || *i != chosen.with_dtype(DType::I32) {
        return Err(IrError::ty("moe_route_grad", format!("{dw}, {x}, {w} and {i} do not fit")));
    }
    let mut d = Definition::new(module, "moe_route_grad");
    let params: Vec<ValueId> = types.iter().map(|t| d.param(t)).collect();
    let (mut grad, x, w, i) = (params[0], params[1], params[2], params[3]);
    // One row of experts for each choice.
    let rank = chosen.rank();
    let mut wide = chosen.clone();
    wide.shape.push(types[1].shape[rank - 1]);
    let spread =
        |d: &mut Definition<'_>, v, dims| d.op(BroadcastInDim { shape: wide.shape.clone(), dims }, &[v]);
    let here = spread(&mut d, i, (0..rank).collect())?;
    let there = d.op(Iota { ty: wide.with_dtype(DType::I32), dim: rank }, &[])?;
    let is = d.op(Compare { direction: Direction::Eq, total_order: false }, &[here, there])?;
    let zero = d.splat(wide.clone(), 0.0)?;
    if op.shares {
        let scores = spread(&mut d, x, (0..rank - 1).chain([rank]).collect())?;
        let scores = d.op(Select::Select, &[is, scores, zero])?;
        let both = [rank - 1, rank].into_iter().collect();
        let sum = d.op(Reduce { dims: both, monoid: Monoid::Sum }, &[scores])?;
        let sum = d.over_row(sum, &chosen)?;
        let part = d.op(Multiply, &[grad, w])?;
        let part = d.row_sum(part)?;
        let part = d.over_row(part, &chosen)?;
        let centred = d.op(Subtract, &[grad, part])?;
        grad = d.op(Divide, &[centred, sum])?;
    }
    let grad = spread(&mut d, grad, (0..rank).collect())?;
    let grad = d.op(Select::Select, &[is, grad, zero])?;
    let choices = [rank - 1].into_iter().collect();
    let dx = d.op(Reduce { dims: choices, monoid: Monoid::Sum }, &[grad])?;
    Ok(d.finish(vec![dx]))
}
