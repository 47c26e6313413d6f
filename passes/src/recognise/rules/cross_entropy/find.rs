//! Where a cross-entropy may be: logits, labels, and what is computed from the logits.

use super::super::attention::find::{Chain, LAYOUT, summed};
use super::super::softmax::argument;
use crate::recognise::engine::region::At;
use crate::recognise::probe::program::{Index, Program};
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Op};
use std::collections::BTreeSet;

/// Values computed from one tensor of logits, forward and backward; exporters have up to sixty.
const MAX_LOCAL: usize = 300;

/// Ops between a value of the logits' size and the labels that it is made of; exporters have up to ten.
const MAX_STEPS: usize = 64;

/// A place where a cross-entropy may be.
#[derive(Clone, Debug)]
pub struct Place {
    /// The logits in the type in which they are made.
    pub x: Index,
    /// The exponential.
    pub exp: Index,
    /// The dimension of the exponential that is summed: the vocabulary.
    pub dim: usize,
    /// Rows.
    pub rows: usize,
    /// Whole numbers that pick something per row, in program order.
    pub labels: Vec<Index>,
    /// What is computed from the logits by ops on elements, rows and picks, in program order.
    pub local: Vec<Index>,
}

/// All places of a program but for those at the exponentials `taken`.
pub fn places(p: &Program<'_>, taken: &BTreeSet<At>) -> Vec<Place> {
    (0..p.values.len())
        .filter(|&i| p.is_unary(i, UnaryKind::Exponential) && !taken.contains(&p.values[i].at))
        .filter_map(|exp| place(p, exp))
        .collect()
}

fn place(p: &Program<'_>, exp: Index) -> Option<Place> {
    let dims = summed(p, exp)?;
    let &[dim] = dims.as_slice() else { return None };
    let size = *p.values[exp].ty.shape.get(dim)?;
    let mut x = argument(p, exp);
    if let Some(Op::Convert(Convert::Value(_))) = p.op(x) {
        let narrow = p.values[x].operands[0];
        if matches!(p.values[narrow].ty.dtype, DType::BF16 | DType::F16) {
            x = narrow;
        }
    }
    let n = p.values[x].ty.elements();
    let rows = n.checked_div(size).filter(|r| r * size == n && size > 1)?;
    let local = local(p, x, n)?;
    let labels = labels(p, x, &local, rows);
    (!labels.is_empty()).then_some(Place { x, exp, dim, rows, labels, local })
}

/// What is computed from the logits; `None` if it is more than one loss and its gradient.
fn local(p: &Program<'_>, x: Index, n: usize) -> Option<Vec<Index>> {
    let mut todo: BTreeSet<Index> = p.values[x].users.iter().copied().collect();
    let mut out = BTreeSet::new();
    while let Some(i) = todo.pop_first() {
        let v = &p.values[i];
        let kind = v.is_layout()
            || matches!(
                p.op(i),
                Some(
                    Op::Unary(_)
                        | Op::Binary(_)
                        | Op::Select(_)
                        | Op::Compare(_)
                        | Op::Convert(_)
                        | Op::Reduce(_)
                        | Op::Gather(_)
                        | Op::Scatter(_)
                )
            );
        // Sums of all rows are where the loss ends.
        let total = v.operands.iter().all(|&o| p.values[o].ty.elements() <= 1);
        if !kind || total || v.ty.elements() > n || !out.insert(i) {
            continue;
        }
        if out.len() > MAX_LOCAL {
            return None;
        }
        todo.extend(v.users.iter().copied());
    }
    Some(out.into_iter().collect())
}

/// The whole numbers, one per row, by which something is picked from what is computed of the logits, or set in what it
/// meets.
fn labels(p: &Program<'_>, x: Index, local: &[Index], rows: usize) -> Vec<Index> {
    let inside = |i: Index| i == x || local.binary_search(&i).is_ok();
    let mut found = BTreeSet::new();
    let mut todo = Vec::new();
    for &i in local {
        let v = &p.values[i];
        if matches!(p.op(i), Some(Op::Gather(_))) {
            found.insert(Chain::up(p, v.operands[1], &LAYOUT).top());
        }
        todo.extend(v.operands.iter().copied().filter(|&o| !inside(o) && p.splat(o).is_none()));
    }
    let mut seen: BTreeSet<Index> = todo.iter().copied().collect();
    while let Some(i) = todo.pop() {
        let v = &p.values[i];
        if seen.len() > MAX_STEPS {
            break;
        }
        match p.op(i) {
            Some(Op::Scatter(_)) => {
                found.insert(Chain::up(p, v.operands[1], &LAYOUT).top());
            }
            Some(Op::Compare(c)) if matches!(c.direction, Direction::Eq | Direction::Ne) => {
                let (a, b) = (v.operands[0], v.operands[1]);
                for (label, place) in [(a, b), (b, a)] {
                    if counts(p, place) {
                        found.insert(Chain::up(p, label, &LAYOUT).top());
                    }
                }
            }
            _ => {}
        }
        // Numbers per row are the loss's weights, whatever they are made of.
        if v.ty.elements() > rows {
            todo.extend(v.operands.iter().copied().filter(|&o| p.splat(o).is_none() && seen.insert(o)));
        }
    }
    let per_row = |&i: &Index| {
        let ty = p.values[i].ty;
        ty.dtype.is_int() && ty.elements() == rows && p.splat(i).is_none() && !inside(i)
    };
    found.into_iter().filter(per_row).collect()
}

/// Whether a value counts along a dimension.
fn counts(p: &Program<'_>, mut i: Index) -> bool {
    for _ in 0..MAX_STEPS {
        let v = &p.values[i];
        match p.op(i) {
            Some(Op::Iota(_)) => return true,
            Some(Op::Convert(Convert::Value(_))) => i = v.operands[0],
            _ if v.is_layout() => i = v.operands[0],
            _ => return false,
        }
    }
    false
}
