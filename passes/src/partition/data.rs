//! Axes along which the data is split: `dp`, `fsdp`, `ep` (the batch) and `cp` (the sequence).
//!
//! Where the batch has no part left for an axis, the axis takes the sequence, and the other way round. Ops that cannot
//! work on a part of what is split are set apart ([`super::isolate`]) and split some other way ([`super::islands`]):
//! attention along `cp` over its heads, with an exchange before and after it. Experts ([`super::experts`]) are split
//! beside the batch: what computes with them is set apart, and has its tokens whole.

use super::cuts;
use super::facts::Draft;
use super::islands;
use super::isolate::{self, Beside};
use super::lower::{Done, Next};
use super::problem::{Problem, Split};
use super::region;
use crate::error::Result;
use msc_ir::factor::common_divisor;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::ValueId;
use msc_ir::module::AxisId;
use msc_ir::{GraphId, Module};
use std::collections::BTreeSet;

/// How often layouts are changed around the ops that cannot have an atom split, before the atom is given up: each
/// time, values that were tied to it by such an op come free, and what they meet is seen.
const ROUNDS: usize = 8;

/// What an axis splits first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum First {
    Batch,
    Sequence,
}

/// An atom as a dimension of a value, which stays what it is when the program is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub graph: GraphId,
    pub value: ValueId,
    pub dim: usize,
    size: usize,
    /// Product of the dimension's atoms inside of it.
    inner: usize,
}

impl Anchor {
    /// An atom of a value.
    pub fn of(problem: &Problem, graph: GraphId, value: ValueId, atom: AtomId) -> Option<Anchor> {
        let scope = problem.atoms.scope_of(graph)?;
        let (dim, list, at) = problem.find(scope, value, |a| a == atom)?;
        let inner = list[at + 1..].iter().map(|&b| problem.atoms.size(b)).product();
        Some(Anchor { graph, value, dim, size: problem.atoms.size(atom), inner })
    }

    /// The atom's size.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The atom, if it is still there.
    pub fn atom(&self, problem: &Problem) -> Option<AtomId> {
        let list = problem.atoms.dim_in(problem.atoms.scope_of(self.graph)?, self.value, self.dim);
        let mut inner = 1;
        for &a in list.iter().rev() {
            if inner == self.inner && problem.atoms.size(a) == self.size {
                return Some(a);
            }
            inner *= problem.atoms.size(a);
        }
        None
    }
}

/// The dimension of experts.
#[derive(Clone, Debug, Default)]
pub(super) struct Experts {
    /// Where it is.
    pub at: Vec<Anchor>,
    /// Whether values have it beside the batch that are no experts' yet.
    pub beside_data: bool,
}

/// Atoms of the data's dimension `dim`, most frequent first, with an anchor for each. The data are inputs of integers
/// that are no state and that something uses, of two dimensions if there are any.
pub(super) fn atoms_of(problem: &Problem, module: &Module, dim: usize) -> Vec<Anchor> {
    let g = module.graph(problem.entry);
    let state = problem.state(g);
    let data = |rank: usize| -> Vec<ValueId> {
        let is_data = |v: &&ValueId| {
            let used = !g.value(**v).uses.is_empty();
            used && !state.contains(v) && g.ty(**v).dtype.is_int() && g.ty(**v).rank() >= rank.max(dim + 1)
        };
        g.params().iter().filter(is_data).copied().collect()
    };
    let values = match data(2) {
        some if !some.is_empty() => some,
        _ => data(1),
    };
    let mut found: Vec<(AtomId, usize, Anchor)> = Vec::new();
    for value in values {
        let list = problem.atoms.dim(value, dim);
        for &a in &list {
            match found.iter_mut().find(|f| f.0 == a) {
                Some(f) => f.1 += 1,
                None => found.extend(Anchor::of(problem, problem.entry, value, a).map(|n| (a, 1, n))),
            }
        }
    }
    found.sort_by_key(|f| std::cmp::Reverse(f.1));
    found.into_iter().map(|f| f.2).collect()
}

/// Splits the data along an axis, and experts beside it.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId, first: First, experts: &Experts) -> Result<Next> {
    let problem = Problem::new(&draft.module)?;
    let n = draft.module.mesh.size(axis);
    let dims = match first {
        First::Batch => [0, 1],
        First::Sequence => [1, 0],
    };
    let mut part = 1;
    for dim in dims {
        let anchors = atoms_of(&problem, &draft.module, dim);
        let clean = |a: &Anchor| {
            a.atom(&problem).is_some_and(|x| {
                isolate::cuts(&problem, &draft.module, axis, x, Beside::Nothing, "").is_empty()
            })
        };
        let (mut order, unclean): (Vec<Anchor>, Vec<Anchor>) = anchors.into_iter().partition(clean);
        order.extend(unclean);
        for a in order {
            if !a.size.is_multiple_of(n) {
                if part == 1 {
                    part = common_divisor([a.size, n]);
                }
                continue;
            }
            if part > 1 {
                break;
            }
            if let Some(done) = attempt(draft, axis, Some(a), experts)? {
                return Ok(Next::Done(Box::new(done)));
            }
        }
        if part > 1 {
            return Ok(Next::Part(part));
        }
    }
    Ok(Next::Nothing)
}

