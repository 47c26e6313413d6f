//! Collectives that do not wait for each other become one.
//!
//! Before: a partitioned program. After: the same values; collectives of one kind over the same axes and of one element
//! type, of which none needs what another gives, are one collective on their elements one after the other. A start costs
//! as much as moving a few hundred kilobytes, and the gradients of a layer are a dozen tensors.
//!
//! What is gathered is joined only where one op needs it, so that no layer's parameters are there before its turn.

use super::facts::{Draft, Fact};
use crate::error::Result;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Graph, GraphId, Module, Monoid, Op, Shape};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Bytes that one collective takes at most: at tens of gigabytes a second several milliseconds, far above the cost of a
/// start, and small enough to travel while the rest is computed.
const MAX_BYTES: usize = 64 << 20;

/// Larger tensors travel alone: at the rate of the links they take longer than ten starts, and a copy of them is memory.
const MAX_MEMBER: usize = 4 << 20;

/// What must be equal for collectives to be joined.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Reduce(Monoid, Axes, DType),
    Scatter(Monoid, Axes, DType),
    /// With the op that needs it first.
    Gather(Axes, DType, Option<OpId>),
}

fn key(g: &Graph, id: OpId) -> Option<Key> {
    let data = g.op(id);
    let Op::Collective(c) = &data.op else { return None };
    let dtype = g.ty(data.operands.first().copied()?).dtype;
    match c {
        Collective::AllReduce { monoid, axes } => Some(Key::Reduce(*monoid, axes.clone(), dtype)),
        Collective::ReduceScatter { monoid, dim: 0, axes } => {
            Some(Key::Scatter(*monoid, axes.clone(), dtype))
        }
        Collective::AllGather { dim: 0, axes } => {
            let first = g.value(data.results[0]).uses.iter().map(|u| u.op).min();
            Some(Key::Gather(axes.clone(), dtype, first))
        }
        _ => None,
    }
}

/// Collectives to be joined, and the buckets they wait for.
#[derive(Default, Debug)]
struct Bucket {
    members: Vec<OpId>,
    bytes: usize,
    after: BTreeSet<usize>,
}

/// Whether a bucket waits for another, or is it.
fn reaches(buckets: &[Bucket], from: usize, to: usize) -> bool {
    let (mut todo, mut seen) = (vec![from], BTreeSet::new());
    while let Some(b) = todo.pop() {
        if b == to {
            return true;
        }
        if seen.insert(b) {
            todo.extend(&buckets[b].after);
        }
    }
    false
}

/// Whether an op is a part of the update, or moves and compares elements: it may wait until a bucket is full. Others are
/// what a step computes with, and what they wait for should not wait for more. A call waits as what it calls.
fn may_wait(module: &Module, op: &Op) -> bool {
    use FusedKind::*;
    match op {
        Op::Fused(f) => matches!(f.kind, AdamW(_) | Sgd(_) | Lion(_) | Clip(_)),
        Op::Call(c) => module.graph(c.graph).ops().all(|(_, d)| may_wait(module, &d.op)),
        Op::While(_) | Op::Branch(_) | Op::DotGeneral(_) | Op::Convolution(_) => false,
        _ => true,
    }
}

/// The ops of a graph in order, with every reduction right behind what it reduces: the rest of the step then hides it.
/// What is gathered stays where it is needed, so that it is not held for longer.
fn order(g: &Graph) -> Vec<OpId> {
    let reduced = |op: OpId| match &g.op(op).op {
        Op::Collective(Collective::AllReduce { .. } | Collective::ReduceScatter { .. }) => {
            g.op(op).operands.first().and_then(|&v| g.def(v)).map(|(def, _)| def)
        }
        _ => None,
    };
    let mut behind: BTreeMap<OpId, Vec<OpId>> = BTreeMap::new();
    for &op in g.order() {
        if let Some(def) = reduced(op) {
            behind.entry(def).or_default().push(op);
        }
    }
    let mut out = Vec::with_capacity(g.order().len());
    for &op in g.order().iter().filter(|op| reduced(**op).is_none()) {
        let from = out.len();
        out.push(op);
        let mut at = from;
        while at < out.len() {
            let more = behind.remove(&out[at]);
            out.extend(more.into_iter().flatten());
            at += 1;
        }
    }
    out
}

