//! AdamW: one parameter's step, as optax and as PyTorch write it.
//!
//! The gradient is what the moments are made of: clipped, unscaled and widened before. A step that is skipped on
//! overflow selects between the op's results and the old state. Numbers are read from the program.

use super::refuse;
use crate::recognise::define;
use crate::recognise::engine::rule::{Root, root};
use crate::recognise::engine::{Applied, Builder, Count, Frame, Match, MultiOutput, Rule, Tag, WhyNot};
use egg::Id;
use msc_ir::DType;
use msc_ir::ops::fused::{AdamW, FusedKind, Scalar};

/// √(v'/d) + eps. The third op is applied to v'.
const ROOT: &str = "(add (sqrt (divide (add (multiply ?r2:const (multiply ?g ?g)) (multiply ?b2:const ?v))
    (broadcast_in_dim ?d))) ?eps:const)";

/// √v'/c + d. The third op is applied to v'.
const FOLDED_ROOT: &str =
    "(add (divide (sqrt (add (multiply ?b2:const ?v) (multiply ?r2:const (multiply ?g ?g))))
    (broadcast_in_dim ?c)) (broadcast_in_dim ?d))";

/// m'/c / root.
const UPDATE: &str =
    "(divide (divide (add (multiply ?r1:const ?g) (multiply ?b1:const ?m)) (broadcast_in_dim ?c))
    ?root)";

/// m' / root.
const FOLDED_UPDATE: &str = "(divide (add ?m (multiply ?r1:const (subtract ?g ?m))) ?root)";

const DECAYED: &str = "(add ?u (multiply ?decay:const ?p))";

/// The family.
pub fn rules() -> Vec<Rule> {
    let plain = |name, rest: &[(&'static str, &'static str)]| {
        rule(name, &[&[("root", ROOT), ("u", UPDATE)], rest].concat(), |b, m| apply(b, m, false))
    };
    let folded = |name, new| {
        let roots = [("root", FOLDED_ROOT), ("u", FOLDED_UPDATE), ("new", new)];
        rule(name, &roots, |b, m| apply(b, m, true))
    };
    vec![
        plain("adamw", &[("w", DECAYED), ("new", "(add ?p (multiply ?step:const ?w))")]),
        plain(
            "adamw-scheduled",
            &[("w", DECAYED), ("new", "(add ?p (multiply (broadcast_in_dim ?step) ?w))")],
        ),
        plain("adam", &[("new", "(add ?p (multiply ?step:const ?u))")]),
        plain("adam-scheduled", &[("new", "(add ?p (multiply (broadcast_in_dim ?step) ?u))")]),
        folded("adamw-folded", "(add (multiply ?keep:const ?p) ?u)"),
        folded("adam-folded", "(add ?p ?u)"),
    ]
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
    let number = |b: &Builder<'_>, name| -> Result<Scalar, WhyNot> {
        let value = b.splat_value(b.var(m, name)?).filter(|v| v.is_finite());
        value.map(Scalar::new).ok_or_else(|| refuse(format!("{name} is not known")))
    };
    let p = b.var(m, "p")?;
    let full = b.ty(p)?;
    if !full.dtype.is_float() || b.splat_value(p).is_some() {
        return Err(refuse("the parameter is not of floats, or a constant"));
    }
    // v' and m' are not variables: they are what the third op of the root and the inner division work on.
    let operand = |at: usize| {
        let found = m.ops.get(at).and_then(|f| f.args.first());
        found.copied().ok_or_else(|| refuse("the match is incomplete"))
    };
    let second = operand(2)?;
    let first = operand(9)?;
    let scheduled = !folded && b.splat_value(b.var(m, "step").unwrap_or(p)).is_none();
    let op = AdamW {
        first: match (folded, m.vars.contains_key("keep")) {
            (true, true) => (number(b, "keep")?, number(b, "r1")?),
            (true, false) => (Scalar::new(1.0), number(b, "r1")?),
            (false, _) => (number(b, "b1")?, number(b, "r1")?),
        },
        second: (number(b, "b2")?, number(b, "r2")?),
        plain: match (folded, m.vars.contains_key("decay")) {
            (true, _) => None,
            (false, true) => Some((number(b, "eps")?, number(b, "decay")?)),
            (false, false) => Some((number(b, "eps")?, Scalar::new(0.0))),
        },
        step: if folded || scheduled { None } else { Some(number(b, "step")?) },
    };
    let mut inputs = vec![("p", p)];
    for name in ["g", "m", "v"] {
        inputs.push((name, b.var(m, name)?));
    }
    if inputs.iter().any(|&(_, c)| b.ty(c).ok().as_ref() != Some(&full)) {
        return Err(refuse("gradient, moments and parameter differ in type"));
    }
    for name in ["c", "d", "step"].into_iter().take(if scheduled { 3 } else { 2 }) {
        let scalar = b.var(m, name)?;
        if b.ty(scalar)?.rank() != 0 {
            return Err(refuse(format!("{name} is no scalar")));
        }
        inputs.push((name, scalar));
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let tuple =
        b.fused(FusedKind::AdamW(op), &args, |module, types| define::optimizer::adamw(module, types, &op))?;
    let outputs = vec![("p'", 0, b.var(m, "new")?), ("m'", 1, first), ("v'", 2, second)];
    let unions = outputs.iter().map(|&(_, i, c)| (c, b.project(tuple, i))).collect();
    Ok(Applied { unions, op: Some(MultiOutput { tuple, inputs, outputs }) })
}