/// Splits the outermost part of a dimension of one of the entry's parameters; `None` if that cannot be.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split_at(draft: &Draft, axis: AxisId, param: usize, dim: usize) -> Result<Option<Done>> {
    let problem = Problem::new(&draft.module)?;
    let value = draft.module.graph(problem.entry).params()[param];
    let first = problem.atoms.dim(value, dim).first().copied();
    let anchor = first.and_then(|a| Anchor::of(&problem, problem.entry, value, a));
    match anchor.filter(|a| a.dim == dim && a.size.is_multiple_of(draft.module.mesh.size(axis))) {
        Some(a) => attempt(draft, axis, Some(a), &Experts::default()),
        None => Ok(None),
    }
}

/// Splits the data's atom and the experts', with layouts changing around what needs them whole; `None` if something needs
/// one whole everywhere.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn attempt(
    draft: &Draft,
    axis: AxisId,
    data: Option<Anchor>,
    experts: &Experts,
) -> Result<Option<Done>> {
    let mut draft = draft.clone();
    let name = draft.module.mesh.axes[axis.0 as usize].name.clone();
    let mut anchors = [Followed::at(experts.at.iter().copied()), Followed::at(data)];
    for round in 0..ROUNDS {
        let mut problem = Problem::new(&draft.module)?;
        anchors.iter_mut().for_each(|followed| followed.forget_lost(&problem));
        if !anchors.iter().all(|followed| followed.identify(&mut problem)) {
            return Ok(None);
        }
        let [of_experts, of_data] = anchors.each_ref().map(|f| f.0.first().and_then(|a| a.atom(&problem)));
        let mut cuts = Vec::new();
        let mut cut = 0;
        // Where the batch is dealt to experts, the same dimension of experts is on both sides: first they are parted.
        let region = match (of_experts, of_data) {
            (Some(e), Some(d)) if round == 0 && experts.beside_data => {
                Some(region::region(&problem, &draft.module, e, d, draft.module.mesh.size(axis)))
            }
            _ => None,
        };
        let first = region.as_ref().map(|r| (1, of_data, Beside::Region(r)));
        let beside = of_experts.map_or(Beside::Nothing, Beside::Atom);
        let turns = [(0, of_experts, Beside::Nothing), (1, of_data, beside)];
        for (which, atom, beside) in first.into_iter().chain(turns) {
            let Some(atom) = atom.filter(|_| cuts.is_empty()) else { continue };
            let why = format!("{name} splits {}", problem.name(&draft.module, atom));
            cuts = isolate::cuts(&problem, &draft.module, axis, atom, beside, &why);
            cut = which;
        }
        let split: BTreeSet<AtomId> = of_experts.into_iter().chain(of_data).collect();
        let Some(atom) = [of_experts, of_data][cut].filter(|_| !cuts.is_empty()) else {
            if split.is_empty() || split.iter().any(|&a| problem.atoms.is_whole(a)) {
                return Ok(None);
            }
            let mut split = Split { axis, atoms: split };
            islands::cut_too(&problem, &draft.module, &mut split);
            return Done::by(&draft, &problem, &split).map(Some);
        };
        let came_out: Vec<Option<Anchor>> =
            cuts.iter().map(|c| Anchor::of(&problem, c.graph, c.value, atom).filter(|_| c.back)).collect();
        let moved = cuts::insert(&mut draft, &cuts);
        // A value whose every use is behind a cut is apart itself.
        anchors[cut].0.retain(|a| !cuts.iter().any(|c| c.back && c.graph == a.graph && c.value == a.value));
        for a in anchors.iter_mut().flat_map(|f| &mut f.0) {
            let Some(v) = moved.value(a.graph, a.value) else { return Ok(None) };
            a.value = v;
        }
        let behind = came_out.into_iter().zip(&moved.made);
        anchors[cut].0.extend(behind.filter_map(|(a, v)| Some(Anchor { value: (*v)?, ..a? })));
    }
    Ok(None)
}

/// An atom wherever it comes out of what was set apart: no op ties those places, but all are to be split alike. And
/// whether there is one to follow.
pub(super) struct Followed(Vec<Anchor>, bool);

impl Followed {
    /// An atom at these places.
    pub fn at(places: impl IntoIterator<Item = Anchor>) -> Followed {
        let places: Vec<Anchor> = places.into_iter().collect();
        let some = !places.is_empty();
        Followed(places, some)
    }

    /// The first place.
    pub fn first(&self) -> Option<&Anchor> {
        self.0.first()
    }

    /// Forgets places that have no such atom any more, if others have: where only what was set apart told blocks from what
    /// is in them (of a whole that each rank takes its slice of), a value stays whole.
    pub fn forget_lost(&mut self, problem: &Problem) {
        let has = |a: &Anchor| a.atom(problem).is_some();
        if self.0.iter().any(has) {
            self.0.retain(has);
        }
    }

    /// Makes the atoms of all places one; false if what is followed was lost.
    pub fn identify(&self, problem: &mut Problem) -> bool {
        let found: Option<Vec<AtomId>> = self.0.iter().map(|a| a.atom(problem)).collect();
        match found {
            Some(found) if !found.is_empty() => problem.atoms.identify(&found),
            _ => return !self.1,
        }
        self.0[0].atom(problem).is_some()
    }
}
