//! Axes that split model state: `tp`.
//!
//! An atom of a donated parameter is a candidate if no op needs it whole, if it divides by the axis, and if it is
//! outermost in its dimension wherever the entry sees it, so that a rank's share of a parameter is one block. Two
//! candidates that meet in one value exclude each other.
//!
//! Among the legal sets the search takes, in this order: one that leaves next to the least state on a rank (what a user
//! asks `tp` for; sets within [`STATE_SLACK`] of the least count as equal, so that splitting a norm's few weights is no
//! reason to split the residual stream), the least predicted time of a step, the fewest splits.

use super::experts;
use super::facts::Draft;
use super::lower::{Done, Next, lower};
use super::predict::step_ps;
use super::problem::{Conflicts, Problem, Split};
use crate::cost::DeviceModel;
use crate::error::Result;
use msc_ir::Graph;
use msc_ir::factor::solve::AtomId;
use msc_ir::module::AxisId;
use std::collections::BTreeMap;

/// Candidates above this number are not enumerated but taken greedily, largest state first: 2¹² layouts are
/// compared in well under a second, and no transformer seen has more than eight candidates.
const MAX_ENUMERATED: usize = 12;

/// Layouts whose state differs by less than this part of the unsplit state count as equal.
const STATE_SLACK: u64 = 32;

/// Of layouts that leave as much state so many are compared, those of the fewest splits: each costs a rewrite of the program,
/// and what makes them many are dimensions of norms and scales, which need no split of their own.
const MAX_COMPARED: usize = 12;

/// Splits state along an axis; and how many layouts were compared.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId, device: &DeviceModel) -> Result<(Next, usize)> {
    let module = &draft.module;
    let n = module.mesh.size(axis);
    let problem = Problem::new(module)?;
    let g = module.graph(problem.entry);
    let least = smallest_factor(n);
    let kept = experts::kept(&problem, module);
    let of = |n: usize| -> Vec<AtomId> {
        let all = problem.candidates(g, problem.state(g), axis, n);
        all.into_iter().filter(|a| !kept.contains(a)).collect()
    };
    let candidates = of(n);
    // Heads, of which there are fewer than ranks, are split as far as they go.
    if least < n && of(least).len() > candidates.len() {
        return Ok((Next::Part(least), 0));
    }
    if candidates.is_empty() {
        return Ok((Next::Nothing, 0));
    }
    let conflicts = problem.conflicts(module, &candidates);
    let with = |set: &[usize]| Split { axis, atoms: set.iter().map(|&i| candidates[i]).collect() };
    let held = held(&problem, g, &candidates);
    let left = |set: &Vec<usize>| -> u64 {
        let cut = |mask: &Vec<usize>| mask.iter().any(|c| set.contains(c));
        held.iter().map(|(mask, bytes)| if cut(mask) { bytes / n as u64 } else { *bytes }).sum()
    };
    let weight = |c: &usize| held.iter().filter(|(mask, _)| mask.contains(c)).map(|(_, b)| *b).sum::<u64>();
    let mut largest: Vec<usize> = (0..candidates.len()).collect();
    largest.sort_by_key(|c| std::cmp::Reverse(weight(c)));
    let sets = legal_sets(&largest, &conflicts);
    let sized: Vec<(u64, Vec<usize>)> = sets.into_iter().map(|s| (left(&s), s)).collect();
    let least = sized.iter().map(|(b, _)| *b).min().unwrap_or(0);
    let slack = held.values().sum::<u64>() / STATE_SLACK;
    let mut ties: Vec<Split> =
        sized.iter().filter(|(b, _)| *b <= least + slack).map(|(_, s)| with(s)).collect();
    ties.sort_by_key(|s| s.atoms.len());
    ties.truncate(MAX_COMPARED);
    let compared = ties.len();
    let mut best: Option<((u64, usize, Split), Draft)> = None;
    for split in ties {
        let lowered = lower(draft, &problem, &split)?;
        let ps = if compared > 1 { step_ps(&lowered.module, problem.entry, device) } else { 0 };
        let key = (ps, split.atoms.len(), split);
        if best.as_ref().is_none_or(|(k, _)| (key.0, key.1, &key.2.atoms) < (k.0, k.1, &k.2.atoms)) {
            best = Some((key, lowered));
        }
    }
    // A candidate alone is a legal set, so that there is a best one.
    let Some(((_, _, split), lowered)) = best else { return Ok((Next::Nothing, compared)) };
    let splits = problem.describe(module, &split);
    Ok((Next::Done(Box::new(Done { draft: lowered, splits, split })), compared))
}

/// Bytes of state by the candidates that each value has.
fn held(problem: &Problem, g: &Graph, candidates: &[AtomId]) -> BTreeMap<Vec<usize>, u64> {
    let mut out = BTreeMap::new();
    for v in problem.state(g) {
        let atoms: Vec<AtomId> = (0..g.ty(v).rank()).flat_map(|d| problem.atoms.dim(v, d)).collect();
        let has: Vec<usize> = (0..candidates.len()).filter(|&c| atoms.contains(&candidates[c])).collect();
        *out.entry(has).or_default() += g.ty(v).bytes() as u64;
    }
    out
}

/// The smallest factor of a number above 1.
fn smallest_factor(n: usize) -> usize {
    (2..=n).find(|f| n.is_multiple_of(*f)).unwrap_or(n)
}

/// Sets of candidates without a conflict: all of them, or where there are too many the one that takes the largest first.
fn legal_sets(largest_first: &[usize], conflicts: &Conflicts) -> Vec<Vec<usize>> {
    let n = largest_first.len();
    if n > MAX_ENUMERATED {
        return vec![conflicts.greedy(largest_first.iter().copied())];
    }
    let sets = (1u32..1 << n).map(|bits| (0..n).filter(|&i| bits >> i & 1 == 1).collect::<Vec<usize>>());
    sets.filter(|set| set.iter().enumerate().all(|(i, &c)| conflicts.fits(&set[..i], c))).collect()
}
