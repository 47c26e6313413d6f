//! Parts of a program between changes of layout.
//!
//! Two values are of one island if some op has both, `reshard`s aside. Atoms never reach over an island's shore, so
//! that each island may be split another way.

use super::problem::{Problem, Split};
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::ValueId;
use msc_ir::ops::call::wires;
use msc_ir::{Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Which island each value of each scope is of.
#[derive(Clone)]
pub(super) struct Islands {
    first: Vec<usize>,
    parent: Vec<usize>,
}

impl Islands {
    /// The islands; without `ops` those of values that only pass from graph to graph.
    pub fn of(problem: &Problem, module: &Module, ops: bool) -> Islands {
        let graphs: Vec<_> = problem.atoms.scope_graphs().collect();
        let mut first = Vec::new();
        let mut n = 0;
        for id in &graphs {
            first.push(n);
            n += id.map_or(0, |id| module.graph(id).value_count());
        }
        let mut all = Islands { first, parent: (0..n).collect() };
        for (scope, id) in graphs.iter().enumerate() {
            let Some(id) = *id else { continue };
            let g = module.graph(id);
            for (_, data) in g.ops().filter(|(_, d)| !matches!(d.op, Op::Reshard(_))) {
                let mine = |v: &&ValueId| g.ty(**v).rank() > 0;
                let wired = wires(&data.op);
                if wired.is_empty() && ops {
                    let mut values = data.operands.iter().chain(&data.results).filter(mine);
                    let Some(&one) = values.next() else { continue };
                    values.for_each(|&v| all.join((scope, one), (scope, v)));
                }
                for w in wired {
                    let Some(callee) = problem.atoms.scope_of(w.graph) else { continue };
                    let to = module.graph(w.graph);
                    let carried = data.operands.iter().zip(to.results()).filter(|_| w.carries);
                    let results = data.results.iter().zip(to.results()).filter(|_| w.results);
                    let sides = data.operands[w.first_operand..].iter().zip(to.params());
                    for (&v, &t) in sides.chain(results).chain(carried).filter(|(v, _)| mine(v)) {
                        all.join((scope, v), (callee, t));
                    }
                }
            }
        }
        all
    }

    /// The number of a value's island.
    pub fn find(&self, (scope, v): (usize, ValueId)) -> usize {
        let mut at = self.first[scope] + v.0 as usize;
        while self.parent[at] != at {
            at = self.parent[at];
        }
        at
    }

    /// Makes the islands of two values one.
    pub fn join(&mut self, a: (usize, ValueId), b: (usize, ValueId)) {
        let (a, b) = (self.find(a), self.find(b));
        // The smaller number leads, so that the outcome does not depend on the order of joins.
        self.parent[a.max(b)] = a.min(b);
    }
}

/// What may be split of an island: the elements that have each atom.
#[derive(Default)]
struct Island {
    weights: BTreeMap<AtomId, u64>,
    /// Whether the entry takes or gives one of its values.
    outside: bool,
    /// Whether the split cuts it already, or a layout changes between it and what the split cuts.
    split: bool,
    beside: bool,
}

/// Adds to a split, for every island beside what it cuts, the atom that cuts most of the island's elements.
pub(super) fn cut_too(problem: &Problem, module: &Module, split: &mut Split) {
    let n = module.mesh.size(split.axis);
    let islands = Islands::of(problem, module, true);
    let mut found: BTreeMap<usize, Island> = BTreeMap::new();
    for (scope, id) in problem.atoms.scope_graphs().enumerate() {
        let Some(id) = id else { continue };
        let g = module.graph(id);
        for v in (0..g.value_count() as u32).map(ValueId).filter(|&v| g.ty(v).rank() > 0) {
            let island = found.entry(islands.find((scope, v))).or_default();
            let elements = g.ty(v).elements() as u64;
            for d in 0..g.ty(v).rank() {
                for a in problem.atoms.dim_in(scope, v, d) {
                    *island.weights.entry(a).or_default() += elements;
                }
            }
            island.split |= problem.place(scope, v, split).is_some();
            island.outside |= id == problem.entry && (g.params().contains(&v) || g.results().contains(&v));
        }
        for (_, data) in g.ops().filter(|(_, d)| matches!(d.op, Op::Reshard(_))) {
            let sides = [data.operands[0], data.results[0]];
            let cut = sides.map(|v| problem.place(scope, v, split).is_some());
            for (v, other) in [(sides[0], cut[1]), (sides[1], cut[0])] {
                found.entry(islands.find((scope, v))).or_default().beside |= other;
            }
        }
    }
    let mut more: BTreeSet<AtomId> = BTreeSet::new();
    for island in found.values().filter(|i| i.beside && !i.split && !i.outside) {
        let fits = |a: AtomId| !problem.atoms.is_whole(a) && problem.atoms.size(a).is_multiple_of(n);
        let best = island
            .weights
            .iter()
            .filter(|(a, _)| fits(**a))
            .max_by_key(|(a, w)| (**w, std::cmp::Reverse(**a)));
        more.extend(best.map(|(&a, _)| a));
    }
    split.atoms.extend(more);
}
