//! Root-mean-square norm and its gradient (Zhang & Sennrich, "Root Mean Square Layer Normalization").

use super::{Definition, compute_type};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply};
use msc_ir::ops::unary::UnaryKind::Rsqrt;
use msc_ir::{Graph, IrError, Module, Result, TensorType};

fn check(op: &str, types: &[TensorType], operands: usize) -> Result<()> {
    if types.len() != operands || types.iter().any(|t| !t.dtype.is_float()) {
        return Err(IrError::ty(op, format!("takes {operands} float operands, not {types:?}")));
    }
    let x = &types[if operands == 2 { 0 } else { 1 }];
    let gamma = &types[if operands == 2 { 1 } else { 2 }];
    let row = x.shape.last().copied();
    if row.is_none_or(|d| d < 2) || gamma.shape.as_slice() != [row.unwrap_or(0)] {
        return Err(IrError::ty(op, format!("scale {gamma} does not fit rows of {x}")));
    }
    // With a narrow x the scale multiplies after the rounding of x̂, in the narrow type.
    if gamma.dtype != x.dtype {
        return Err(IrError::ty(op, format!("scale {gamma} and operand {x} have different element types")));
    }
    Ok(())
}

/// `x[…,D], γ[D] → y[…,D], rstd[…]`: `rstd = (Σx²/D + eps)^-½`, `y = γ·(x·rstd)`. Narrow floats are squared and
/// summed in f32, x̂ is rounded to the narrow type and then scaled; `rstd` is f32.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType], eps: f64) -> Result<Graph> {
    check("rms_norm", types, 2)?;
    let wide = compute_type(types[0].dtype);
    let mut d = Definition::new(module, "rms_norm");
    let (x, gamma) = (d.param(&types[0]), d.param(&types[1]));
    let xw = d.convert(x, wide)?;
    let full = d.ty(xw);
    let square = d.op(Multiply, &[xw, xw])?;
    let sum = d.row_sum(square)?;
    let rows = d.ty(sum);
    let size = d.splat(rows.clone(), full.shape[full.rank() - 1] as f64)?;
    let mean = d.op(Divide, &[sum, size])?;
    let eps = d.splat(rows, eps)?;
    let v = d.op(Add, &[mean, eps])?;
    let rstd = d.op(Rsqrt, &[v])?;
    let spread = d.over_row(rstd, &full)?;
    let normal = d.op(Multiply, &[xw, spread])?;
    let normal = d.convert(normal, types[0].dtype)?;
    let scale = d.over_rows(gamma, &types[0])?;
    let y = d.op(Multiply, &[scale, normal])?;
    Ok(d.finish(vec![y, rstd]))
}

/// `dy[…,D], x[…,D], γ[D], rstd[…] (, r[…,D]) → dx[…,D], dγ[D]`: with `g = γ·dy`,
/// `dx = (r + rstd·g) − x·rstd³·Σ(g·x)/D`, `dγ = Σ dy·(x·rstd)` over rows.
///
/// With narrow floats: `g` is rounded to the narrow type, the rest of dx computes in f32, is rounded, and `r`
/// is added in the narrow type; dγ multiplies and sums in the narrow type with x̂ rounded.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], residual: bool) -> Result<Graph> {
    check("rms_norm_grad", types, if residual { 5 } else { 4 })?;
    let narrow = types[1].dtype;
    let wide = compute_type(narrow);
    let mut d = Definition::new(module, "rms_norm_grad");
    let params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    let (dy, x, gamma, rstd) = (params[0], params[1], params[2], params[3]);
    let scale = d.over_rows(gamma, &types[1])?;
    let g = d.op(Multiply, &[scale, dy])?;
    let gw = d.convert(g, wide)?;
    let xw = d.convert(x, wide)?;
    let full = d.ty(xw);
    let spread = d.over_row(rstd, &full)?;
    let through = d.op(Multiply, &[gw, spread])?;
    let gx = d.op(Multiply, &[gw, xw])?;
    let dot = d.row_sum(gx)?;
    let rows = d.ty(dot);
    let square = d.op(Multiply, &[rstd, rstd])?;
    let cube = d.op(Multiply, &[square, rstd])?;
    let coefficient = d.op(Multiply, &[dot, cube])?;
    let size = d.splat(rows, -(full.shape[full.rank() - 1] as f64))?;
    let coefficient = d.op(Divide, &[coefficient, size])?;
    let coefficient = d.over_row(coefficient, &full)?;
    let back = d.op(Multiply, &[coefficient, xw])?;
    let dx = match params.get(4) {
        Some(&r) if narrow == wide => {
            let sum = d.op(Add, &[r, through])?;
            d.op(Add, &[sum, back])?
        }
        Some(&r) => {
            let sum = d.op(Add, &[through, back])?;
            let sum = d.convert(sum, narrow)?;
            d.op(Add, &[r, sum])?
        }
        None => {
            let sum = d.op(Add, &[through, back])?;
            d.convert(sum, narrow)?
        }
    };
    let normal = d.op(Multiply, &[xw, spread])?;
    let normal = d.convert(normal, narrow)?;
    let product = d.op(Multiply, &[dy, normal])?;
    let dgamma = d.column_sum(product)?;
    Ok(d.finish(vec![dx, dgamma]))
}
