//! Experts: `ep`.
//!
//! A rank holds, updates and computes with a part of the experts, and with nothing else that others do not: the dimension
//! of experts of their weights is split beside the batch. What computes with experts is set apart as what needs the batch
//! whole is ([`super::isolate`]), so that layouts change around it: tokens are gathered before it, and what its experts add
//! to each of them is summed as it is scattered. All other state is on every rank, as along `dp`.
//!
//! Which dimension that is: the leading one of stacks ([`super::lanes`]); and of weights of all experts in one tensor the
//! one over which products with them are batched. Tokens that are dealt to these before they are multiplied are exchanged
//! ([`super::region`]).

use super::data::{self, Anchor, Experts, First};
use super::facts::Draft;
use super::lower::Next;
use super::problem::Problem;
use super::{base, has_routes, mesh, region};
use crate::error::Result;
use msc_ir::factor::common_divisor;
use msc_ir::factor::solve::AtomId;
use msc_ir::module::AxisId;
use msc_ir::{Module, ValueId};
use std::collections::BTreeSet;

/// Splits the batch, or else the sequence, and experts beside it, where the program has some that divide.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId) -> Result<Next> {
    let none = Experts::default();
    let experts = experts(draft, axis)?;
    let n = draft.module.mesh.size(axis);
    let part = experts.at.iter().map(Anchor::size).fold(n, |a, b| common_divisor([a, b]));
    if experts.at.is_empty() || part < 2 {
        return data::split(draft, axis, First::Batch, &none);
    }
    if part < n {
        // Of these ranks the tokens may divide by fewer still.
        let mut parts = draft.clone();
        mesh::split_axis(&mut parts, axis, part);
        return Ok(match data::split(&parts, axis, First::Batch, &experts)? {
            Next::Part(fewer) => Next::Part(fewer),
            _ => Next::Part(part),
        });
    }
    match data::split(draft, axis, First::Batch, &experts)? {
        // Tokens that do not divide are on every rank.
        Next::Nothing => {}
        next => return Ok(next),
    }
    match data::attempt(draft, axis, None, &experts)? {
        Some(done) => Ok(Next::Done(Box::new(done))),
        None => data::split(draft, axis, First::Batch, &none),
    }
}

/// The dimension of experts.
fn experts(draft: &Draft, axis: AxisId) -> Result<Experts> {
    let problem = Problem::new(&draft.module)?;
    let g = draft.module.graph(problem.entry);
    let stacks = problem.info.params.iter().zip(g.params()).filter(|(p, _)| !p.stack.is_empty());
    let anchor = |v| {
        let atom = problem.atoms.dim(v, 0).first().copied()?;
        Anchor::of(&problem, problem.entry, v, atom)
    };
    let at: Vec<Anchor> = stacks.filter_map(|(_, &v)| anchor(v)).collect();
    if !at.is_empty() || !has_routes(&draft.module) {
        return Ok(Experts { at, beside_data: false });
    }
    let unsayable = problem.unsayable(g, axis);
    let mut found = batched(&problem, &draft.module);
    found.retain(|f| !unsayable.contains(&f.0));
    Ok(Experts { at: found.into_iter().flat_map(|f| f.1).collect(), beside_data: true })
}

/// Atoms of state that are the experts' in weights of one tensor, with every place where products have them.
fn batched(problem: &Problem, module: &Module) -> Vec<(AtomId, Vec<Anchor>)> {
    let g = module.graph(problem.entry);
    let state = problem.state(g);
    let mut of_data: BTreeSet<AtomId> = BTreeSet::new();
    for &v in g.params().iter().filter(|v| !state.contains(v) && g.ty(**v).dtype.is_int()) {
        of_data.extend((0..g.ty(v).rank()).flat_map(|d| problem.atoms.dim(v, d)));
    }
    let of_state = |a: &AtomId| state.iter().any(|&v| problem.atoms.value_has(v, *a));
    let has_data =
        |scope: usize, v: ValueId| of_data.iter().any(|&a| problem.atoms.value_has_in(scope, v, a));
    let mut found: Vec<(AtomId, Vec<Anchor>)> = Vec::new();
    for (scope, op, atoms) in region::products(problem, module, &has_data) {
        let Some(id) = problem.atoms.scope_graphs().nth(scope).flatten() else { continue };
        let data = module.graph(id).op(op);
        for atom in atoms.into_iter().filter(of_state) {
            let sides = data.operands.iter().chain(&data.results).filter(|&&v| !has_data(scope, v));
            let at = sides.filter_map(|&v| Anchor::of(problem, id, v, atom));
            match found.iter_mut().find(|f| f.0 == atom) {
                Some(f) => f.1.extend(at),
                None => found.push((atom, at.collect())),
            }
        }
    }
    // One number of experts; of several, the one that most products have.
    let size = |f: &(AtomId, Vec<Anchor>)| problem.atoms.size(f.0);
    let count = |n: usize| found.iter().filter(|f| size(f) == n).map(|f| f.1.len()).sum::<usize>();
    let most = found.iter().map(size).max_by_key(|&n| (count(n), n));
    found.retain(|f| Some(problem.atoms.size(f.0)) == most);
    found
}

/// Atoms that are left to `ep`, if the mesh has it.
pub(super) fn kept(problem: &Problem, module: &Module) -> BTreeSet<AtomId> {
    let deals = module.mesh.axes.iter().any(|a| base(&a.name) == "ep" && a.size > 1);
    match deals && has_routes(module) {
        true => batched(problem, module).into_iter().map(|f| f.0).collect(),
        false => BTreeSet::new(),
    }
}

/// Whether an axis, or a part of it, deals experts to ranks.
pub(super) fn are_dealt(module: &Module, axes: &[AxisId]) -> Result<bool> {
    let state = module.entry()?.params.iter().filter(|p| p.alias.is_some() || !p.stack.is_empty());
    let has = |p: &msc_ir::ParamInfo| p.sharding.dims.iter().flatten().any(|a| axes.contains(a));
    Ok(state.into_iter().any(has))
}
