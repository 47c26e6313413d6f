//! What each operand of a template's op is, seen over all instances.

use super::chains::{Chains, Range, Slot};
use super::links::Run;
use super::nodes::{NONE, Nodes, Operand};
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// Chosen chains over a range of instances: the ops that will be outlined.
#[derive(Clone)]
pub(super) struct Candidate<'a, 'g> {
    pub nodes: &'a Nodes<'g>,
    pub chains: &'a Chains,
    pub range: Range,
    /// For each chain whether it is part of the template.
    pub chosen: Vec<bool>,
}

/// Where an operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// In every instance `i`, result `result` of the chain's member in instance `i + distance`; where there is no
    /// such instance, something outside the template.
    Chain { chain: u32, distance: i32, result: u32 },
    /// In every instance something outside the template.
    Outside,
    /// No single rule.
    Mixed,
}

impl<'a, 'g> Candidate<'a, 'g> {
    /// All chains of ops that cover the range, less those whose operands follow no single rule.
    pub fn new(nodes: &'a Nodes<'g>, chains: &'a Chains, range: Range) -> Self {
        let covers = |c: usize| {
            let r = chains.range(c as u32);
            let m = &chains.members[c];
            r.low <= range.low && r.high >= range.high && nodes.is_op(m[0])
        };
        let chosen = (0..chains.members.len()).map(covers).collect();
        let mut out = Candidate { nodes, chains, range, chosen };
        let mixed: Vec<u32> = out
            .chosen()
            .filter(|&c| (0..chains.links.count(c)).any(|j| out.relation(c, j) == Relation::Mixed))
            .collect();
        for c in mixed {
            out.chosen[c as usize] = false;
        }
        out
    }

    /// The same with only the chains that `rank` gives a segment.
    pub fn restricted<R>(&self, rank: &[Option<R>]) -> Self {
        let mut out = self.clone();
        for (chosen, r) in out.chosen.iter_mut().zip(rank) {
            *chosen &= r.is_some();
        }
        out
    }

    /// Takes chains out of the candidate.
    pub fn leave_out(&mut self, chains: &[u32]) {
        chains.iter().for_each(|&c| self.chosen[c as usize] = false);
    }

    /// The chosen chains.
    pub fn chosen(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..self.chosen.len() as u32).filter(|&c| self.chosen[c as usize])
    }

    /// The live nodes that are no part of the template, by their ids.
    pub fn outside(&self) -> Vec<u32> {
        let mut inside = vec![false; self.nodes.len()];
        for c in self.chosen() {
            let places = self.places(c);
            let members = &self.chains.members[c as usize][*places.start() as usize..=*places.end() as usize];
            members.iter().for_each(|&m| inside[m as usize] = true);
        }
        let none =
            inside.iter().zip(&self.nodes.live).enumerate().filter(|(_, (inside, live))| !**inside && **live);
        none.map(|(node, _)| node as u32).collect()
    }

    /// For each node of the template the unit that its chain's nodes of an instance belong to; [`NONE`] for others.
    pub fn units(&self, unit: impl Fn(u32, i32) -> u32) -> Vec<u32> {
        let mut out = vec![NONE; self.nodes.len()];
        for c in self.chosen() {
            for i in self.range.low..=self.range.high {
                out[self.chains.member(c, i) as usize] = unit(c, i);
            }
        }
        out
    }

    /// The slot of a node that is part of the template.
    pub fn slot(&self, node: u32) -> Option<Slot> {
        let chain = self.chains.of[node as usize];
        if chain == NONE || !self.chosen[chain as usize] {
            return None;
        }
        self.chains.slot(node).filter(|s| self.range.holds(s.instance))
    }

    /// The places of a chain's members in the range.
    fn places(&self, chain: u32) -> RangeInclusive<i32> {
        let first = self.chains.first[chain as usize];
        self.range.low - first..=self.range.high - first
    }

    /// Whether operand `index` of a chain's members is one value in all instances.
    pub fn is_shared(&self, chain: u32, index: usize) -> bool {
        self.chains.links.is_one(chain, index, self.places(chain)).unwrap_or_else(|| {
            let number = |i: i32| self.nodes.operands(self.chains.member(chain, i))[index].number;
            (self.range.low + 1..=self.range.high).all(|i| number(i) == number(self.range.low))
        })
    }

    /// The instances in which operand `index` of a chain's members is made outside the template, and what it is there.
    pub fn taken_from_outside(&self, chain: u32, index: usize) -> impl Iterator<Item = (i32, Operand)> + '_ {
        let first = self.chains.first[chain as usize];
        let runs = self.chains.links.over(chain, index, self.places(chain));
        let some = runs.filter(move |r| match self.distance(r, first) {
            Some(d) => !self.range.holds(r.from + first + d) || !self.range.holds(r.to + first + d),
            None => true,
        });
        let places = some.flat_map(|r| r.from..=r.to);
        let members = &self.chains.members[chain as usize];
        places
            .map(move |p| (p + first, self.nodes.operands(members[p as usize])[index]))
            .filter(|(_, v)| self.slot(v.producer).is_none())
    }

    /// By how many instances the producers of a run are further, if they are of a chosen chain.
    fn distance(&self, run: &Run, first: i32) -> Option<i32> {
        (run.chain != NONE && self.chosen[run.chain as usize])
            .then(|| self.chains.first[run.chain as usize] - first + run.ahead)
    }

    /// What operand `index` of a chosen chain's members is.
    pub fn relation(&self, chain: u32, index: usize) -> Relation {
        let first = self.chains.first[chain as usize];
        let mut rule: Option<(u32, i32, u32)> = None;
        // Instances whose operand is from outside.
        let mut outside: SmallVec<[(i32, i32); 4]> = SmallVec::new();
        for run in self.chains.links.over(chain, index, self.places(chain)) {
            let (low, high) = (run.from + first, run.to + first);
            let Some(distance) = self.distance(&run, first) else {
                outside.push((low, high));
                continue;
            };
            let (from, to) = (low.max(self.range.low - distance), high.min(self.range.high - distance));
            if from > to {
                outside.push((low, high));
                continue;
            }
            let this = (run.chain, distance, run.result);
            if rule.is_some_and(|r| r != this) {
                return Relation::Mixed;
            }
            rule = Some(this);
            outside.extend([(low, from - 1), (to + 1, high)].into_iter().filter(|(a, b)| a <= b));
        }
        match rule {
            None => Relation::Outside,
            Some((chain, distance, result)) => {
                // Outside is right exactly where the rule points past the ends.
                let within = |&(a, b): &(i32, i32)| {
                    a.max(self.range.low - distance) <= b.min(self.range.high - distance)
                };
                if distance.abs() > 1 || outside.iter().any(within) {
                    return Relation::Mixed;
                }
                Relation::Chain { chain, distance, result }
            }
        }
    }
}
