//! State in shards: `fsdp`.
//!
//! Before: the program is split along the axis by its data, so that every rank holds all state. After: each rank holds
//! a part of every large parameter and of its moments. A parameter is gathered before each op that computes with it,
//! gradients are scattered as they are summed, and the update, with the sums that measure gradients, works on parts.
//!
//! A value is *of the update* if all its uses are: state that is a result of the program, or an elementwise op or a sum
//! to a scalar all of whose results are of the update. Layouts change where a value of the update is used otherwise (a
//! parameter), and where something else makes it (a gradient).

use super::cuts::{Cut, User, insert, users};
use super::facts::{Draft, Fact, op_at};
use super::lower::Done;
use super::problem::{Problem, Split};
use crate::error::Result;
use msc_ir::factor::FactorKind;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::module::AxisId;
use msc_ir::ops::call::wires;
use msc_ir::{GraphId, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Parameters that together are less than this part of all state stay whole on every rank: norms and biases, for which
/// a collective each would cost more than they take.
const SMALL: u64 = 64;

/// What each value of each graph is used for.
struct Uses<'a> {
    module: &'a Module,
    problem: &'a Problem,
    /// Per scope and value, whether it is of the update.
    update: Vec<Vec<bool>>,
    /// Who calls each scope: caller's scope and op.
    callers: Vec<Vec<(usize, OpId)>>,
    graphs: Vec<Option<GraphId>>,
}

impl<'a> Uses<'a> {
    fn of(problem: &'a Problem, module: &'a Module) -> Uses<'a> {
        let graphs: Vec<Option<GraphId>> = problem.atoms.scope_graphs().collect();
        let mut callers = vec![Vec::new(); graphs.len()];
        let mut update = Vec::new();
        for (scope, id) in graphs.iter().enumerate() {
            let Some(g) = id.map(|id| module.graph(id)) else {
                update.push(Vec::new());
                continue;
            };
            update.push(vec![true; g.value_count()]);
            for (op, data) in g.ops() {
                for w in wires(&data.op) {
                    if let Some(callee) = problem.atoms.scope_of(w.graph) {
                        callers[callee].push((scope, op));
                    }
                }
            }
        }
        let mut uses = Uses { module, problem, update, callers, graphs };
        // From "everything" down to what holds: a value falls with the first use that is none of the update.
        while uses.sweep() {}
        uses
    }

    fn sweep(&mut self) -> bool {
        let mut fell = false;
        for scope in 0..self.graphs.len() {
            let Some(id) = self.graphs[scope] else { continue };
            let g = self.module.graph(id);
            for v in (0..g.value_count() as u32).rev().map(ValueId) {
                if self.update[scope][v.0 as usize] && !users(g, v).iter().all(|&u| self.of_update(scope, u))
                {
                    self.update[scope][v.0 as usize] = false;
                    fell = true;
                }
            }
        }
        fell
    }

    fn is(&self, scope: usize, v: ValueId) -> bool {
        self.update[scope][v.0 as usize]
    }

    /// Whether a use is of the update.
    fn of_update(&self, scope: usize, user: User) -> bool {
        let Some(id) = self.graphs[scope] else { return false };
        let g = self.module.graph(id);
        match user {
            User::Result(n) if scope == 0 => {
                self.problem.info.params.iter().any(|p| p.alias == Some(n as u32))
            }
            User::Result(n) => self.callers[scope].iter().all(|&(caller, op)| {
                let Some(id) = self.graphs[caller] else { return false };
                let data = self.module.graph(id).op(op);
                matches!(data.op, Op::Call(_)) && self.is(caller, data.results[n])
            }),
            User::Operand(op, n) => match &g.op(op).op {
                Op::Call(c) => match self.problem.atoms.scope_of(c.graph) {
                    Some(callee) => self.is(callee, self.module.graph(c.graph).params()[n]),
                    None => false,
                },
                _ => self.updates(scope, op),
            },
        }
    }

    /// Whether an op is a part of the update: elementwise, or a sum to scalars, with results that are of the update.
    fn updates(&self, scope: usize, op: OpId) -> bool {
        let Some(id) = self.graphs[scope] else { return false };
        let g = self.module.graph(id);
        let data = g.op(op);
        if !wires(&data.op).is_empty() || matches!(data.op, Op::Collective(_) | Op::Reshard(_)) {
            return false;
        }
        let rule = self.problem.atoms.rule_in(scope, op);
        let local = rule.factors.iter().all(|f| matches!(f.kind, FactorKind::Pass | FactorKind::Reduce(_)));
        let reduces = rule.factors.iter().any(|f| matches!(f.kind, FactorKind::Reduce(_)));
        let scalars = data.results.iter().all(|&r| g.ty(r).rank() == 0);
        local && (scalars || !reduces && data.results.iter().all(|&r| self.is(scope, r)))
    }

    /// Whether a value is made by the update, or comes as state or from a caller.
    fn made_by_update(&self, scope: usize, v: ValueId) -> bool {
        let Some(id) = self.graphs[scope] else { return false };
        match self.module.graph(id).def(v) {
            Some((op, _)) => {
                matches!(self.module.graph(id).op(op).op, Op::Call(_)) || self.updates(scope, op)
            }
            None => true,
        }
    }

    /// The places where layouts change.
    fn cuts(&self, axis: &str) -> Vec<Cut> {
        let mut out = Vec::new();
        let state: BTreeSet<ValueId> = self.problem.donated(self.module.graph(self.problem.entry)).collect();
        for (scope, id) in self.graphs.iter().enumerate() {
            let Some(id) = *id else { continue };
            let g = self.module.graph(id);
            for v in (0..g.value_count() as u32).map(ValueId).filter(|&v| g.ty(v).rank() > 0) {
                let (of_update, other): (Vec<User>, Vec<User>) =
                    users(g, v).into_iter().partition(|&u| self.of_update(scope, u));
                let scattered = Fact {
                    comes: "every rank has it whole".into(),
                    needed: format!("{axis} splits the state that it updates"),
                };
                if scope == 0 && state.contains(&v) {
                    let mut by_op: BTreeMap<Option<OpId>, Vec<User>> = BTreeMap::new();
                    for u in other {
                        let op = match u {
                            User::Operand(op, _) => Some(op),
                            User::Result(_) => None,
                        };
                        by_op.entry(op).or_default().push(u);
                    }
                    for (op, users) in by_op {
                        let by = op.map_or_else(
                            || "the outside needs it whole".to_string(),
                            |op| format!("{} computes with all of it", op_at(self.module, g, op)),
                        );
                        let fact = Fact { comes: format!("{axis} splits state"), needed: by };
                        out.push(Cut { graph: id, value: v, users, late: true, back: false, fact });
                    }
                } else if !(of_update.is_empty() || other.is_empty() && self.made_by_update(scope, v)) {
                    out.push(Cut {
                        graph: id,
                        value: v,
                        users: of_update,
                        late: g.def(v).is_none(),
                        back: false,
                        fact: scattered,
                    });
                }
            }
        }
        out
    }
}

