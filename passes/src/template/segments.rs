//! Cutting a layer into segments that can be called one after another.
//!
//! On the *quotient* graph, in which all members of a chain are one node, the layers' recurrences are cycles: the
//! residual stream in one direction, its gradient in the other. Each segment holds recurrences of one direction
//! only, and whatever waits for all layers (the loss, the global norm) or lies behind an `optimization_barrier`
//! separates segments:
//!
//! - *phase*: how many times all layers have been waited for;
//! - *step* within a phase: even steps run from the first instance to the last, odd ones back.

use super::chains::Range;
use super::components::Digraph;
use super::relation::{Candidate, Relation};
use msc_ir::op::Op;
use std::collections::{BTreeMap, BTreeSet};

/// Rank of a segment: phase, then step.
pub(super) type Rank = (u32, u32);

/// Why a candidate is no template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// This op lies on the way from one instance to the next and has no counterpart in the others.
    Between(u32),
    /// One recurrence runs in both directions.
    BothWays(u32),
    /// Nothing is carried from one instance to the next.
    NoRecurrence,
    /// The calls would wait for each other.
    Cyclic,
}

/// The segments of a candidate.
pub(super) struct Segments {
    /// For each chain its segment's rank; `None` outside the template.
    pub rank: Vec<Option<Rank>>,
    /// Whether a segment has a recurrence, by rank.
    pub recurrent: BTreeMap<Rank, bool>,
    /// Why a recurrence is not part of them, if one had to be left out.
    pub lost: Option<Refusal>,
}

struct Quotient<'a, 'b, 'g> {
    candidate: &'a Candidate<'b, 'g>,
    /// Units: chains, then the nodes outside the candidate.
    graph: Digraph,
    /// The nodes outside, in order of their units.
    outside: Vec<u32>,
    /// By how many instances edges between chains go on (1: to the next); edges that touch anything else have none.
    distances: BTreeMap<(u32, u32), Vec<i32>>,
}

/// Cuts a candidate into segments.
///
/// Recurrences of scalars alone (a norm summed parameter by parameter) are no layers: their chains leave the
/// candidate. So do recurrences that are broken somewhere, if others are whole; [`Segments::lost`] says why.
pub(super) fn segments(candidate: &mut Candidate<'_, '_>) -> Result<Segments, Refusal> {
    let scalars: Vec<u32> = {
        let q = Quotient::new(candidate);
        let components = q.graph.components();
        let scalar = |&m: &u32| candidate.nodes.scalar[q.node(m) as usize];
        let loops = components.into_iter().filter(|c| q.is_loop(c) && c.iter().all(scalar));
        loops.flatten().filter(|&m| q.is_chain(m)).collect()
    };
    candidate.leave_out(&scalars);
    let mut lost: Option<(Refusal, Vec<u32>)> = None;
    loop {
        match cut(candidate) {
            Ok(mut s) => {
                // Without what runs first, the forward, a layer is not one.
                let first = |chains: &[u32]| earliest(candidate, chains);
                let kept: Vec<u32> = candidate
                    .chosen()
                    .filter(|&c| s.rank[c as usize].is_some_and(|r| s.recurrent[&r]))
                    .collect();
                if let Some((why, chains)) = lost {
                    if first(&chains) < first(&kept) {
                        return Err(why);
                    }
                    s.lost = Some(why);
                }
                return Ok(s);
            }
            Err((Refusal::NoRecurrence, _)) => return Err(lost.map_or(Refusal::NoRecurrence, |(why, _)| why)),
            Err((refusal, chains)) => {
                if chains.is_empty() {
                    return Err(refusal);
                }
                candidate.leave_out(&chains);
                lost = lost.or(Some((refusal, chains)));
            }
        }
    }
}

/// The place of the first op of some chains.
fn earliest(candidate: &Candidate<'_, '_>, chains: &[u32]) -> Option<u32> {
    let members = chains.iter().flat_map(|&c| &candidate.chains.members[c as usize]);
    members.map(|&m| candidate.nodes.position[m as usize]).min()
}