/// Deals a graph's collectives to buckets: an op joins the open bucket of its key unless it waits for it, or something
/// that may not wait does.
fn buckets(module: &Module, g: &Graph, order: &[OpId]) -> Vec<Bucket> {
    let mut all: Vec<Bucket> = Vec::new();
    let mut open: BTreeMap<Key, usize> = BTreeMap::new();
    // Of each value, the buckets that it waits for directly.
    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); g.value_count()];
    for &id in order {
        let data = g.op(id);
        let mut waits: BTreeSet<usize> = BTreeSet::new();
        data.operands.iter().for_each(|v| waits.extend(&after[v.0 as usize]));
        if !may_wait(module, &data.op) {
            open.retain(|_, b| !waits.iter().any(|&w| reaches(&all, w, *b)));
        }
        if let Some(k) = key(g, id) {
            let bytes =
                data.operands.iter().chain(&data.results).map(|&v| g.ty(v).bytes()).max().unwrap_or(0);
            // The bucket of a large one is full with it.
            let bytes = if bytes > MAX_MEMBER { MAX_BYTES } else { bytes };
            let fits = |b: &usize| {
                all[*b].bytes + bytes <= MAX_BYTES && !waits.iter().any(|&w| reaches(&all, w, *b))
            };
            let bucket = match open.get(&k).copied().filter(fits) {
                Some(b) => b,
                None => {
                    all.push(Bucket::default());
                    open.insert(k, all.len() - 1);
                    all.len() - 1
                }
            };
            all[bucket].members.push(id);
            all[bucket].bytes += bytes;
            all[bucket].after.extend(waits);
            waits = BTreeSet::from([bucket]);
        }
        for r in &data.results {
            after[r.0 as usize].clone_from(&waits);
        }
    }
    all.retain(|b| b.members.len() > 1);
    all
}

/// Joins the collectives of a program.
///
/// # Errors
/// Where a joined collective does not infer; that would be a bug here.
pub(super) fn join(draft: &mut Draft) -> Result<()> {
    for id in msc_ir::ops::call::reachable(&draft.module) {
        let order = order(draft.module.graph(id));
        let joined = buckets(&draft.module, draft.module.graph(id), &order);
        if joined.is_empty() {
            continue;
        }
        let source = draft.module.take_graph(id);
        let made = rebuilt(&mut draft.module, &source, &order, &joined)?;
        let mut facts = std::mem::take(&mut draft.facts);
        let old: Vec<(ValueId, Fact)> = facts
            .range((id, ValueId(0))..=(id, ValueId(u32::MAX)))
            .map(|((_, v), f)| (*v, f.clone()))
            .collect();
        facts.retain(|(g, _), _| *g != id);
        facts.extend(renamed(&source, id, old, &joined, &made));
        draft.facts = facts;
        draft.module.set_graph(id, made.graph);
    }
    Ok(())
}

/// The facts of a graph under its values' new names; those of a bucket are its first member's.
fn renamed(
    source: &Graph,
    id: GraphId,
    old: Vec<(ValueId, Fact)>,
    joined: &[Bucket],
    made: &Rebuilt,
) -> Vec<((GraphId, ValueId), Fact)> {
    let mut out = Vec::new();
    for (v, mut fact) in old {
        let bucket = joined.iter().position(|b| b.members.iter().any(|&m| source.op(m).results[0] == v));
        let new = match bucket {
            Some(b) if source.op(joined[b].members[0]).results[0] == v => {
                let more = joined[b].members.len() - 1;
                fact.comes = format!("{}; with {more} more", fact.comes);
                made.buckets[b]
            }
            Some(_) => None,
            None => made.map[v.0 as usize],
        };
        out.extend(new.map(|v| ((id, v), fact)));
    }
    out
}

/// A graph in which buckets are one collective each.
struct Rebuilt {
    graph: Graph,
    map: Vec<Option<ValueId>>,
    /// The result of each bucket's collective.
    buckets: Vec<Option<ValueId>>,
    /// Results of members that are not cut out yet: of which bucket, rows, first column, columns.
    inside: BTreeMap<ValueId, (usize, usize, usize, usize)>,
}

