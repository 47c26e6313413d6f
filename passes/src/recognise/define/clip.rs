//! Clipping by the global norm (Pascanu et al., "On the difficulty of training recurrent neural networks").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Minimum};
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::fused::{Clip, ClipForm};
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::Sqrt;
use msc_ir::{Graph, IrError, Module, Result, TensorType, ValueId};

/// `s[] (, max[]) (, eps[]) → n[], t[]`; see [`Clip`].
///
/// # Errors
/// If the operands are no scalars of floats.
pub fn clip(module: &mut Module, types: &[TensorType], op: &Clip) -> Result<Graph> {
    let numbers = [op.max, op.eps].into_iter().filter(|n| n.is_operand()).count();
    let (ty, rest) = match types {
        [ty, rest @ ..] if rest.len() == numbers => (ty, rest),
        _ => {
            let want = 1 + numbers;
            return Err(IrError::ty("clip", format!("takes {want} operands, has {}", types.len())));
        }
    };
    if ty.rank() != 0 || !ty.dtype.is_float() || rest.iter().any(|t| t != ty) {
        return Err(IrError::ty("clip", format!("{types:?} are no scalars of one float type")));
    }
    let mut d = Definition::new(module, "clip");
    let sum = d.param(ty);
    let params: Vec<ValueId> = rest.iter().map(|t| d.param(t)).collect();
    let mut operands = params.into_iter();
    let norm = d.op(Sqrt, &[sum])?;
    let max = d.number(op.max, ty.clone(), &mut operands)?;
    let below = Compare { direction: Direction::Lt, total_order: false };
    if op.form == ClipForm::Within {
        let within = d.op(below, &[norm, max])?;
        return Ok(d.finish(vec![norm, within]));
    }
    let divisor = if op.eps.value() == Some(0.0) {
        norm
    } else {
        let eps = d.number(op.eps, ty.clone(), &mut operands)?;
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
