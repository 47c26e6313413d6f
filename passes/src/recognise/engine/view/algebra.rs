//! Sums and products of polynomials.

use super::super::facts::Fact;
use super::super::label::{BOUND, BOUND_STEP, Indexed, Label, MAX_DEPTH};
use super::super::matching::{LITERAL_TOLERANCE, is_literal};
use super::{Base, Monomial, Polynomial, Product, Sum};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Factors a product may have before it counts as opaque: the longest of a named operation has 7.
const MAX_FACTORS: usize = 16;

/// Terms a product may have before it counts as opaque: the longest of a named operation has 8.
const MAX_TERMS: usize = 64;

/// Terms a sum may have: a residual gradient may have one for every use of a layer's input.
const MAX_SUM: usize = 128;

/// What is known of a factor.
pub(super) type Known<'a> = &'a dyn Fn(&Base, Fact) -> bool;

impl Polynomial {
    /// A number.
    pub fn constant(value: f64) -> Polynomial {
        Polynomial::term(Monomial::new(), value)
    }

    /// A term; zero has none.
    fn term(factors: Monomial, coefficient: f64) -> Polynomial {
        if coefficient == 0.0 {
            return Polynomial::default();
        }
        Polynomial { terms: [(factors, coefficient)].into() }
    }

    /// One factor.
    pub fn of(base: Base, halves: i16) -> Polynomial {
        Polynomial { terms: [(Monomial::of(base, halves), 1.0)].into() }
    }

    /// One product.
    pub fn product(p: &Product) -> Polynomial {
        Polynomial::term(p.factors.clone(), p.coefficient)
    }

    /// The one term, if there is one.
    pub fn single(&self) -> Option<(&Monomial, f64)> {
        let mut terms = self.terms.iter();
        let (m, &c) = terms.next()?;
        terms.next().is_none().then_some((m, c))
    }

    /// The polynomial as a product; `None` if it has several terms.
    pub fn as_product(&self) -> Option<Product> {
        if self.terms.is_empty() {
            return Some(Product { coefficient: 0.0, factors: Monomial::new() });
        }
        self.single().map(|(m, coefficient)| Product { coefficient, factors: m.clone() })
    }

    /// Whether two polynomials are equal but for the rounding of their literals.
    pub fn matches(&self, other: &Polynomial) -> bool {
        self.terms.len() == other.terms.len()
            && self.terms.iter().zip(&other.terms).all(|((a, &x), (b, &y))| a == b && is_literal(x, y))
    }

    /// The same polynomial with every label changed by `f`.
    pub fn relabelled(&self, f: &impl Fn(Label) -> Label) -> Polynomial {
        let term = |(m, &c): (&Monomial, &f64)| (m.iter().map(|(b, e)| (b.relabelled(f), e)).collect(), c);
        Polynomial { terms: self.terms.iter().map(term).collect() }
    }

    /// Adds every class in the terms to `out`.
    pub fn classes(&self, out: &mut BTreeSet<egg::Id>) {
        self.terms.keys().flat_map(|m| m.bases()).for_each(|b| b.classes(out));
    }

    /// `self + sign·other`. Terms whose literals cancel but for their rounding are gone.
    pub fn plus(&self, other: &Polynomial, sign: f64) -> Polynomial {
        let mut out = self.clone();
        for (m, &c) in &other.terms {
            let c = sign * c;
            let have = out.terms.get(m).copied().unwrap_or(0.0);
            let sum = have + c;
            if sum.abs() <= LITERAL_TOLERANCE * have.abs().max(c.abs()) {
                out.terms.remove(m);
            } else {
                out.terms.insert(m.clone(), sum);
            }
        }
        out
    }

    /// Whether a product with another is not too large.
    pub(super) fn may_be_multiplied(&self, other: &Polynomial) -> bool {
        self.terms.len() * other.terms.len() <= MAX_TERMS
    }

    /// `self · other^sign`; a divisor has one term. `None` where that is not known to hold over the reals.
    pub(super) fn times(&self, other: &Polynomial, sign: i16, known: Known<'_>) -> Option<Polynomial> {
        if sign < 0 && other.single().is_none() {
            return None;
        }
        if !self.may_be_multiplied(other) {
            return None;
        }
        let mut out: Option<Polynomial> = None;
        for (p, &a) in &self.terms {
            for (q, &b) in &other.terms {
                let factors = product(p, q, sign, known)?;
                let coefficient = if sign > 0 { a * b } else { a / b };
                let term = Polynomial::term(factors, coefficient);
                out = Some(match out {
                    None => term,
                    Some(sum) => sum.plus(&term, 1.0),
                });
            }
        }
        Some(out.unwrap_or_default())
    }

