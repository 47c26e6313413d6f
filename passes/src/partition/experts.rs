//! Experts: `ep`.
//!
//! A rank holds, updates and computes with a part of the experts, and with nothing else that others do not: the dimension
//! of experts of their weights is split beside the batch. What computes with experts is set apart as what needs the batch
//! whole is ([`super::isolate`]), so that layouts change around it: tokens are gathered before it, and what its experts add
//! to each of them is summed as it is scattered. All other state is on every rank, as along `dp`.
//!
//! Which dimension that is: the leading one of stacks ([`super::lanes`]).

use super::data::{self, Anchor, First};
use super::facts::Draft;
use super::lower::{Done, Next};
use super::problem::Problem;
use crate::error::Result;
use msc_ir::Module;
use msc_ir::factor::common_divisor;
use msc_ir::module::AxisId;

/// Splits the batch, or else the sequence, and experts beside it, where the program has some that divide.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId) -> Result<Next> {
    let experts = experts(draft)?;
    let n = draft.module.mesh.size(axis);
    let part = experts.iter().map(Anchor::size).fold(n, |a, b| common_divisor([a, b]));
    if experts.is_empty() || part < 2 {
        return data::split(draft, axis, First::Batch, &[]);
    }
    if part < n {
        return Ok(Next::Part(part));
    }
    match data::split(draft, axis, First::Batch, &experts)? {
        // Tokens that do not divide are on every rank.
        Next::Nothing => {}
        next => return Ok(next),
    }
    let done: Option<Done> = data::attempt(draft, axis, None, &experts)?;
    match done {
        Some(done) => Ok(Next::Done(Box::new(done))),
        None => data::split(draft, axis, First::Batch, &[]),
    }
}

/// The dimension of experts, at each parameter that has it.
fn experts(draft: &Draft) -> Result<Vec<Anchor>> {
    let problem = Problem::new(&draft.module)?;
    let g = draft.module.graph(problem.entry);
    let stacks = problem.info.params.iter().zip(g.params()).filter(|(p, _)| !p.stack.is_empty());
    let anchor = |v| {
        let atom = problem.atoms.dim(v, 0).first().copied()?;
        Anchor::of(&problem, problem.entry, v, atom)
    };
    Ok(stacks.filter_map(|(_, &v)| anchor(v)).collect())
}

/// Whether an axis, or a part of it, deals experts to ranks.
pub(super) fn are_dealt(module: &Module, axes: &[AxisId]) -> Result<bool> {
    let state = module.entry()?.params.iter().filter(|p| p.alias.is_some() || !p.stack.is_empty());
    let has = |p: &msc_ir::ParamInfo| p.sharding.dims.iter().flatten().any(|a| axes.contains(a));
    Ok(state.into_iter().any(has))
}
