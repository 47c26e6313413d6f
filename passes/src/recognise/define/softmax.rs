//! Softmax over the last dimension and its gradient.

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Divide, Multiply, Subtract};
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::unary::UnaryKind::Exponential;
use msc_ir::{Graph, IrError, Module, Monoid, Result, TensorType};

/// `x[…,D] → y[…,D]`: `e = exp(x − max x)`, `y = e/Σe`.
///
/// # Errors
/// If the type is no float with rows.
pub fn forward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [ty] = types else {
        return Err(IrError::ty("softmax", format!("takes 1 operand, has {}", types.len())));
    };
    if ty.rank() == 0 || !ty.dtype.is_float() || ty.elements() == 0 {
        return Err(IrError::ty("softmax", format!("{ty} has no rows of floats")));
    }
    let mut d = Definition::new(module, "softmax");
    let x = d.param(ty);
    let largest = d.op(Reduce { dims: [ty.rank() - 1].into_iter().collect(), monoid: Monoid::Max }, &[x])?;
    let largest = d.over_row(largest, ty)?;
    let below = d.op(Subtract, &[x, largest])?;
    let e = d.op(Exponential, &[below])?;
    let sum = d.row_sum(e)?;
    let sum = d.over_row(sum, ty)?;
    let y = d.op(Divide, &[e, sum])?;
    Ok(d.finish(vec![y]))
}

/// `dy[…,D], y[…,D] → dx[…,D]`: `dx = y∘(dy − Σ dy∘y)`.
///
/// # Errors
/// If the types are not those of one float with rows.
pub fn backward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [dy, y] = types else {
        return Err(IrError::ty("softmax_grad", format!("takes 2 operands, has {}", types.len())));
    };
    if y != dy || y.rank() == 0 || !y.dtype.is_float() {
        return Err(IrError::ty("softmax_grad", format!("{dy} and {y} do not fit")));
    }
    let mut d = Definition::new(module, "softmax_grad");
    let (g, p) = (d.param(dy), d.param(y));
    let both = d.op(Multiply, &[g, p])?;
    let sum = d.row_sum(both)?;
    let sum = d.over_row(sum, y)?;
    let centred = d.op(Subtract, &[g, sum])?;
    let dx = d.op(Multiply, &[p, centred])?;
    Ok(d.finish(vec![dx]))
}
