//! State from one step to the next.
//!
//! Before a step begins, each rank copies results of the step before to the parameters that they replace. Where
//! the planner has put both in the same place there is nothing to do. Copies wait until the next step because the
//! memory of a dead parameter may hold other results until then.

use super::error::RunError;
use super::rank::Rank;
use crate::plan::{Plan, Which};
use msc_ir::program::{BufferId, Program};
use std::collections::BTreeMap;

/// Which result becomes which parameter: (result, parameter), the plan's aliases and the user's additions.
///
/// # Errors
/// [`RunError::Carry`] if an addition names nothing, or differs in type or layout.
pub(super) fn pairs(plan: &Plan, additions: &[(usize, usize)]) -> Result<Vec<(usize, usize)>, RunError> {
    let e = plan.entry();
    let aliases = e.params.iter().enumerate();
    let mut pairs: Vec<(usize, usize)> =
        aliases.filter_map(|(p, info)| Some((info.alias? as usize, p))).collect();
    for &(result, param) in additions {
        let refuse = |message: String| Err(RunError::Carry { message });
        let (Some(r), Some(p)) = (e.results.get(result), e.params.get(param)) else {
            return refuse(format!("there is no result {result} or no parameter {param} to carry over"));
        };
        if pairs.contains(&(result, param)) {
            continue;
        }
        if let Some((other, _)) = pairs.iter().find(|(_, q)| *q == param) {
            return refuse(format!("parameter {} already takes over result {other}", p.name));
        }
        let (from, to) = (Which::Output(result), Which::Input(param));
        let ty = |q: &Program, which| q.buffer(plan.buffer(which, q)).ty.clone();
        let same = |q: &Program| ty(q, from) == ty(q, to);
        let alike = plan.laid(from, 0).sharding.same(plan.laid(to, 0).sharding);
        let place = plan.held(from).member == plan.held(to).member;
        if !plan.programs.iter().all(same) || !alike || !place {
            return refuse(format!("result {} and parameter {} differ in type or layout", r.name, p.name));
        }
        pairs.push((result, param));
    }
    Ok(pairs)
}

/// The same of the programs' results and parameters: where these hold several, all of them carry over or none.
///
/// # Errors
/// [`RunError::Carry`] if only some do.
pub(super) fn slots(plan: &Plan, pairs: &[(usize, usize)]) -> Result<Vec<(usize, usize)>, RunError> {
    let mut members: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut out = Vec::new();
    for &(result, param) in pairs {
        let slot = (plan.held(Which::Output(result)).slot, plan.held(Which::Input(param)).slot);
        let n = members.entry(slot).or_default();
        if *n == 0 {
            out.push(slot);
        }
        *n += 1;
    }
    let params = &plan.programs[0].entry.params;
    if let Some((&(_, to), _)) = members.iter().find(|((_, to), n)| **n != params[*to].stack.len().max(1)) {
        let message = format!(
            "{} is one of several that lie together: all of them carry over, or none",
            params[to].name
        );
        return Err(RunError::Carry { message });
    }
    Ok(out)
}

/// The copies that a rank makes.
pub(super) struct Carry {
    /// From result to parameter.
    copies: Vec<(BufferId, BufferId)>,
    /// Holds all results while parameters are written, if some overlap others' results.
    staging: Vec<u8>,
}

impl Carry {
    pub fn new(p: &Program, pairs: &[(usize, usize)]) -> Carry {
        let both = pairs.iter().map(|&(r, q)| (p.outputs[r], p.inputs[q]));
        let moved = |&(from, to): &(BufferId, BufferId)| {
            p.arena_range(from).is_none() || p.arena_range(from) != p.arena_range(to)
        };
        let copies: Vec<(BufferId, BufferId)> = both.filter(moved).collect();
        let all: Vec<BufferId> = pairs.iter().map(|&(r, _)| p.outputs[r]).collect();
        let overlaps = |a: BufferId, b: BufferId| match (p.arena_range(a), p.arena_range(b)) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => false,
        };
        // A result that stays in place must not be overwritten either: the planner keeps parameters apart, so
        // only results that are copied can be in another parameter's place.
        let hazard = copies.iter().any(|&(_, to)| all.iter().any(|&from| overlaps(from, to)));
        let bytes: usize = copies.iter().map(|&(from, _)| p.buffer(from).ty.bytes()).sum();
        Carry { copies, staging: vec![0; if hazard { bytes } else { 0 }] }
    }

    /// Makes the copies.
    ///
    /// # Safety
    /// No thread of the rank is in a step.
    pub unsafe fn run(&mut self, rank: &Rank) {
        let staged = !self.staging.is_empty();
        let mut at = 0;
        for &(from, to) in &self.copies {
            // SAFETY: no one touches the arena now; the slices are apart from the other memory of each copy.
            unsafe {
                let source = rank.read(from);
                if staged {
                    self.staging[at..at + source.len()].copy_from_slice(source);
                } else {
                    rank.write(to).copy_from_slice(source);
                }
                at += source.len();
            }
        }
        if !staged {
            return;
        }
        at = 0;
        for &(_, to) in &self.copies {
            // SAFETY: as above.
            let target = unsafe { rank.write(to) };
            let bytes = target.len();
            target.copy_from_slice(&self.staging[at..at + bytes]);
            at += bytes;
        }
    }
}
