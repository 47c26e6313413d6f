//! Which dimensions are padded, and by how much.
//!
//! | dimension | is padded where |
//! |---|---|
//! | of state, that nobody asks to be split | at most a sixteenth would be padding |
//! | that is asked to be split | at most a third of the padded size would be padding |
//! | the data's first, the batch | at most a third of the padded size would be padding |
//!
//! Where several axes are to split a dimension it is padded for their product, because it cannot be padded again when one of
//! them has split it: each block would be, and no layout says so. Where that is too much it is padded for the first alone.

use super::{Padding, obstacle};
use crate::partition::data::{self, Anchor};
use crate::partition::facts::op_at;
use crate::partition::isolate;
use crate::partition::problem::Problem;
use msc_ir::Module;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::ValueId;
use msc_ir::module::AxisId;
use std::collections::BTreeSet;

/// A dimension that nobody asks to be split gets at most one element of padding for so many of its own.
const MOST: usize = 16;

/// The batch, and a dimension that is asked to be split, get at most one for so many: 24 heads on 16 ranks have room for
/// 32.
const MOST_ASKED: usize = 2;

/// Whether a dimension that is asked to be split can have a size, or be padded to the next that so many ranks divide.
pub(in crate::partition) fn is_little(size: usize, ranks: usize) -> bool {
    (size.next_multiple_of(ranks) - size) * MOST_ASKED <= size
}

/// What is to be split along an axis.
#[derive(Clone, Copy, Debug)]
pub(in crate::partition) enum Wanted<'a> {
    /// State, as the search finds best.
    State,
    /// These dimensions of parameters, each along axes of so many ranks in all.
    Asked(&'a [(usize, usize, usize)]),
    /// The batch, along axes of so many ranks in all.
    Batch(usize),
}

/// The dimensions that are worth padding for `n` ranks, one of each atom.
pub(in crate::partition) fn worth(
    problem: &Problem,
    module: &Module,
    axis: AxisId,
    n: usize,
    wanted: Wanted<'_>,
) -> Vec<Padding> {
    let g = module.graph(problem.entry);
    let fits = Fits { problem, module, unsayable: problem.unsayable(g, axis), split: problem.split(g) };
    let first = |v: ValueId, d: usize| problem.atoms.dim(v, d).first().copied();
    let number = |v: ValueId| g.params().iter().position(|p| *p == v);
    // Parameters and dimensions, the sizes they may be padded to divide by, and the least elements for one of padding.
    let mut places: Vec<(usize, usize, [usize; 2], usize)> = Vec::new();
    match wanted {
        Wanted::State => {
            let state: BTreeSet<ValueId> = problem.state(g).into_iter().collect();
            for (p, &v) in g.params().iter().enumerate().filter(|(_, v)| state.contains(v)) {
                places.extend((0..g.ty(v).rank()).map(|d| (p, d, [n, n], MOST)));
            }
        }
        Wanted::Asked(list) => places.extend(list.iter().map(|&(p, d, all)| (p, d, [all, n], MOST_ASKED))),
        Wanted::Batch(all) => {
            let anchors = data::atoms_of(problem, module, 0);
            let outermost = |a: &&Anchor| a.atom(problem) == first(a.value, a.dim);
            let batch = anchors.first().filter(outermost);
            places.extend(batch.and_then(|a| Some((number(a.value)?, a.dim, [all, n], MOST_ASKED))));
        }
    }
    let mut seen: BTreeSet<AtomId> = BTreeSet::new();
    let mut out = Vec::new();
    for (param, dim, ranks, most) in places {
        let value = g.params().get(param).filter(|v| dim < g.ty(**v).rank());
        let Some(atom) = value.and_then(|&v| first(v, dim)) else { continue };
        if !seen.insert(atom) {
            continue;
        }
        let size = problem.atoms.size(atom);
        let padded = ranks
            .map(|r| size.next_multiple_of(r.max(1)))
            .into_iter()
            .find(|padded| (padded - size) * most <= size);
        if let Some(padded) = padded.filter(|&p| p > size && fits.atom(atom)) {
            out.push(Padding { param, dim, size, padded });
        }
    }
    out
}

/// Why the batch is not padded for `n` ranks, if little would be padding: the op that cannot take it so.
pub(in crate::partition) fn why_no_batch(problem: &Problem, module: &Module, n: usize) -> Option<String> {
    let anchors = data::atoms_of(problem, module, 0);
    let atom = anchors.first()?.atom(problem)?;
    let size = problem.atoms.size(atom);
    if !is_little(size, n) {
        return None;
    }
    let takes_no_padding = obstacle(problem, module, atom);
    let takes_no_padding = takes_no_padding.map(|(graph, op)| op_at(module, module.graph(graph), op));
    let op = takes_no_padding.or_else(|| isolate::reason(problem, module, atom))?;
    Some(format!("the batch of {size} is not padded because of {op}"))
}

/// What no layout can say of padded atoms.
struct Fits<'a> {
    problem: &'a Problem,
    module: &'a Module,
    unsayable: BTreeSet<AtomId>,
    split: BTreeSet<AtomId>,
}

impl Fits<'_> {
    fn atom(&self, atom: AtomId) -> bool {
        let atoms = &self.problem.atoms;
        let is_free = !self.unsayable.contains(&atom) && !self.split.contains(&atom);
        is_free
            && !atoms.is_whole(atom)
            && !atoms.is_piece(atom)
            && obstacle(self.problem, self.module, atom).is_none()
    }
}
