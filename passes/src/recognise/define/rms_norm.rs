//! Root-mean-square norm and its gradient (Zhang & Sennrich, "Root Mean Square Layer Normalization").

use super::{Definition, compute_type, split_numbers};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply};
use msc_ir::ops::fused::Number;
use msc_ir::ops::unary::UnaryKind::Rsqrt;
use msc_ir::{DType, Graph, IrError, Module, Result, TensorType, ValueId};

/// The types of a norm's or gradient's tensors: of the rows `x`, of γ where there is one, and of all of them. There are
/// `operands`, with `numbers` scalars of the type that rows compute in behind them.
fn check(
    op: &str,
    types: &[TensorType],
    (operands, numbers): (usize, usize),
    (x, scale): (usize, bool),
    late: bool,
) -> Result<()> {
    let dtype = |t: &[TensorType]| t.get(x).map(|t| compute_type(t.dtype));
    let Some(types) = split_numbers(types, numbers, dtype) else {
        let what = format!("takes {operands} operands and {numbers} scalars, not {types:?}");
        return Err(IrError::ty(op, what));
    };
    if types.len() != operands || types.iter().any(|t| !t.dtype.is_float()) {
        return Err(IrError::ty(op, format!("takes {operands} float operands, not {types:?}")));
    }
    let gamma = types.get(x + 1).filter(|_| scale);
    let x = &types[x];
    let Some(&row) = x.shape.last().filter(|&&d| d >= 2) else {
        return Err(IrError::ty(op, format!("{x} has no rows")));
    };
    let Some(gamma) = gamma else { return Ok(()) };
    if gamma.shape.as_slice() != [row] {
        return Err(IrError::ty(op, format!("scale {gamma} does not fit rows of {x}")));
    }
    // A scale is as narrow as x, or has the type that narrow rows compute in.
    let wide = compute_type(x.dtype);
    if gamma.dtype != wide && (late || gamma.dtype != x.dtype) {
        return Err(IrError::ty(op, format!("scale {gamma} does not scale {x}")));
    }
    Ok(())
}

/// `x[…,D] (, γ[D]) (, eps[]) → y[…,D], rstd[…]`: `rstd = (Σx²/D + eps)^-½`, `y = γ·(x·rstd)`.
///
/// Narrow floats are squared and summed in f32; `rstd` is f32. Where `late`, γ is f32 and y is rounded; otherwise x̂
/// is rounded to the narrow type and then scaled in the type of γ, which y has.
///
/// Where `residual`, a third operand `r[…,D]` is added to x first, in its type, and the sum `h[…,D]` is a third result.
///
/// # Errors
/// If the types do not fit.
pub fn forward(
    module: &mut Module,
    types: &[TensorType],
    eps: Number,
    scale: bool,
    (late, residual): (bool, bool),
) -> Result<Graph> {
    let operands = 1 + usize::from(scale) + usize::from(residual);
    check("rms_norm", types, (operands, usize::from(eps.is_operand())), (0, scale), late)?;
    let wide = compute_type(types[0].dtype);
    let mut d = Definition::new(module, "rms_norm");
    let x = d.param(&types[0]);
    let gamma = scale.then(|| d.param(&types[1]));
    let (x, h) = d.summed(x, residual.then(|| &types[operands - 1]))?;
    let mut operand = types[operands..].iter().map(|t| d.param(t)).collect::<Vec<_>>().into_iter();
    let xw = d.convert(x, wide)?;
    let full = d.ty(xw);
    let square = d.op(Multiply, &[xw, xw])?;
    let sum = d.row_sum(square)?;
    let rows = d.ty(sum);
    let size = d.splat(rows.clone(), full.shape[full.rank() - 1] as f64)?;
    let mean = d.op(Divide, &[sum, size])?;
    let eps = d.number(eps, rows, &mut operand)?;
    let v = d.op(Add, &[mean, eps])?;
    let rstd = d.op(Rsqrt, &[v])?;
    let spread = d.over_row(rstd, &full)?;
    let normal = d.op(Multiply, &[xw, spread])?;
    let mut y = d.rounded(normal, types[0].dtype, late)?;
    if let Some(gamma) = gamma {
        let normal = d.convert(y, types[1].dtype)?;
        let scale = d.over_rows(gamma, &types[0])?;
        y = d.op(Multiply, &[scale, normal])?;
    }
    let y = if late { d.convert(y, types[0].dtype)? } else { y };
    Ok(d.finish([y, rstd].into_iter().chain(h).collect()))
}

