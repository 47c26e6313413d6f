//! Ops that cannot have an atom split are set apart: layouts change around them.
//!
//! An op needs an atom whole if its rule says so, if it meets the atom twice (scores of attention over one sequence),
//! or if its rule has no common refinement with its values. Every value between such an op and another gets a
//! `reshard`; so does every value of the entry of which no sharding can say that it is split there. What is set apart then
//! has atoms of its own: see [`super::islands`].

use super::cuts::{Cut, User, users};
use super::facts::{Fact, op_at};
use super::problem::Problem;
use super::region::Region;
use msc_ir::factor::FactorKind;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::module::AxisId;
use msc_ir::ops::call::wires;
use msc_ir::{Graph, Module, Op};

/// How often a value of a scope has an atom.
fn times(problem: &Problem, scope: usize, v: ValueId, atom: AtomId) -> usize {
    (0..problem.atoms.rank_in(scope, v))
        .map(|d| problem.atoms.dim_in(scope, v, d).iter().filter(|a| **a == atom).count())
        .sum()
}

/// Whether an op cannot have the atom split.
pub(super) fn needs_whole(problem: &Problem, scope: usize, g: &Graph, op: OpId, atom: AtomId) -> bool {
    let atoms = &problem.atoms;
    let data = g.op(op);
    if data.operands.iter().chain(&data.results).any(|&v| times(problem, scope, v, atom) > 1) {
        return true;
    }
    if atoms.met_by(scope, op).iter().filter(|a| **a == atom).count() > 1 {
        return true;
    }
    let rule = atoms.rule_in(scope, op);
    let mut meets = false;
    for (f, factor) in rule.factors.iter().enumerate() {
        let list = atoms.factor_in(scope, op, f);
        let Some(at) = list.iter().position(|a| *a == atom) else { continue };
        meets = true;
        match factor.kind {
            FactorKind::Whole | FactorKind::Halo { .. } => return true,
            // A start names one block.
            FactorKind::Offset | FactorKind::Range if at > 0 => return true,
            FactorKind::Reduce(_) if at > 0 && matches!(data.op, Op::Scatter(_)) => return true,
            _ => {}
        }
    }
    meets && atoms.is_torn_in(scope, op)
}

/// The first op that needs an atom whole, in words.
pub(super) fn reason(problem: &Problem, module: &Module, atom: AtomId) -> Option<String> {
    problem.atoms.scope_graphs().enumerate().find_map(|(scope, id)| {
        let g = module.graph(id?);
        let mut ops = g.ops().filter(|(_, d)| wires(&d.op).is_empty());
        let (op, _) = ops.find(|(op, _)| needs_whole(problem, scope, g, *op, atom))?;
        Some(op_at(module, g, op))
    })
}

/// What the same axis splits elsewhere, and sets apart.
#[derive(Clone, Copy)]
pub(super) enum Beside<'a> {
    Nothing,
    /// All that has an atom.
    Atom(AtomId),
    Region(&'a Region),
    /// What works with a part of the state.
    State(&'a Region),
}

impl Beside<'_> {
    /// Whether an op is set apart.
    fn op(&self, problem: &Problem, scope: usize, g: &Graph, op: OpId) -> bool {
        match self {
            Beside::Nothing => false,
            Beside::Atom(a) => {
                let d = g.op(op);
                d.operands.iter().chain(&d.results).any(|&v| times(problem, scope, v, *a) > 0)
            }
            Beside::Region(r) | Beside::State(r) => r.has(scope, op),
        }
    }

    /// Whether a value passes between graphs as what is set apart has it.
    fn value(&self, problem: &Problem, scope: usize, v: ValueId) -> bool {
        match self {
            Beside::Nothing => false,
            Beside::Atom(a) => times(problem, scope, v, *a) > 0,
            Beside::Region(r) | Beside::State(r) => r.passes(scope, v),
        }
    }
}

/// The cuts that set apart every op that needs an atom whole, or that is `beside`; none if no op does. `why` says how the
/// atom comes to be split along the axis.
pub(super) fn cuts(
    problem: &Problem,
    module: &Module,
    axis: AxisId,
    atom: AtomId,
    beside: Beside<'_>,
    why: &str,
) -> Vec<Cut> {
    let mut out = Vec::new();
    for (scope, id) in problem.atoms.scope_graphs().enumerate() {
        let Some(id) = id else { continue };
        let g = module.graph(id);
        let unsayable = id == problem.entry && problem.unsayable(g, axis).contains(&atom);
        let other = |v: ValueId| beside.value(problem, scope, v);
        let meets = |op: OpId| beside.op(problem, scope, g, op);
        let apart: Vec<bool> = (0..g.op_count())
            .map(|op| {
                let op = OpId(op as u32);
                let plain = wires(&g.op(op).op).is_empty();
                plain && (meets(op) || needs_whole(problem, scope, g, op, atom))
            })
            .collect();
        for v in (0..g.value_count() as u32).map(ValueId) {
            let n = times(problem, scope, v, atom);
            if n == 0 {
                continue;
            }
            let is_apart = match g.def(v) {
                _ if n > 1 => true,
                Some((def, _)) if wires(&g.op(def).op).is_empty() => apart[def.0 as usize],
                Some(_) => other(v),
                None => other(v) || unsayable,
            };
            let mut users = users(g, v);
            // Those that want it as it does not come.
            users.retain(|user| {
                let wanted_apart = match *user {
                    User::Operand(op, _) if wires(&g.op(op).op).is_empty() => apart[op.0 as usize],
                    User::Operand(..) => n > 1 || other(v),
                    User::Result(_) => n > 1 || other(v) || unsayable,
                };
                wanted_apart != is_apart
            });
            if !users.is_empty() {
                let is_state = matches!(beside, Beside::State(_));
                let meets = |op: OpId| {
                    let part = if is_state { "of the state" } else { "of the experts" };
                    meets(op).then_some(part)
                };
                let fact = fact(module, g, v, &users, is_apart, why, &meets);
                out.push(Cut { graph: id, value: v, users, late: g.def(v).is_none(), back: is_apart, fact });
            }
        }
    }
    out
}

/// Why the layout of a value changes between it and its users.
fn fact(
    module: &Module,
    g: &Graph,
    v: ValueId,
    users: &[User],
    is_apart: bool,
    why: &str,
    meets: &dyn Fn(OpId) -> Option<&'static str>,
) -> Fact {
    let apart = match is_apart {
        true => g.def(v).map(|(op, _)| op),
        false => users.iter().find_map(|u| match u {
            User::Operand(op, _) => Some(*op),
            User::Result(_) => None,
        }),
    };
    let apart = match apart {
        Some(op) => match meets(op) {
            Some(part) => format!("{} works for a part {part}", op_at(module, g, op)),
            None => format!("{} cannot work on a part of it", op_at(module, g, op)),
        },
        None => "the outside cannot work on a part of it".into(),
    };
    match is_apart {
        true => Fact { comes: apart, needed: why.into() },
        false => Fact { comes: why.into(), needed: apart },
    }
}
