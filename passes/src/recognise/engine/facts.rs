//! Value facts: what is known of the elements of a class, each with its origin.
//!
//! A fact speaks of the elements that are not NaN. Facts are read from terms (`x·x ≥ 0`), so they hold in the
//! rounded arithmetic of the working type, not only over the reals.

use super::term::{Graph, Splat};
use egg::{DidMerge, Id};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Op, Storage, TensorType};

/// A bound of every element, and why it holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The bound.
    pub value: f64,
    /// Whether the bound itself is excluded.
    pub strict: bool,
    /// The statement it comes from.
    pub origin: &'static str,
}

impl Bound {
    fn at(value: f64, origin: &'static str) -> Option<Bound> {
        Some(Bound { value, strict: false, origin })
    }
}

/// A fact that a rule may ask of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact {
    /// Every element is above zero (or NaN).
    Positive,
    /// Every element is zero or above (or NaN).
    NonNegative,
    /// [`Fact::Positive`], but for this variable of the rule: it is a part of the value, and may be a scalar of the
    /// program, whose sign is not known. For roots: below and at zero neither side is a number.
    PositiveBut(&'static str),
}

impl Fact {
    /// The fact in words.
    pub fn describe(self) -> &'static str {
        match self {
            Fact::Positive | Fact::PositiveBut(_) => "is positive",
            Fact::NonNegative => "is not negative",
        }
    }
}

/// Facts of one class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ValueFacts {
    /// Lower bound.
    pub lower: Option<Bound>,
    /// Upper bound.
    pub upper: Option<Bound>,
}

/// The tighter of two lower bounds; `sign` −1 makes them upper bounds. The first wins a tie.
fn tighter(a: Option<Bound>, b: Option<Bound>, sign: f64) -> Option<Bound> {
    match (a, b) {
        (Some(x), Some(y)) => {
            let (p, q) = (sign * x.value, sign * y.value);
            Some(if q > p || (q == p && y.strict && !x.strict) { y } else { x })
        }
        (x, y) => x.or(y),
    }
}

/// The looser of two lower bounds, or none where one is missing.
fn looser(a: Option<Bound>, b: Option<Bound>) -> Option<Bound> {
    let (x, y) = (a?, b?);
    Some(if y.value < x.value { y } else { x })
}

impl ValueFacts {
    /// Whether a fact is known.
    pub fn holds(&self, fact: Fact) -> bool {
        let Some(l) = self.lower else { return false };
        match fact {
            Fact::Positive | Fact::PositiveBut(_) => l.value > 0.0 || (l.value == 0.0 && l.strict),
            Fact::NonNegative => l.value >= 0.0,
        }
    }

    /// Adds what another term of the same class says.
    pub(super) fn merge(&mut self, other: &ValueFacts) -> DidMerge {
        let lower = tighter(self.lower, other.lower, 1.0);
        let upper = tighter(self.upper, other.upper, -1.0);
        let merged = ValueFacts { lower, upper };
        let did = DidMerge(merged != *self, merged != *other);
        *self = merged;
        did
    }

