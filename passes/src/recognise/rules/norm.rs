//! What the rules of norms share: their operands and results in the layout of named operations.

use super::refuse;
use crate::recognise::define::compute_type;
use crate::recognise::engine::build::{is_row_major, row_labels};
use crate::recognise::engine::label::{Indexed, Label};
use crate::recognise::engine::rule::Binding;
use crate::recognise::engine::{Builder, Match, WhyNot};
use egg::Id;
use msc_ir::ops::fused::Number;
use msc_ir::ops::unary::UnaryKind::Rsqrt;

/// The statistic.
pub(super) const RSTD: &str = "(product (pow (rows ?v) -1/2))";

/// `rstd·g`, where `g` is these factors.
macro_rules! through {
    ($g:literal) => {
        concat!("(product ", $g, " (rows (pow ?v -1/2)))")
    };
}
pub(super) use through;

/// The epsilon of a norm of `x`; where it is an operand, one more of `inputs`.
pub(super) fn epsilon(
    b: &Builder<'_>,
    m: &Match,
    x: &Indexed,
    inputs: &mut Vec<(&'static str, Id)>,
) -> Result<Number, WhyNot> {
    let (eps, operand) = b.number(m, "eps")?;
    if let Some(scalar) = operand {
        if b.ty(scalar)?.dtype != compute_type(b.ty(x.class)?.dtype) {
            return Err(refuse("eps is of another type than the statistic"));
        }
        inputs.push(("eps", scalar));
    }
    Ok(eps)
}

/// The class of a variable with what its dimensions mean.
pub(super) fn indexed<'m>(m: &'m Match, name: &'static str) -> Result<&'m Indexed, WhyNot> {
    m.class(name).ok_or_else(|| refuse(format!("{name} is nowhere a value of the program")))
}

/// A row operand: rows in order, the row last.
pub(super) fn row_operand<'m>(m: &'m Match, name: &'static str) -> Result<&'m Indexed, WhyNot> {
    let x = indexed(m, name)?;
    if is_row_major(x) {
        Ok(x)
    } else {
        Err(refuse(format!("the rows of {name} are not its last dimension")))
    }
}

/// A weight as `[D]`, for rows of `x`.
pub(super) fn weight(b: &mut Builder<'_>, m: &Match, name: &'static str, x: &Indexed) -> Result<Id, WhyNot> {
    let weight = indexed(m, name)?;
    let n = x.labels.len() - 1;
    let row = b.ty(weight.class)?.with_shape([b.ty(x.class)?.shape[n]]);
    b.relayout(weight, &row, &x.labels[n..].into())
}

/// The statistic `v^-½` as `[…]`: a value of the program, or made from `v`.
pub(super) fn rstd(b: &mut Builder<'_>, m: &Match, x: &Indexed) -> Result<Id, WhyNot> {
    let v = indexed(m, "v")?;
    let (ty, labels) = (b.ty(x.class)?.with_dtype(b.ty(v.class)?.dtype), row_labels(x));
    let rows = ty.with_shape(ty.shape[..ty.rank() - 1].iter().copied());
    if let Some(Binding::Classes(all)) = m.vars.get("rstd") {
        for at in all {
            if b.ty(at.class)? == rows && at.labels == labels {
                return Ok(at.class);
            }
        }
    }
    let r = b.add(Rsqrt, &[v.class])?;
    b.relayout(&Indexed { class: r, labels: v.labels.clone() }, &rows, &labels)
}

/// What the results of an op are united with.
#[derive(Default)]
pub(super) struct Given {
    /// Classes to unite.
    pub unions: Vec<(Id, Id)>,
    /// Classes of the program with their names and the result each is.
    pub outputs: Vec<(&'static str, u32, Id)>,
}

/// Unites the classes found for `rstd` with result 1 of a norm.
pub(super) fn give_rstd(
    b: &mut Builder<'_>,
    m: &Match,
    x: &Indexed,
    tuple: Id,
    given: &mut Given,
) -> Result<(), WhyNot> {
    let statistic = b.project(tuple, 1);
    given.unions.push((rstd(b, m, x)?, statistic));
    let at = Indexed { class: statistic, labels: row_labels(x) };
    if let Some(Binding::Classes(all)) = m.vars.get("rstd") {
        for r in all {
            let again = b.relayout(&at, &b.ty(r.class)?, &r.labels)?;
            given.unions.push((r.class, again));
            given.outputs.push(("rstd", 1, r.class));
        }
    }
    Ok(())
}

/// Unites the class of a root with result `index` of an op, whose dimensions mean `labels`.
pub(super) fn give(
    b: &mut Builder<'_>,
    m: &Match,
    name: &'static str,
    (tuple, index): (Id, u32),
    labels: &[Label],
    given: &mut Given,
) -> Result<(), WhyNot> {
    let at = indexed(m, name)?;
    let result = Indexed { class: b.project(tuple, index), labels: labels.into() };
    let value = b.relayout(&result, &b.ty(at.class)?, &at.labels)?;
    given.unions.push((at.class, value));
    given.outputs.push((name, index, at.class));
    Ok(())
}
