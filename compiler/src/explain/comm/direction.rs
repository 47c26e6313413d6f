//! In which part of a step a collective is.
//!
//! A graph of a template is what its segment is. In the entry, what the loss depends on is forward; what a backward
//! segment depends on is backward; the rest, which only the next state needs, is the update: reductions of gradients,
//! norms over them, gathers of what was updated. A step without templates has no such border, and all behind the loss
//! is backward. A graph that the entry runs otherwise (a loop's body) is where it is run.

use crate::report::Report;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::slice::Slice;
use msc_ir::{Graph, GraphId, Module, Op, OpId, Operation, ValueId};
use msc_passes::template::Role;
use serde::Serialize;
use std::collections::BTreeMap;

/// A part of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Up to the loss.
    Forward,
    /// Gradients.
    Backward,
    /// The next state.
    Update,
}

impl Direction {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
            Direction::Update => "update",
        }
    }
}

/// Ops of a graph that others depend on, those included.
fn needed(g: &Graph, roots: impl IntoIterator<Item = OpId>) -> Vec<bool> {
    let mut seen = vec![false; g.op_count()];
    let mut stack: Vec<OpId> = roots.into_iter().collect();
    while let Some(op) = stack.pop() {
        if std::mem::replace(&mut seen[op.0 as usize], true) {
            continue;
        }
        match cut_out(g, op) {
            Some(only) => stack.extend(g.def(only).map(|(d, _)| d)),
            None => stack.extend(g.op(op).operands.iter().filter_map(|&v| g.def(v)).map(|(d, _)| d)),
        }
    }
    seen
}

/// What an op cuts out of a collective that several values share: the one value that it depends on.
fn cut_out(g: &Graph, op: OpId) -> Option<ValueId> {
    let Op::Slice(Slice::Static { start, limit, .. }) = &g.op(op).op else { return None };
    let (joined, _) = g.def(*g.op(op).operands.first()?)?;
    if !communicates(&g.op(joined).op) {
        return None;
    }
    let (parts, _) = g.def(*g.op(joined).operands.first()?)?;
    let Op::Concatenate(Concatenate { dim }) = &g.op(parts).op else { return None };
    let mut at = 0;
    let range = (*start.get(*dim)?, *limit.get(*dim)?);
    g.op(parts).operands.iter().copied().find(|&v| {
        let from = at;
        at += g.ty(v).shape[*dim];
        (from, at) == range
    })
}

/// The direction of each op of the entry.
fn of_entry(module: &Module, roles: &BTreeMap<GraphId, Direction>) -> Vec<Direction> {
    let Ok(entry) = module.entry() else { return Vec::new() };
    let g = module.graph(entry.graph);
    let state: Vec<u32> = entry.params.iter().filter_map(|p| p.alias).collect();
    let losses = g.results().iter().enumerate().filter(|(i, v)| {
        let t = g.ty(**v);
        !state.contains(&(*i as u32)) && t.rank() == 0 && t.dtype.is_float()
    });
    let forward = needed(g, losses.filter_map(|(_, &v)| g.def(v)).map(|(d, _)| d));
    let runs = |role: Direction| move |o: &Op| o.callees().iter().any(|c| roles.get(c) == Some(&role));
    let called = |role| g.ops().filter(move |(_, d)| runs(role)(&d.op)).map(|(id, _)| id).collect::<Vec<_>>();
    let backward_calls = called(Direction::Backward);
    let backward = needed(g, backward_calls.iter().copied());
    (0..g.op_count())
        .map(|i| match () {
            () if forward[i] => Direction::Forward,
            () if backward_calls.is_empty() || backward[i] => Direction::Backward,
            () => Direction::Update,
        })
        .collect()
}

/// The direction of each collective of a report, in its order.
pub(super) fn directions(module: &Module, r: &Report) -> Vec<Direction> {
    let mut roles: BTreeMap<GraphId, Direction> = BTreeMap::new();
    for t in &r.templates.list {
        for s in &t.segments {
            let direction = match s.role {
                Role::Forward => Direction::Forward,
                Role::Backward => Direction::Backward,
                Role::Update => Direction::Update,
            };
            if let Some(g) = module.graph_by_name(&format!("{}_{}", t.name, s.role.name())) {
                roles.insert(g, direction);
            }
        }
    }
    let ops = of_entry(module, &roles);
    let entry = module.entry().map(|e| e.graph).ok();
    // What a graph runs is where the graph is: callers come first in the reverse of callees first.
    if let Some(entry) = entry {
        for (id, d) in module.graph(entry).ops() {
            for callee in d.op.callees() {
                roles.entry(callee).or_insert(ops[id.0 as usize]);
            }
        }
    }
    let mut order = msc_ir::ops::call::reachable(module);
    order.reverse();
    for g in order {
        let Some(&mine) = roles.get(&g) else { continue };
        for callee in module.graph(g).ops().flat_map(|(_, d)| d.op.callees()) {
            roles.entry(callee).or_insert(mine);
        }
    }
    let in_entry: Vec<OpId> = entry.map_or(Vec::new(), |e| {
        let ops = module.graph(e).ops();
        ops.filter(|(_, d)| communicates(&d.op)).map(|(id, _)| id).collect()
    });
    let name = entry.map(|e| module.graph(e).name.clone()).unwrap_or_default();
    let reported = r.collectives.iter().filter(|c| c.graph == name).count();
    let mut next = in_entry.iter();
    r.collectives
        .iter()
        .map(|c| {
            if c.graph != name {
                let g = module.graph_by_name(&c.graph);
                return g.and_then(|g| roles.get(&g)).copied().unwrap_or(Direction::Update);
            }
            // The report lists the entry's collectives in the entry's order.
            match next.next().filter(|_| reported == in_entry.len()) {
                Some(op) => ops[op.0 as usize],
                None => Direction::Update,
            }
        })
        .collect()
}

/// Whether an op is a collective that moves data.
fn communicates(op: &Op) -> bool {
    use msc_ir::ops::collective::Collective::{AxisIndex, PartitionId};
    matches!(op, Op::Collective(c) if !matches!(c, PartitionId | AxisIndex { .. }))
}
