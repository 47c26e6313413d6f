//! LayerNorm and its gradient.
//!
//! A program may compute the variance from centred rows or as `E[x²] − E[x]²`, put the scale on the statistic or on
//! the rows, and arrange the three parts of dx as its differentiation left them: multiplied out, they are one
//! polynomial in x, dy, γ and the variance.

use super::norm::{Given, RSTD, epsilon, give, give_rstd, indexed, row_operand, rstd, through, weight};
use super::root_is;
use crate::recognise::define;
use crate::recognise::engine::rule::{Applier, Root, root, unless};
use crate::recognise::engine::{Applied, Builder, Count, Fact, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use define::layer_norm::Parts;
use msc_ir::DType;
use msc_ir::ops::fused::FusedKind;

/// The rows less their means.
macro_rules! centred {
    () => {
        "(sum ?w (product -1/D (rows (reduce.sum.last ?w))))"
    };
}

/// The mean of the centred squares.
macro_rules! variance {
    () => {
        concat!("(polynomial (product 1/D (rows (reduce.sum.last (product (pow ", centred!(), " 2))))))")
    };
}

/// The mean of rows that compute in their own type.
const MEAN: &str = "(or (divide (reduce.sum.last (as ?w ?x)) D) (multiply (reduce.sum.last (as ?w ?x)) 1/D))";

/// The mean of narrow rows.
const MEAN_OF_NARROW: &str = "(or
    (divide (reduce.sum.last (as ?w (convert ?x))) D)
    (multiply (reduce.sum.last (as ?w (convert ?x))) 1/D))";

const V: &str = concat!("(sum (as ?m ", variance!(), ") ?eps:scalar)");

const CENTRED: &str = concat!("(polynomial ", centred!(), ")");

/// 1 where the variance is above its bound 0, ½ where it is at it: the gradient of `max(0, variance)`. What it
/// multiplies is 0 where the variance is.
const TIE: &str = "(divide (select (compare.eq ?m ?m) 1 0) (select (compare.eq ?m 0) 2 1))";

/// `Σ dy·x̂` over rows.
macro_rules! dgamma {
    ($dy:literal) => {
        concat!(
            "(polynomial (product (cols (reduce.sum.leading (product ",
            $dy,
            " ",
            centred!(),
            " (rows (pow ?v -1/2)))))))"
        )
    };
}

/// `Σ dy` over rows.
macro_rules! dbeta {
    ($dy:literal) => {
        concat!("(polynomial (product (cols (reduce.sum.leading ", $dy, "))))")
    };
}

/// `−rstd·Σg/D` and `−(x−μ)·rstd³·Σ(g·(x−μ))/D`.
macro_rules! back {
    ($g:literal) => {
        concat!(
            "(product -1/D (rows (pow ?v -1/2)) (rows (reduce.sum.last (product ",
            $g,
            "))))",
            "(product -1/D (maybe (rows ?tie)) ",
            centred!(),
            " (rows (pow ?v -3/2)) (rows (reduce.sum.last (product ",
            $g,
            " ",
            centred!(),
            "))))"
        )
    };
}

macro_rules! dx {
    ($g:literal) => {
        concat!("(polynomial ", through!($g), back!($g), " ?r*)")
    };
}

/// Rounded once.
macro_rules! dx_of_narrow {
    ($g:literal) => {
        concat!("(sum (convert (polynomial ", through!($g), back!($g), ")) ?r*)")
    };
}

/// The two ways that the gradient comes back to a narrow x, rounded one by one.
macro_rules! dx_split {
    ($g:literal) => {
        concat!("(sum (convert ", through!($g), ") (convert (polynomial ", back!($g), ")) ?r*)")
    };
}

const PLAIN: &[DType] = &[DType::F32, DType::F64];
const NARROW: &[DType] = &[DType::BF16, DType::F16];

/// The family.
pub fn rules() -> Vec<Rule> {
    let mut all = vec![variance_is_not_negative()];
    all.extend(forward_rules());
    all.extend(backward_rules());
    all
}

