//! Layer norm and its gradient (Ba, Kiros & Hinton, "Layer Normalization").

use super::{Definition, compute_type, split_numbers};
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use msc_ir::ops::fused::Number;
use msc_ir::ops::unary::UnaryKind::{Negate, Rsqrt};
use msc_ir::{Graph, IrError, Module, Result, TensorType, ValueId};

/// The operands: rows of type `x`, `rows` of them in the type of `x`, and weights `[D]` in the type it computes in.
fn check(op: &str, x: &TensorType, weights: &[TensorType]) -> Result<()> {
    let Some(&row) = x.shape.last().filter(|&&d| d >= 2 && x.dtype.is_float()) else {
        return Err(IrError::ty(op, format!("{x} has no rows of floats")));
    };
    let want = TensorType::new(compute_type(x.dtype), [row]);
    match weights.iter().find(|w| **w != want) {
        Some(w) => Err(IrError::ty(op, format!("weight {w} where rows of {x} take {want}"))),
        None => Ok(()),
    }
}

fn count(op: &str, types: &[TensorType], want: usize) -> Result<()> {
    if types.len() == want {
        return Ok(());
    }
    Err(IrError::ty(op, format!("takes {want} operands, not {}", types.len())))
}

impl Definition<'_> {
    /// The sum of each row over its size.
    fn row_mean(&mut self, v: ValueId) -> Result<ValueId> {
        let size = *self.ty(v).shape.last().unwrap_or(&1) as f64;
        let sum = self.row_sum(v)?;
        let size = self.splat(self.ty(sum), size)?;
        self.op(Divide, &[sum, size])
    }

    /// The rows less their means.
    fn centred(&mut self, x: ValueId) -> Result<ValueId> {
        let mean = self.row_mean(x)?;
        let mean = self.over_row(mean, &self.ty(x))?;
        self.op(Subtract, &[x, mean])
    }
}

/// `x[…,D] (, γ[D]) (, β[D]) (, eps[]) → y[…,D], rstd[…]`: `μ = Σx/D`, `rstd = (Σ(x−μ)²/D + eps)^-½`,
/// `y = γ·((x−μ)·rstd) + β`. Narrow floats are widened to f32, in which γ, β and `rstd` are; y is rounded.
///
/// Where `residual`, an operand `r[…,D]` behind the weights is added to x first, in its type, and the sum `h[…,D]` is a
/// third result.
///
/// # Errors
/// If the types do not fit.
pub fn forward(
    module: &mut Module,
    types: &[TensorType],
    eps: Number,
    (scale, shift, residual): (bool, bool, bool),
) -> Result<Graph> {
    let numbers = usize::from(eps.is_operand());
    let dtype = |t: &[TensorType]| t.first().map(|t| compute_type(t.dtype));
    let Some(tensors) = split_numbers(types, numbers, dtype) else {
        return Err(IrError::ty("layer_norm", format!("eps is no scalar: {types:?}")));
    };
    let plain = 1 + usize::from(scale) + usize::from(shift);
    count("layer_norm", tensors, plain + usize::from(residual))?;
    check("layer_norm", &tensors[0], &tensors[1..plain])?;
    let wide = compute_type(types[0].dtype);
    let mut d = Definition::new(module, "layer_norm");
    let params: Vec<_> = types[..plain].iter().map(|t| d.param(t)).collect();
    let (rows, h) = d.summed(params[0], tensors.get(plain))?;
    let mut weights = params[1..].iter().copied();
    let mut operand = types[tensors.len()..].iter().map(|t| d.param(t)).collect::<Vec<_>>().into_iter();
    let x = d.convert(rows, wide)?;
    let full = d.ty(x);
    let centred = d.centred(x)?;
    let square = d.op(Multiply, &[centred, centred])?;
    let variance = d.row_mean(square)?;
    let eps = d.number(eps, d.ty(variance), &mut operand)?;
    let v = d.op(Add, &[variance, eps])?;
    let rstd = d.op(Rsqrt, &[v])?;
    let spread = d.over_row(rstd, &full)?;
    let mut y = d.op(Multiply, &[centred, spread])?;
    if scale && let Some(gamma) = weights.next() {
        let gamma = d.over_rows(gamma, &full)?;
        y = d.op(Multiply, &[gamma, y])?;
    }
    if shift && let Some(beta) = weights.next() {
        let beta = d.over_rows(beta, &full)?;
        y = d.op(Add, &[y, beta])?;
    }
    let y = d.convert(y, types[0].dtype)?;
    Ok(d.finish([y, rstd].into_iter().chain(h).collect()))
}

