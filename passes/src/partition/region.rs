//! What computes with experts whose weights are one tensor.
//!
//! Some values have both the dimension of experts and the batch: what is dealt to experts, and the masks that deal it. The
//! axis splits one of the two in each. Products with the experts' weights, and all between them, need the experts split and
//! the batch whole: they are the region. At its border a value changes from one to the other by an exchange. What repeats
//! tokens for every expert and what sums over experts is taken in, with all that only moves elements and computes on them one
//! by one, if less crosses the border then.

use super::islands::Islands;
use super::problem::Problem;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::call::wires;
use msc_ir::ops::permute::Permute::Transpose;
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::BTreeSet;

/// Ops that have a part of the experts, and values that pass between graphs in that form, by scope.
pub(super) struct Region {
    ops: Vec<Vec<bool>>,
    values: Vec<Vec<bool>>,
}

impl Region {
    /// Of these ops, and values that pass between graphs, by scope and number.
    pub fn of(ops: Vec<Vec<bool>>, values: Vec<Vec<bool>>) -> Region {
        Region { ops, values }
    }

    /// Whether an op is of the region.
    pub fn has(&self, scope: usize, op: OpId) -> bool {
        self.ops[scope][op.0 as usize]
    }

    /// Whether a value that passes between graphs does so as the region has it.
    pub fn passes(&self, scope: usize, v: ValueId) -> bool {
        self.values[scope][v.0 as usize]
    }
}

/// The products with experts' weights: batched over the atom, with the weights or their gradient, and only these, without
/// the tokens that `of_data` knows.
pub(super) fn products(
    problem: &Problem,
    module: &Module,
    of_data: &dyn Fn(usize, ValueId) -> bool,
) -> Vec<(usize, OpId, Vec<AtomId>)> {
    let mut out = Vec::new();
    for (scope, id) in problem.atoms.scope_graphs().enumerate() {
        let Some(g) = id.map(|id| module.graph(id)) else { continue };
        for (op, data) in g.ops() {
            let Op::DotGeneral(d) = &data.op else { continue };
            let sides = [data.operands[0], data.operands[1], data.results[0]];
            if sides.iter().filter(|&&v| !of_data(scope, v)).count() != 1 {
                continue;
            }
            let batch = |b: &usize| problem.atoms.dim_in(scope, data.operands[0], *b);
            let atoms: Vec<AtomId> = d.lhs_batch.iter().flat_map(batch).collect();
            if !atoms.is_empty() {
                out.push((scope, op, atoms));
            }
        }
    }
    out
}

/// The region of experts' atoms beside the batch's, for `n` ranks.
pub(super) fn region(problem: &Problem, module: &Module, experts: AtomId, data: AtomId, n: usize) -> Region {
    let graphs: Vec<Option<GraphId>> = problem.atoms.scope_graphs().collect();
    let ops = graphs.iter().map(|id| vec![false; id.map_or(0, |id| module.graph(id).op_count())]).collect();
    let mut f =
        Finder { problem, module, experts, data, n, graphs, ops, wired: Islands::of(problem, module, false) };
    let seeds = products(problem, module, &|scope, v| f.tokens(scope, v));
    for (scope, op, atoms) in seeds {
        f.ops[scope][op.0 as usize] |= atoms.contains(&experts);
    }
    f.between();
    let least = f.ops.clone();
    let crosses = f.crossing();
    f.take_in();
    if f.crossing() > crosses {
        f.ops = least;
    }
    let inside = f.inside();
    Region { ops: f.ops, values: inside }
}

struct Finder<'a> {
    problem: &'a Problem,
    module: &'a Module,
    experts: AtomId,
    data: AtomId,
    n: usize,
    graphs: Vec<Option<GraphId>>,
    ops: Vec<Vec<bool>>,
    /// Values that are one, seen from different graphs.
    wired: Islands,
}

impl<'a> Finder<'a> {
    fn scopes(&self) -> Vec<(usize, &'a Graph)> {
        let graphs = self.graphs.iter().enumerate();
        graphs.filter_map(|(s, id)| Some((s, self.module.graph((*id)?)))).collect()
    }

    fn tokens(&self, scope: usize, v: ValueId) -> bool {
        self.problem.atoms.value_has_in(scope, v, self.data)
    }

    fn expert(&self, scope: usize, v: ValueId) -> bool {
        self.problem.atoms.value_has_in(scope, v, self.experts)
    }

    fn both(&self, scope: usize, v: ValueId) -> bool {
        self.tokens(scope, v) && self.expert(scope, v)
    }