/// What the gradient takes beside dy, x, γ and rstd, and where it rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Whether the residual gradient is an operand.
    pub residual: bool,
    /// Whether γ is an operand and dγ a result.
    pub scale: bool,
    /// Whether the scaled result is rounded, rather than `x·rstd` before it is scaled.
    pub late: bool,
    /// Whether the two halves of dx are rounded one by one.
    pub split: bool,
    /// Whether `k` is an operand.
    pub factor: bool,
}

/// `dy[…,D], x[…,D] (, γ[D]), rstd[…] (, r[…,D]) (, k[]) → dx[…,D] (, dγ[D])`: with `g = γ·dy`,
/// `dx = (r + rstd·g) + k·x·rstd³·Σ(g·x)`, `k = −1/D` unless it is an operand, `dγ = Σ dy·(x·rstd)` over rows.
///
/// With narrow floats `g` is rounded to the type of x unless `late`, the rest of dx computes in f32 and is rounded,
/// its two halves one by one where `split`, and `r` is added in the narrow type. dγ multiplies and sums in the type
/// of γ, with x̂ rounded unless `late`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], parts: Parts) -> Result<Graph> {
    let Parts { residual, scale, late, split, factor } = parts;
    let operands = 3 + usize::from(scale) + usize::from(residual);
    check("rms_norm_grad", types, (operands, usize::from(factor)), (1, scale), late)?;
    let narrow = types[1].dtype;
    let scaled = if scale { types[2].dtype } else { narrow };
    let wide = compute_type(narrow);
    let mut d = Definition::new(module, "rms_norm_grad");
    let mut params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    let factor = if factor { params.pop() } else { None };
    let x = params[1];
    let gamma = if scale { Some(params.remove(2)) } else { None };
    let rstd = params[2];
    let residual = params.get(3);
    let dy = d.convert(params[0], scaled)?;
    let g = match gamma {
        Some(gamma) => {
            let scale = d.over_rows(gamma, &types[1])?;
            let g = d.op(Multiply, &[scale, dy])?;
            d.rounded(g, narrow, late)?
        }
        None => dy,
    };
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
    let coefficient = match factor {
        Some(_) => {
            let k = d.number(Number::Operand, rows, &mut factor.into_iter())?;
            d.op(Multiply, &[coefficient, k])?
        }
        None => {
            let size = d.splat(rows, -(full.shape[full.rank() - 1] as f64))?;
            d.op(Divide, &[coefficient, size])?
        }
    };
    let coefficient = d.over_row(coefficient, &full)?;
    let back = d.op(Multiply, &[coefficient, xw])?;
    let dx = if split || narrow == wide {
        let through = d.convert(through, narrow)?;
        let back = d.convert(back, narrow)?;
        let first = match residual {
            Some(&r) => d.op(Add, &[r, through])?,
            None => through,
        };
        d.op(Add, &[first, back])?
    } else {
        let sum = d.op(Add, &[through, back])?;
        let sum = d.convert(sum, narrow)?;
        match residual {
            Some(&r) => d.op(Add, &[r, sum])?,
            None => sum,
        }
    };
    if !scale {
        return Ok(d.finish(vec![dx]));
    }
    let normal = d.op(Multiply, &[xw, spread])?;
    let normal = d.rounded(normal, narrow, late)?;
    let normal = d.convert(normal, scaled)?;
    let product = d.op(Multiply, &[dy, normal])?;
    let dgamma = d.column_sum(product)?;
    Ok(d.finish(vec![dx, dgamma]))
}

impl Definition<'_> {
    /// `v` rounded to a narrow type, unless that happens later.
    fn rounded(&mut self, v: ValueId, dtype: DType, late: bool) -> Result<ValueId> {
        if late { Ok(v) } else { self.convert(v, dtype) }
    }
}
