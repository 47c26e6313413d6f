//! How near a program comes to a rule that does not match: for each site the first root that is not found, and the
//! one part of it that is missing. Asked for by people only; recognition never looks here.

use super::made::reshaped;
use super::pattern::relax::{OPEN, Relaxed};
use super::region::{At, Region};
use super::rule::{Binding, Count, Match, Root, Rule};
use super::search::Searcher;
use super::term::{Graph, behind_barriers};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet};

/// Sites that are told of one rule.
const MOST: usize = 8;

/// A place where part of a rule matches.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The rule.
    pub rule: &'static str,
    /// Where its first root is, or nearly is.
    pub at: Option<At>,
    /// Roots that are there, with their places.
    pub found: Vec<(&'static str, Option<At>)>,
    /// Roots of the rule that must be there.
    pub wanted: usize,
    /// The root that is not there.
    pub root: &'static str,
    /// Its pattern as a formula.
    pub formula: String,
    /// The part of it that is missing, if all the rest is there.
    pub part: Option<Missing>,
}

/// A part of a pattern that is not there.
#[derive(Clone, Debug)]
pub struct Missing {
    /// As a formula.
    pub formula: String,
    /// Its size, in ops, variables and numbers.
    pub size: usize,
    /// Whether nothing is in its place.
    pub dropped: bool,
    /// What is in its place, if that is one value of the program.
    pub instead: Option<At>,
    /// Where the root is that has all the rest.
    pub at: Option<At>,
}

impl Partial {
    /// Nearer sites come first.
    pub fn distance(&self) -> (usize, usize) {
        let missing = self.wanted - self.found.len().min(self.wanted);
        (missing, self.part.as_ref().map_or(usize::MAX, |p| p.size))
    }
}

/// The sites of one e-graph that come near rules, none of which matches in full there.
pub fn partial(graph: &Graph, region: &Region, rules: &[Rule]) -> Vec<Partial> {
    let values = region.values_by_class(graph);
    let program: BTreeSet<Id> = values.keys().copied().collect();
    let mut look = Look { graph, values: &values, searcher: Searcher::new(graph, &program) };
    // What any of the rules matches in full is no near miss of another.
    let mut full: BTreeSet<Id> = BTreeSet::new();
    for rule in rules {
        for m in look.searcher.search(rule) {
            full.extend(rule.roots.iter().filter_map(|r| m.class(r.name)).map(|i| graph.find(i.class)));
        }
    }
    let mut all: Vec<Partial> = rules.iter().flat_map(|r| look.rule(r, &full)).collect();
    all.sort_by_key(|p| (p.distance(), p.at));
    let mut told = BTreeSet::new();
    all.retain(|p| p.at.is_none_or(|at| told.insert(at)));
    all.truncate(MOST);
    all
}

struct Look<'g> {
    graph: &'g Graph,
    values: &'g BTreeMap<Id, Vec<At>>,
    searcher: Searcher<'g>,
}

