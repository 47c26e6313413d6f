//! A class as a sum: which term is which pattern. The gradient of `x·x` is two equal products; they count as one.

use super::super::label::Indexed;
use super::super::pattern::Pattern;
use super::super::rule::{Binding, Match};
use super::super::view::{Product, Term};
use super::{MAX_MATCHES, Matcher};

/// Terms that are multiples of one product.
struct Summand {
    term: Term,
    /// The others.
    twins: Vec<Term>,
    /// Their sum, where there are others.
    sum: Option<Product>,
}

impl Matcher<'_> {
    pub(super) fn sum(
        &mut self,
        patterns: &[Pattern],
        rest: Option<&'static str>,
        at: &Indexed,
        m: &Match,
    ) -> Vec<Match> {
        let deepest = patterns.len() as u8 - u8::from(rest.is_none() && patterns.len() > 1);
        for levels in 1..=deepest.max(1) {
            for first in 0.. {
                let Some(terms) = self.views.terms(at, levels, first) else { break };
                let alone = |term| Summand { term, twins: Vec::new(), sum: None };
                let terms: Vec<Summand> = terms.into_iter().map(alone).collect();
                let mut out = Vec::new();
                self.assign(patterns, rest, &terms, &mut vec![false; terms.len()], m, &mut out);
                if !out.is_empty() {
                    return out;
                }
            }
        }
        // Two terms for one take one addition more.
        for levels in 2..=deepest + 1 {
            for first in 0.. {
                let Some(terms) = self.views.terms(at, levels, first) else { break };
                let all = terms.len();
                let terms = self.gathered(terms);
                if terms.len() == all {
                    continue;
                }
                let mut out = Vec::new();
                self.assign(patterns, rest, &terms, &mut vec![false; terms.len()], m, &mut out);
                if !out.is_empty() {
                    return out;
                }
            }
        }
        // One term and nothing left.
        if let (Some(name), [only]) = (rest, patterns) {
            let mut found = self.at(only, at, m);
            for m in &mut found {
                m.vars.insert(name, Binding::Terms(Vec::new()));
            }
            return found;
        }
        Vec::new()
    }

    /// Terms of one product as one.
    fn gathered(&mut self, terms: Vec<Term>) -> Vec<Summand> {
        let mut out: Vec<(Product, Summand)> = Vec::new();
        for term in terms {
            let product = self.signed(&term);
            let equal = out.iter_mut().find(|(p, _)| p.factors == product.factors);
            match equal {
                Some((p, s)) => {
                    p.coefficient += product.coefficient;
                    s.twins.push(term);
                    s.sum = Some(p.clone());
                }
                None => out.push((product, Summand { term, twins: Vec::new(), sum: None })),
            }
        }
        out.into_iter().map(|(_, s)| s).collect()
    }

    fn signed(&mut self, t: &Term) -> Product {
        let mut p = (*self.views.product(&t.of)).clone();
        if t.negative {
            p.coefficient = -p.coefficient;
        }
        p
    }

    fn assign(
        &mut self,
        patterns: &[Pattern],
        rest: Option<&'static str>,
        terms: &[Summand],
        used: &mut Vec<bool>,
        m: &Match,
        out: &mut Vec<Match>,
    ) {
        let Some((first, others)) = patterns.split_first() else {
            let left = terms.iter().zip(&*used).filter(|&(_, u)| !u);
            let left: Vec<Term> =
                left.flat_map(|(t, _)| [&t.term].into_iter().chain(&t.twins)).cloned().collect();
            match rest {
                None if left.is_empty() => out.push(m.clone()),
                None => {}
                Some(name) => {
                    let mut m = m.clone();
                    m.vars.insert(name, Binding::Terms(left));
                    out.push(m);
                }
            }
            return;
        };
        for i in 0..terms.len() {
            if used[i] || out.len() >= MAX_MATCHES {
                continue;
            }
            let t = &terms[i];
            let found = match first {
                Pattern::Product(items) => {
                    let p = match &t.sum {
                        Some(p) => p.clone(),
                        None => self.signed(&t.term),
                    };
                    self.product(items, &p, m)
                }
                _ if t.term.negative || t.sum.is_some() => Vec::new(),
                p => self.at(p, &t.term.of, m),
            };
            used[i] = true;
            for m in found {
                self.assign(others, rest, terms, used, &m, out);
            }
            used[i] = false;
        }
    }
}
