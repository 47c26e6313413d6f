//! A class as a product: which factor is which item.

use super::super::label::{COL, Label};
use super::super::pattern::{Head, Item, Pattern, Place, Reduced};
use super::super::rule::{Binding, Match};
use super::super::view::{Base, Monomial, Product, Sum};
use super::{Matcher, is_literal};
use msc_ir::Monoid;
use std::collections::BTreeSet;

impl Matcher<'_> {
    pub(super) fn product(&mut self, items: &[Item], p: &Product, m: &Match) -> Vec<Match> {
        self.factors(items, &p.factors, Some(p.coefficient), m)
    }

    /// The same for factors whose number, where it is not known, is compared as part of what they are a factor of.
    fn factors(
        &mut self,
        items: &[Item],
        factors: &Monomial,
        coefficient: Option<f64>,
        m: &Match,
    ) -> Vec<Match> {
        let (mut fixed, mut free) = (Vec::new(), Vec::new());
        for item in items {
            match &item.pattern {
                Pattern::Number(_) => {}
                Pattern::Var(v) if !m.vars.contains_key(v) => free.push(item),
                _ => fixed.push(item),
            }
        }
        // The last dimension's factors first: a variable for all that is left takes the others.
        free.sort_by_key(|i| i.place == Place::Full);
        let mut states = vec![(factors.clone(), m.clone())];
        for item in fixed {
            let mut next = Vec::new();
            for (left, m) in &states {
                self.take(item, left, coefficient.is_none(), m, &mut next);
            }
            states = next;
        }
        let numbered = items.iter().any(|i| matches!(i.pattern, Pattern::Number(_)));
        let scalars = free.iter().any(|i| i.place == Place::Scalars);
        let mut out = Vec::new();
        for (mut left, mut m) in states {
            let want = self.number_of(items, &m);
            // A variable for all that is left takes a number too: what is multiplied by it is a value as well.
            let number = match (coefficient, want) {
                (Some(c), Some(w)) if scalars => c / w,
                (Some(c), Some(w)) if !numbered && c / w > 0.0 && !is_literal(c, w) => c / w,
                _ => 1.0,
            };
            let ok = free.iter().all(|item| take_left(item, number, &mut left, &mut m));
            let want = self.number_of(items, &m);
            let fits = |c: f64| scalars || want.is_some_and(|w| is_literal(c, w));
            if ok && left.is_empty() && coefficient.is_none_or(fits) && !out.contains(&m) {
                out.push(m);
            }
        }
        out
    }

    /// The number that a pattern's numbers and variables for products make; `None` where it needs the size of a row
    /// that is not known.
    fn number_of(&self, items: &[Item], m: &Match) -> Option<f64> {
        let mut product = 1.0;
        for item in items {
            let number = match &item.pattern {
                Pattern::Number(n) => self.number(*n, m)?,
                Pattern::Var(v) if item.place != Place::Scalars => match m.vars.get(v) {
                    Some(Binding::Product(p)) => p.coefficient,
                    _ => 1.0,
                },
                Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(_)), inner) => match &inner[0] {
                    Pattern::Product(items) => self.number_of(items, m)?,
                    _ => 1.0,
                },
                _ => 1.0,
            };
            product *= number.powf(f64::from(item.halves) / 2.0);
        }
        Some(product)
    }

    /// Takes one factor out of `left` for an item, in every way there is. `inside` a sum there are no scalars: they
    /// are factors of the sum.
    fn take(
        &mut self,
        item: &Item,
        left: &Monomial,
        inside: bool,
        m: &Match,
        out: &mut Vec<(Monomial, Match)>,
    ) {
        if let Pattern::Var(v) = &item.pattern
            && let Some(factors) = m.vars.get(v).and_then(|bound| self.bound_factors(bound))
        {
            let mut left = left.clone();
            let mut mine = factors.iter().filter(|(b, _)| !inside || !b.free_labels().is_empty());
            if mine.all(|(b, e)| subtract(&mut left, b, e * item.halves / 2)) {
                out.push((left, m.clone()));
            }
            return;
        }
        for (base, _) in left.iter() {
            if !in_place(base, item.place, m) {
                continue;
            }
            let mut rest = left.clone();
            if !subtract(&mut rest, base, item.halves) {
                continue;
            }
            match (&item.pattern, base) {
                (Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(dims)), inner), Base::Sum(s)) => {
                    for m in self.summed(*dims, &inner[0], s, m) {
                        let mut rest = rest.clone();
                        let outside = scalars(&inner[0], &m);
                        if inside || outside.iter().all(|(b, e)| subtract(&mut rest, b, e * item.halves / 2))
                        {
                            out.push((rest, m));
                        }
                    }
                }
                (p, Base::Class(i)) => {
                    out.extend(self.at(p, &i.clone(), m).into_iter().map(|m| (rest.clone(), m)));
                }
                _ => {}
            }
        }
    }

    /// The factors that a bound variable stands for, where it is no factor itself: a product, or a value that a product
    /// sees in another layout.
    fn bound_factors(&mut self, bound: &Binding) -> Option<Monomial> {
        match bound {
            Binding::Product(p) => Some(p.factors.clone()),
            Binding::Class(i) => {
                let p = self.views.product(i);
                let itself = p.is_atom(self.graph.find(i.class));
                (p.coefficient == 1.0 && !itself).then(|| p.factors.clone())
            }
            _ => None,
        }
    }

    fn summed(&mut self, dims: Reduced, inner: &Pattern, s: &Sum, m: &Match) -> Vec<Match> {
        let free: BTreeSet<Label> = s.factors.bases().flat_map(Base::free_labels).collect();
        let mut m = m.clone();
        let rename = |l: Label| -> Label {
            match s.bound.iter().position(|&(b, _)| b == l) {
                Some(_) if dims == Reduced::Last => COL,
                Some(i) => i as Label,
                None => l,
            }
        };
        match dims {
            Reduced::Last => {
                let &[(_, n)] = s.bound.as_slice() else { return Vec::new() };
                if free.contains(&COL) || m.row_size.is_some_and(|d| d != n) {
                    return Vec::new();
                }
                m.row_size = Some(n);
            }
            Reduced::Leading => {
                if free.iter().any(|&l| l < COL) || m.rows.is_some_and(|r| r != s.bound.len()) {
                    return Vec::new();
                }
                m.rows = Some(s.bound.len());
            }
            Reduced::Unit => return Vec::new(),
        }
        match inner {
            Pattern::Product(items) => {
                let factors = s.factors.iter().map(|(b, e)| (b.relabelled(&rename), e)).collect();
                self.factors(items, &factors, None, &m)
            }
            p => match &s.operand {
                Some(o) => {
                    let Base::Class(at) = Base::Class(o.clone()).relabelled(&rename) else {
                        return Vec::new();
                    };
                    self.at(p, &at, &m)
                }
                None => Vec::new(),
            },
        }
    }
}

