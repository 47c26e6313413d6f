//! The sum of a tensor's squares: its part of a global norm.

use super::Definition;
use msc_ir::ops::binary::BinaryKind::Multiply;
use msc_ir::ops::reduce::Reduce;
use msc_ir::{Graph, IrError, Module, Monoid, Result, TensorType};

/// `x[…] → s[]`: `s = Σ x²`.
///
/// # Errors
/// If the type is no float with dimensions.
pub fn sum(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [ty] = types else {
        return Err(IrError::ty("sum_of_squares", format!("takes 1 operand, has {}", types.len())));
    };
    if ty.rank() == 0 || !ty.dtype.is_float() {
        return Err(IrError::ty("sum_of_squares", format!("{ty} is no tensor of floats")));
    }
    let mut d = Definition::new(module, "sum_of_squares");
    let x = d.param(ty);
    let squares = d.op(Multiply, &[x, x])?;
    let s = d.op(Reduce { dims: (0..ty.rank()).collect(), monoid: Monoid::Sum }, &[squares])?;
    Ok(d.finish(vec![s]))
}
