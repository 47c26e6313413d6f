//! The order of the outlined entry: prologue, then ops and calls as early in the exporter's order as they can be.

use super::chains::Range;
use super::nodes::{NONE, Nodes};
use super::relation::{Candidate, Relation};
use super::segments::{Rank, Refusal};
use msc_ir::ValueId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// One step of the outlined entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// An op that stays in the entry.
    Op(u32),
    /// The call of segment `segment` (index in rank order) for instance `instance` (0 is the first).
    Call { segment: usize, instance: usize },
}

/// The outlined entry's steps, and how many of them are prologue.
pub(super) struct Order {
    pub units: Vec<Unit>,
    pub prologue: usize,
    pub representatives: Representatives,
}

/// For each value number the first value outside the template that has it. Calls are given these, so that what all
/// instances share is computed once.
pub(super) struct Representatives(Vec<u32>);

impl Representatives {
    /// From the nodes outside the template.
    fn new(nodes: &Nodes<'_>, outside: &[u32]) -> Self {
        let mut first = vec![NONE; nodes.number.len()];
        let mut place = |node: u32| {
            for v in nodes.results(node) {
                let f = &mut first[nodes.number[v.0 as usize] as usize];
                if *f == NONE
                    || nodes.position[nodes.producer(ValueId(*f)).0 as usize] > nodes.position[node as usize]
                {
                    *f = v.0;
                }
            }
        };
        outside.iter().for_each(|&n| place(n));
        Representatives(first)
    }

    /// The value that stands for `v` (itself, if the template computes it).
    pub fn of(&self, candidate: &Candidate<'_, '_>, v: ValueId) -> ValueId {
        if candidate.slot(candidate.nodes.producer(v).0).is_some() {
            return v;
        }
        self.outside(v, candidate.nodes.number[v.0 as usize])
    }

    /// The value that stands for `v`, of number `number`, which the template does not compute.
    fn outside(&self, v: ValueId, number: u32) -> ValueId {
        match self.0.get(number as usize) {
            Some(&f) if f != NONE => ValueId(f),
            _ => v,
        }
    }
}

/// Orders ops and calls; refused if calls would wait for each other.
pub(super) fn order(candidate: &Candidate<'_, '_>, rank: &[Option<Rank>]) -> Result<Order, Refusal> {
    let nodes = candidate.nodes;
    let ranks = ranks(rank);
    let n = candidate.range.instances();
    // Units: calls, segment by segment; then nodes.
    let calls = ranks.len() * n;
    let segment: Vec<Option<u32>> = rank.iter().map(|r| r.map(|r| ranks[&r] as u32)).collect();
    let Range { low, high } = candidate.range;
    let call = |segment: u32, i: i32| segment * n as u32 + (i - low) as u32;
    let outside = candidate.outside();
    let mut unit = candidate.units(|c, i| segment[c as usize].map_or(NONE, |s| call(s, i)));
    outside.iter().for_each(|&node| unit[node as usize] = calls as u32 + node);
    let representatives = Representatives::new(nodes, &outside);
    let prologue = prologue(candidate, &representatives, &outside);
    let mut key = vec![(true, 0u32); calls + nodes.len()];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut live = vec![false; calls + nodes.len()];
    live[..calls].fill(true);
    for &node in &outside {
        let u = unit[node as usize];
        live[u as usize] = true;
        key[u as usize] = (!prologue[node as usize], nodes.position[node as usize]);
        edges.extend(nodes.operands(node).iter().map(|v| (unit[v.producer as usize], u)));
    }
    // Which segments' calls wait for which segments' calls of the same instance, or of others.
    let mut between: BTreeSet<(u32, i32, u32)> = BTreeSet::new();
    for c in candidate.chosen() {
        let Some(to) = segment[c as usize] else { continue };
        for i in low..=high {
            let k = &mut key[call(to, i) as usize].1;
            *k = (*k).max(nodes.position[candidate.chains.member(c, i) as usize]);
        }
        for j in 0..candidate.chains.links.count(c) {
            edges.extend(candidate.taken_from_outside(c, j).map(|(i, v)| {
                let v = representatives.outside(v.value, v.number);
                (unit[nodes.producer(v).0 as usize], call(to, i))
            }));
            if let Relation::Chain { chain, distance, .. } = candidate.relation(c, j)
                && let Some(from) = segment[chain as usize]
                && between.insert((from, distance, to))
            {
                let user = |i: &i32| candidate.range.holds(i + distance);
                edges.extend((low..=high).filter(user).map(|i| (call(from, i + distance), call(to, i))));
            }
        }
    }
    edges.retain(|(from, to)| from != to);
    let graph = super::components::Digraph::new(live.len(), &edges);
    let mut waits = vec![0u32; live.len()];
    graph.ends().iter().for_each(|&to| waits[to as usize] += 1);
    let mut ready: BinaryHeap<Reverse<((bool, u32), u32)>> = (0..live.len() as u32)
        .filter(|&u| live[u as usize] && waits[u as usize] == 0)
        .map(|u| Reverse((key[u as usize], u)))
        .collect();
    let mut out = Order { units: Vec::new(), prologue: 0, representatives };
    let mut left = live.iter().filter(|l| **l).count();
    while let Some(Reverse((_, u))) = ready.pop() {
        left -= 1;
        if (u as usize) < calls {
            out.units.push(Unit::Call { segment: u as usize / n, instance: u as usize % n });
        } else {
            let node = u - calls as u32;
            if nodes.op(node).is_some() {
                out.prologue += usize::from(prologue[node as usize]);
                out.units.push(Unit::Op(node));
            }
        }
        for &v in graph.successors(u) {
            waits[v as usize] -= 1;
            if waits[v as usize] == 0 {
                ready.push(Reverse((key[v as usize], v)));
            }
        }
    }
    if left > 0 { Err(Refusal::Cyclic) } else { Ok(out) }
}

/// The segments' ranks, each with its index in execution order.
pub(super) fn ranks(rank: &[Option<Rank>]) -> BTreeMap<Rank, usize> {
    let mut all: Vec<Rank> = rank.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().enumerate().map(|(i, r)| (r, i)).collect()
}

/// What all instances share and no instance computes: for each node whether it is an op of the prologue.
fn prologue(candidate: &Candidate<'_, '_>, representatives: &Representatives, outside: &[u32]) -> Vec<bool> {
    let nodes = candidate.nodes;
    let mut wanted = vec![false; nodes.len()];
    for c in candidate.chosen() {
        for j in 0..candidate.chains.links.count(c) {
            if candidate.is_shared(c, j) {
                let first = nodes.operands(candidate.chains.member(c, candidate.range.low))[j].value;
                let v = representatives.of(candidate, first);
                wanted[nodes.producer(v).0 as usize] = true;
            }
        }
    }
    // Whatever a wanted op needs is wanted; whatever needs an instance is not prologue.
    let mut outside = outside.to_vec();
    outside.sort_unstable_by_key(|&n| nodes.position[n as usize]);
    let mut waits = vec![true; nodes.len()];
    for &node in &outside {
        waits[node as usize] = nodes.operands(node).iter().any(|v| waits[v.producer as usize]);
    }
    for &node in outside.iter().rev() {
        let keep = wanted[node as usize] && !waits[node as usize];
        wanted[node as usize] = keep;
        if keep {
            nodes.operands(node).iter().for_each(|v| wanted[v.producer as usize] = true);
        }
    }
    for (i, w) in wanted.iter_mut().enumerate() {
        *w &= i < nodes.graph.op_count() && !waits[i];
    }
    wanted
}
