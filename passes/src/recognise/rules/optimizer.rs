//! AdamW: one parameter's step, as optax and as PyTorch write it.
//!
//! The gradient is what the moments are made of: unscaled and widened before. Clipping it is the step's own, if that is
//! all that happens between the clipped gradient and the moments. A step that is skipped on
//! overflow selects between the op's results and the old state. Numbers are read from the program.

use super::refuse;
use crate::recognise::define;
use crate::recognise::engine::rule::{Root, root};
use crate::recognise::engine::{Applied, Builder, Count, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use egg::Id;
use msc_ir::DType;
use msc_ir::ops::fused::{AdamW, Clipping, FusedKind, Number, PlainAdamW};
use msc_ir::ops::unary::UnaryKind::Negate;

/// What a step may make of its gradient before: nothing; a product with the factor of a clipping; a selection between
/// the gradient and the clipped one, whose threshold of 1 is no factor of the program.
macro_rules! gradients {
    ($with:ident) => {
        [
            $with!("(as ?g (multiply ?h (broadcast_in_dim ?f)))"),
            $with!("(as ?g (select ?within ?h (divide ?h (broadcast_in_dim ?norm))))"),
            $with!("(as ?g (select ?within ?h (multiply (divide ?h (broadcast_in_dim ?norm)) ?max:scalar)))"),
            $with!("?g"),
        ]
    };
}

/// √(v'/d) + eps.
macro_rules! root_of {
    ($g:literal) => {
        concat!(
            "(add (sqrt (divide (as ?second (add (multiply ?r2:scalar (multiply ",
            $g,
            " ?g)) (multiply ?b2:scalar ?v))) (broadcast_in_dim ?d))) ?eps:scalar)"
        )
    };
}

/// √v'/c + d.
macro_rules! folded_root_of {
    ($g:literal) => {
        concat!(
            "(add (divide (sqrt (as ?second (add (multiply ?b2:scalar ?v) (multiply ?r2:scalar (multiply ",
            $g,
            " ?g))))) (broadcast_in_dim ?c)) (broadcast_in_dim ?d))"
        )
    };
}

/// In the order of [`gradients`].
const ROOTS: [&str; 4] = gradients!(root_of);
const FOLDED_ROOTS: [&str; 4] = gradients!(folded_root_of);

/// m'/c / root.
const UPDATE: &str = "(divide (divide (as ?first (add (multiply ?r1:scalar ?g) (multiply ?b1:scalar ?m)))
    (broadcast_in_dim ?c)) ?root)";

/// m' / root.
const FOLDED_UPDATE: &str = "(divide (as ?first (add ?m (multiply ?r1:scalar (subtract ?g ?m)))) ?root)";

/// lr·(m'/c) / root: the step is taken of the first moment.
const SCALED_UPDATE: &str =
    "(divide (multiply ?lr:scalar (divide (as ?first (add (multiply ?r1:scalar ?g) (multiply ?b1:scalar ?m)))
    (broadcast_in_dim ?c))) ?root)";

const DECAYED: &str = "(add ?u (multiply ?decay:scalar ?p))";

/// The rules of one way to treat the gradient, their names ending alike: PyTorch's, and optax's or what has its form.
macro_rules! usual {
    ($suffix:literal, $root:expr, $folded_root:expr) => {
        [
            rule(
                concat!("adamw", $suffix),
                &[
                    ("root", $root),
                    ("u", UPDATE),
                    ("w", DECAYED),
                    ("new", "(add ?p (multiply ?step:scalar ?w))"),
                ],
                |b, m| apply(b, m, false),
            ),
            rule(
                concat!("adam", $suffix),
                &[("root", $root), ("u", UPDATE), ("new", "(add ?p (multiply ?step:scalar ?u))")],
                |b, m| apply(b, m, false),
            ),
            rule(
                concat!("adamw-folded", $suffix),
                &[
                    ("root", $folded_root),
                    ("u", FOLDED_UPDATE),
                    ("new", "(add (multiply ?keep:scalar ?p) ?u)"),
                ],
                |b, m| apply(b, m, true),
            ),
            rule(
                concat!("adam-folded", $suffix),
                &[("root", $folded_root), ("u", FOLDED_UPDATE), ("new", "(add ?p ?u)")],
                |b, m| apply(b, m, true),
            ),
        ]
    };
}

/// The same for steps as papers have them: what decays is kept apart from the update, and so is the step's size.
macro_rules! apart {
    ($suffix:literal, $root:expr) => {
        [
            rule(
                concat!("adamw-kept", $suffix),
                &[
                    ("root", $root),
                    ("u", UPDATE),
                    ("new", "(add (multiply ?keep:const ?p) (multiply ?step:const ?u))"),
                ],
                |b, m| apply(b, m, false),
            ),
            rule(
                concat!("adamw-scaled-kept", $suffix),
                &[
                    ("root", $root),
                    ("u", SCALED_UPDATE),
                    ("new", "(add (multiply ?keep:const ?p) (negate ?u))"),
                ],
                |b, m| apply(b, m, false),
            ),
            rule(
                concat!("adamw-scaled-apart", $suffix),
                &[
                    ("root", $root),
                    ("u", SCALED_UPDATE),
                    ("new", "(add (add ?p (negate ?u)) (multiply ?less:const ?p))"),
                ],
                |b, m| apply(b, m, false),
            ),
            rule(
                concat!("adam-scaled", $suffix),
                &[("root", $root), ("u", SCALED_UPDATE), ("new", "(add ?p (negate ?u))")],
                |b, m| apply(b, m, false),
            ),
        ]
    };
}

