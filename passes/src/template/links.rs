//! What the operands of chains are, from member to member, in runs: mostly an operand comes from one other chain, as
//! far away in every member.

use super::nodes::{NONE, Nodes};
use std::ops::RangeInclusive;

/// Some members in a row whose operand comes from the same chain, from as far away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// The places of the members: the first one, and the last one.
    pub from: i32,
    pub to: i32,
    /// The chain, or [`NONE`] for nodes that are in no chain.
    pub chain: u32,
    /// How many places further the producer is in its chain.
    pub ahead: i32,
    /// Which of its results the operand is.
    pub result: u32,
}

/// The runs of all operands of all chains.
pub(super) struct Links {
    /// The operands of chain `c` are those from `operands[c]` up to `operands[c + 1]`.
    operands: Vec<u32>,
    /// The runs of operand `o` are `runs[starts[o]..starts[o + 1]]`.
    starts: Vec<u32>,
    runs: Vec<Run>,
    /// For each operand the first and the last place whose value is another one than the value of the place before.
    changes: Vec<Option<(i32, i32)>>,
}

impl Links {
    /// The runs of chains with these members; `of` and `place` say for each node its chain, and where it is in it.
    pub fn new(nodes: &Nodes<'_>, members: &[Vec<u32>], of: &[u32], place: &[u32]) -> Links {
        let mut out = Links { operands: vec![0], starts: vec![0], runs: Vec::new(), changes: Vec::new() };
        for chain in members {
            for index in 0..nodes.operands(chain[0]).len() {
                out.add(nodes, chain, index, of, place);
            }
            out.operands.push(out.changes.len() as u32);
        }
        out
    }

    fn add(&mut self, nodes: &Nodes<'_>, chain: &[u32], index: usize, of: &[u32], place: &[u32]) {
        let mut changes: Option<(i32, i32)> = None;
        let mut number = nodes.operands(chain[0])[index].number;
        let mut current: Option<Run> = None;
        for (at, &member) in chain.iter().enumerate() {
            let at = at as i32;
            let v = nodes.operands(member)[index];
            if v.number != number {
                number = v.number;
                changes = Some((changes.map_or(at, |c| c.0), at));
            }
            let chain = of[v.producer as usize];
            let (ahead, result) = match chain {
                NONE => (0, 0),
                _ => (place[v.producer as usize] as i32 - at, v.result),
            };
            match &mut current {
                Some(r) if (r.chain, r.ahead, r.result) == (chain, ahead, result) => r.to = at,
                other => {
                    self.runs.extend(other.take());
                    *other = Some(Run { from: at, to: at, chain, ahead, result });
                }
            }
        }
        self.runs.extend(current);
        self.starts.push(self.runs.len() as u32);
        self.changes.push(changes);
    }

    /// How many operands the members of a chain have.
    pub fn count(&self, chain: u32) -> usize {
        (self.operands[chain as usize + 1] - self.operands[chain as usize]) as usize
    }

    fn operand(&self, chain: u32, index: usize) -> usize {
        self.operands[chain as usize] as usize + index
    }

    /// The runs of an operand within some places, cut to them.
    pub fn over(
        &self,
        chain: u32,
        index: usize,
        places: RangeInclusive<i32>,
    ) -> impl Iterator<Item = Run> + '_ {
        let operand = self.operand(chain, index);
        let runs = &self.runs[self.starts[operand] as usize..self.starts[operand + 1] as usize];
        let (low, high) = places.into_inner();
        runs.iter()
            .map(move |r| Run { from: r.from.max(low), to: r.to.min(high), ..*r })
            .filter(|r| r.from <= r.to)
    }

    /// Whether an operand certainly is one value at all these places; `None` if that has to be looked up.
    pub fn is_one(&self, chain: u32, index: usize, places: RangeInclusive<i32>) -> Option<bool> {
        let (low, high) = places.into_inner();
        match self.changes[self.operand(chain, index)] {
            None => Some(true),
            Some((first, last)) if first > high || last <= low => Some(true),
            Some((first, _)) if first > low => Some(false),
            Some((_, last)) if last <= high => Some(false),
            Some(_) => None,
        }
    }
}
