//! Carries of a loop that are one: they start as the same value and no trip changes them.
//!
//! **Before:** a graph with loops. **After:** in the bodies and conditions of its loops the first of such carries is used for
//! all of them; the others are still carried, and used by nothing. JAX hoists what a layer's loop computes alike in every
//! trip (tables of rotations, masks) once for each of its uses.

use super::values::{equal_graphs, numbers};
use msc_ir::op::{Op, Operation};
use msc_ir::{GraphId, Module};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Makes one of equal carries, in the loops of all of `graphs`, callers first.
pub(super) fn merge(module: &mut Module, graphs: &[GraphId]) {
    let loops = |module: &Module, g: GraphId| -> Vec<_> {
        module.graph(g).ops().filter(|(_, d)| matches!(d.op, Op::While(_))).map(|(id, _)| id).collect()
    };
    // A body that two ops run starts as each of them says.
    let mut runs: BTreeMap<GraphId, usize> = BTreeMap::new();
    for callee in graphs.iter().flat_map(|&g| module.graph(g).ops().flat_map(|(_, d)| d.op.callees())) {
        *runs.entry(callee).or_default() += 1;
    }
    let mut same = None;
    for &g in graphs {
        let ops = loops(module, g);
        if ops.is_empty() {
            continue;
        }
        let numbers = numbers(module.graph(g), same.get_or_insert_with(|| equal_graphs(module)));
        for op in ops {
            let data = module.graph(g).op(op);
            let Op::While(w) = data.op.clone() else { continue };
            let invariant = |i: &usize| w.is_invariant(module, *i);
            let starts = data.operands.iter().map(|v| numbers[v.0 as usize]);
            let mut first: FxHashMap<u32, usize> = FxHashMap::default();
            let mut pairs = Vec::new();
            for (i, start) in starts.enumerate().filter(|(i, _)| invariant(i)) {
                let of = *first.entry(start).or_insert(i);
                pairs.extend((of != i).then_some((i, of)));
            }
            let graphs = [w.body, w.cond].into_iter().filter(|g| runs.get(g) == Some(&1));
            for graph in graphs.filter(|_| !pairs.is_empty()) {
                let mut new = module.graph(graph).clone();
                let results = new.results().to_vec();
                for &(i, of) in &pairs {
                    let (from, to) = (new.params()[i], new.params()[of]);
                    new.replace_uses(from, to);
                }
                new.set_results(results);
                module.set_graph(graph, new);
            }
        }
    }
}
