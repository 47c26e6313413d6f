//! A class as a sum: which term is which pattern.

use super::super::label::Indexed;
use super::super::pattern::Pattern;
use super::super::rule::{Binding, Match};
use super::super::view::Term;
use super::{MAX_MATCHES, Matcher};

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

    fn assign(
        &mut self,
        patterns: &[Pattern],
        rest: Option<&'static str>,
        terms: &[Term],
        used: &mut Vec<bool>,
        m: &Match,
        out: &mut Vec<Match>,
    ) {
        let Some((first, others)) = patterns.split_first() else {
            let left: Vec<Term> =
                terms.iter().zip(&*used).filter(|&(_, u)| !u).map(|(t, _)| t.clone()).collect();
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
                    let mut p = (*self.views.product(&t.of)).clone();
                    if t.negative {
                        p.coefficient = -p.coefficient;
                    }
                    self.product(items, &p, m)
                }
                _ if t.negative => Vec::new(),
                p => self.at(p, &t.of, m),
            };
            used[i] = true;
            for m in found {
                self.assign(others, rest, terms, used, &m, out);
            }
            used[i] = false;
        }
    }
}
