//! SiLU and GELU, alone and as the gate of a GLU, with their gradients; what is rectified is in [`rectified`].
//!
//! An activation is found by its one transcendental value (σ, tanh, erf) of the right argument; what stands around
//! that is a polynomial, so every way of factoring it is the same. Which of two factors is the gated operand and
//! which the incoming gradient is settled by the program: `h` is needed to compute `dh`. Operands of a gate may be kept
//! within bounds ([`bounds`]).

mod bounds;
mod rectified;

use self::bounds::{GATE, Side, UP, forms, masked_forms, side};
use super::refuse;
use crate::recognise::define;
use crate::recognise::engine::label::Indexed;
use crate::recognise::engine::rule::{Applier, Root, root};
use crate::recognise::engine::{Applied, Builder, Count, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use egg::Id;
use msc_ir::ops::fused::{Activation, AtBound, FusedKind, Gate, Scalar, has_bound};
use msc_ir::{DType, Module, TensorType};

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
            |b, m| backward(b, m, Activation::$f, false, None),
            |b, m| backward(b, m, Activation::$f, true, None),
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

/// SiLU with a factor in the argument of σ.
const SWISH: Spelling = Spelling {
    names: ["swish", "swiglu-swish", "swish-grad", "swiglu-swish-grad"],
    anchor: "(logistic (multiply ?x ?alpha:const))",
    patterns: patterns!("?a", "(multiply ?a (add 1 (multiply (multiply ?alpha:const ?x) (subtract 1 ?a))))"),
    ..SILU
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
    for s in [SILU, SWISH, GELU_TANH, GELU_TANH_FACTORED, GELU_ERF, GELU_ERFC] {
        debug_assert!(s.function != Activation::Silu || s.density.is_none());
        let [y, h, dx, dgate, dup] = s.patterns;
        let anchored = |gradient: bool, rest: Vec<Root>| -> Vec<Root> {
            let density = s.density.filter(|_| gradient).map(|d| one("p", d));
            std::iter::once(one("a", s.anchor)).chain(density).chain(rest).collect()
        };
        let roots = [
            anchored(false, vec![one("y", y)]),
            anchored(false, [vec![one("y", h)], forms()].concat()),
            anchored(true, vec![one("dx", dx)]),
            // The operand's gradient says what the incoming gradient is.
            anchored(true, [vec![one("dup", dup), one("dx", dgate)], masked_forms()].concat()),
        ];
        for ((name, roots), apply) in s.names.into_iter().zip(roots).zip(s.appliers) {
            out.push(rule(name, roots, apply));
        }
    }
    out.extend(rectified::rules());
    out
}

/// A root of the operands' shape that must be there.
fn one(name: &'static str, pattern: &'static str) -> Root {
    root(name, Frame::Full, Count::One, pattern)
}

fn rule(name: &'static str, roots: Vec<Root>, apply: Applier) -> Rule {
    Rule {
        atoms: &[],
        independent: &[],
        name,
        tag: Tag::Real,
        facts: &[],
        roots,
        unless: Vec::new(),
        apply,
        dtypes: &[DType::F32, DType::F64, DType::BF16],
    }
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

/// Unites result `index` of an op, called `name`, with the class found for a root.
fn result(
    b: &mut Builder<'_>,
    m: &Match,
    (tuple, index): (Id, u32),
    (name, root): (&'static str, &'static str),
    x: &Indexed,
    applied: &mut Applied,
) -> Result<(&'static str, u32, Id), WhyNot> {
    let at = indexed(m, root)?;
    let given = Indexed { class: b.project(tuple, index), labels: x.labels.clone() };
    let given = b.relayout(&given, &b.ty(at.class)?, &at.labels)?;
    applied.unions.push((at.class, given));
    Ok((name, index, at.class))
}

/// The function, with the number in its argument where that is a variable.
fn with_number(b: &Builder<'_>, m: &Match, function: Activation) -> Result<Activation, WhyNot> {
    if !m.vars.contains_key("alpha") {
        return Ok(function);
    }
    match b.splat_value(b.var(m, "alpha")?) {
        // What is multiplied by 1 is the factor itself.
        Some(1.0) => Err(refuse("alpha is 1")),
        Some(alpha) if alpha.is_finite() && alpha != 0.0 => Ok(Activation::Swish(Scalar::new(alpha))),
        _ => Err(refuse("alpha is no factor")),
    }
}

/// Both operands of a gate.
struct Gated {
    gate: Side,
    up: Side,
}

impl Gated {
    fn of(b: &Builder<'_>, m: &Match, gradient: bool) -> Result<Gated, WhyNot> {
        Ok(Gated { gate: side(b, m, &GATE, gradient)?, up: side(b, m, &UP, gradient)? })
    }

    fn form(&self) -> Gate {
        Gate { gate: self.gate.bounds, up: self.up.bounds, bias: self.up.bias }
    }
}

fn forward(b: &mut Builder<'_>, m: &Match, function: Activation, gated: bool) -> Result<Applied, WhyNot> {
    let function = with_number(b, m, function)?;
    let gated = if gated { Some(Gated::of(b, m, false)?) } else { None };
    let gate = gated.as_ref().map(Gated::form);
    let x = indexed(m, gated.as_ref().map_or("x", |g| g.gate.operand))?;
    let mut inputs = vec![("x", x.class)];
    if let Some(g) = &gated {
        let (_, up) = operand(b, m, g.up.operand, x)?;
        inputs.push(("up", up));
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let kind = FusedKind::Activation { function, gate };
    let tuple =
        b.fused(kind, &args, |module, types| define::activation::forward(module, types, function, gate))?;
    let mut applied = Applied::default();
    let outputs = vec![result(b, m, (tuple, 0), ("y", "y"), x, &mut applied)?];
    applied.op = Some(MultiOutput { tuple, inputs, outputs });
    Ok(applied)
}

/// `own` is what passes at the function's own bound, where it has one.
fn backward(
    b: &mut Builder<'_>,
    m: &Match,
    function: Activation,
    gated: bool,
    own: Option<AtBound>,
) -> Result<Applied, WhyNot> {
    let function = with_number(b, m, function)?;
    let gated = if gated { Some(Gated::of(b, m, true)?) } else { None };
    let gate = gated.as_ref().map(Gated::form);
    let sides = gated.iter().flat_map(|g| [g.gate.at, g.up.at]);
    let mut passes = sides.chain([own]).flatten();
    let at_bound = passes.next();
    if passes.any(|p| Some(p) != at_bound) {
        return Err(refuse("its bounds do not pass the same"));
    }
    debug_assert_eq!(has_bound(function, gate), at_bound.is_some());
    let x = indexed(m, gated.as_ref().map_or("x", |g| g.gate.operand))?;
    let mut inputs = vec![operand(b, m, "dy", x)?, ("x", x.class)];
    if let Some(g) = &gated {
        let (_, up) = operand(b, m, g.up.operand, x)?;
        inputs.push(("up", up));
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let kind = FusedKind::ActivationGrad { function, gate, at_bound };
    let define = |module: &mut Module, types: &[TensorType]| {
        define::activation::backward(module, types, function, gate, at_bound)
    };
    let tuple = b.fused(kind, &args, define)?;
    let mut applied = Applied::default();
    let dx = gated.as_ref().map_or("dx", |g| g.gate.gradient);
    let mut outputs = vec![result(b, m, (tuple, 0), ("dx", dx), x, &mut applied)?];
    if let Some(g) = &gated {
        outputs.push(result(b, m, (tuple, 1), ("dup", g.up.gradient), x, &mut applied)?);
    }
    applied.op = Some(MultiOutput { tuple, inputs, outputs });
    Ok(applied)
}