/// The segments, or what is wrong with which chains.
fn cut(candidate: &Candidate<'_, '_>) -> Result<Segments, (Refusal, Vec<u32>)> {
    let q = Quotient::new(candidate);
    let components = q.graph.components();
    let mut direction: Vec<i32> = Vec::with_capacity(components.len());
    let mut component_of = vec![0u32; q.graph.len()];
    for (i, members) in components.iter().enumerate() {
        for &m in members {
            component_of[m as usize] = i as u32;
        }
    }
    for members in &components {
        let chains = || members.iter().copied().filter(|&m| q.is_chain(m)).collect();
        direction.push(q.direction(members, &component_of).map_err(|r| (r, chains()))?);
    }
    let ranks = q.ranks(&components, &direction);
    let n = candidate.chains.members.len();
    let mut rank: Vec<Option<Rank>> = (0..n).map(|c| candidate.chosen[c].then(|| ranks[c])).collect();
    q.settle(&components, &direction, &mut rank);
    let mut recurrent = BTreeMap::new();
    for (members, &d) in components.iter().zip(&direction) {
        for &m in members {
            if let Some(Some(r)) = rank.get(m as usize) {
                *recurrent.entry(*r).or_insert(false) |= d != 0;
            }
        }
    }
    if !recurrent.values().any(|&r| r) {
        return Err((Refusal::NoRecurrence, Vec::new()));
    }
    Ok(Segments { rank, recurrent, lost: None })
}

impl<'a, 'b, 'g> Quotient<'a, 'b, 'g> {
    fn new(candidate: &'a Candidate<'b, 'g>) -> Self {
        let nodes = candidate.nodes;
        let n = candidate.chains.members.len();
        let outside = candidate.outside();
        let mut unit = candidate.units(|chain, _| chain);
        for (at, &node) in outside.iter().enumerate() {
            unit[node as usize] = (n + at) as u32;
        }
        let mut pairs = Vec::new();
        let mut distances: BTreeMap<(u32, u32), Vec<i32>> = BTreeMap::new();
        for (at, &node) in outside.iter().enumerate() {
            let own = (n + at) as u32;
            pairs.extend(nodes.operands(node).iter().map(|v| (unit[v.producer as usize], own)));
        }
        let Range { low, high } = candidate.range;
        for c in candidate.chosen() {
            // Every instance has the same edges but for those at the ends, and what comes from outside.
            for i in BTreeSet::from([low, low + 1, high]) {
                let operands = nodes.operands(candidate.chains.member(c, i));
                pairs.extend(operands.iter().map(|v| (unit[v.producer as usize], c)));
            }
            for j in 0..candidate.chains.links.count(c) {
                pairs.extend(candidate.taken_from_outside(c, j).map(|(_, v)| (unit[v.producer as usize], c)));
                if let Relation::Chain { chain, distance, .. } = candidate.relation(c, j) {
                    distances.entry((chain, c)).or_default().push(-distance);
                }
            }
        }
        Quotient { candidate, graph: Digraph::new(n + outside.len(), &pairs), outside, distances }
    }

    fn is_chain(&self, unit: u32) -> bool {
        (unit as usize) < self.candidate.chains.members.len()
    }

    /// Whether a component is a cycle.
    fn is_loop(&self, members: &[u32]) -> bool {
        members.len() > 1 || self.graph.successors(members[0]).contains(&members[0])
    }

    /// The node a unit stands for: itself, or its first member.
    fn node(&self, unit: u32) -> u32 {
        match self.is_chain(unit) {
            true => self.candidate.chains.member(unit, self.candidate.range.low),
            false => self.outside[unit as usize - self.candidate.chains.members.len()],
        }
    }

    fn is_barrier(&self, unit: u32) -> bool {
        if self.is_chain(unit) && !self.candidate.chosen[unit as usize] {
            return false;
        }
        matches!(self.candidate.nodes.op(self.node(unit)).map(|d| &d.op), Some(Op::Barrier(_)))
    }