/// The scalars in what a pattern's variables stand for: of a sum they are factors.
fn scalars(pattern: &Pattern, m: &Match) -> Monomial {
    let mut out = Monomial::new();
    let Pattern::Product(items) = pattern else { return out };
    for item in items {
        let mine = match &item.pattern {
            Pattern::Var(v) => match m.vars.get(v) {
                Some(Binding::Product(p)) => p.factors.clone(),
                _ => continue,
            },
            Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(_)), inner) => scalars(&inner[0], m),
            _ => continue,
        };
        for (b, e) in mine.iter().filter(|(b, _)| b.free_labels().is_empty()) {
            out.set(b, out.exponent(b) + e * item.halves / 2);
        }
    }
    out
}

/// Whether a factor has the dimensions of its place.
fn in_place(base: &Base, place: Place, m: &Match) -> bool {
    let free = base.free_labels();
    let rows = m.rows.unwrap_or(0);
    let has_rows = (0..rows).all(|r| free.contains(&(r as Label)));
    let has_col = free.contains(&COL);
    match place {
        Place::Full => has_rows && has_col && free.len() == rows + 1,
        Place::Rows => has_rows && !has_col && free.len() == rows,
        Place::Cols => has_col && free.len() == 1,
        Place::Scalars => free.is_empty(),
    }
}

/// Takes `base^(halves/2)` out of `left`, if it is there.
fn subtract(left: &mut Monomial, base: &Base, halves: i16) -> bool {
    let have = left.exponent(base);
    if have == 0 || have.signum() != halves.signum() || have.abs() < halves.abs() {
        return false;
    }
    left.set(base, have - halves);
    true
}

/// Binds a free variable to the factors that are left; one for scalars to the product's number too.
fn take_left(item: &Item, number: f64, left: &mut Monomial, m: &mut Match) -> bool {
    let Pattern::Var(name) = item.pattern else { return false };
    let taken: Monomial = left
        .iter()
        .filter(|(b, _)| item.place == Place::Full || in_place(b, item.place, m))
        .map(|(b, e)| (b.clone(), e))
        .collect();
    let free: BTreeSet<Label> = taken.bases().flat_map(Base::free_labels).collect();
    let whole = item.place != Place::Full || free.len() == m.rows.unwrap_or(0) + 1;
    // Of what is left as a whole power the variable is the base.
    let root = item.halves / 2;
    let power = item.halves == 2 || item.place == Place::Full && item.halves > 2 && item.halves % 2 == 0;
    if taken.is_empty() || !power || !whole || taken.iter().any(|(_, e)| e % root != 0) {
        return false;
    }
    taken.bases().for_each(|b| left.set(b, 0));
    let taken: Monomial = taken.iter().map(|(b, e)| (b.clone(), e / root)).collect();
    let coefficient = match item.place {
        Place::Scalars => number,
        Place::Full if item.halves == 2 => number,
        _ => 1.0,
    };
    let one = match (taken.len(), taken.iter().next()) {
        (1, Some((Base::Class(i), 2))) if coefficient == 1.0 => Some(i.clone()),
        _ => None,
    };
    let product = || Binding::Product(Product { coefficient, factors: taken });
    let binding = one.map_or_else(product, Binding::Class);
    // Another factor may have bound it meanwhile.
    match m.vars.get(name) {
        Some(before) => *before == binding,
        None => {
            m.vars.insert(name, binding);
            true
        }
    }
}
