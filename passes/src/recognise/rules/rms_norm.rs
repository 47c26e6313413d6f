//! RMSNorm and its gradient.
//!
//! One spelling each, in products and sums: how exporters arrange the factors is the views' business.

use super::refuse;
use crate::recognise::define;
use crate::recognise::engine::build::{is_row_major, row_labels};
use crate::recognise::engine::label::Indexed;
use crate::recognise::engine::rule::{Applier, Binding, Root, root, unless};
use crate::recognise::engine::{Applied, Builder, Count, Fact, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use msc_ir::DType;
use msc_ir::ops::fused::{FusedKind, Scalar};
use msc_ir::ops::unary::UnaryKind::Rsqrt;

/// Mean square plus eps, per row.
const VARIANCE: &str = "(sum (product 1/D (rows (reduce.sum.last (multiply ?x ?x)))) ?eps:const)";

/// The same of a narrow operand, squared in f32.
const VARIANCE_OF_NARROW: &str =
    "(sum (product 1/D (rows (reduce.sum.last (multiply (convert ?x) (convert ?x))))) ?eps:const)";

/// The statistic.
const RSTD: &str = "(product (pow (rows ?v) -1/2))";

const Y: &str = "(product (cols ?gamma) ?x (rows (pow ?v -1/2)))";

/// The scale follows the rounding.
const Y_OF_NARROW: &str = "(product (cols ?gamma) (convert (product (convert ?x) (rows (pow ?v -1/2)))))";

/// `rstd·g` and `−x·rstd³·Σ(g·x)/D` with `g = γ·dy`, and what is added to them.
const DX: &str = "(sum
    (product (cols ?gamma) ?dy (rows (pow ?v -1/2)))
    (product -1/D ?x (rows (pow ?v -3/2)) (rows (reduce.sum.last (product (cols ?gamma) ?dy ?x))))
    ?r*)";

/// `g` is rounded before it is widened, and dx once at the end.
const DX_OF_NARROW: &str = "(convert (sum
    (product (convert (product (cols ?gamma) ?dy)) (rows (pow ?v -1/2)))
    (product -1/D (convert ?x) (rows (pow ?v -3/2))
        (rows (reduce.sum.last (product (convert (product (cols ?gamma) ?dy)) (convert ?x)))))))";

/// The residual gradient is added in the narrow type.
const DX_OF_NARROW_RESIDUAL: &str = "(sum (convert (sum
    (product (convert (product (cols ?gamma) ?dy)) (rows (pow ?v -1/2)))
    (product -1/D (convert ?x) (rows (pow ?v -3/2))
        (rows (reduce.sum.last (product (convert (product (cols ?gamma) ?dy)) (convert ?x)))))))
    ?r*)";

const DGAMMA: &str = "(product (cols (reduce.sum.leading (product ?dy ?x (rows (pow ?v -1/2))))))";

const DGAMMA_OF_NARROW: &str = "(product (cols (reduce.sum.leading
    (product ?dy (convert (product (convert ?x) (rows (pow ?v -1/2))))))))";

/// The family.
pub fn rules() -> Vec<Rule> {
    const PLAIN: &[DType] = &[DType::F32, DType::F64];
    const NARROW: &[DType] = &[DType::BF16];
    let forward = |name, dtypes, variance, y| {
        let roots = vec![
            root("v", Frame::Rows, Count::One, variance),
            root("y", Frame::Full, Count::One, y),
            root("rstd", Frame::Rows, Count::Each, RSTD),
        ];
        rule(name, dtypes, roots, forward)
    };
    let backward = |name, dtypes, variance, y, dx, dgamma| {
        let roots = vec![
            root("v", Frame::Rows, Count::One, variance),
            root("y", Frame::Full, Count::Optional, y),
            root("rstd", Frame::Rows, Count::Each, RSTD),
            root("dx", Frame::Full, Count::One, dx),
            root("dgamma", Frame::Cols, Count::Optional, dgamma),
        ];
        rule(name, dtypes, roots, backward)
    };
    vec![
        forward("rms-norm", PLAIN, VARIANCE, Y),
        forward("rms-norm-narrow", NARROW, VARIANCE_OF_NARROW, Y_OF_NARROW),
        backward("rms-norm-grad", PLAIN, VARIANCE, Y, DX, DGAMMA),
        backward(
            "rms-norm-grad-narrow",
            NARROW,
            VARIANCE_OF_NARROW,
            Y_OF_NARROW,
            DX_OF_NARROW,
            DGAMMA_OF_NARROW,
        ),
        backward(
            "rms-norm-grad-narrow-residual",
            NARROW,
            VARIANCE_OF_NARROW,
            Y_OF_NARROW,
            DX_OF_NARROW_RESIDUAL,
            DGAMMA_OF_NARROW,
        ),
    ]
}

