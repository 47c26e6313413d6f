//! Spelling of arithmetic: aliases of one value, powers, signs, reciprocal roots, chains of constants.

use super::{refuse, root_is, root_is_x};
use crate::recognise::engine::{Applied, Builder, Fact, Match, Rule, Tag, WhyNot};
use msc_ir::Shape;
use msc_ir::ops::binary::BinaryKind::{Add, Maximum, Minimum, Multiply};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::unary::UnaryKind::{Logistic, Negate, Rsqrt};

/// The family.
pub fn rules() -> Vec<Rule> {
    use Tag::{Exact, Real};
    vec![
        Rule::simple("times-one", Exact, "(multiply ?x 1)", root_is_x),
        Rule::simple("divide-by-one", Exact, "(divide ?x 1)", root_is_x),
        Rule::simple("minus-zero", Exact, "(subtract ?x 0)", root_is_x),
        Rule::simple("plus-negative-zero", Exact, "(add ?x -0)", root_is_x),
        // −0 + 0 is +0.
        Rule::simple("plus-zero", Real, "(add ?x 0)", root_is_x),
        Rule::simple("at-least-minus-infinity", Exact, "(maximum ?x -inf)", root_is_x),
        Rule::simple("at-most-infinity", Exact, "(minimum ?x inf)", root_is_x),
        Rule::simple("power-one", Exact, "(power ?x 1)", root_is_x),
        Rule::simple("power-two", Exact, "(power ?x 2)", square),
        Rule::simple("power-three", Real, "(power ?x 3)", cube),
        Rule::simple("negate-negate", Exact, "(negate (negate ?x))", root_is_x),
        Rule::simple("times-minus-one", Exact, "(multiply ?x -1)", negate),
        Rule::simple("divide-by-minus-one", Exact, "(divide ?x -1)", negate),
        // 0 − 0 is +0, −(+0) is −0.
        Rule::simple("zero-minus", Real, "(subtract 0 ?x)", negate),
        Rule::simple("subtract-is-add", Exact, "(subtract ?a ?b)", add_negated),
        Rule::simple("divide-by-root", Real, "(divide ?x (sqrt ?v))", times_rsqrt)
            .needs(&[("v", Fact::Positive)]),
        Rule::simple("one-over-root", Real, "(sqrt (divide 1 ?v))", rsqrt).needs(&[("v", Fact::Positive)]),
        Rule::simple("sigmoid", Real, "(divide 1 (add 1 (exponential (negate ?x))))", logistic),
        // What is at most a number and at least another.
        Rule::simple("clamp", Exact, "(clamp ?low ?x ?high)", clamp),
        Rule::simple("constant-chain", Real, "(multiply ?b:const (multiply ?a:const ?x))", constants),
    ]
}

fn square(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let new = b.add(Multiply, &[x, x])?;
    root_is(b, m, new)
}

fn cube(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let square = b.add(Multiply, &[x, x])?;
    let new = b.add(Multiply, &[square, x])?;
    root_is(b, m, new)
}

fn negate(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let new = b.add(Negate, &[x])?;
    root_is(b, m, new)
}

fn add_negated(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (x, y) = (b.var(m, "a")?, b.var(m, "b")?);
    if !b.ty(y)?.dtype.is_float() {
        return Err(refuse("integers have no use for it"));
    }
    let minus = b.add(Negate, &[y])?;
    let new = b.add(Add, &[x, minus])?;
    root_is(b, m, new)
}

fn times_rsqrt(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (x, v) = (b.var(m, "x")?, b.var(m, "v")?);
    let r = b.add(Rsqrt, &[v])?;
    let new = b.add(Multiply, &[x, r])?;
    root_is(b, m, new)
}

fn rsqrt(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let v = b.var(m, "v")?;
    let new = b.add(Rsqrt, &[v])?;
    root_is(b, m, new)
}

fn logistic(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let new = b.add(Logistic, &[x])?;
    root_is(b, m, new)
}

fn clamp(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let x = b.var(m, "x")?;
    let ty = b.ty(x)?;
    if !ty.dtype.is_float() {
        return Err(refuse("integers have no use for it"));
    }
    let mut made = x;
    for (kind, bound) in [(Maximum, "low"), (Minimum, "high")] {
        let mut bound = b.var(m, bound)?;
        if b.ty(bound)?.shape != ty.shape {
            bound = b.add(BroadcastInDim { shape: ty.shape.clone(), dims: Shape::new() }, &[bound])?;
        }
        made = b.add(kind, &[made, bound])?;
    }
    root_is(b, m, made)
}

fn constants(b: &mut Builder<'_>, m: &Match) -> Result<Applied, WhyNot> {
    let (p, q, x) = (b.var(m, "a")?, b.var(m, "b")?, b.var(m, "x")?);
    let (Some(v), Some(w)) = (b.splat_value(p), b.splat_value(q)) else {
        return Err(refuse("the factors are not known"));
    };
    if b.splat_value(x).is_some() || !b.ty(x)?.dtype.is_float() {
        return Err(refuse("the product is a constant, or not of floats"));
    }
    let ty = b.ty(p)?;
    let both = b.splat(&ty, v * w)?;
    if !b.splat_value(both).is_some_and(|c| c.is_finite() && (c != 0.0 || v * w == 0.0)) {
        return Err(refuse("the product of the factors overflows"));
    }
    let new = b.add(Multiply, &[both, x])?;
    root_is(b, m, new)
}
