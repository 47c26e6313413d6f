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
        let mut number = None;
        let (mut fixed, mut free) = (Vec::new(), Vec::new());
        for item in items {
            match &item.pattern {
                Pattern::Number(n) => number = Some(*n),
                Pattern::Var(v) if !m.vars.contains_key(v) => free.push(item),
                _ => fixed.push(item),
            }
        }
        // The last dimension's factors first: a variable for all that is left takes the others.
        free.sort_by_key(|i| i.place == Place::Full);
        let mut states = vec![(p.factors.clone(), m.clone())];
        for item in fixed {
            let mut next = Vec::new();
            for (left, m) in &states {
                self.take(item, left, m, &mut next);
            }
            states = next;
        }
        let mut out = Vec::new();
        for (mut left, mut m) in states {
            let ok = free.iter().all(|item| take_left(item, p.coefficient, &mut left, &mut m));
            let scalars = free.iter().any(|i| i.place == Place::Scalars);
            let want = match number {
                None => Some(1.0),
                Some(n) => self.number(n, &m),
            };
            if ok
                && left.is_empty()
                && (scalars || want.is_some_and(|w| is_literal(p.coefficient, w)))
                && !out.contains(&m)
            {
                out.push(m);
            }
        }
        out
    }

    /// Takes one factor out of `left` for an item, in every way there is.
    fn take(&mut self, item: &Item, left: &Monomial, m: &Match, out: &mut Vec<(Monomial, Match)>) {
        if let Pattern::Var(v) = &item.pattern
            && let Some(Binding::Product(p)) = m.vars.get(v)
        {
            let mut left = left.clone();
            if p.factors.iter().all(|(b, &e)| subtract(&mut left, b, e * item.halves / 2)) {
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
            let found = match (&item.pattern, base) {
                (Pattern::Op(Head::Reduce(Some(Monoid::Sum), Some(dims)), inner), Base::Sum(s)) => {
                    self.summed(*dims, &inner[0], s, m)
                }
                (p, Base::Class(i)) => self.at(p, &i.clone(), m),
                _ => Vec::new(),
            };
            out.extend(found.into_iter().map(|m| (rest.clone(), m)));
        }
    }

    fn summed(&mut self, dims: Reduced, inner: &Pattern, s: &Sum, m: &Match) -> Vec<Match> {
        let free: BTreeSet<Label> = s.factors.keys().flat_map(Base::free_labels).collect();
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
                let factors = s.factors.iter().map(|(b, &e)| (b.relabelled(&rename), e)).collect();
                self.product(items, &Product { coefficient: 1.0, factors }, &m)
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
    let Some(&have) = left.get(base) else { return false };
    if have.signum() != halves.signum() || have.abs() < halves.abs() {
        return false;
    }
    if have == halves {
        left.remove(base);
    } else {
        left.insert(base.clone(), have - halves);
    }
    true
}

/// Binds a free variable to the factors that are left; one for scalars to the product's number too.
fn take_left(item: &Item, number: f64, left: &mut Monomial, m: &mut Match) -> bool {
    let Pattern::Var(name) = item.pattern else { return false };
    let taken: Monomial = left
        .iter()
        .filter(|(b, _)| item.place == Place::Full || in_place(b, item.place, m))
        .map(|(b, &e)| (b.clone(), e))
        .collect();
    let free: BTreeSet<Label> = taken.keys().flat_map(Base::free_labels).collect();
    let whole = item.place != Place::Full || free.len() == m.rows.unwrap_or(0) + 1;
    // Of what is left as a whole power the variable is the base.
    let root = item.halves / 2;
    let power = item.halves == 2 || item.place == Place::Full && item.halves > 2 && item.halves % 2 == 0;
    if taken.is_empty() || !power || !whole || taken.values().any(|e| e % root != 0) {
        return false;
    }
    left.retain(|b, _| !taken.contains_key(b));
    let taken: Monomial = taken.into_iter().map(|(b, e)| (b, e / root)).collect();
    let coefficient = if item.place == Place::Scalars { number } else { 1.0 };
    let binding = match (taken.len(), taken.iter().next()) {
        (1, Some((Base::Class(i), 2))) if coefficient == 1.0 => Binding::Class(i.clone()),
        _ => Binding::Product(Product { coefficient, factors: taken }),
    };
    // Another factor may have bound it meanwhile.
    match m.vars.get(name) {
        Some(before) => *before == binding,
        None => {
            m.vars.insert(name, binding);
            true
        }
    }
}
