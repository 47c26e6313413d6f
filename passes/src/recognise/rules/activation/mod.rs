//! SiLU and GELU, alone and as the gate of a GLU, with their gradients.
//!
//! An activation is found by its one transcendental value (σ, tanh, erf) of the right argument; what stands around
//! that is a polynomial, so every way of factoring it is the same. Which of two factors is the gated operand and
//! which the incoming gradient is settled by the program: `h` is needed to compute `dh`.

use super::refuse;
use crate::recognise::define;
use crate::recognise::engine::label::Indexed;
use crate::recognise::engine::rule::{Applier, Root, root};
use crate::recognise::engine::{Applied, Builder, Count, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use egg::Id;
use msc_ir::DType;
use msc_ir::ops::fused::{Activation, FusedKind};

/// What to look for: the transcendental value `?a` of `?x`, for a gradient a second one `?p`, the share `a(x)/x` and
/// the slope `a'(x)` as polynomials in these.
struct Spelling {
    function: Activation,
    names: [&'static str; 4],
    anchor: &'static str,
    density: Option<&'static str>,
    /// `y`, `h`, `dx`, `dgate`, `dup`.
    patterns: [&'static str; 5],
    appliers: [Applier; 4],
}

macro_rules! patterns {
    ($share:literal, $slope:literal) => {
        [
            concat!("(multiplied (multiply ?x ", $share, "))"),
            concat!("(multiplied (multiply ?up (multiply ?x ", $share, ")))"),
            concat!("(multiplied (multiply ?dy ", $slope, "))"),
            concat!("(multiplied (multiply (multiply ?dy ?up) ", $slope, "))"),
            concat!("(multiplied (multiply ?dy (multiply ?x ", $share, ")))"),
        ]
    };
}

macro_rules! appliers {
    ($f:ident) => {
        [
            |b, m| forward(b, m, Activation::$f, false),
            |b, m| forward(b, m, Activation::$f, true),
            |b, m| backward(b, m, Activation::$f, false),
            |b, m| backward(b, m, Activation::$f, true),
        ]
    };
}

const SILU: Spelling = Spelling {
    function: Activation::Silu,
    names: ["silu", "swiglu", "silu-grad", "swiglu-grad"],
    anchor: "(logistic ?x)",
    density: None,
    patterns: patterns!("?a", "(multiply ?a (add 1 (multiply ?x (subtract 1 ?a))))"),
    appliers: appliers!(Silu),
};

const GELU_TANH: Spelling = Spelling {
    function: Activation::GeluTanh,
    names: ["gelu-tanh", "geglu-tanh", "gelu-tanh-grad", "geglu-tanh-grad"],
    anchor: "(tanh (product 0.7978845608028654 (sum ?x (product 0.044715 (pow ?x 3)))))",
    density: None,
    patterns: TANH,
    appliers: appliers!(GeluTanh),
};

/// The same with x outside the sum.
const GELU_TANH_FACTORED: Spelling = Spelling {
    names: [
        "gelu-tanh-factored",
        "geglu-tanh-factored",
        "gelu-tanh-factored-grad",
        "geglu-tanh-factored-grad",
    ],
    anchor: "(tanh (product 0.7978845608028654 ?x (sum 1 (product 0.044715 (pow ?x 2)))))",
    ..GELU_TANH
};

const TANH: [&str; 5] = patterns!(
    "(multiply 0.5 (add 1 ?a))",
    "(add (multiply 0.5 (add 1 ?a))
          (multiply (multiply 0.3989422804014327 ?x)
                    (multiply (subtract 1 (multiply ?a ?a)) (add 1 (multiply 0.134145 (multiply ?x ?x))))))"
);

const GELU_ERF: Spelling = Spelling {
    function: Activation::GeluErf,
    names: ["gelu-erf", "geglu-erf", "gelu-erf-grad", "geglu-erf-grad"],
    anchor: "(erf (product 0.7071067811865476 ?x))",
    density: Some("(exponential (product -0.5 (pow ?x 2)))"),
    patterns: patterns!(
        "(multiply 0.5 (add 1 ?a))",
        "(add (multiply 0.5 (add 1 ?a)) (multiply 0.3989422804014327 (multiply ?x ?p)))"
    ),
    appliers: appliers!(GeluErf),
};

const GELU_ERFC: Spelling = Spelling {
    function: Activation::GeluErf,
    names: ["gelu-erfc", "geglu-erfc", "gelu-erfc-grad", "geglu-erfc-grad"],
    anchor: "(erfc (product -0.7071067811865476 ?x))",
    density: Some("(exponential (product -0.5 (pow ?x 2)))"),
    patterns: patterns!(
        "(multiply 0.5 ?a)",
        "(add (multiply 0.5 ?a) (multiply 0.3989422804014327 (multiply ?x ?p)))"
    ),
    appliers: appliers!(GeluErf),
};

/// The family.
pub fn rules() -> Vec<Rule> {
    let mut out = Vec::new();
    for s in [SILU, GELU_TANH, GELU_TANH_FACTORED, GELU_ERF, GELU_ERFC] {
        debug_assert!(s.function != Activation::Silu || s.density.is_none());
        let one = |name, pattern| root(name, Frame::Full, Count::One, pattern);
        let [y, h, dx, dgate, dup] = s.patterns;
        let anchored = |gradient: bool, rest: &[Root]| -> Vec<Root> {
            let density = s.density.filter(|_| gradient).map(|d| one("p", d));
            std::iter::once(one("a", s.anchor)).chain(density).chain(rest.iter().cloned()).collect()
        };
        let roots = [
            anchored(false, &[one("y", y)]),
            anchored(false, &[one("y", h)]),
            anchored(true, &[one("dx", dx)]),
            // The operand's gradient says what the incoming gradient is.
            anchored(true, &[one("dup", dup), one("dx", dgate)]),
        ];
        for ((name, roots), apply) in s.names.into_iter().zip(roots).zip(s.appliers) {
            out.push(Rule {
                atoms: &[],
                independent: &[],
                name,
                tag: Tag::Real,
                facts: &[],
                roots,
                unless: Vec::new(),
                apply,
                dtypes: &[DType::F32, DType::F64, DType::BF16],
            });
        }
    }
    out
}

fn indexed<'m>(m: &'m Match, name: &'static str) -> Result<&'m Indexed, WhyNot> {
    m.class(name).ok_or_else(|| refuse(format!("{name} is nowhere a value of the program")))
}

/// An operand in the layout of x.
fn operand(
    b: &mut Builder<'_>,
    m: &Match,
    name: &'static str,
    x: &Indexed,
) -> Result<(&'static str, Id), WhyNot> {
    let at = indexed(m, name)?;
    Ok((name, b.relayout(at, &b.ty(x.class)?, &x.labels)?))
}

/// Unites result `index` of an op with the class found for `name`.
fn result(
    b: &mut Builder<'_>,
    m: &Match,
    (tuple, index): (Id, u32),
    name: &'static str,
    x: &Indexed,
    applied: &mut Applied,
) -> Result<(&'static str, u32, Id), WhyNot> {
    let at = indexed(m, name)?;
    let given = Indexed { class: b.project(tuple, index), labels: x.labels.clone() };
    let given = b.relayout(&given, &b.ty(at.class)?, &at.labels)?;
    applied.unions.push((at.class, given));
    Ok((name, index, at.class))
}

fn forward(b: &mut Builder<'_>, m: &Match, function: Activation, gated: bool) -> Result<Applied, WhyNot> {
    let x = indexed(m, "x")?;
    let mut inputs = vec![("x", x.class)];
    if gated {
        inputs.push(operand(b, m, "up", x)?);
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let kind = FusedKind::Activation { function, gated };
    let tuple =
        b.fused(kind, &args, |module, types| define::activation::forward(module, types, function, gated))?;
    let mut applied = Applied::default();
    let outputs = vec![result(b, m, (tuple, 0), "y", x, &mut applied)?];
    applied.op = Some(MultiOutput { tuple, inputs, outputs });
    Ok(applied)
}

fn backward(b: &mut Builder<'_>, m: &Match, function: Activation, gated: bool) -> Result<Applied, WhyNot> {
    let x = indexed(m, "x")?;
    let mut inputs = vec![operand(b, m, "dy", x)?, ("x", x.class)];
    if gated {
        inputs.push(operand(b, m, "up", x)?);
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let kind = FusedKind::ActivationGrad { function, gated };
    let tuple =
        b.fused(kind, &args, |module, types| define::activation::backward(module, types, function, gated))?;
    let mut applied = Applied::default();
    let mut outputs = vec![result(b, m, (tuple, 0), "dx", x, &mut applied)?];
    if gated {
        outputs.push(result(b, m, (tuple, 1), "dup", x, &mut applied)?);
    }
    applied.op = Some(MultiOutput { tuple, inputs, outputs });
    Ok(applied)
}