    /// `self^(halves/2)`. `None` where that is not known to hold over the reals.
    pub(super) fn power(&self, halves: i16, known: Known<'_>) -> Option<Polynomial> {
        let Some((m, coefficient)) = self.single() else {
            // Squares and cubes of sums.
            return match halves {
                4 => self.times(self, 1, known),
                6 => self.times(self, 1, known)?.times(self, 1, known),
                _ => None,
            };
        };
        let whole = halves % 2 == 0;
        if !whole && coefficient < 0.0 {
            return None;
        }
        let mut factors = Monomial::new();
        for (b, e) in m.iter() {
            if !whole && (e % 2 != 0 || !known(b, Fact::NonNegative)) {
                return None;
            }
            if halves < 0 && e < 0 && !known(b, Fact::Positive) {
                return None;
            }
            let exponent = e.checked_mul(halves)?;
            if exponent % 2 != 0 {
                return None;
            }
            factors.set(b, exponent / 2);
        }
        let coefficient = coefficient.powf(f64::from(halves) / 2.0);
        Some(Polynomial::term(factors, coefficient))
    }

    /// `Σ` over `bound`: what does not depend on a bound dimension moves outside. `None` beyond [`MAX_DEPTH`].
    pub fn summed(&self, bound: &[(Label, usize)], operand: Option<&Indexed>) -> Option<Polynomial> {
        let mut out = Polynomial::default();
        for (m, &c) in &self.terms {
            // The summed class is that body only where nothing was taken out of it.
            let operand = operand.filter(|_| self.terms.len() == 1 && c == 1.0);
            out = out.plus(&summed(m, c, bound, operand)?, 1.0);
        }
        Some(out)
    }

    /// Whether it is small enough, and finite.
    pub(super) fn fits(&self) -> bool {
        self.terms.len() <= MAX_SUM && self.terms.iter().all(|(m, c)| m.len() <= MAX_FACTORS && c.is_finite())
    }
}

/// `p · q^sign`.
fn product(p: &Monomial, q: &Monomial, sign: i16, known: Known<'_>) -> Option<Monomial> {
    let mut out = p.clone();
    for (b, e) in q.iter() {
        let e = e * sign;
        // 1/(1/x) is x where x is not zero.
        if sign < 0 && e > 0 && !known(b, Fact::Positive) {
            return None;
        }
        let have = out.exponent(b);
        if have.signum() * e.signum() < 0 && !known(b, Fact::Positive) {
            return None;
        }
        out.set(b, have.checked_add(e)?);
    }
    Some(out)
}

/// `coefficient · Σ m` over `bound`. Bound dimensions are renumbered by how many sums are inside the sum that binds
/// them, so that the same sum has the same labels wherever it stands.
fn summed(
    m: &Monomial,
    mut coefficient: f64,
    bound: &[(Label, usize)],
    operand: Option<&Indexed>,
) -> Option<Polynomial> {
    let (mut outside, mut inside) = (Monomial::new(), Monomial::new());
    let mut used = BTreeSet::new();
    for (b, e) in m.iter() {
        let free = b.free_labels();
        if bound.iter().any(|(l, _)| free.contains(l)) {
            used.extend(free);
            inside.set(b, e);
        } else {
            outside.set(b, e);
        }
    }
    let mut kept: SmallVec<[(Label, usize); 2]> = SmallVec::new();
    for &(l, n) in bound {
        if used.contains(&l) {
            kept.push((l, n));
        } else {
            coefficient *= n as f64;
        }
    }
    if !kept.is_empty() {
        let height = inside.bases().map(Base::height).max().unwrap_or(0);
        if height >= MAX_DEPTH {
            return None;
        }
        let whole = outside.is_empty() && kept.len() == bound.len();
        let rename = |l: Label| match kept.iter().position(|k| k.0 == l) {
            Some(i) => BOUND + height * BOUND_STEP + i as Label,
            None => l,
        };
        let sum = Sum { bound: kept.clone(), factors: inside, operand: operand.filter(|_| whole).cloned() };
        let sum = Base::Sum(sum).relabelled(&rename);
        let have = outside.exponent(&sum);
        outside.set(&sum, have + 2);
    }
    Some(Polynomial::term(outside, coefficient))
}
