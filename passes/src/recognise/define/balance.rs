//! What tokens load experts with, and the auxiliary loss that balances it (Fedus et al., "Switch Transformers").

use super::Definition;
use super::route::{descending, largest};
use msc_ir::ops::binary::BinaryKind::Multiply;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::{Load, Scalar};
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::{DType, Graph, IrError, Module, Monoid, Result, Shape, TensorType, ValueId};

/// Whether sums of ones are exact in a type, as far as there are tokens.
fn counts(ty: &TensorType) -> bool {
    matches!(ty.dtype, DType::F32 | DType::F64)
}

/// `p[G…,…,E] (, i[G…,…,k]) → f[G…,E], q[G…,E]`.
///
/// # Errors
/// If the types do not fit.
pub fn load(module: &mut Module, types: &[TensorType], op: &Load) -> Result<Graph> {
    let operands = 1 + usize::from(op.chosen.is_none());
    let [p_ty, rest @ ..] = types else {
        return Err(IrError::ty("moe_load", "takes probabilities, has none".to_string()));
    };
    let experts = p_ty.shape.last().copied().unwrap_or(0);
    let fits = types.len() == operands
        && counts(p_ty)
        && op.groups + 1 < p_ty.rank()
        && op.chosen.is_none_or(|k| k > 0 && k <= experts)
        && rest.iter().all(|i| {
            let rows = p_ty.rank() - 1;
            i.dtype.is_int() && i.rank() == p_ty.rank() && i.shape[..rows] == p_ty.shape[..rows]
        });
    if !fits {
        return Err(IrError::ty("moe_load", format!("{types:?} are no {op:?} of experts")));
    }
    let comparator = match op.chosen {
        Some(_) => Some(descending(module, p_ty.dtype)?),
        None => None,
    };
    let mut d = Definition::new(module, "moe_load");
    let params: Vec<ValueId> = types.iter().map(|t| d.param(t)).collect();
    let i = match (comparator, op.chosen) {
        (Some(comparator), Some(k)) => {
            let mut chosen = p_ty.clone();
            if let Some(last) = chosen.shape.last_mut() {
                *last = k;
            }
            largest(&mut d, params[0], comparator, &chosen)?[1]
        }
        _ => params[1],
    };
    let i_ty = d.ty(i);
    let mut wide = i_ty.clone();
    wide.shape.push(experts);
    let dims: Shape = (0..i_ty.rank()).collect();
    let here = d.op(BroadcastInDim { shape: wide.shape.clone(), dims }, &[i])?;
    let there = d.op(Iota { ty: wide.clone(), dim: i_ty.rank() }, &[])?;
    let is = d.op(Compare { direction: Direction::Eq, total_order: false }, &[here, there])?;
    let is = d.convert(is, p_ty.dtype)?;
    let sum = |dims: std::ops::Range<usize>| Reduce { dims: dims.collect(), monoid: Monoid::Sum };
    let rows = p_ty.rank() - 1;
    let counts = d.op(sum(rows..rows + 1), &[is])?;
    // Every row that is counted is one that is summed: their dimensions are the same, whoever splits them.
    let all = d.splat(p_ty.with_dtype(DType::I1), 1.0)?;
    let counts = d.op(Select::Select, &[all, counts, params[0]])?;
    let f = d.op(sum(op.groups..rows), &[counts])?;
    let q = d.op(sum(op.groups..rows), &[params[0]])?;
    Ok(d.finish(vec![f, q]))
}

/// `f[…,E], q[…,E] → loss[]`.
///
/// # Errors
/// If the types do not fit.
pub fn loss(module: &mut Module, types: &[TensorType], scale: Scalar) -> Result<Graph> {
    let [f_ty, q_ty] = types else {
        return Err(IrError::ty("moe_balance", format!("takes 2 operands, has {}", types.len())));
    };
    if f_ty != q_ty || !counts(f_ty) {
        return Err(IrError::ty("moe_balance", format!("{f_ty} and {q_ty} do not fit")));
    }
    let mut d = Definition::new(module, "moe_balance");
    let (f, q) = (d.param(f_ty), d.param(q_ty));
    let both = d.op(Multiply, &[f, q])?;
    let scale = d.splat(f_ty.clone(), scale.get())?;
    let both = d.op(Multiply, &[both, scale])?;
    let loss = d.op(Reduce { dims: (0..f_ty.rank()).collect(), monoid: Monoid::Sum }, &[both])?;
    Ok(d.finish(vec![loss]))
}

/// `(d[],) f[…,E] → dq[…,E]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], scale: Scalar, seeded: bool) -> Result<Graph> {
    let (seed, f_ty) = match (types, seeded) {
        ([f], false) => (None, f),
        ([d, f], true) if d.rank() == 0 && d.dtype == f.dtype => (Some(d), f),
        _ => {
            let message = format!("{types:?} are no counts with a gradient");
            return Err(IrError::ty("moe_balance_grad", message));
        }
    };
    if !counts(f_ty) {
        return Err(IrError::ty("moe_balance_grad", format!("{f_ty} are no counts")));
    }
    let mut d = Definition::new(module, "moe_balance_grad");
    let seed = seed.map(|ty| d.param(ty));
    let f = d.param(f_ty);
    let mut factor = d.splat(f_ty.clone(), scale.get())?;
    if let Some(seed) = seed {
        let wide = d.op(BroadcastInDim { shape: f_ty.shape.clone(), dims: Shape::new() }, &[seed])?;
        factor = d.op(Multiply, &[wide, factor])?;
    }
    let dq = d.op(Multiply, &[f, factor])?;
    Ok(d.finish(vec![dq]))
}
