//! What an integer input selects.

use super::flow::{Flow, Node, What, is_form};
use super::values::{Facts, becomes_angle};
use msc_ir::ops::compare::Direction;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, Op};
use std::collections::BTreeSet;

/// Uses of an integer input.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct IndexUse {
    /// Rows of the table that it indexes, and the parameter that is the table.
    pub table: Option<(usize, usize)>,
    /// How many classes it selects among: it picks from computed values, or becomes one-hot rows.
    pub classes: Option<usize>,
    /// It is compared.
    pub compared: bool,
    /// It is converted to a float.
    pub as_number: bool,
    /// It becomes an angle, or indexes a table that no input decides.
    pub angles: bool,
    /// Its first position is cut off, or one is appended.
    pub shifted: bool,
}

/// Follows an integer parameter to where it is no longer one.
pub(super) fn follow(f: &Flow<'_>, facts: &Facts, param: Node) -> IndexUse {
    let mut found = IndexUse::default();
    let (rank, last) = {
        let ty = f.types[param as usize];
        (ty.rank(), ty.shape.last().copied().unwrap_or(0))
    };
    let mut seen = BTreeSet::from([param]);
    let mut todo = vec![param];
    while let Some(v) = todo.pop() {
        for &(n, operand) in &f.uses[v as usize] {
            let s = &f.steps[n as usize];
            let op = match s.what {
                What::Copy => {
                    todo.extend(s.writes.iter().filter(|&&w| seen.insert(w)));
                    continue;
                }
                What::Op(op) => op,
            };
            match op {
                Op::Gather(g) if operand == 1 => {
                    let table = s.reads[0];
                    let dim = g.start_index_map.last().copied().unwrap_or(0);
                    let size = f.types[table as usize].shape.get(dim).copied().unwrap_or(0);
                    let origin = f.origin(table);
                    match f.params.iter().position(|&p| p == origin) {
                        Some(p) if f.types[origin as usize].dtype.is_float() => {
                            found.table = found.table.max(Some((size, p)));
                        }
                        _ if facts.depends(table) => found.classes = found.classes.max(Some(size)),
                        _ => found.angles = true,
                    }
                }
                // Indices of other ops are no tokens' business.
                Op::Gather(_) | Op::Slice(Slice::Dynamic { .. }) if operand > 0 => {}
                Op::Scatter(_) | Op::ScatterBy(_) => {}
                Op::Compare(c) => {
                    let other = s.reads[1 - operand as usize];
                    match one_hot(f, facts, other, s.writes[0]) {
                        Some(classes) if matches!(c.direction, Direction::Eq | Direction::Ne) => {
                            match multiplies(f, s.writes[0]) {
                                Some(p) => found.table = found.table.max(Some((classes, p))),
                                None => found.classes = found.classes.max(Some(classes)),
                            }
                        }
                        _ => found.compared = true,
                    }
                }
                Op::Convert(_) if f.types[s.writes[0] as usize].dtype.is_float() => {
                    found.as_number |= f.types[v as usize].dtype != DType::I1;
                    found.angles |= becomes_angle(f, s.writes[0]);
                }
                _ => {
                    if let Op::Slice(Slice::Static { start, limit, .. }) = op
                        && start.len() == rank
                        && start.last() == Some(&1)
                        && limit.last().is_some_and(|&l| l >= last)
                    {
                        found.shifted = true;
                    }
                    if let Op::Pad(p) = op
                        && p.high.len() == rank
                        && p.high.last() == Some(&1)
                    {
                        found.shifted = true;
                    }
                    let passes = is_form(op)
                        || matches!(
                            op,
                            Op::Binary(_)
                                | Op::Select(_)
                                | Op::Pad(_)
                                | Op::Concatenate(_)
                                | Op::Gather(_)
                                | Op::Barrier(_)
                                | Op::Slice(_)
                        );
                    let ints = s.writes.iter().filter(|&&w| {
                        let d = f.types[w as usize].dtype;
                        !d.is_float() && d != DType::I1
                    });
                    // A barrier passes each value on for itself.
                    let own = matches!(op, Op::Barrier(_)).then_some(operand as usize);
                    if passes {
                        let ints = ints.enumerate().filter(|(i, _)| own.is_none_or(|o| o == *i));
                        let new: Vec<Node> = ints.map(|(_, &w)| w).filter(|w| seen.insert(*w)).collect();
                        todo.extend(new);
                    }
                }
            }
        }
    }
    found
}

/// The number of classes if comparing with `other` gives one-hot rows: it counts along a dimension, and no input
/// decides it.
fn one_hot(f: &Flow<'_>, facts: &Facts, other: Node, result: Node) -> Option<usize> {
    if facts.depends(other) || facts.any_param(other) {
        return None;
    }
    let shape = &f.types[result as usize].shape;
    match f.op(f.origin(other)) {
        Some((Op::Iota(i), s)) => f.types[s.writes[0] as usize].shape.get(i.dim).copied(),
        // A ramp that was folded.
        Some((Op::Constant(c), _)) if f.module.constants.splat_value(c.id).is_none() => shape.last().copied(),
        _ => None,
    }
}

/// The parameter that one-hot rows are multiplied with, if they select rows of a table.
fn multiplies(f: &Flow<'_>, rows: Node) -> Option<usize> {
    let mut todo = vec![rows];
    let mut seen = BTreeSet::from([rows]);
    while let Some(v) = todo.pop() {
        for &(n, operand) in &f.uses[v as usize] {
            let s = &f.steps[n as usize];
            match s.what {
                What::Op(Op::DotGeneral(_)) => {
                    let origin = f.origin(s.reads[1 - operand as usize]);
                    if let Some(p) = f.params.iter().position(|&p| p == origin) {
                        return Some(p);
                    }
                }
                What::Copy => todo.extend(s.writes.iter().filter(|&&w| seen.insert(w))),
                What::Op(op) => {
                    let passes = is_form(op)
                        || matches!(op, Op::Select(_))
                        || matches!(op, Op::Unary(u) if u.kind == UnaryKind::Not);
                    if passes {
                        todo.extend(s.writes.iter().filter(|&&w| seen.insert(w)));
                    }
                }
            }
        }
    }
    None
}