/// The family. Steps that clip come first: of two that give the same values the first is taken.
pub fn rules() -> Vec<Rule> {
    let mut all = Vec::new();
    all.extend(usual!("-by-factor", ROOTS[0], FOLDED_ROOTS[0]));
    all.extend(apart!("-by-factor", ROOTS[0]));
    all.extend(usual!("-within-1", ROOTS[1], FOLDED_ROOTS[1]));
    all.extend(usual!("-within", ROOTS[2], FOLDED_ROOTS[2]));
    all.extend(usual!("", ROOTS[3], FOLDED_ROOTS[3]));
    all.extend(apart!("", ROOTS[3]));
    all
}

fn rule(
    name: &'static str,
    roots: &[(&'static str, &'static str)],
    apply: crate::recognise::engine::rule::Applier,
) -> Rule {
    let roots: Vec<Root> = roots.iter().map(|&(n, p)| root(n, Frame::Any, Count::One, p)).collect();
    let dtypes = &[DType::F32, DType::F64];
    Rule {
        name,
        tag: Tag::Real,
        facts: &[],
        roots,
        unless: Vec::new(),
        atoms: &[],
        independent: &[],
        apply,
        dtypes,
    }
}

fn apply(b: &mut Builder<'_>, m: &Match, folded: bool) -> Result<Applied, WhyNot> {
    let p = b.var(m, "p")?;
    let full = b.ty(p)?;
    if !full.dtype.is_float() || b.splat_value(p).is_some() {
        return Err(refuse("the parameter is not of floats, or a constant"));
    }
    let mut inputs = vec![("p", p)];
    for name in [if m.vars.contains_key("h") { "h" } else { "g" }, "m", "v"] {
        inputs.push((name, b.var(m, name)?));
    }
    if inputs.iter().any(|&(_, c)| b.ty(c).ok().as_ref() != Some(&full)) {
        return Err(refuse("gradient, moments and parameter differ in type"));
    }
    for name in ["c", "d"] {
        inputs.push((name, b.var(m, name)?));
    }
    let step = step(b, m)?;
    let decay = if folded { None } else { decay_apart(b, m, step.0.value())? };
    let mut number = |name, absent: f64| -> Result<Number, WhyNot> {
        if !m.vars.contains_key(name) {
            return Ok(Number::known(absent));
        }
        let (number, operand) = b.number(m, name)?;
        inputs.extend(operand.map(|scalar| (name, scalar)));
        Ok(number)
    };
    let mut op = AdamW {
        first: (number(if folded { "keep" } else { "b1" }, 1.0)?, number("r1", 1.0)?),
        second: (number("b2", 1.0)?, number("r2", 1.0)?),
        plain: match folded {
            true => None,
            false => Some(PlainAdamW {
                eps: number("eps", 0.0)?,
                decay: match decay {
                    Some(known) => Number::known(known),
                    None => number("decay", 0.0)?,
                },
                step: step.0,
            }),
        },
        clip: Clipping::None,
    };
    inputs.extend(step.1.map(|scalar| ("step", scalar)));
    if m.vars.contains_key("f") {
        op.clip = Clipping::Factor;
        inputs.push(("f", b.var(m, "f")?));
    } else if m.vars.contains_key("within") {
        let (max, operand) = match m.vars.contains_key("max") {
            true => b.number(m, "max")?,
            false => (Number::known(1.0), None),
        };
        op.clip = Clipping::Within(max);
        inputs.push(("within", b.var(m, "within")?));
        inputs.push(("norm", b.var(m, "norm")?));
        inputs.extend(operand.map(|scalar| ("max", scalar)));
    }
    for &(name, scalar) in &inputs[4..] {
        if b.ty(scalar)?.rank() != 0 {
            return Err(refuse(format!("{name} is no scalar")));
        }
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let tuple =
        b.fused(FusedKind::AdamW(op), &args, |module, types| define::optimizer::adamw(module, types, &op))?;
    let outputs =
        vec![("p'", 0, b.var(m, "new")?), ("m'", 1, b.var(m, "first")?), ("v'", 2, b.var(m, "second")?)];
    let unions = outputs.iter().map(|&(_, i, c)| (c, b.project(tuple, i))).collect();
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}

/// The step's size, with its class where it is an operand: what the update is multiplied by.
fn step(b: &mut Builder<'_>, m: &Match) -> Result<(Number, Option<Id>), WhyNot> {
    if m.vars.contains_key("lr") {
        return Ok(match b.number(m, "lr")? {
            (Number::Known(lr), _) => (Number::known(-lr.get()), None),
            (Number::Operand, scalar) => {
                let scalar = scalar.ok_or_else(|| refuse("the step is no number"))?;
                (Number::Operand, Some(b.add(Negate, &[scalar])?))
            }
        });
    }
    match m.vars.contains_key("step") {
        true => b.number(m, "step"),
        false => Ok((Number::known(1.0), None)),
    }
}

/// The decay `d` with which `p + step·(u + d·p)` is what a step that decays apart makes: `keep·p + step·u`, or
/// `p + step·u + less·p`. `None` if it does not.
fn decay_apart(b: &Builder<'_>, m: &Match, step: Option<f64>) -> Result<Option<f64>, WhyNot> {
    let known = |name| match m.vars.contains_key(name) {
        true => Ok(b.number(m, name)?.0.value()),
        false => Ok(None),
    };
    let less = match (known("keep")?, known("less")?) {
        (Some(keep), _) => keep - 1.0,
        (None, Some(less)) => less,
        (None, None) => return Ok(None),
    };
    let decay = step.map(|step| less / step).filter(|d| d.is_finite());
    decay.map(Some).ok_or_else(|| refuse("the step is no number to decay by"))
}
