//! What is rectified: ReLU and its square, alone and as the gate of a GLU, with their gradients.
//!
//! A maximum with zero alone says little, so the operand must be rows that come from a matrix product: a variance is kept
//! from falling below zero too, and so is what is made of random bits. The gradient is where the operand is above zero; that of the square is zero there
//! anyway, so that its mask says nothing.

use super::super::refuse;
use super::{backward, forward, indexed, one, rule};
use crate::recognise::engine::rule::{Applier, unless};
use crate::recognise::engine::{Applied, Builder, Match, Rule, WhyNot};
use crate::recognise::rules::activation::bounds::{forms, masked_forms};
use msc_ir::ops::fused::{Activation, AtBound};

const RELU: &str = "(maximum ?x 0)";

/// A gradient where the operand is above zero.
macro_rules! masked {
    ($d:literal) => {
        concat!(
            "(or (select (as ?nothing (or (compare.gt ?x 0) (compare.gt ?a 0))) ",
            $d,
            " 0) (select (as ?nothing (or (compare.le ?x 0) (compare.le ?a 0))) 0 ",
            $d,
            ") (multiply ",
            $d,
            " (as ?half (divide (select (compare.eq ?x ?a) 1 0) (select (compare.eq ?a 0) 2 1)))) ",
            "(select (as ?all (compare.ge ?x 0)) ",
            $d,
            " 0))"
        )
    };
}

/// A gradient that is zero where the operand is below zero, masked or not.
macro_rules! maybe_masked {
    ($d:literal) => {
        concat!("(or ", masked!($d), " ", $d, ")")
    };
}

/// The family.
pub(super) fn rules() -> Vec<Rule> {
    const SQUARE: &str = "(multiplied (multiply ?a ?a))";
    const SQUARE_DX: &str = maybe_masked!("(multiplied (multiply ?dy (multiply 2 ?a)))");
    const GATED_DX: &str = masked!("(multiplied (multiply ?dy ?up))");
    const GATED_SQUARE: &str = "(multiplied (multiply ?up (multiply ?a ?a)))";
    const GATED_SQUARE_DX: &str = maybe_masked!("(multiplied (multiply (multiply ?dy ?up) (multiply 2 ?a)))");
    let a = || one("a", RELU);
    let alone = vec![
        rule("relu", vec![one("y", RELU)], value::<false, false>),
        Rule {
            unless: vec![unless(
                "dy",
                "(multiplied (multiply ?other (multiply 2 ?a)))",
                "the gradient of the square is masked",
            )],
            ..rule("relu-grad", vec![a(), one("dx", masked!("?dy"))], gradient::<false, false>)
        },
        rule("squared-relu", vec![a(), one("y", SQUARE)], value::<true, false>),
        rule("squared-relu-grad", vec![a(), one("y", SQUARE), one("dx", SQUARE_DX)], gradient::<true, false>),
    ];
    let gated = |name, up: &'static str, apply: Applier| {
        rule(name, [vec![a(), one("y", up)], forms()].concat(), apply)
    };
    let gated_gradient = |name, dup: &'static str, dx: &'static str, apply: Applier| {
        rule(name, [vec![a(), one("dup", dup), one("dx", dx)], masked_forms()].concat(), apply)
    };
    let gates = vec![
        gated("reglu", "(multiplied (multiply ?up ?a))", value::<false, true>),
        gated_gradient("reglu-grad", "(multiplied (multiply ?dy ?a))", GATED_DX, gradient::<false, true>),
        gated("squared-reglu", GATED_SQUARE, value::<true, true>),
        gated_gradient(
            "squared-reglu-grad",
            "(multiplied (multiply ?dy (multiply ?a ?a)))",
            GATED_SQUARE_DX,
            gradient::<true, true>,
        ),
    ];
    [alone, gates].concat()
}

fn function(squared: bool) -> Activation {
    if squared { Activation::SquaredRelu } else { Activation::Relu }
}

/// Refuses operands that are no rows, or come from no product.
fn check(b: &Builder<'_>, m: &Match) -> Result<(), WhyNot> {
    let x = indexed(m, "x")?.class;
    if b.ty(x)?.rank() < 2 {
        return Err(refuse("x has no rows"));
    }
    if !b.is_projected(x) {
        return Err(refuse("x comes from no matrix product"));
    }
    Ok(())
}

fn value<const SQUARED: bool, const GATED: bool>(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    check(b, m)?;
    forward(b, m, function(SQUARED), GATED)
}

fn gradient<const SQUARED: bool, const GATED: bool>(
    b: &mut Builder<'_>,
    m: &Match,
) -> Result<Applied, WhyNot> {
    check(b, m)?;
    let names = [("nothing", AtBound::Nothing), ("half", AtBound::Half), ("all", AtBound::All)];
    let passes = names.into_iter().find(|n| m.vars.contains_key(n.0)).map(|n| n.1);
    backward(b, m, function(SQUARED), GATED, passes.filter(|_| !SQUARED))
}
