//! The auxiliary loss that keeps a router's logits small, and its gradient (Zoph et al., "ST-MoE").

use super::{Definition, compute_type};
use msc_ir::ops::binary::BinaryKind::{Add, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::fused::Scalar;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Graph, IrError, Module, Monoid, Result, Shape, TensorType};

/// `x[…,E] → loss[], lse[…]`.
///
/// # Errors
/// If the type does not fit.
pub fn loss(module: &mut Module, types: &[TensorType], scale: Scalar) -> Result<Graph> {
    let [ty] = types else {
        return Err(IrError::ty("moe_z_loss", format!("takes 1 operand, has {}", types.len())));
    };
    if !ty.dtype.is_float() || ty.rank() < 2 {
        return Err(IrError::ty("moe_z_loss", format!("{ty} are no logits of tokens")));
    }
    let mut d = Definition::new(module, "moe_z_loss");
    let x = d.param(ty);
    let x = d.convert(x, compute_type(ty.dtype))?;
    let ty = d.ty(x);
    let last = Reduce { dims: Shape::from_slice(&[ty.rank() - 1]), monoid: Monoid::Max };
    let most = d.op(last, &[x])?;
    let wide = d.over_row(most, &ty)?;
    let e = d.op(Subtract, &[x, wide])?;
    let e = d.op(UnaryKind::Exponential, &[e])?;
    let sum = d.row_sum(e)?;
    let log = d.op(UnaryKind::Log, &[sum])?;
    let lse = d.op(Add, &[log, most])?;
    let square = d.op(Multiply, &[lse, lse])?;
    let rows = d.ty(lse);
    let factor = d.splat(rows.clone(), scale.get())?;
    let square = d.op(Multiply, &[square, factor])?;
    let loss = d.op(Reduce { dims: (0..rows.rank()).collect(), monoid: Monoid::Sum }, &[square])?;
    Ok(d.finish(vec![loss, lse]))
}

/// `(d[],) x[…,E], lse[…] → dx[…,E]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], scale: Scalar, seeded: bool) -> Result<Graph> {
    let lacks =
        || IrError::ty("moe_z_loss_grad", format!("{types:?} are no logits of tokens with a gradient"));
    let (seed, x_ty, lse_ty) = match (types, seeded) {
        ([x, lse], false) => (None, x, lse),
        ([d, x, lse], true) => (Some(d), x, lse),
        _ => return Err(lacks()),
    };
    let wide = x_ty.with_dtype(compute_type(x_ty.dtype));
    let rows = x_ty.rank().checked_sub(1).ok_or_else(lacks)?;
    let fits = x_ty.dtype.is_float()
        && lse_ty.dtype == wide.dtype
        && lse_ty.shape.as_slice() == &x_ty.shape[..rows]
        && seed.is_none_or(|d| d.rank() == 0 && d.dtype == wide.dtype);
    if !fits {
        return Err(lacks());
    }
    let mut d = Definition::new(module, "moe_z_loss_grad");
    let seed = seed.map(|ty| d.param(ty));
    let (x, lse) = (d.param(x_ty), d.param(lse_ty));
    let x = d.convert(x, wide.dtype)?;
    let mut factor = d.splat(lse_ty.clone(), scale.get())?;
    if let Some(seed) = seed {
        let all = d.op(BroadcastInDim { shape: lse_ty.shape.clone(), dims: Shape::new() }, &[seed])?;
        factor = d.op(Multiply, &[all, factor])?;
    }
    let factor = d.op(Multiply, &[lse, factor])?;
    let (factor, each) = (d.over_row(factor, &wide)?, d.over_row(lse, &wide)?);
    let p = d.op(Subtract, &[x, each])?;
    let p = d.op(UnaryKind::Exponential, &[p])?;
    let dx = d.op(Multiply, &[p, factor])?;
    let dx = d.convert(dx, x_ty.dtype)?;
    Ok(d.finish(vec![dx]))
}
