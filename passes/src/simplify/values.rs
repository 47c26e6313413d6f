//! Value numbers: which values of a graph are certainly the same, and common subexpression elimination by them.
//!
//! Two values have one number if they come from equal ops (attributes and the graphs they refer to included) on
//! operands of equal numbers. An `optimization_barrier` is opaque: what it returns is equal to nothing else, so
//! recomputed values stay recomputed. So are collectives, whose order over the ranks is fixed by the program.

use super::compact::compact;
use crate::error::Result;
use hashbrown::HashTable;
use msc_ir::op::{Op, Operation};
use msc_ir::{Graph, GraphId, Module, OpId, ValueId};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

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

/// Ops that refer to graphs as kinds and value numbers compare them: references to equal graphs are equal.
fn referring(graph: &Graph, same: &[GraphId]) -> FxHashMap<u32, Op> {
    graph
        .ops()
        .filter(|(_, d)| !d.op.callees().is_empty())
        .map(|(id, d)| (id.0, pointed(&d.op, same)))
        .collect()
}

/// What ops are, as numbers: equal for the same op and attributes on operands of the same types.
pub struct Kinds {
    /// By op; `u32::MAX` for ops that are gone.
    pub of: Vec<u32>,
    /// How many kinds there are, numbered from 0.
    pub count: u32,
}

impl Kinds {
    /// The kinds of a graph's ops; `same` is [`equal_graphs`] of its module.
    pub fn new(graph: &Graph, same: &[GraphId]) -> Kinds {
        let referring = referring(graph, same);
        let mut of = Vec::with_capacity(graph.op_count() + graph.params().len());
        of.resize(graph.op_count(), u32::MAX);
        let op_of = |id: OpId| match referring.is_empty() {
            true => &graph.op(id).op,
            false => referring.get(&id.0).unwrap_or(&graph.op(id).op),
        };
        let types = |id: OpId| graph.op(id).operands.iter().map(|&v| graph.ty(v));
        let hash = |id: OpId| {
            let mut h = FxHasher::default();
            op_of(id).hash(&mut h);
            // The first type tells nearly all apart.
            types(id).take(1).for_each(|t| t.hash(&mut h));
            h.finish()
        };
        // The first op of each kind.
        let mut seen: HashTable<OpId> = HashTable::new();
        for (id, _) in graph.ops() {
            let hash_of_this = hash(id);
            let same = |&o: &OpId| op_of(o) == op_of(id) && types(o).eq(types(id));
            of[id.0 as usize] = match seen.find(hash_of_this, same) {
                Some(&first) => of[first.0 as usize],
                None => {
                    let next = seen.len() as u32;
                    seen.insert_unique(hash_of_this, id, |&o| hash(o));
                    next
                }
            };
        }
        Kinds { of, count: seen.len() as u32 }
    }
}

/// The number of each value of `graph`, by [`ValueId`]; `same` is [`equal_graphs`] of its module.
pub fn numbers(graph: &Graph, same: &[GraphId]) -> Vec<u32> {
    numbers_of(graph, &Kinds::new(graph, same))
}

/// The same from the kinds of the graph's ops.
pub fn numbers_of(graph: &Graph, kinds: &Kinds) -> Vec<u32> {
    let mut out = vec![u32::MAX; graph.value_count()];
    let mut next = 0u32;
    for &p in graph.params() {
        out[p.0 as usize] = next;
        next += 1;
    }
    // The first op that gives its values, with their first number.
    let mut seen: HashTable<(OpId, u32)> = HashTable::with_capacity(graph.order().len());
    for (id, data) in graph.ops() {
        let fresh = next;
        let mut first = fresh;
        if !matches!(data.op, Op::Barrier(_) | Op::Collective(_)) {
            let numbers = |id: OpId| graph.op(id).operands.iter().map(|v| out[v.0 as usize]);
            let hash = |id: OpId| {
                let mut h = FxHasher::default();
                h.write_u32(kinds.of[id.0 as usize]);
                numbers(id).for_each(|n| h.write_u32(n));
                h.finish()
            };
            let hash_of_this = hash(id);
            let kind = |id: OpId| kinds.of[id.0 as usize];
            let same = |(o, _): &(OpId, u32)| kind(*o) == kind(id) && numbers(*o).eq(numbers(id));
            match seen.find(hash_of_this, same) {
                Some(&(_, known)) => first = known,
                None => {
                    seen.insert_unique(hash_of_this, (id, fresh), |&(o, _)| hash(o));
                }
            }
        }
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
