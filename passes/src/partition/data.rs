//! Axes along which the data is split: `dp`, `fsdp`, `ep` (the batch) and `cp` (the sequence).
//!
//! Where the batch has no part left for an axis, the axis takes the sequence, and the other way round. Ops that cannot
//! work on a part of what is split are set apart ([`super::isolate`]) and split some other way ([`super::islands`]):
//! attention along `cp` over its heads, with an exchange before and after it.

use super::cuts;
use super::facts::Draft;
use super::islands;
use super::isolate;
use super::lower::lower;
use super::problem::{Problem, Split};
use crate::error::Result;
use msc_ir::Module;
use msc_ir::factor::solve::AtomId;
use msc_ir::graph::ValueId;
use msc_ir::module::AxisId;
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

/// An atom as a dimension of an entry value, which stays what it is when the program is cut.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    value: ValueId,
    dim: usize,
    size: usize,
    /// Product of the dimension's atoms inside of it.
    inner: usize,
}

impl Anchor {
    fn atom(&self, problem: &Problem) -> Option<AtomId> {
        let list = problem.atoms.dim(self.value, self.dim);
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

/// Atoms of the data's dimension `dim`, most frequent first, with an anchor for each. The data are inputs of integers
/// that are no state, of two dimensions if there are any.
fn atoms_of(problem: &Problem, module: &Module, dim: usize) -> Vec<Anchor> {
    let g = module.graph(problem.entry);
    let state: BTreeSet<ValueId> = problem.state(g).collect();
    let data = |rank: usize| -> Vec<ValueId> {
        let is_data = |v: &&ValueId| {
            !state.contains(v) && g.ty(**v).dtype.is_int() && g.ty(**v).rank() >= rank.max(dim + 1)
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
        for (at, &a) in list.iter().enumerate() {
            let inner = list[at + 1..].iter().map(|&b| problem.atoms.size(b)).product();
            match found.iter_mut().find(|f| f.0 == a) {
                Some(f) => f.1 += 1,
                None => found.push((a, 1, Anchor { value, dim, size: problem.atoms.size(a), inner })),
            }
        }
    }
    found.sort_by_key(|f| std::cmp::Reverse(f.1));
    found.into_iter().map(|f| f.2).collect()
}

/// What an axis can do next.
pub(super) enum Next {
    /// It was split.
    Done(Box<Draft>, Problem, Split),
    /// The first so many of its ranks can be split along one dimension, the rest along another.
    Part(usize),
    /// There is nothing to split.
    Nothing,
}

/// Splits the data along an axis.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn split(draft: &Draft, axis: AxisId, first: First) -> Result<Next> {
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
            a.atom(&problem).is_some_and(|x| isolate::cuts(&problem, &draft.module, x, "").is_empty())
        };
        let (mut order, unclean): (Vec<Anchor>, Vec<Anchor>) = anchors.into_iter().partition(clean);
        order.extend(unclean);
        for a in order {
            if !a.size.is_multiple_of(n) {
                if part == 1 {
                    part = common(a.size, n);
                }
                continue;
            }
            if part > 1 {
                break;
            }
            if let Some((draft, problem, split)) = attempt(draft, axis, a)? {
                return Ok(Next::Done(Box::new(draft), problem, split));
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
pub(super) fn split_at(
    draft: &Draft,
    axis: AxisId,
    param: usize,
    dim: usize,
) -> Result<Option<(Draft, Problem, Split)>> {
    let problem = Problem::new(&draft.module)?;
    let value = draft.module.graph(problem.entry).params()[param];
    let list = problem.atoms.dim(value, dim);
    let Some(&a) = list.first() else { return Ok(None) };
    let size = problem.atoms.size(a);
    if !size.is_multiple_of(draft.module.mesh.size(axis)) {
        return Ok(None);
    }
    let inner = list[1..].iter().map(|&b| problem.atoms.size(b)).product();
    attempt(draft, axis, Anchor { value, dim, size, inner })
}

/// The greatest common divisor.
pub(super) fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}

/// Splits one atom, with layouts changing around what needs it whole; `None` if something needs it whole everywhere.
fn attempt(draft: &Draft, axis: AxisId, mut anchor: Anchor) -> Result<Option<(Draft, Problem, Split)>> {
    let mut draft = draft.clone();
    let name = draft.module.mesh.axes[axis.0 as usize].name.clone();
    for _ in 0..ROUNDS {
        let problem = Problem::new(&draft.module)?;
        let Some(atom) = anchor.atom(&problem) else { return Ok(None) };
        let why = format!("{name} splits {}", problem.name(&draft.module, atom));
        let cuts = isolate::cuts(&problem, &draft.module, atom, &why);
        if cuts.is_empty() {
            if problem.atoms.is_whole(atom) {
                return Ok(None);
            }
            let mut split = Split { axis, atoms: BTreeSet::from([atom]) };
            islands::cut_too(&problem, &draft.module, &mut split);
            let lowered = lower(&draft, &problem, &split)?;
            return Ok(Some((lowered, problem, split)));
        }
        // If the anchor itself is cut, the atom goes on behind the cut.
        let own = cuts.iter().position(|c| c.graph == problem.entry && c.value == anchor.value);
        let moved = cuts::insert(&mut draft, &cuts);
        if let Some(map) = moved.get(&problem.entry) {
            let Some(new) = map[anchor.value.0 as usize] else { return Ok(None) };
            anchor.value = new;
        }
        if own.is_some() {
            let g = draft.module.graph(problem.entry);
            let behind = g.value(anchor.value).uses.iter().map(|u| g.op(u.op));
            let mut reshards = behind.filter(|d| matches!(d.op, msc_ir::Op::Reshard(_)));
            if let Some(d) = reshards.next() {
                anchor.value = d.results[0];
            }
        }
    }
    Ok(None)
}
