//! Clipping by the global norm (Pascanu et al., "On the difficulty of training recurrent neural networks").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Minimum};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::{Clip, ClipForm};
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::Sqrt;
use msc_ir::{Graph, IrError, Module, Result, TensorType};

/// `s[] → n[], t[]`; see [`Clip`].
///
/// # Errors
/// If the operand is no scalar of floats.
pub fn clip(module: &mut Module, types: &[TensorType], op: &Clip) -> Result<Graph> {
    let [ty] = types else {
        return Err(IrError::ty("clip", format!("takes 1 operand, has {}", types.len())));
    };
    if ty.rank() != 0 || !ty.dtype.is_float() {
        return Err(IrError::ty("clip", format!("{ty} is no scalar of floats")));
    }
    let mut d = Definition::new(module, "clip");
    let sum = d.param(ty);
    let norm = d.op(Sqrt, &[sum])?;
    let max = d.splat(ty.clone(), op.max.get())?;
    let below = Compare { direction: Direction::Lt, total_order: false };
    if op.form == ClipForm::Within {
        let within = d.op(below, &[norm, max])?;
        return Ok(d.finish(vec![norm, within]));
    }
    let divisor = if op.eps.get() == 0.0 {
        norm
    } else {
        let eps = d.splat(ty.clone(), op.eps.get())?;
        d.op(Add, &[norm, eps])?
    };
    let ratio = d.op(Divide, &[max, divisor])?;
    let one = d.splat(ty.clone(), 1.0)?;
    let factor = match op.form {
        ClipForm::Below => {
            let shrinks = d.op(below, &[ratio, one])?;
            d.op(Select::Select, &[shrinks, ratio, one])?
        }
        _ => d.op(Minimum, &[ratio, one])?,
    };
    Ok(d.finish(vec![norm, factor]))
}