/// Rounding aside, a variance is what `max(0, ·)` makes of it.
fn variance_is_not_negative() -> Rule {
    let roots = vec![
        root("mean", Frame::Rows, Count::One, MEAN),
        root("root", Frame::Rows, Count::One, concat!("(maximum (as ?m ", variance!(), ") 0)")),
    ];
    fn apply(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
        let variance = b.var(m, "m")?;
        root_is(b, m, variance)
    }
    Rule { facts: &[], ..rule("variance-is-not-negative", PLAIN, roots, apply) }
}

fn forward_rules() -> Vec<Rule> {
    let spellings: [(&'static str, &'static [DType], &'static str, &'static str); 6] = [
        (
            "layer-norm",
            PLAIN,
            MEAN,
            "(sum (product (cols ?gamma) ?c (rows (pow ?v -1/2))) (product (cols ?beta)))",
        ),
        ("layer-norm-without-shift", PLAIN, MEAN, "(product (cols ?gamma) ?c (rows (pow ?v -1/2)))"),
        ("layer-norm-without-weights", PLAIN, MEAN, "(product ?c (rows (pow ?v -1/2)))"),
        (
            "layer-norm-narrow",
            NARROW,
            MEAN_OF_NARROW,
            "(convert (sum (product (cols ?gamma) ?c (rows (pow ?v -1/2))) (product (cols ?beta))))",
        ),
        (
            "layer-norm-narrow-without-shift",
            NARROW,
            MEAN_OF_NARROW,
            "(convert (product (cols ?gamma) ?c (rows (pow ?v -1/2))))",
        ),
        (
            "layer-norm-narrow-without-weights",
            NARROW,
            MEAN_OF_NARROW,
            "(convert (product ?c (rows (pow ?v -1/2))))",
        ),
    ];
    let make = |(name, dtypes, mean, y)| {
        let roots = vec![
            root("mean", Frame::Rows, Count::One, mean),
            root("v", Frame::Rows, Count::One, V),
            root("c", Frame::Full, Count::One, CENTRED).wide(),
            root("y", Frame::Full, Count::One, y),
            root("rstd", Frame::Rows, Count::Each, RSTD),
        ];
        rule(name, dtypes, roots, forward)
    };
    spellings.into_iter().map(make).collect()
}

fn backward_rules() -> Vec<Rule> {
    const G: &str = through!("(cols ?gamma) ?dy");
    const G_OF_NARROW: &str = through!("(cols ?gamma) (as ?e (convert ?dy))");
    const DY: &str = through!("?dy");
    const DY_OF_NARROW: &str = through!("(as ?e (convert ?dy))");
    let plain = |name, through, dx, scale| {
        let sums = if scale { vec![("dgamma", dgamma!("?dy")), ("dbeta", dbeta!("?dy"))] } else { vec![] };
        gradient(name, PLAIN, MEAN, through, dx, sums)
    };
    let narrow = |name, through, dx, scale| {
        let sums = if scale { vec![("dgamma", dgamma!("?e")), ("dbeta", dbeta!("?e"))] } else { vec![] };
        gradient(name, NARROW, MEAN_OF_NARROW, through, dx, sums)
    };
    vec![
        plain("layer-norm-grad", G, dx!("(cols ?gamma) ?dy"), true),
        plain("layer-norm-grad-without-weights", DY, dx!("?dy"), false),
        narrow("layer-norm-grad-narrow", G_OF_NARROW, dx_of_narrow!("(cols ?gamma) ?e"), true),
        narrow("layer-norm-grad-narrow-without-weights", DY_OF_NARROW, dx_of_narrow!("?e"), false),
        narrow("layer-norm-grad-narrow-split", G_OF_NARROW, dx_split!("(cols ?gamma) ?e"), true),
        narrow("layer-norm-grad-narrow-split-without-weights", DY_OF_NARROW, dx_split!("?e"), false),
    ]
}

