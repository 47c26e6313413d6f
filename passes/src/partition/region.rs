//! What computes with experts whose weights are one tensor.
//!
//! Some values have both the dimension of experts and the batch: what is dealt to experts, and the masks that deal it. The
//! axis splits one of the two in each. Products with the experts' weights, and all between them, need the experts split and
//! the batch whole: they are the region. At its border a value changes from one to the other by an exchange; where that
//! carries less, ops of the border are taken in: what repeats tokens for every expert, and what sums over experts.

use super::islands::Islands;
use super::problem::Problem;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::call::wires;
use msc_ir::ops::permute::Permute::Transpose;
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::BTreeSet;

/// How many ops a border may move at once.
const STEPS: usize = 8;

/// Ops that have a part of the experts, and values that pass between graphs in that form, by scope.
pub(super) struct Region {
    ops: Vec<Vec<bool>>,
    values: Vec<Vec<bool>>,
}

impl Region {
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
    f.take_in();
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

/// Ops that may be taken in, and what crosses the border then.
type Moved = (u64, Vec<OpId>);

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

    /// What crosses for a value that the region needs, at best.
    fn brought(&self, scope: usize, g: &Graph, v: ValueId, depth: usize) -> Moved {
        let whole = (self.border(scope, g, v), Vec::new());
        let Some((op, _)) = g.def(v) else { return whole };
        let d = g.op(op);
        let once =
            g.value(v).uses.iter().all(|u| u.op == g.value(v).uses[0].op || self.ops[scope][u.op.0 as usize]);
        let may = depth < STEPS && moves(&d.op) && self.both(scope, v) && once && !g.results().contains(&v);
        if !may || self.ops[scope][op.0 as usize] {
            return whole;
        }
        let mut sum: Moved = (0, vec![op]);
        for &w in &d.operands {
            let (bytes, ops) = self.brought(scope, g, w, depth + 1);
            sum = (sum.0.saturating_add(bytes), [sum.1, ops].concat());
        }
        if sum.0 <= whole.0 { sum } else { whole }
    }

    /// What crosses for an op that uses a value of the region, if it and some of those after it are taken in, at best.
    fn carried(&self, scope: usize, g: &Graph, from: ValueId, user: OpId) -> Option<Moved> {
        let (mut v, mut op) = (from, user);
        let mut sum: Moved = (0, Vec::new());
        let mut best: Option<Moved> = None;
        for _ in 0..STEPS {
            let d = g.op(op);
            let takes = moves(&d.op) || matches!(d.op, Op::Reduce(_));
            if !takes || self.ops[scope][op.0 as usize] || d.results.len() != 1 {
                break;
            }
            sum.1.push(op);
            for &w in d.operands.iter().filter(|&&w| w != v) {
                let (bytes, ops) = self.brought(scope, g, w, 0);
                sum.0 = sum.0.saturating_add(bytes);
                sum.1.extend(ops);
            }
            v = d.results[0];
            let now = sum.0.saturating_add(self.border(scope, g, v));
            if best.as_ref().is_none_or(|b| now <= b.0) {
                best = Some((now, sum.1.clone()));
            }
            let uses = &g.value(v).uses;
            if uses.len() != 1 || g.results().contains(&v) || !self.both(scope, v) {
                break;
            }
            op = uses[0].op;
        }
        best
    }

    /// Moves the border to where less crosses it.
    fn take_in(&mut self) {
        for (scope, g) in self.scopes() {
            for op in g.order().to_vec() {
                if !self.ops[scope][op.0 as usize] {
                    continue;
                }
                for &v in &g.op(op).operands {
                    let (_, ops) = self.brought(scope, g, v, 0);
                    ops.into_iter().for_each(|o| self.ops[scope][o.0 as usize] = true);
                }
                for &v in &g.op(op).results {
                    if !self.both(scope, v) {
                        continue;
                    }
                    let users: BTreeSet<OpId> = g.value(v).uses.iter().map(|u| u.op).collect();
                    let outside: Vec<OpId> =
                        users.into_iter().filter(|u| !self.ops[scope][u.0 as usize]).collect();
                    let moved: Option<Vec<Moved>> =
                        outside.iter().map(|&u| self.carried(scope, g, v, u)).collect();
                    let Some(moved) = moved.filter(|m| !m.is_empty() && !g.results().contains(&v)) else {
                        continue;
                    };
                    let bytes = moved.iter().fold(0u64, |n, m| n.saturating_add(m.0));
                    if bytes <= self.border(scope, g, v) {
                        moved.iter().flat_map(|m| &m.1).for_each(|o| self.ops[scope][o.0 as usize] = true);
                    }
                }
            }
        }
    }

    /// Values that pass between graphs, on some side of which the region makes or uses them.
    fn inside(&self) -> Vec<Vec<bool>> {
        let mut classes: BTreeSet<usize> = BTreeSet::new();
        for (scope, g) in self.scopes() {
            for (op, d) in g.ops() {
                if self.ops[scope][op.0 as usize] {
                    let both = d.operands.iter().chain(&d.results).filter(|&&v| self.both(scope, v));
                    classes.extend(both.map(|&v| self.wired.find((scope, v))));
                }
            }
        }
        let of = |scope: usize, g: &Graph| -> Vec<bool> {
            let values = (0..g.value_count() as u32).map(ValueId);
            values.map(|v| self.both(scope, v) && classes.contains(&self.wired.find((scope, v)))).collect()
        };
        let scopes = self.graphs.iter().enumerate();
        scopes.map(|(s, id)| id.map_or_else(Vec::new, |id| of(s, self.module.graph(id)))).collect()
    }
}

/// Ops that do little work, and no other on a part of the experts than on a part of the batch.
fn moves(op: &Op) -> bool {
    use Op::*;
    matches!(op, Unary(_) | Binary(_) | Compare(_) | Select(_) | Convert(_) | Constant(_) | Iota(_))
        || matches!(op, Broadcast(_) | Reshape(_) | Permute(Transpose(_)))
}
