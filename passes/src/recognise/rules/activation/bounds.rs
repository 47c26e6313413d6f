//! Operands of gates that are kept within bounds, and what is added to them.
//!
//! Bounds and bias are told by what the operand of the gate is made of. Its gradient is masked where the operand is
//! out of bounds: the bounds belong to the gradient's operation only where the mask is found as well, and says what
//! passes at a bound itself.

use super::super::refuse;
use crate::recognise::engine::rule::{Root, root};
use crate::recognise::engine::{Builder, Count, Frame, Match, WhyNot};
use msc_ir::ops::fused::{AtBound, Bounds, Scalar};

/// Kept between two numbers: the operand `_free` as `_above` one of them, then `_inside` both.
macro_rules! between {
    ($o:literal) => {
        concat!(
            "(as ?",
            $o,
            "_inside (minimum (as ?",
            $o,
            "_above (maximum ?",
            $o,
            "_free ?",
            $o,
            "_least:const)) ?",
            $o,
            "_most:const))"
        )
    };
}

/// Kept below a number: the operand `_open` as `_lower`.
macro_rules! below {
    ($o:literal) => {
        concat!("(as ?", $o, "_lower (minimum ?", $o, "_open ?", $o, "_limit:const))")
    };
}

/// 1 where the result of a maximum or minimum is the first, ½ where it is the bound too, 0 elsewhere.
macro_rules! share {
    ($o:literal, $x:literal, $bound:literal, $result:literal) => {
        concat!(
            "(divide (select (compare.eq ?",
            $o,
            $x,
            " ?",
            $o,
            $result,
            ") 1 0) (select (compare.eq ?",
            $o,
            $bound,
            ":const ?",
            $o,
            $result,
            ") 2 1))"
        )
    };
}

/// `?d` where the operand lies on a side of its bound.
macro_rules! where_it {
    ($compare:literal, $o:literal, $x:literal, $bound:literal) => {
        concat!("(", $compare, " ?", $o, $x, " ?", $o, $bound, ":const)")
    };
}

/// The gradient `?d` of an operand between two numbers, before they apply.
macro_rules! masked_between {
    ($o:literal, $d:literal) => {
        concat!(
            "(or (multiply (multiply ",
            $d,
            " (as ?",
            $o,
            "_half ",
            share!($o, "_above", "_most", "_inside"),
            ")) ",
            share!($o, "_free", "_least", "_above"),
            ") (select (as ?",
            $o,
            "_nothing (and ",
            where_it!("compare.gt", $o, "_free", "_least"),
            where_it!("compare.lt", $o, "_free", "_most"),
            ")) ",
            $d,
            " 0) (select (as ?",
            $o,
            "_all (and ",
            where_it!("compare.ge", $o, "_free", "_least"),
            where_it!("compare.le", $o, "_free", "_most"),
            ")) ",
            $d,
            " 0))"
        )
    };
}

/// The same below a number.
macro_rules! masked_below {
    ($o:literal, $d:literal) => {
        concat!(
            "(or (multiply ",
            $d,
            " (as ?",
            $o,
            "_below_half ",
            share!($o, "_open", "_limit", "_lower"),
            ")) (select (as ?",
            $o,
            "_below_nothing ",
            where_it!("compare.lt", $o, "_open", "_limit"),
            ") ",
            $d,
            " 0) (select (as ?",
            $o,
            "_below_all ",
            where_it!("compare.le", $o, "_open", "_limit"),
            ") ",
            $d,
            " 0))"
        )
    };
}

macro_rules! with_bias {
    ($form:expr) => {
        concat!("(as ?up (or (add ", $form, " ?bias:const) ", $form, "))")
    };
}

/// What the operands of a gate may be made of.
const FORMS: [(&str, &str); 5] = [
    ("gate_between", concat!("(as ?x ", between!("gate"), ")")),
    ("gate_below", concat!("(as ?x ", below!("gate"), ")")),
    ("up_between", with_bias!(between!("up"))),
    ("up_below", with_bias!(below!("up"))),
    ("up_biased", "(as ?up (add ?up_plain ?bias:const))"),
];

