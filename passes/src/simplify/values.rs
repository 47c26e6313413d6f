//! Value numbers: which values of a graph are certainly the same, and common subexpression elimination by them.
//!
//! Two values have one number if they come from equal ops (attributes and the graphs they refer to included) on
//! operands of equal numbers. An `optimization_barrier` is opaque: what it returns is equal to nothing else, so
//! recomputed values stay recomputed. So are collectives, whose order over the ranks is fixed by the program.

use super::compact::compact;
use crate::error::Result;
use msc_ir::op::{Op, Operation};
use msc_ir::{Graph, GraphId, Module, ValueId};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

/// For each graph of the module the first one of equal content (itself, mostly): the same parameter types, the
/// same ops on the same operands, the same results. Names and locations do not count.
pub fn equal_graphs(module: &Module) -> Vec<GraphId> {
    let n = module.graphs().count();
    let mut same: Vec<GraphId> = (0..n as u32).map(GraphId).collect();
    let mut seen: FxHashMap<String, GraphId> = FxHashMap::default();
    let mut done = vec![false; n];
    for (id, _) in module.graphs() {
        visit(module, id, &mut same, &mut seen, &mut done);
    }
    same
}

fn visit(
    module: &Module,
    id: GraphId,
    same: &mut [GraphId],
    seen: &mut FxHashMap<String, GraphId>,
    done: &mut [bool],
) {
    if std::mem::replace(&mut done[id.0 as usize], true) {
        return;
    }
    let g = module.graph(id);
    // Values are renumbered, so that ids given out to dead ops do not tell equal graphs apart.
    let mut numbers = vec![u32::MAX; g.value_count()];
    let mut next = 0;
    let mut name = |v: ValueId, numbers: &mut [u32]| {
        numbers[v.0 as usize] = next;
        next += 1;
    };
    for &p in g.params() {
        name(p, &mut numbers);
    }
    let mut key = format!("{:?}", g.param_types());
    for (_, data) in g.ops() {
        for c in data.op.callees() {
            visit(module, c, same, seen, done);
        }
        for &r in &data.results {
            name(r, &mut numbers);
        }
        let operands: Vec<u32> = data.operands.iter().map(|v| numbers[v.0 as usize]).collect();
        key.push_str(&format!("{:?}{operands:?}", pointed(&data.op, same)));
    }
    let results: Vec<u32> = g.results().iter().map(|v| numbers[v.0 as usize]).collect();
    key.push_str(&format!("{results:?}"));
    same[id.0 as usize] = *seen.entry(key).or_insert(id);
}

/// `op` with the graphs it refers to replaced by their representatives.
fn pointed(op: &Op, same: &[GraphId]) -> Op {
    let mut op = op.clone();
    for c in op.callees_mut() {
        *c = same.get(c.0 as usize).copied().unwrap_or(*c);
    }
    op
}

/// The op as labels and value numbers compare it: references to equal graphs are equal.
pub fn comparable(op: &Op, same: &[GraphId]) -> Option<Op> {
    (!op.callees().is_empty()).then(|| pointed(op, same))
}

/// The number of each value of `graph`, by [`ValueId`]; `same` is [`equal_graphs`] of its module.
pub fn numbers(graph: &Graph, same: &[GraphId]) -> Vec<u32> {
    let referring: FxHashMap<u32, Op> =
        graph.ops().filter_map(|(id, d)| comparable(&d.op, same).map(|op| (id.0, op))).collect();
    let mut out = vec![u32::MAX; graph.value_count()];
    let mut next = 0u32;
    for &p in graph.params() {
        out[p.0 as usize] = next;
        next += 1;
    }
    let mut seen: FxHashMap<(&Op, SmallVec<[u32; 4]>), u32> =
        FxHashMap::with_capacity_and_hasher(graph.order().len(), FxBuildHasher);
    for (id, data) in graph.ops() {
        let op = referring.get(&id.0).unwrap_or(&data.op);
        let fresh = next;
        let first = if matches!(op, Op::Barrier(_) | Op::Collective(_)) {
            fresh
        } else {
            let operands = data.operands.iter().map(|v| out[v.0 as usize]).collect();
            *seen.entry((op, operands)).or_insert(fresh)
        };
        if first == fresh {
            next += data.results.len() as u32;
        }
        for (i, r) in data.results.iter().enumerate() {
            out[r.0 as usize] = first + i as u32;
        }
    }
    out
}

/// A copy of `graph` in which equal values are computed once.
///
/// # Errors
/// As [`compact`].
pub fn share(graph: &Graph, same: &[GraphId]) -> Result<Graph> {
    let numbers = numbers(graph, same);
    let mut first: Vec<Option<ValueId>> = vec![None; numbers.len()];
    let mut out = graph.clone();
    let values =
        graph.params().iter().copied().chain(graph.ops().flat_map(|(_, d)| d.results.iter().copied()));
    for v in values {
        match first[numbers[v.0 as usize] as usize] {
            Some(w) => out.replace_uses(v, w),
            None => first[numbers[v.0 as usize] as usize] = Some(v),
        }
    }
    compact(&out)
}