    /// Facts of an op's one result of type `ty`.
    pub(super) fn of_op(
        egraph: &Graph,
        op: &Op,
        args: &[Id],
        ty: &TensorType,
        splat: Option<&Splat>,
    ) -> ValueFacts {
        if let Some(v) = splat.map(Splat::value) {
            if v.is_nan() {
                return ValueFacts::default();
            }
            return ValueFacts { lower: Bound::at(v, "a constant"), upper: Bound::at(v, "a constant") };
        }
        // Integers wrap around.
        if !ty.dtype.is_float() {
            return ValueFacts::default();
        }
        let facts = |i: usize| args.get(i).map_or_else(ValueFacts::default, |&a| egraph[a].data.facts);
        let lower = |b: Option<Bound>| ValueFacts { lower: b, upper: None };
        let zero = |origin| lower(Bound::at(0.0, origin));
        let not_negative = |i: usize| facts(i).holds(Fact::NonNegative);
        match op {
            Op::Unary(u) => match u.kind {
                UnaryKind::Abs => zero("|x| ≥ 0"),
                UnaryKind::Exponential => zero("exp x ≥ 0"),
                UnaryKind::Rsqrt => zero("x^-½ ≥ 0"),
                UnaryKind::Sqrt => {
                    let strict = facts(0).holds(Fact::Positive);
                    lower(Some(Bound { value: 0.0, strict, origin: "√x ≥ 0, above where x is" }))
                }
                UnaryKind::Logistic => ValueFacts {
                    lower: Bound::at(0.0, "0 ≤ logistic ≤ 1"),
                    upper: Bound::at(1.0, "0 ≤ logistic ≤ 1"),
                },
                UnaryKind::Negate => {
                    let f = facts(0);
                    let minus = |b: Option<Bound>| b.map(|b| Bound { value: -b.value, ..b });
                    ValueFacts { lower: minus(f.upper), upper: minus(f.lower) }
                }
                _ => ValueFacts::default(),
            },
            Op::Binary(b) => match b.kind {
                BinaryKind::Multiply if args[0] == args[1] => zero("x·x ≥ 0"),
                BinaryKind::Power if egraph[args[1]].data.splat.as_ref().map(Splat::value) == Some(2.0) => {
                    zero("x² ≥ 0")
                }
                BinaryKind::Multiply if not_negative(0) && not_negative(1) => zero("a·b ≥ 0 for a, b ≥ 0"),
                BinaryKind::Divide if not_negative(0) && not_negative(1) => zero("a/b ≥ 0 for a, b ≥ 0"),
                BinaryKind::Add => {
                    let (Some(p), Some(q)) = (facts(0).lower, facts(1).lower) else {
                        return ValueFacts::default();
                    };
                    // Rounding is monotonic: the rounded sum is not below the rounded sum of the bounds.
                    let value = Storage::from_f64s(ty.dtype, &[p.value + q.value]).get_f64(0);
                    if !value.is_finite() {
                        return ValueFacts::default();
                    }
                    let strict = value == 0.0 && p.value == 0.0 && (p.strict || q.strict);
                    lower(Some(Bound { value, strict, origin: "a + b ≥ min a + min b" }))
                }
                BinaryKind::Maximum => lower(tighter(facts(0).lower, facts(1).lower, 1.0)),
                BinaryKind::Minimum => lower(looser(facts(0).lower, facts(1).lower)),
                _ => ValueFacts::default(),
            },
            Op::Reduce(r) => match r.monoid {
                Monoid::Sum if not_negative(0) => zero("Σx ≥ 0 for x ≥ 0"),
                // The bounds of an empty reduction are those of its identity.
                Monoid::Max | Monoid::Min if r.dims.iter().all(|&d| dim(egraph, args[0], d) > 0) => facts(0),
                _ => ValueFacts::default(),
            },
            Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Slice(_)
                if args.len() == 1 && ty.elements() > 0 =>
            {
                facts(0)
            }
            Op::Select(Select::Select) => lower(looser(facts(1).lower, facts(2).lower)),
            Op::Convert(msc_ir::ops::convert::Convert::Value(d)) if d.is_float() => {
                let round = |b: Option<Bound>| {
                    b.map(|b| Bound {
                        value: Storage::from_f64s(*d, &[b.value]).get_f64(0),
                        strict: false,
                        origin: b.origin,
                    })
                };
                ValueFacts { lower: round(facts(0).lower), upper: round(facts(0).upper) }
            }
            _ => ValueFacts::default(),
        }
    }
}

fn dim(egraph: &Graph, id: Id, d: usize) -> usize {
    egraph[id].data.types.first().and_then(|t| t.shape.get(d)).copied().unwrap_or(0)
}