/// Their gradients, outside the bounds.
const MASKS: [(&str, &str); 4] = [
    ("gate_masked_between", masked_between!("gate", "?dx")),
    ("gate_masked_below", masked_below!("gate", "?dx")),
    ("up_masked_between", masked_between!("up", "?dup")),
    ("up_masked_below", masked_below!("up", "?dup")),
];

fn roots(all: &[(&'static str, &'static str)]) -> Vec<Root> {
    all.iter().map(|&(name, pattern)| root(name, Frame::Full, Count::Optional, pattern)).collect()
}

/// The roots that say what operands `?x` and `?up` are made of.
pub(super) fn forms() -> Vec<Root> {
    roots(&FORMS)
}

/// The same, and those of what becomes of their gradients `?dx` and `?dup`.
pub(super) fn masked_forms() -> Vec<Root> {
    [forms(), roots(&MASKS)].concat()
}

/// The names of one operand's variables and roots.
pub(super) struct Names {
    /// The operand as the activation takes it.
    plain: &'static str,
    /// Its gradient.
    gradient: &'static str,
    /// Operand, form, mask, bounds and what the bounds make of it; and what passes at a bound.
    ways: [([&'static str; 6], [&'static str; 3]); 2],
}

/// Of the gate.
pub(super) const GATE: Names = Names {
    plain: "x",
    gradient: "dx",
    ways: [
        (
            ["gate_free", "gate_between", "gate_masked_between", "gate_least", "gate_most", "gate_inside"],
            ["gate_nothing", "gate_half", "gate_all"],
        ),
        (
            ["gate_open", "gate_below", "gate_masked_below", "", "gate_limit", "gate_lower"],
            ["gate_below_nothing", "gate_below_half", "gate_below_all"],
        ),
    ],
};

/// Of what is gated.
pub(super) const UP: Names = Names {
    plain: "up",
    gradient: "dup",
    ways: [
        (
            ["up_free", "up_between", "up_masked_between", "up_least", "up_most", "up_inside"],
            ["up_nothing", "up_half", "up_all"],
        ),
        (
            ["up_open", "up_below", "up_masked_below", "", "up_limit", "up_lower"],
            ["up_below_nothing", "up_below_half", "up_below_all"],
        ),
    ],
};

/// An operand of a gate, as far out as its bounds belong to the operation.
pub(super) struct Side {
    /// Its variable.
    pub(super) operand: &'static str,
    /// The root that is its gradient.
    pub(super) gradient: &'static str,
    /// Its bounds.
    pub(super) bounds: Bounds,
    /// What passes at one, in a gradient.
    pub(super) at: Option<AtBound>,
    /// What is added within the bounds.
    pub(super) bias: Option<Scalar>,
}

/// A known number.
fn number(b: &Builder<'_>, m: &Match, name: &'static str) -> Result<Scalar, WhyNot> {
    let value = b.splat_value(b.var(m, name)?);
    value.filter(|v| v.is_finite()).map(Scalar::new).ok_or_else(|| refuse(format!("{name} is no number")))
}

/// What an operand is made of; for a `gradient` without the bounds of which there is no mask.
pub(super) fn side(b: &Builder<'_>, m: &Match, names: &Names, gradient: bool) -> Result<Side, WhyNot> {
    let has = |name: &str| m.vars.contains_key(name);
    let biased = names.plain == UP.plain && has("bias");
    let bias = if biased { Some(number(b, m, "bias")?) } else { None };
    let mut out =
        Side { operand: names.plain, gradient: names.gradient, bounds: Bounds::default(), at: None, bias };
    if biased && has("up_biased") {
        out.operand = "up_plain";
    }
    for ([operand, form, mask, least, most, result], at) in names.ways {
        if !has(form) {
            continue;
        }
        out.operand = result;
        let least = if least.is_empty() { None } else { Some(number(b, m, least)?) };
        let most = number(b, m, most)?;
        let passes = at.iter().position(|n| has(n)).map(|i| AtBound::ALL[i]);
        let masked = has(mask) && passes.is_some();
        if least.is_some_and(|l| l.get() >= most.get()) || gradient && !masked {
            continue;
        }
        out.operand = operand;
        out.bounds = Bounds { least, most: Some(most) };
        if gradient {
            (out.gradient, out.at) = (mask, passes);
        }
        break;
    }
    Ok(out)
}
