//! The order of the outlined entry: prologue, then ops and calls as early in the exporter's order as they can be.

use super::nodes::NONE;
use super::relation::Candidate;
use super::segments::{Rank, Refusal};
use msc_ir::ValueId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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
}

/// For each value number the first value outside the template that has it. Calls are given these, so that what all
/// instances share is computed once.
pub(super) struct Representatives(Vec<u32>);

impl Representatives {
    pub fn new(candidate: &Candidate<'_, '_>) -> Self {
        let nodes = candidate.nodes;
        let count = nodes.number.iter().filter(|&&n| n != NONE).max().map_or(0, |&n| n as usize + 1);
        let mut first = vec![NONE; count];
        for node in nodes.in_order().filter(|&n| candidate.slot(n).is_none()) {
            for v in nodes.results(node) {
                let f = &mut first[nodes.number[v.0 as usize] as usize];
                if *f == NONE {
                    *f = v.0;
                }
            }
        }
        Representatives(first)
    }

    /// The value that stands for `v` (itself, if the template computes it).
    pub fn of(&self, candidate: &Candidate<'_, '_>, v: ValueId) -> ValueId {
        if candidate.slot(candidate.nodes.producer(v).0).is_some() {
            return v;
        }
        match self.0.get(candidate.nodes.number[v.0 as usize] as usize) {
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
    let unit: Vec<u32> = (0..nodes.len() as u32)
        .map(|node| match candidate.slot(node).and_then(|s| Some((s, segment[s.chain as usize]?))) {
            Some((s, at)) => at * n as u32 + (s.instance - candidate.range.low) as u32,
            None => calls as u32 + node,
        })
        .collect();
    let unit = |node: u32| unit[node as usize];
    let representatives = Representatives::new(candidate);
    let prologue = prologue(candidate, &representatives);
    let mut key = vec![(true, 0u32); calls + nodes.len()];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut live = vec![false; calls + nodes.len()];
    for node in nodes.in_order() {
        let u = unit(node);
        live[u as usize] = true;
        let k = &mut key[u as usize];
        k.1 = k.1.max(nodes.position[node as usize]);
        k.0 = (u as usize) < calls || !prologue[node as usize];
        for &v in nodes.operands(node) {
            let v = if (u as usize) < calls { representatives.of(candidate, v) } else { v };
            let from = unit(nodes.producer(v).0);
            // What a call takes, most of its ops take after each other.
            if from != u && edges.last() != Some(&(from, u)) {
                edges.push((from, u));
            }
        }
    }
    edges.sort_unstable_by_key(|&(from, to)| u64::from(from) << 32 | u64::from(to));
    edges.dedup();
    let mut waits = vec![0u32; live.len()];
    edges.iter().for_each(|&(_, to)| waits[to as usize] += 1);
    let graph = super::components::Digraph::new(live.len(), &edges);
    let mut ready: BinaryHeap<Reverse<((bool, u32), u32)>> = (0..live.len() as u32)
        .filter(|&u| live[u as usize] && waits[u as usize] == 0)
        .map(|u| Reverse((key[u as usize], u)))
        .collect();
    let mut out = Order { units: Vec::new(), prologue: 0 };
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
fn prologue(candidate: &Candidate<'_, '_>, representatives: &Representatives) -> Vec<bool> {
    let nodes = candidate.nodes;
    let mut wanted = vec![false; nodes.len()];
    for c in candidate.chosen() {
        let count = nodes.operands(candidate.chains.member(c, candidate.range.low)).len();
        for j in 0..count {
            let at = |i: i32| nodes.operands(candidate.chains.member(c, i))[j];
            let first = at(candidate.range.low);
            if (candidate.range.low + 1..=candidate.range.high).all(|i| nodes.equal(first, at(i))) {
                let v = representatives.of(candidate, first);
                wanted[nodes.producer(v).0 as usize] = true;
            }
        }
    }
    // Whatever a wanted op needs is wanted; whatever needs an instance is not prologue.
    let mut waits = vec![false; nodes.len()];
    for node in nodes.in_order() {
        waits[node as usize] = candidate.slot(node).is_some()
            || nodes.operands(node).iter().any(|&v| waits[nodes.producer(v).0 as usize]);
    }
    for &id in nodes.graph.order().iter().rev() {
        let keep = wanted[id.0 as usize] && !waits[id.0 as usize];
        wanted[id.0 as usize] = keep;
        if keep {
            for &v in nodes.operands(id.0) {
                wanted[nodes.producer(v).0 as usize] = true;
            }
        }
    }
    for (i, w) in wanted.iter_mut().enumerate() {
        *w &= i < nodes.graph.op_count();
    }
    wanted
}
