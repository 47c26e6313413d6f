//! Expressions compared after multiplying out, with known classes as indeterminates.

use super::super::label::Indexed;
use super::super::pattern::Pattern;
use super::super::polynomial::{Polynomials, Users};
use super::super::rule::{Binding, Match};
use super::Matcher;
use std::collections::{BTreeMap, BTreeSet};

impl Matcher<'_> {
    /// Which classes are computed from which by arithmetic.
    pub fn users(&self) -> &Users {
        self.users.get_or_init(|| Users::new(self.graph))
    }

    /// The classes of the variables in a pattern that are known.
    pub fn known(&self, pattern: &Pattern, m: &Match) -> BTreeMap<&'static str, egg::Id> {
        let class = |v: &&'static str| Some((*v, self.graph.find(m.class(v)?.class)));
        pattern.variables().iter().filter_map(class).collect()
    }

    /// The pattern with numbers for what a match knows to be one.
    pub fn with_numbers(&self, pattern: &Pattern, m: &Match) -> Pattern {
        let value =
            |v: &str| Some(self.graph[self.graph.find(m.class(v)?.class)].data.splat.as_ref()?.value());
        pattern.with_numbers(&value)
    }

    pub(super) fn multiplied(&mut self, expression: &Pattern, at: &Indexed, m: &Match) -> Vec<Match> {
        let expression = &self.with_numbers(expression, m);
        let known = self.known(expression, m);
        let variables = expression.variables();
        // What is bound to something else than one class, or stands in another layout, is no atom here.
        let fits = |v: &&'static str| {
            m.vars.get(*v).is_none_or(|_| m.class(v).is_some_and(|i| i.labels == at.labels))
        };
        if !variables.iter().all(fits) {
            return Vec::new();
        }
        let shared = self.users.clone();
        let users = shared.get_or_init(|| Users::new(self.graph));
        let anchors: BTreeSet<egg::Id> = known.values().copied().collect();
        let graph = self.graph;
        let p = self
            .expressions
            .entry(anchors.clone())
            .or_insert_with(|| Polynomials::new(graph, users, anchors));
        let free = variables.iter().find(|v| !known.contains_key(**v)).copied();
        let Some(free) = free else {
            return p.quotient(at.class, expression, &known).map(|_| m.clone()).into_iter().collect();
        };
        let class = match p.quotient(at.class, expression, &known) {
            Some(rest) => p.class_of(&rest, users),
            None => p.factors(at.class).into_iter().find(|&c| {
                let mut known = known.clone();
                known.insert(free, c);
                let anchors = known.values().copied().collect();
                Polynomials::new(graph, users, anchors).quotient(at.class, expression, &known).is_some()
            }),
        };
        let Some(class) = class else { return Vec::new() };
        let mut m = m.clone();
        m.vars.insert(free, Binding::Class(Indexed { class, labels: at.labels.clone() }));
        vec![m]
    }
}
