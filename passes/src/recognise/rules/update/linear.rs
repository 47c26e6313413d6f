//! Values as sums of other values times numbers, or times numbers and one scalar of the program.

use crate::recognise::probe::program::{Index, Program};
use msc_ir::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use std::collections::{BTreeMap, BTreeSet};

/// Ops that a step is made of at most.
const MAX_OPS: usize = 60;

/// `number + factor·s`, where `s` is a scalar of the program.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Coefficient {
    /// What does not depend on the scalar.
    pub number: f64,
    /// What does.
    pub scalar: Option<(Index, f64)>,
}

/// Coefficients by value.
pub type Form = BTreeMap<Index, Coefficient>;

impl Coefficient {
    /// A number.
    pub fn number(number: f64) -> Coefficient {
        Coefficient { number, scalar: None }
    }

    fn plus(self, other: Coefficient) -> Option<Coefficient> {
        let scalar = match (self.scalar, other.scalar) {
            (Some((s, a)), Some((t, b))) if s == t => Some((s, a + b)),
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        };
        Some(Coefficient { number: self.number + other.number, scalar })
    }

    fn times(self, other: Coefficient) -> Option<Coefficient> {
        let scalar = match (self.scalar, other.scalar) {
            (Some(_), Some(_)) => return None,
            (Some((s, a)), None) => Some((s, a * other.number)),
            (None, Some((s, a))) => Some((s, a * self.number)),
            (None, None) => None,
        };
        Some(Coefficient { number: self.number * other.number, scalar })
    }
}

/// The number or scalar that every element of a value is.
fn factor(p: &Program<'_>, i: Index) -> Option<Coefficient> {
    if let Some(v) = p.splat(i) {
        return Some(Coefficient::number(v));
    }
    let mut at = i;
    while p.values[at].is_layout() {
        at = p.values[at].operands[0];
        if p.values[at].ty.rank() == 0 {
            return Some(Coefficient { number: 0.0, scalar: Some((at, 1.0)) });
        }
    }
    None
}

/// Decomposes values into sums.
pub struct Linear<'p, 'r> {
    p: &'p Program<'r>,
    state: &'p BTreeSet<Index>,
    made: BTreeMap<Index, Option<Form>>,
}

impl<'p, 'r> Linear<'p, 'r> {
    /// Sums in which every value of `state` is a term of its own; what is made of none of them is one term as well.
    pub fn new(p: &'p Program<'r>, state: &'p BTreeSet<Index>) -> Linear<'p, 'r> {
        Linear { p, state, made: BTreeMap::new() }
    }

    /// The terms of a value; `None` if it is none of such a sum, or too large.
    pub fn form(&mut self, i: Index) -> Option<Form> {
        if let Some(known) = self.made.get(&i) {
            return known.clone();
        }
        if self.made.len() > MAX_OPS {
            return None;
        }
        let form = self.decompose(i);
        self.made.insert(i, form.clone());
        form
    }

    fn decompose(&mut self, i: Index) -> Option<Form> {
        let one = Form::from([(i, Coefficient::number(1.0))]);
        if self.state.contains(&i) {
            return Some(one);
        }
        let v = &self.p.values[i];
        let args = v.operands.clone();
        match self.p.op(i) {
            Some(Op::Unary(u)) if u.kind == UnaryKind::Negate => {
                scaled(self.form(args[0])?, Coefficient::number(-1.0))
            }
            Some(Op::Binary(b)) => match b.kind {
                BinaryKind::Add | BinaryKind::Subtract => {
                    let sign = if b.kind == BinaryKind::Add { 1.0 } else { -1.0 };
                    let (x, y) = (self.form(args[0])?, self.form(args[1])?);
                    let of_state = |f: &Form| f.keys().any(|k| self.state.contains(k));
                    // A gradient may be a sum; it is the gradient all the same.
                    if !of_state(&x) && !of_state(&y) {
                        return Some(one);
                    }
                    let mut sum = x;
                    for (k, c) in scaled(y, Coefficient::number(sign))? {
                        let new = sum.get(&k).copied().unwrap_or_default().plus(c)?;
                        sum.insert(k, new);
                    }
                    Some(sum)
                }
                BinaryKind::Multiply => match (factor(self.p, args[0]), factor(self.p, args[1])) {
                    (Some(c), _) => scaled(self.form(args[1])?, c),
                    (None, Some(c)) => scaled(self.form(args[0])?, c),
                    (None, None) => Some(one),
                },
                BinaryKind::Divide => match self.p.splat(args[1]) {
                    Some(c) if c != 0.0 => scaled(self.form(args[0])?, Coefficient::number(1.0 / c)),
                    _ => Some(one),
                },
                _ => Some(one),
            },
            _ => Some(one),
        }
    }
}

fn scaled(form: Form, by: Coefficient) -> Option<Form> {
    form.into_iter().map(|(k, c)| Some((k, c.times(by)?))).collect()
}