    /// Takes in what lies on a way from one product to another.
    fn between(&mut self) {
        let reached = |back: bool| -> BTreeSet<usize> {
            let mut seen: BTreeSet<usize> = BTreeSet::new();
            loop {
                let before = seen.len();
                for (scope, g) in self.scopes() {
                    for (op, d) in g.ops().filter(|(_, d)| wires(&d.op).is_empty()) {
                        let (from, to) = match back {
                            false => (&d.operands[..], &d.results[..]),
                            true => (&d.results[..], &d.operands[..]),
                        };
                        let on_way = self.ops[scope][op.0 as usize]
                            || from
                                .iter()
                                .any(|&v| self.both(scope, v) && seen.contains(&self.wired.find((scope, v))));
                        if on_way {
                            let both = to.iter().filter(|&&v| self.both(scope, v));
                            seen.extend(both.map(|&v| self.wired.find((scope, v))));
                        }
                    }
                }
                if seen.len() == before {
                    return seen;
                }
            }
        };
        let (after, before) = (reached(false), reached(true));
        let on = |seen: &BTreeSet<usize>, scope: usize, list: &[ValueId]| {
            list.iter().any(|&v| self.both(scope, v) && seen.contains(&self.wired.find((scope, v))))
        };
        let mut more = Vec::new();
        for (scope, g) in self.scopes() {
            for (op, d) in g.ops().filter(|(_, d)| wires(&d.op).is_empty()) {
                if on(&after, scope, &d.operands) && on(&before, scope, &d.results) {
                    more.push((scope, op));
                }
            }
        }
        for (scope, op) in more {
            self.ops[scope][op.0 as usize] = true;
        }
    }

    /// Bytes on each rank of a value that changes at the border.
    fn border(&self, scope: usize, g: &Graph, v: ValueId) -> u64 {
        let bytes = g.ty(v).bytes() as u64;
        match (self.tokens(scope, v), self.expert(scope, v)) {
            (false, _) => 0,
            (true, true) => bytes / self.n as u64,
            (true, false) => bytes,
        }
    }

    /// Bytes on each rank of all values that change at the border.
    fn crossing(&self) -> u64 {
        let inside = self.inside();
        let mut bytes = 0u64;
        for (scope, g) in self.scopes() {
            let plain = |op: OpId| wires(&g.op(op).op).is_empty();
            for v in (0..g.value_count() as u32).map(ValueId).filter(|&v| self.tokens(scope, v)) {
                let passes = inside[scope][v.0 as usize];
                let made = match g.def(v) {
                    Some((op, _)) if plain(op) => self.ops[scope][op.0 as usize],
                    _ => passes,
                };
                let used = |op: OpId| if plain(op) { self.ops[scope][op.0 as usize] } else { passes };
                if g.value(v).uses.iter().any(|u| used(u.op) != made) {
                    bytes = bytes.saturating_add(self.border(scope, g, v));
                }
            }
        }
        bytes
    }

    /// Takes in what touches the region and does little.
    fn take_in(&mut self) {
        loop {
            let touched = self.touched();
            let mut more = Vec::new();
            for (scope, g) in self.scopes() {
                for (op, d) in g.ops().filter(|(op, d)| !self.ops[scope][op.0 as usize] && is_light(&d.op)) {
                    let mut both = d.operands.iter().chain(&d.results).filter(|&&v| self.both(scope, v));
                    if both.any(|&v| touched.contains(&self.wired.find((scope, v)))) {
                        more.push((scope, op));
                    }
                }
            }
            if more.is_empty() {
                return;
            }
            more.into_iter().for_each(|(scope, op)| self.ops[scope][op.0 as usize] = true);
        }
    }

    /// Values with both dimensions that the region makes or uses.
    fn touched(&self) -> BTreeSet<usize> {
        let mut out: BTreeSet<usize> = BTreeSet::new();
        for (scope, g) in self.scopes() {
            for (_, d) in g.ops().filter(|(op, _)| self.ops[scope][op.0 as usize]) {
                let both = d.operands.iter().chain(&d.results).filter(|&&v| self.both(scope, v));
                out.extend(both.map(|&v| self.wired.find((scope, v))));
            }
        }
        out
    }

    /// Values that pass between graphs, on some side of which the region makes or uses them.
    fn inside(&self) -> Vec<Vec<bool>> {
        let classes = self.touched();
        let of = |scope: usize, g: &Graph| -> Vec<bool> {
            let values = (0..g.value_count() as u32).map(ValueId);
            values.map(|v| self.both(scope, v) && classes.contains(&self.wired.find((scope, v)))).collect()
        };
        let scopes = self.graphs.iter().enumerate();
        scopes.map(|(s, id)| id.map_or_else(Vec::new, |id| of(s, self.module.graph(id)))).collect()
    }
}

/// Ops that move elements, compute on them one by one, or sum them.
fn is_light(op: &Op) -> bool {
    use Op::*;
    matches!(op, Unary(_) | Binary(_) | Compare(_) | Select(_) | Convert(_) | Constant(_) | Iota(_))
        || matches!(op, Broadcast(_) | Reshape(_) | Reduce(_) | Permute(Transpose(_)))
}