    /// 1 for a recurrence towards the last instance, −1 towards the first, 0 for no recurrence.
    fn direction(&self, members: &[u32], component_of: &[u32]) -> Result<i32, Refusal> {
        if !self.is_loop(members) {
            return Ok(0);
        }
        if let Some(&outside) = members.iter().find(|&&m| !self.is_chain(m)) {
            return Err(Refusal::Between(self.node(outside)));
        }
        let mut sign = 0;
        for &u in members {
            for &v in self.graph.successors(u) {
                if component_of[u as usize] != component_of[v as usize] {
                    continue;
                }
                for &d in self.distances.get(&(u, v)).into_iter().flatten() {
                    if d * sign < 0 {
                        return Err(Refusal::BothWays(self.node(v)));
                    }
                    sign = if d != 0 { d } else { sign };
                }
            }
        }
        Ok(sign)
    }

    /// The earliest rank of every unit.
    fn ranks(&self, components: &[Vec<u32>], direction: &[i32]) -> Vec<Rank> {
        let mut rank: Vec<Rank> = vec![(0, 0); self.graph.len()];
        for (members, &d) in components.iter().zip(direction) {
            // What predecessors have asked for so far, over the whole component.
            let mut r = members.iter().map(|&m| rank[m as usize]).max().unwrap_or((0, 0));
            if d == 0 && self.is_barrier(members[0]) {
                r = (r.0 + 1, 0);
            }
            if d != 0 && r.1.is_multiple_of(2) != (d > 0) {
                r.1 += 1;
            }
            for &m in members {
                rank[m as usize] = r;
            }
            for &m in members {
                for &v in self.graph.successors(m) {
                    let want = self.after(m, v, r);
                    let w = &mut rank[v as usize];
                    *w = (*w).max(want);
                }
            }
        }
        rank
    }

    /// The rank that a user `v` of `u` has at least.
    fn after(&self, u: u32, v: u32, rank: Rank) -> Rank {
        match (self.is_chain(u), self.is_chain(v)) {
            (true, false) => (rank.0 + 1, 0),
            (false, _) => (rank.0, 0),
            (true, true) => {
                let even = rank.1.is_multiple_of(2);
                let against = |d: &i32| *d != 0 && (*d > 0) != even;
                match self.distances.get(&(u, v)).is_some_and(|d| d.iter().any(against)) {
                    true => (rank.0, rank.1 + 1),
                    false => rank,
                }
            }
        }
    }

    /// Moves chains that no recurrence reaches (functions of weights, moments and shared values alone) to the
    /// segment of their first user, and those in a step without a recurrence to the next step of the phase that
    /// uses them.
    fn settle(&self, components: &[Vec<u32>], direction: &[i32], rank: &mut [Option<Rank>]) {
        let mut reached = vec![false; self.graph.len()];
        let mut recurrent: Vec<Rank> = Vec::new();
        for (members, &d) in components.iter().zip(direction) {
            let here = d != 0 || members.iter().any(|&m| reached[m as usize]);
            for &m in members {
                reached[m as usize] = here;
                if d != 0 {
                    recurrent.extend(rank.get(m as usize).copied().flatten());
                }
                if here {
                    self.graph.successors(m).iter().for_each(|&v| reached[v as usize] = true);
                }
            }
        }
        recurrent.sort_unstable();
        recurrent.dedup();
        for members in components.iter().rev() {
            let [unit] = members[..] else { continue };
            let Some(Some(own)) = rank.get(unit as usize).copied() else { continue };
            if recurrent.contains(&own) && reached[unit as usize] {
                continue;
            }
            let users = self.graph.successors(unit);
            let Some(first) = users
                .iter()
                .map(|&v| rank.get(v as usize).copied().flatten())
                .min_by_key(|r| r.unwrap_or((0, 0)))
                .flatten()
            else {
                continue; // Used outside, or nowhere.
            };
            let crosses = users
                .iter()
                .any(|&v| self.distances.get(&(unit, v)).is_some_and(|d| d.iter().any(|&d| d != 0)));
            let stays_in_phase = !reached[unit as usize] || first.0 == own.0;
            if first > own && stays_in_phase && !crosses {
                rank[unit as usize] = Some(first);
            }
        }
    }
}