/// A gradient; `sums` are the gradients of the weights.
fn gradient(
    name: &'static str,
    dtypes: &'static [DType],
    mean: &'static str,
    through: &'static str,
    dx: &'static str,
    sums: Vec<(&'static str, &'static str)>,
) -> Rule {
    let mut roots = vec![
        root("mean", Frame::Rows, Count::One, mean),
        root("v", Frame::Rows, Count::One, V),
        root("tie", Frame::Rows, Count::Optional, TIE),
        root("through", Frame::Full, Count::One, through).wide(),
        root("rstd", Frame::Rows, Count::Each, RSTD),
        root("dx", Frame::Full, Count::One, dx),
    ];
    let weights = !sums.is_empty();
    for (name, pattern) in sums {
        roots.push(root(name, Frame::Cols, Count::Optional, pattern).wide());
    }
    let mut rule = rule(name, dtypes, roots, if name.contains("split") { split } else { backward });
    if !weights {
        rule.unless = vec![unless(
            if dtypes == NARROW { "e" } else { "dy" },
            "(product (cols ?weight) ?other)",
            "dy is scaled by a weight: this is a gradient with weights",
        )];
    }
    rule
}

fn rule(name: &'static str, dtypes: &'static [DType], roots: Vec<Root>, apply: Applier) -> Rule {
    Rule {
        name,
        tag: Tag::Real,
        facts: &[("v", Fact::PositiveBut("eps"))],
        roots,
        unless: Vec::new(),
        atoms: &["w", "v"],
        independent: &["gamma", "dy", "e"],
        apply,
        dtypes,
    }
}

fn forward(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = row_operand(m, "x")?;
    let mut inputs = vec![("x", x.class)];
    for name in ["gamma", "beta"] {
        if m.vars.contains_key(name) {
            inputs.push((name, weight(b, m, name, x)?));
        }
    }
    let has = |name: &str| inputs.iter().any(|i| i.0 == name);
    let (scale, shift) = (has("gamma"), has("beta"));
    let eps = epsilon(b, m, x, &mut inputs)?;
    let kind = FusedKind::LayerNorm { eps, scale, shift, residual: false };
    let args: Vec<egg::Id> = inputs.iter().map(|&(_, c)| c).collect();
    let tuple = b.fused(kind, &args, |module, types| {
        define::layer_norm::forward(module, types, eps, (scale, shift, false))
    })?;
    let mut given = Given::default();
    give(b, m, "y", (tuple, 0), &x.labels, &mut given)?;
    give_rstd(b, m, x, tuple, &mut given)?;
    let Given { unions, outputs } = given;
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}

fn backward(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    gradient_op(b, m, false)
}

fn split(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    gradient_op(b, m, true)
}

fn gradient_op(b: &mut Builder<'_>, m: &Match, split: bool) -> Result<Applied, WhyNot> {
    let x = row_operand(m, "x")?;
    let full = b.ty(x.class)?;
    let dy = b.relayout(indexed(m, "dy")?, &full, &x.labels)?;
    let mut inputs = vec![("dy", dy), ("x", x.class)];
    let scale = m.vars.contains_key("gamma");
    if scale {
        inputs.push(("gamma", weight(b, m, "gamma", x)?));
    }
    inputs.push(("rstd", rstd(b, m, x)?));
    let r = b.terms(m, "r", &full, &x.labels)?;
    inputs.extend(r.map(|r| ("r", r)));
    let parts = Parts { residual: r.is_some(), scale, shift: m.class("dbeta").is_some(), split };
    let Parts { residual, shift, .. } = parts;
    let kind = FusedKind::LayerNormGrad { residual, scale, shift, split };
    let args: Vec<egg::Id> = inputs.iter().map(|&(_, c)| c).collect();
    let tuple = b.fused(kind, &args, |module, types| define::layer_norm::backward(module, types, parts))?;
    let mut given = Given::default();
    give(b, m, "dx", (tuple, 0), &x.labels, &mut given)?;
    let row = &x.labels[x.labels.len() - 1..];
    if m.class("dgamma").is_some() {
        give(b, m, "dgamma", (tuple, 1), row, &mut given)?;
    }
    if shift {
        give(b, m, "dbeta", (tuple, 1 + u32::from(scale)), row, &mut given)?;
    }
    let Given { unions, outputs } = given;
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}