fn rule(name: &'static str, dtypes: &'static [DType], roots: Vec<Root>, apply: Applier) -> Rule {
    Rule {
        name,
        tag: Tag::Real,
        facts: &[("v", Fact::Positive)],
        roots,
        // The mean square of x − mean x is its variance.
        unless: vec![unless(
            "x",
            "(sum ?whole (product -1/D (rows (reduce.sum.last ?whole))))",
            "the rows of x have mean zero: this is a LayerNorm",
        )],
        apply,
        dtypes,
    }
}

fn indexed<'m>(m: &'m Match, name: &'static str) -> Result<&'m Indexed, WhyNot> {
    m.class(name).ok_or_else(|| refuse(format!("{name} is nowhere a value of the program")))
}

/// The row operand: rows in order, the row last.
fn row_operand<'m>(m: &'m Match, name: &'static str) -> Result<&'m Indexed, WhyNot> {
    let x = indexed(m, name)?;
    if is_row_major(x) {
        Ok(x)
    } else {
        Err(refuse(format!("the rows of {name} are not its last dimension")))
    }
}

/// The scale as `[D]`.
fn scale(b: &mut Builder<'_>, m: &Match, x: &Indexed) -> Result<egg::Id, WhyNot> {
    let gamma = indexed(m, "gamma")?;
    let n = x.labels.len() - 1;
    let row = b.ty(gamma.class)?.with_shape([b.ty(x.class)?.shape[n]]);
    b.relayout(gamma, &row, &x.labels[n..].into())
}

/// The statistic `v^-½` as `[…]`: a value of the program, or made from `v`.
fn rstd(b: &mut Builder<'_>, m: &Match, x: &Indexed) -> Result<egg::Id, WhyNot> {
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

fn forward(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = row_operand(m, "x")?;
    let y = indexed(m, "y")?;
    let gamma = scale(b, m, x)?;
    let eps = b.splat_value(b.var(m, "eps")?).ok_or_else(|| refuse("eps is not known"))?;
    let kind = FusedKind::RmsNorm { eps: Scalar::new(eps) };
    let tuple =
        b.fused(kind, &[x.class, gamma], |module, types| define::rms_norm::forward(module, types, eps))?;
    let normal = b.project(tuple, 0);
    let out = b.relayout(&Indexed { class: normal, labels: x.labels.clone() }, &b.ty(y.class)?, &y.labels)?;
    let mut unions = vec![(y.class, out)];
    let mut outputs = vec![("y", 0, y.class)];
    let statistic = b.project(tuple, 1);
    unions.push((rstd(b, m, x)?, statistic));
    let at = Indexed { class: statistic, labels: row_labels(x) };
    if let Some(Binding::Classes(all)) = m.vars.get("rstd") {
        for r in all {
            let again = b.relayout(&at, &b.ty(r.class)?, &r.labels)?;
            unions.push((r.class, again));
            outputs.push(("rstd", 1, r.class));
        }
    }
    Ok(Applied {
        unions,
        op: Some(MultiOutput { tuple, inputs: vec![("x", x.class), ("gamma", gamma)], outputs }),
    })
}

fn backward(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = row_operand(m, "x")?;
    let full = b.ty(x.class)?;
    let dy = indexed(m, "dy")?;
    let dy = b.relayout(dy, &full, &x.labels)?;
    let gamma = scale(b, m, x)?;
    let statistic = rstd(b, m, x)?;
    let mut inputs = vec![("dy", dy), ("x", x.class), ("gamma", gamma), ("rstd", statistic)];
    let r = match m.vars.get("r") {
        Some(_) => b.terms(m, "r", &full, &x.labels)?,
        None => None,
    };
    inputs.extend(r.map(|r| ("r", r)));
    let args: Vec<egg::Id> = inputs.iter().map(|&(_, c)| c).collect();
    let kind = FusedKind::RmsNormGrad { residual: r.is_some() };
    let tuple =
        b.fused(kind, &args, |module, types| define::rms_norm::backward(module, types, r.is_some()))?;
    let at = indexed(m, "dx")?;
    let result = Indexed { class: b.project(tuple, 0), labels: x.labels.clone() };
    let dx = b.relayout(&result, &b.ty(at.class)?, &at.labels)?;
    let mut unions = vec![(at.class, dx)];
    let mut outputs = vec![("dx", 0, at.class)];
    if let Some(at) = m.class("dgamma") {
        let n = x.labels.len() - 1;
        let result = Indexed { class: b.project(tuple, 1), labels: x.labels[n..].into() };
        let dgamma = b.relayout(&result, &b.ty(at.class)?, &at.labels)?;
        unions.push((at.class, dgamma));
        outputs.push(("dgamma", 1, at.class));
    }
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}
