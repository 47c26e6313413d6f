//! Multiples by a number: of a negative, of a square. The number comes first, so that an update is found
//! whichever of its factors its author wrote it at.

use super::{refuse, root_is};
use crate::recognise::engine::{Applied, Builder, Match, Rule, Tag, WhyNot};
use egg::Id;
use msc_ir::Shape;
use msc_ir::ops::binary::BinaryKind::Multiply;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::fused::Number;
use msc_ir::ops::unary::UnaryKind::Negate;

/// The family.
pub fn rules() -> Vec<Rule> {
    vec![
        Rule::simple("negative-multiple", Tag::Exact, "(negate (multiply ?a:scalar ?x))", negative),
        Rule::simple("multiple-times-itself", Tag::Real, "(multiply ?x (multiply ?a:const ?x))", square),
    ]
}

/// Refuses numbers, and what is not of floats.
fn tensors(b: &Builder<'_>, all: &[Id]) -> Result<(), WhyNot> {
    for &x in all {
        let ty = b.ty(x)?;
        if b.splat_value(x).is_some() || !ty.dtype.is_float() || ty.rank() == 0 {
            return Err(refuse("the multiple is of a number, or not of floats"));
        }
    }
    Ok(())
}

fn negative(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    tensors(b, &[x])?;
    let ty = b.ty(x)?;
    let minus = match b.number(m, "a")? {
        (Number::Known(a), _) => b.splat(&ty, -a.get())?,
        (Number::Operand, Some(scalar)) => {
            let minus = b.add(Negate, &[scalar])?;
            b.add(BroadcastInDim { shape: ty.shape, dims: Shape::new() }, &[minus])?
        }
        (Number::Operand, None) => return Err(refuse("the factor is no number")),
    };
    let new = b.add(Multiply, &[minus, x])?;
    root_is(b, m, new)
}

fn square(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (a, x) = (b.var(m, "a")?, b.var(m, "x")?);
    tensors(b, &[x])?;
    let square = b.add(Multiply, &[x, x])?;
    let new = b.add(Multiply, &[a, square])?;
    root_is(b, m, new)
}
