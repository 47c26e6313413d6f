//! RMSNorm and its gradient.
//!
//! One spelling each, in products and sums: how exporters arrange the factors is the views' business.

use super::norm::{Given, RSTD, epsilon, give, give_rstd, indexed, row_operand, rstd, through, weight};
use super::refuse;
use crate::recognise::define;
use crate::recognise::define::compute_type;
use crate::recognise::define::rms_norm::Parts;
use crate::recognise::engine::rule::{Applier, Root, root, unless};
use crate::recognise::engine::{Applied, Builder, Count, Fact, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use msc_ir::ops::fused::FusedKind;
use msc_ir::{DType, Module, TensorType};

/// Mean square plus eps, per row.
const VARIANCE: &str = "(sum (product 1/D (rows (reduce.sum.last (multiply ?x ?x)))) ?eps:scalar)";

/// The same of a narrow operand, squared in f32.
const VARIANCE_OF_NARROW: &str =
    "(sum (product 1/D (rows (reduce.sum.last (multiply (convert ?x) (convert ?x))))) ?eps:scalar)";

const Y: &str = "(product (cols ?gamma) ?x (rows (pow ?v -1/2)))";

/// Without a scale.
const NORMAL: &str = "(product ?x (rows (pow ?v -1/2)))";

/// `rstd·g` and `−x·rstd³·Σ(g·x)/D`, and what is added to them.
macro_rules! dx {
    ($factor:literal, $g:literal) => {
        concat!(
            "(sum ",
            through!($g),
            " (product ",
            $factor,
            " ?x (rows (pow ?v -3/2)) (rows (reduce.sum.last (product ",
            $g,
            " ?x)))) ?r*)"
        )
    };
}

/// With `g = γ·dy`.
const DX: &str = dx!("-1/D", "(cols ?gamma) ?dy");

/// The same with a factor of the program's scalars for −1/D.
const DX_BY_FACTOR: &str = dx!("(scalars ?k)", "(cols ?gamma) ?dy");

/// Without a scale.
const DX_OF_NORMAL: &str = dx!("-1/D", "?dy");

const DGAMMA: &str = "(product (cols (reduce.sum.leading (product ?dy ?x (rows (pow ?v -1/2))))))";

/// x̂ of a narrow x, in f32.
macro_rules! normal {
    () => {
        "(convert ?x) (rows (pow ?v -1/2))"
    };
}

/// `−x·rstd³·Σ(g·x)/D` of a narrow x.
macro_rules! back {
    ($g:literal) => {
        concat!(
            "(product -1/D (convert ?x) (rows (pow ?v -3/2)) (rows (reduce.sum.last (product ",
            $g,
            " (convert ?x)))))"
        )
    };
}

/// Where a narrow norm rounds: y, dγ, and dx rounded once and by halves.
struct Narrow {
    names: [&'static str; 3],
    late: bool,
    y: &'static str,
    once: &'static str,
    split: &'static str,
    dgamma: Option<&'static str>,
}

macro_rules! narrow {
    ($names:expr, $late:expr, $y:expr, $g:literal, $dgamma:expr) => {
        Narrow {
            names: $names,
            late: $late,
            y: $y,
            once: concat!("(sum (convert (sum ", through!($g), " ", back!($g), ")) ?r*)"),
            split: concat!("(sum (convert ", through!($g), ") (convert ", back!($g), ") ?r*)"),
            dgamma: Some(concat!("(product (cols (reduce.sum.leading (product ", $dgamma, "))))")),
        }
    };
}

/// The scale follows the rounding, in the narrow type or, where it is f32, in f32; or the scaled result is rounded; or
/// there is none.
const NARROW: [Narrow; 4] = [
    narrow!(
        ["rms-norm-narrow", "rms-norm-grad-narrow", "rms-norm-grad-narrow-split"],
        false,
        concat!("(product (cols ?gamma) (convert (product ", normal!(), ")))"),
        "(convert (product (cols ?gamma) ?dy))",
        concat!("?dy (convert (product ", normal!(), "))")
    ),
    narrow!(
        [
            "rms-norm-narrow-wide-scale",
            "rms-norm-grad-narrow-wide-scale",
            "rms-norm-grad-narrow-wide-scale-split"
        ],
        false,
        concat!("(product (cols ?gamma) (convert (convert (product ", normal!(), "))))"),
        "(convert (convert (product (cols ?gamma) ?dy)))",
        concat!("?dy (convert (convert (product ", normal!(), ")))")
    ),
    narrow!(
        ["rms-norm-narrow-late", "rms-norm-grad-narrow-late", "rms-norm-grad-narrow-late-split"],
        true,
        concat!("(convert (product (cols ?gamma) ", normal!(), "))"),
        "(cols ?gamma) (convert ?dy)",
        concat!("(convert ?dy) ", normal!())
    ),
    Narrow {
        dgamma: None,
        ..narrow!(
            [
                "rms-norm-narrow-without-scale",
                "rms-norm-grad-narrow-without-scale",
                "rms-norm-grad-narrow-without-scale-split"
            ],
            false,
            concat!("(convert (product ", normal!(), "))"),
            "(convert ?dy)",
            ""
        )
    },
];

/// What is rounded, scaled in f32.
const SCALED_WIDE: &str =
    concat!("(product (cols ?wide_gamma) (convert (convert (product ", normal!(), "))))");

/// The family.
pub fn rules() -> Vec<Rule> {
    const PLAIN: &[DType] = &[DType::F32, DType::F64];
    let forward = |name, dtypes, variance, y: Root, apply| {
        let roots = vec![
            root("v", Frame::Rows, Count::One, variance),
            y,
            root("rstd", Frame::Rows, Count::Each, RSTD),
        ];
        rule(name, dtypes, roots, apply)
    };
    let backward = |name, dtypes, variance, y: Root, dx, dgamma: Option<Root>, apply| {
        let roots = vec![
            root("v", Frame::Rows, Count::One, variance),
            Root { count: Count::Optional, ..y },
            root("rstd", Frame::Rows, Count::Each, RSTD),
            root("dx", Frame::Full, Count::One, dx),
        ];
        let mut rule = rule(name, dtypes, roots, apply);
        match dgamma {
            Some(dgamma) => rule.roots.push(dgamma),
            None => rule.unless.push(unless(
                "dy",
                "(product (cols ?weight) ?other)",
                "dy is scaled by a weight: this is a gradient with a scale",
            )),
        }
        rule
    };
    let y = |pattern| root("y", Frame::Full, Count::One, pattern);
    let dgamma = |pattern| root("dgamma", Frame::Cols, Count::Optional, pattern);
    let mut all = vec![
        forward("rms-norm", PLAIN, VARIANCE, y(Y), forward_op::<false> as Applier),
        backward(
            "rms-norm-grad",
            PLAIN,
            VARIANCE,
            y(Y),
            DX,
            Some(dgamma(DGAMMA)),
            backward_op::<false, false> as Applier,
        ),
        backward(
            "rms-norm-grad-by-factor",
            PLAIN,
            VARIANCE,
            y(Y),
            DX_BY_FACTOR,
            Some(dgamma(DGAMMA)),
            backward_op::<false, false> as Applier,
        ),
    ];
    // Where x̂ is scaled, it is part of the norm that scales it.
    let scaled = |name, pattern| root(name, Frame::Full, Count::Optional, pattern);
    let name = "rms-norm-grad-without-scale";
    let mut unscaled =
        forward("rms-norm-without-scale", PLAIN, VARIANCE, y(NORMAL), forward_op::<false> as Applier);
    unscaled.roots.push(scaled("scaled", Y));
    // Where x̂ is rounded, or dx, it is part of a norm of narrow rows.
    unscaled.roots.push(scaled("rounded", "(convert ?y)"));
    all.push(unscaled);
    let apply = backward_op::<false, false> as Applier;
    let mut unscaled = backward(name, PLAIN, VARIANCE, y(NORMAL), DX_OF_NORMAL, None, apply);
    unscaled.roots.push(scaled("rounded", "(convert ?dx)"));
    all.push(unscaled);
    for n in NARROW {
        const DTYPES: &[DType] = &[DType::BF16, DType::F16];
        let [norm, gradient, split] = n.names;
        // The type of y and dγ is that of the scale.
        let wide = norm.contains("wide");
        let y = || Root { wide, ..y(n.y) };
        let dgamma = || n.dgamma.map(|p| Root { wide: wide || n.late, ..dgamma(p) });
        let (apply_norm, apply_once, apply_split): (Applier, Applier, Applier) = if n.late {
            (forward_op::<true>, backward_op::<true, false>, backward_op::<true, true>)
        } else {
            (forward_op::<false>, backward_op::<false, false>, backward_op::<false, true>)
        };
        let v = VARIANCE_OF_NARROW;
        let mut norm = forward(norm, DTYPES, v, y(), apply_norm);
        if n.dgamma.is_none() {
            norm.roots.push(scaled("scaled", NARROW[0].y));
            norm.roots.push(scaled("scaled_wide", SCALED_WIDE).wide());
        }
        all.push(norm);
        all.push(backward(gradient, DTYPES, v, y(), n.once, dgamma(), apply_once));
        all.push(backward(split, DTYPES, v, y(), n.split, dgamma(), apply_split));
    }
    all
}

fn rule(name: &'static str, dtypes: &'static [DType], roots: Vec<Root>, apply: Applier) -> Rule {
    Rule {
        name,
        tag: Tag::Real,
        facts: &[("v", Fact::PositiveBut("eps"))],
        roots,
        // The mean square of x − mean x is its variance.
        unless: vec![unless(
            "x",
            "(sum ?whole (product -1/D (rows (reduce.sum.last ?whole))))",
            "the rows of x have mean zero: this is a LayerNorm",
        )],
        atoms: &[],
        independent: &[],
        apply,
        dtypes,
    }
}

fn forward_op<const LATE: bool>(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    if ["scaled", "scaled_wide", "rounded"].iter().any(|n| m.vars.contains_key(n)) {
        return Err(refuse("its result is scaled or rounded: it is part of another norm"));
    }
    let x = row_operand(m, "x")?;
    let mut inputs = vec![("x", x.class)];
    let scale = m.vars.contains_key("gamma");
    if scale {
        inputs.push(("gamma", weight(b, m, "gamma", x)?));
    }
    let eps = epsilon(b, m, x, &mut inputs)?;
    let kind = FusedKind::RmsNorm { eps, scale, late: LATE, residual: false };
    let args: Vec<egg::Id> = inputs.iter().map(|&(_, c)| c).collect();
    let define = |module: &mut Module, types: &[TensorType]| {
        define::rms_norm::forward(module, types, eps, scale, (LATE, false))
    };
    let tuple = b.fused(kind, &args, define)?;
    let mut given = Given::default();
    give(b, m, "y", (tuple, 0), &x.labels, &mut given)?;
    give_rstd(b, m, x, tuple, &mut given)?;
    let Given { unions, outputs } = given;
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}

fn backward_op<const LATE: bool, const SPLIT: bool>(
    b: &mut Builder<'_>,
    m: &Match,
) -> Result<Applied, WhyNot> {
    if m.vars.contains_key("rounded") {
        return Err(refuse("its result is rounded: it is part of the gradient of another norm"));
    }
    let x = row_operand(m, "x")?;
    let full = b.ty(x.class)?;
    let dy = indexed(m, "dy")?;
    let dy = b.relayout(dy, &full.with_dtype(b.ty(dy.class)?.dtype), &x.labels)?;
    let mut inputs = vec![("dy", dy), ("x", x.class)];
    let scale = m.vars.contains_key("gamma");
    if scale {
        inputs.push(("gamma", weight(b, m, "gamma", x)?));
    }
    inputs.push(("rstd", rstd(b, m, x)?));
    let r = match m.vars.get("r") {
        Some(_) => b.terms(m, "r", &full, &x.labels)?,
        None => None,
    };
    inputs.extend(r.map(|r| ("r", r)));
    let factor = m.vars.contains_key("k");
    if factor {
        inputs.push(("k", b.scalars(m, "k", compute_type(full.dtype))?));
    }
    let args: Vec<egg::Id> = inputs.iter().map(|&(_, c)| c).collect();
    let parts = Parts { residual: r.is_some(), scale, late: LATE, split: SPLIT, factor };
    let Parts { residual, late, split, .. } = parts;
    let kind = FusedKind::RmsNormGrad { residual, scale, late, split, factor };
    let tuple = b.fused(kind, &args, |module, types| define::rms_norm::backward(module, types, parts))?;
    let mut given = Given::default();
    give(b, m, "dx", (tuple, 0), &x.labels, &mut given)?;
    if m.class("dgamma").is_some() {
        give(b, m, "dgamma", (tuple, 1), &x.labels[x.labels.len() - 1..], &mut given)?;
    }
    let Given { unions, outputs } = given;
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}