impl Look<'_> {
    fn at(&self, class: Id) -> Option<At> {
        let class = self.graph.find(class);
        let values = |c: Id| self.values.get(&c).and_then(|v| v.first()).copied();
        values(class)
            .or_else(|| values(behind_barriers(self.graph, class)))
            .or_else(|| reshaped(self.graph, self.values, class).first().copied())
    }

    /// The classes that these are made of by a few ops.
    fn inner(&self, of: impl Iterator<Item = Id>) -> BTreeSet<Id> {
        /// Ops between a root and what is still called a part of it.
        const LEVELS: usize = 4;
        let mut out: BTreeSet<Id> = of.collect();
        let mut last: Vec<Id> = out.iter().copied().collect();
        for _ in 0..LEVELS {
            let nodes = last.iter().flat_map(|&c| &self.graph[c].nodes);
            let children = nodes.flat_map(|n| n.children()).map(|&c| self.graph.find(c));
            last = children.collect::<BTreeSet<Id>>().difference(&out).copied().collect();
            out.extend(last.iter().copied());
        }
        out
    }

    fn place(&self, m: &Match, name: &str) -> Option<At> {
        m.class(name).and_then(|i| self.at(i.class))
    }

    /// The near sites of one rule.
    fn rule(&mut self, rule: &Rule, full: &BTreeSet<Id>) -> Vec<Partial> {
        let Some(first) = rule.roots.first() else { return Vec::new() };
        let wanted = rule.roots.iter().filter(|r| r.count == Count::One).count();
        let alone = with_roots(rule, vec![first.clone()]);
        let class = |m: &Match| m.class(first.name).map(|i| self.graph.find(i.class));
        let starts = self.searcher.search(&alone);
        // Less than all of a root is found inside every root.
        let inner = self.inner(starts.iter().filter_map(class).chain(full.iter().copied()));
        let mut out: Vec<Partial> = Vec::new();
        for m in starts {
            if m.class(first.name).is_none_or(|i| full.contains(&self.graph.find(i.class))) {
                continue;
            }
            out.extend(self.further(rule, m, wanted));
        }
        // Where not even the first root is.
        for r in first.pattern.relaxed() {
            if r.part.size() * 2 > first.pattern.size() + 1 {
                break;
            }
            let root = Root { pattern: r.pattern.clone(), ..first.clone() };
            let near = self.searcher.search(&with_roots(rule, vec![root]));
            let fresh = |m: &Match| {
                let c = m.class(first.name).map(|i| self.graph.find(i.class));
                c.is_some_and(|c| !inner.contains(&c) && self.at(c).is_some())
            };
            let near: Vec<Match> = near.into_iter().filter(fresh).collect();
            let sites = near.into_iter().map(|m| Partial {
                rule: rule.name,
                at: self.place(&m, first.name),
                found: Vec::new(),
                wanted,
                root: first.name,
                formula: first.pattern.to_string(),
                part: Some(self.missing(&r, &m, first.name)),
            });
            out.extend(sites.collect::<Vec<_>>());
            if out.len() >= MOST {
                break;
            }
        }
        out
    }

    /// From a match of the first root on: the first root that is not found beside it.
    fn further(&mut self, rule: &Rule, start: Match, wanted: usize) -> Option<Partial> {
        let mut state = start.clone();
        let mut found = vec![rule.roots[0].name];
        for (i, root) in rule.roots.iter().enumerate().skip(1) {
            let mut roots = rule.roots[..=i].to_vec();
            if let Some(m) = self.extended(rule, roots.clone(), &start) {
                if root.count == Count::One {
                    found.push(root.name);
                }
                state = m;
                continue;
            }
            let mut part = None;
            for r in root.pattern.relaxed() {
                roots[i] = Root { pattern: r.pattern.clone(), ..root.clone() };
                if let Some(m) = self.extended(rule, roots.clone(), &start) {
                    part = Some(self.missing(&r, &m, root.name));
                    break;
                }
            }
            let place = |name: &&'static str| (*name, self.place(&state, name));
            return Some(Partial {
                rule: rule.name,
                at: self.place(&state, rule.roots[0].name),
                found: found.iter().map(place).collect(),
                wanted,
                root: root.name,
                formula: root.pattern.to_string(),
                part,
            });
        }
        None
    }

    /// A match of the first of these roots, extended by the others.
    fn extended(&mut self, rule: &Rule, roots: Vec<Root>, start: &Match) -> Option<Match> {
        self.searcher.extend(&with_roots(rule, roots), vec![start.clone()]).into_iter().next()
    }

    fn missing(&self, r: &Relaxed, m: &Match, root: &str) -> Missing {
        let instead = match m.vars.get(OPEN) {
            Some(Binding::Class(i)) => self.at(i.class),
            _ => None,
        };
        Missing {
            formula: r.part.to_string(),
            size: r.part.size(),
            dropped: r.dropped,
            instead,
            at: self.place(m, root),
        }
    }
}

/// The rule with other roots.
fn with_roots(rule: &Rule, roots: Vec<Root>) -> Rule {
    Rule { roots, unless: Vec::new(), ..rule.clone() }
}