/// Ops and buckets in an order in which definitions precede uses, otherwise as before; a bucket stands where its last
/// member stood.
fn rebuilt(module: &mut Module, source: &Graph, order: &[OpId], joined: &[Bucket]) -> Result<Rebuilt> {
    let mut bucket_of: BTreeMap<OpId, usize> = BTreeMap::new();
    for (b, bucket) in joined.iter().enumerate() {
        bucket_of.extend(bucket.members.iter().map(|&m| (m, b)));
    }
    let mut position = vec![0usize; source.op_count()];
    order.iter().enumerate().for_each(|(i, op)| position[op.0 as usize] = i);
    // A node is the position of an op, or of the last member of a bucket.
    let node = |op: OpId| -> usize {
        let last = |b: &usize| joined[*b].members.last().map(|m| position[m.0 as usize]);
        bucket_of.get(&op).and_then(last).unwrap_or(position[op.0 as usize])
    };
    let mut waits: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); order.len()];
    let mut wakes: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); order.len()];
    for &op in order {
        for v in &source.op(op).operands {
            if let Some((def, _)) = source.def(*v) {
                waits[node(op)].insert(node(def));
                wakes[node(def)].insert(node(op));
            }
        }
    }
    let mut out = Rebuilt {
        graph: Graph::new(source.name.clone()),
        map: vec![None; source.value_count()],
        buckets: vec![None; joined.len()],
        inside: BTreeMap::new(),
    };
    for &p in source.params() {
        out.map[p.0 as usize] = Some(out.graph.add_param(source.ty(p).clone()));
    }
    let nodes: BTreeSet<usize> = order.iter().map(|&op| node(op)).collect();
    let mut ready: BinaryHeap<std::cmp::Reverse<usize>> =
        nodes.iter().filter(|n| waits[**n].is_empty()).map(|&n| std::cmp::Reverse(n)).collect();
    while let Some(std::cmp::Reverse(n)) = ready.pop() {
        match bucket_of.get(&order[n]) {
            Some(&b) => out.bucket(module, source, joined, b)?,
            None => {
                for &v in &source.op(order[n]).operands {
                    out.cut(module, source, v)?;
                }
                out.graph.copy_op(source, order[n], &mut out.map)?;
            }
        }
        for &w in &wakes[n] {
            waits[w].remove(&n);
            if waits[w].is_empty() {
                ready.push(std::cmp::Reverse(w));
            }
        }
    }
    for &r in source.results() {
        out.cut(module, source, r)?;
    }
    let results = source.results().iter().filter_map(|r| out.map[r.0 as usize]).collect();
    out.graph.set_results(results);
    Ok(out)
}

impl Rebuilt {
    /// Builds one collective for a bucket. Each operand is a row, or where ranks give or get different parts one row for
    /// each rank; rows are joined, and the result is cut again where its parts are needed.
    fn bucket(&mut self, module: &mut Module, source: &Graph, joined: &[Bucket], b: usize) -> Result<()> {
        let members = &joined[b].members;
        let first = source.op(members[0]);
        let Op::Collective(op) = &first.op else { return Ok(()) };
        let loc = first.loc;
        let n: usize = op.axes().iter().map(|&a| module.mesh.size(a)).product();
        let (into, out_of) = match op {
            Collective::AllGather { .. } => (1, n),
            Collective::ReduceScatter { .. } => (n, 1),
            _ => (1, 1),
        };
        let mut rows = Vec::new();
        let mut widths = Vec::new();
        for &m in members {
            let data = source.op(m);
            self.cut(module, source, data.operands[0])?;
            let Some(v) = self.map[data.operands[0].0 as usize] else { continue };
            let width = source.ty(data.operands[0]).elements() / into;
            let shape = Shape::from_slice(&[into, width]);
            rows.push(self.graph.add1(module, Reshape { shape }, &[v], data.loc)?);
            widths.push(width);
        }
        let joined = self.graph.add1(module, Concatenate { dim: 1 }, &rows, loc)?;
        let made = self.graph.add1(module, op.clone(), &[joined], loc)?;
        self.buckets[b] = Some(made);
        let mut start = 0;
        for (&m, &width) in members.iter().zip(&widths) {
            let result = source.op(m).results[0];
            self.inside.insert(result, (b, out_of, start, width));
            start += width;
        }
        Ok(())
    }

    /// Cuts a member's result out of its bucket's, unless it is no such result or was cut before.
    fn cut(&mut self, module: &mut Module, source: &Graph, v: ValueId) -> Result<()> {
        let Some((b, rows, start, width)) = self.inside.remove(&v) else { return Ok(()) };
        let (Some(made), Some((op, _))) = (self.buckets[b], source.def(v)) else { return Ok(()) };
        let loc = source.op(op).loc;
        let cut = Slice::Static {
            start: Shape::from_slice(&[0, start]),
            limit: Shape::from_slice(&[rows, start + width]),
            stride: Shape::from_slice(&[1, 1]),
        };
        let part = self.graph.add1(module, cut, &[made], loc)?;
        let shape = source.ty(v).shape.clone();
        self.map[v.0 as usize] = Some(self.graph.add1(module, Reshape { shape }, &[part], loc)?);
        Ok(())
    }
}
