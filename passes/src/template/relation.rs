//! What each operand of a template's op is, seen over all instances.

use super::chains::{Chains, Range, Slot};
use super::nodes::{NONE, Nodes};

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
            r.low <= range.low && r.high >= range.high && nodes.op(m[0]).is_some()
        };
        let chosen = (0..chains.members.len()).map(covers).collect();
        let mut out = Candidate { nodes, chains, range, chosen };
        let mixed: Vec<u32> = out
            .chosen()
            .filter(|&c| {
                let head = chains.member(c, range.low);
                (0..nodes.operands(head).len()).any(|j| out.relation(c, j) == Relation::Mixed)
            })
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

    /// The slot of a node that is part of the template.
    pub fn slot(&self, node: u32) -> Option<Slot> {
        let chain = self.chains.of[node as usize];
        if chain == NONE || !self.chosen[chain as usize] {
            return None;
        }
        self.chains.slot(node).filter(|s| self.range.holds(s.instance))
    }

    /// What operand `index` of a chosen chain's members is.
    pub fn relation(&self, chain: u32, index: usize) -> Relation {
        let mut rule: Option<(u32, i32, u32)> = None;
        let mut outside = Vec::new();
        for i in self.range.low..=self.range.high {
            let v = self.nodes.operands(self.chains.member(chain, i))[index];
            let (d, result) = self.nodes.producer(v);
            match self.slot(d) {
                Some(s) => {
                    let this = (s.chain, s.instance - i, result);
                    if rule.is_some_and(|r| r != this) {
                        return Relation::Mixed;
                    }
                    rule = Some(this);
                }
                None => outside.push(i),
            }
        }
        match rule {
            None => Relation::Outside,
            Some((chain, distance, result)) => {
                // Outside is right exactly where the rule points past the ends.
                if distance.abs() > 1 || outside.iter().any(|i| self.range.holds(i + distance)) {
                    return Relation::Mixed;
                }
                Relation::Chain { chain, distance, result }
            }
        }
    }
}
