//! A class as a polynomial: whether it is equal to a pattern when both are multiplied out.

use super::super::label::{COL, Indexed, Label, PENDING};
use super::super::pattern::{Head, Pattern, Reduced};
use super::super::rule::{Binding, Match};
use super::super::view::{Polynomial, Term};
use super::Matcher;
use msc_ir::Monoid;

impl Matcher<'_> {
    /// The match, with the variable for what is left, if a class is the sum of `terms` and of what is left.
    pub(super) fn polynomial(
        &mut self,
        terms: &[Pattern],
        rest: Option<&'static str>,
        at: &Indexed,
        m: &Match,
    ) -> Option<Match> {
        let target = self.sum_of(terms, m)?;
        let whole = self.polynomials.polynomial(at);
        let Some(name) = rest else { return whole.matches(&target).then(|| m.clone()) };
        let left = if whole.matches(&target) { Vec::new() } else { self.rest(at, &target)? };
        let mut m = m.clone();
        m.vars.insert(name, Binding::Terms(left));
        Some(m)
    }

    /// What a class adds to `target`, in terms as large as the program has them. `None` if it does not hold the
    /// target, or if one of its two operands already does with something left: that one is the match.
    fn rest(&mut self, at: &Indexed, target: &Polynomial) -> Option<Vec<Term>> {
        for (a, b, negative) in self.polynomials.additions(at) {
            let (p, q) = (self.polynomials.polynomial(&a), self.polynomials.polynomial(&b));
            let sign = if negative { -1.0 } else { 1.0 };
            let left = match (touches(&p, target), touches(&q, target)) {
                (true, false) if p.matches(target) => Some(vec![Term { negative, of: b }]),
                (false, true) if Polynomial::default().plus(&q, sign).matches(target) => {
                    Some(vec![Term { negative: false, of: a }])
                }
                (true, true) => {
                    let (mut sum, mut left) = (Polynomial::default(), Vec::new());
                    self.split(&a, false, target, &mut sum, &mut left);
                    self.split(&b, negative, target, &mut sum, &mut left);
                    sum.matches(target).then_some(left)
                }
                _ => None,
            };
            if left.is_some() {
                return left;
            }
        }
        None
    }

    /// Deals the terms of a class to what belongs to the target and what does not.
    fn split(
        &mut self,
        at: &Indexed,
        negative: bool,
        target: &Polynomial,
        sum: &mut Polynomial,
        left: &mut Vec<Term>,
    ) {
        let p = self.polynomials.polynomial(at);
        if !touches(&p, target) {
            left.push(Term { negative, of: at.clone() });
            return;
        }
        if p.terms.keys().any(|m| !target.terms.contains_key(m))
            && let Some((a, b, minus)) = self.polynomials.additions(at).into_iter().next()
        {
            self.split(&a, negative, target, sum, left);
            self.split(&b, negative != minus, target, sum, left);
            return;
        }
        *sum = sum.plus(&p, if negative { -1.0 } else { 1.0 });
    }

    fn sum_of(&mut self, terms: &[Pattern], m: &Match) -> Option<Polynomial> {
        let mut sum = Polynomial::default();
        for t in terms {
            sum = sum.plus(&self.value(t, m)?, 1.0);
        }
        Some(sum)
    }

    /// The polynomial that a pattern of bound variables means.
    fn value(&mut self, pattern: &Pattern, m: &Match) -> Option<Polynomial> {
        match pattern {
            Pattern::Var(name) | Pattern::Const(name) | Pattern::Scalar(name) => match m.vars.get(name)? {
                Binding::Class(i) => Some((*self.polynomials.polynomial(i)).clone()),
                Binding::Product(p) => Some(Polynomial::product(p)),
                _ => None,
            },
            Pattern::Number(n) => self.number(*n, m).map(Polynomial::constant),
            Pattern::Product(items) => {
                let mut product = Polynomial::constant(1.0);
                for item in items {
                    match &item.pattern {
                        Pattern::Var(v) if item.optional && !m.vars.contains_key(v) => continue,
                        p => {
                            let mut factor = self.value(p, m)?;
                            if item.halves != 2 {
                                factor = self.polynomials.power(&factor, item.halves)?;
                            }
                            product = self.polynomials.times(&product, &factor, 1)?;
                        }
                    }
                }
                Some(product)
            }
            Pattern::Sum(terms, None) | Pattern::Polynomial(terms, None) => self.sum_of(terms, m),
            Pattern::As(_, inner) => self.value(inner, m),
            Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(dims)), args) => {
                let body = self.value(args.first()?, m)?;
                let labels: Vec<Label> = match dims {
                    Reduced::Last => vec![COL],
                    Reduced::Leading => (0..m.rows? as Label).collect(),
                    Reduced::Unit => return None,
                };
                let mut bound = Vec::new();
                for (i, &l) in labels.iter().enumerate() {
                    bound.push((PENDING + i as Label, self.size(l, m)?));
                }
                let rename = |l: Label| match labels.iter().position(|&x| x == l) {
                    Some(i) => PENDING + i as Label,
                    None => l,
                };
                body.relabelled(&rename).summed(&bound, None)
            }
            _ => None,
        }
    }

    /// The size of a dimension of the frame.
    fn size(&self, label: Label, m: &Match) -> Option<usize> {
        m.vars.values().find_map(|b| {
            let Binding::Class(i) = b else { return None };
            let d = i.labels.iter().position(|&l| l == label)?;
            self.graph[self.graph.find(i.class)].data.types.first()?.shape.get(d).copied()
        })
    }
}

/// Whether a polynomial has a term of another, or is zero.
fn touches(p: &Polynomial, target: &Polynomial) -> bool {
    p.terms.is_empty() || p.terms.keys().any(|m| target.terms.contains_key(m))
}