/// Splits state along an axis: the parameters and dimensions that are `asked` for, or what saves most; `None` if no
/// state can be split.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn shard(draft: &Draft, axis: AxisId, asked: Option<&[(usize, usize)]>) -> Result<Option<Done>> {
    let name = draft.module.mesh.axes[axis.0 as usize].name.clone();
    let n = draft.module.mesh.size(axis);
    let problem = Problem::new(&draft.module)?;
    let cuts = Uses::of(&problem, &draft.module).cuts(&name);
    let mut draft = draft.clone();
    insert(&mut draft, &cuts);
    let problem = Problem::new(&draft.module)?;
    let g = draft.module.graph(problem.entry);
    let donated: Vec<ValueId> = problem.donated(g).collect();
    let candidates = match asked {
        Some(asked) => problem.candidates_at(g, asked, axis, n),
        None => problem.candidates(g, donated.iter().copied(), axis, n),
    };
    let bytes = |v: ValueId| g.ty(v).bytes() as u64;
    let has = |v: ValueId, a: AtomId| problem.atoms.value_has(v, a);
    let held =
        |i: usize| -> u64 { donated.iter().filter(|&&v| has(v, candidates[i])).map(|&v| bytes(v)).sum() };
    let mut order: Vec<(u64, usize)> = (0..candidates.len()).map(|i| (held(i), i)).collect();
    order.sort_by_key(|&(bytes, i)| (std::cmp::Reverse(bytes), i));
    let all: u64 = donated.iter().map(|&v| bytes(v)).sum();
    order.retain(|&(held, _)| asked.is_some() || held * SMALL > all);
    let conflicts = problem.conflicts(&draft.module, &candidates);
    let chosen = conflicts.greedy(order.into_iter().map(|(_, i)| i));
    if chosen.is_empty() {
        return Ok(None);
    }
    let atoms: BTreeSet<AtomId> = chosen.iter().map(|&i| candidates[i]).collect();
    Done::by(&draft, &problem, &Split { axis, atoms }).map(Some)
}