/// What the gradient takes and gives beside dy, x, rstd and dx.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Whether the residual gradient is an operand.
    pub residual: bool,
    /// Whether γ is an operand and dγ a result.
    pub scale: bool,
    /// Whether dβ is a result.
    pub shift: bool,
    /// Whether the two halves of dx are rounded one by one.
    pub split: bool,
}

/// `dy[…,D], x[…,D] (, γ[D]), rstd[…] (, r[…,D]) → dx[…,D] (, dγ[D]) (, dβ[D])`: with `g = γ·dy` and
/// `x̂ = (x−μ)·rstd`, `dx = (r +) rstd·g − rstd·(Σg/D + x̂·Σ(g·x̂)/D)`, `dγ = Σ dy·x̂`, `dβ = Σ dy` over rows.
///
/// Narrow dy and x are widened to f32, in which all else is computed and dγ, dβ stay; dx is rounded, its two halves
/// one by one where `split`, and `r` is added in the narrow type.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType], parts: Parts) -> Result<Graph> {
    let Parts { residual, scale, shift, split } = parts;
    count("layer_norm_grad", types, 3 + usize::from(scale) + usize::from(residual))?;
    check("layer_norm_grad", &types[1], &types[2..2 + usize::from(scale)])?;
    let narrow = types[1].dtype;
    let wide = compute_type(narrow);
    let mut d = Definition::new(module, "layer_norm_grad");
    let params: Vec<_> = types.iter().map(|t| d.param(t)).collect();
    let mut others = params[2..].iter().copied();
    let gamma = if scale { others.next() } else { None };
    let Some(rstd) = others.next() else {
        return Err(IrError::ty("layer_norm_grad", "takes rstd".to_string()));
    };
    let r = others.next();
    let dy = d.convert(params[0], wide)?;
    let x = d.convert(params[1], wide)?;
    let full = d.ty(x);
    let centred = d.centred(x)?;
    let spread = d.over_row(rstd, &full)?;
    let normal = d.op(Multiply, &[centred, spread])?;
    let g = match gamma {
        Some(gamma) => {
            let gamma = d.over_rows(gamma, &full)?;
            d.op(Multiply, &[gamma, dy])?
        }
        None => dy,
    };
    let through = d.op(Multiply, &[g, spread])?;
    let mean = d.row_mean(g)?;
    let product = d.op(Multiply, &[g, normal])?;
    let dot = d.row_mean(product)?;
    let dot = d.over_row(dot, &full)?;
    let along = d.op(Multiply, &[normal, dot])?;
    let mean = d.over_row(mean, &full)?;
    let sum = d.op(Add, &[mean, along])?;
    let back = d.op(Multiply, &[sum, spread])?;
    let mut dx = match (r, split || narrow == wide) {
        (Some(r), true) => {
            let through = d.convert(through, narrow)?;
            d.op(Add, &[r, through])?
        }
        (None, true) => d.convert(through, narrow)?,
        (_, false) => {
            let both = d.op(Subtract, &[through, back])?;
            d.convert(both, narrow)?
        }
    };
    if split && narrow != wide {
        let back = d.op(Negate, &[back])?;
        let back = d.convert(back, narrow)?;
        dx = d.op(Add, &[dx, back])?;
    } else if narrow == wide {
        dx = d.op(Subtract, &[dx, back])?;
    } else if let Some(r) = r {
        dx = d.op(Add, &[r, dx])?;
    }
    let mut results = vec![dx];
    if scale {
        let product = d.op(Multiply, &[dy, normal])?;
        results.push(d.column_sum(product)?);
    }
    if shift {
        results.push(d.column_sum(dy)?);
    }
    Ok(d.finish(results))
}
