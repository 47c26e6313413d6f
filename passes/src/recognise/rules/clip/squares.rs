//! Sums of squares: which tensors a scalar is the squared norm of, taken together.

use super::flow::{Flow, Place};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Op};
use std::collections::{BTreeMap, BTreeSet};

/// What is summed over all elements of a value.
enum Term {
    /// The elements.
    Plain(Place),
    /// Their squares.
    Square(Place),
}

/// The tensors whose squares, all of them, a value's elements add up to, and how many times each; `None` if it is no
/// such sum.
pub fn summed(flow: &Flow<'_>, sum: &Place) -> Option<BTreeMap<Place, usize>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![Term::Plain(sum.clone())];
    while let Some(term) = todo.pop() {
        match term {
            Term::Plain(at) if flow.number(&at) == Some(0.0) => {}
            Term::Plain(at) => plain(flow, &at, &mut todo)?,
            Term::Square(at) => {
                let unsigned = flow.op(&at).and_then(|(op, operands)| match op {
                    Op::Unary(u) if u.kind == UnaryKind::Sqrt => Some(Term::Plain(operands[0].clone())),
                    Op::Unary(u) if matches!(u.kind, UnaryKind::Abs | UnaryKind::Negate) => {
                        Some(Term::Square(operands[0].clone()))
                    }
                    _ => None,
                });
                match unsigned {
                    Some(next) => todo.push(next),
                    None => match flow.same(&at) {
                        Some(next) => todo.push(Term::Square(next)),
                        None => match parts(flow, &at) {
                            Some(parts) => todo.extend(parts.into_iter().map(Term::Square)),
                            None => *out.entry(at).or_default() += 1,
                        },
                    },
                }
            }
        }
    }
    (!out.is_empty()).then_some(out)
}

fn plain(flow: &Flow<'_>, at: &Place, todo: &mut Vec<Term>) -> Option<()> {
    if let Some(same) = flow.same(at) {
        todo.push(Term::Plain(same));
        return Some(());
    }
    let (op, operands) = flow.op(at)?;
    match op {
        // A sum that is rounded is the norm's as the program has it, which stays the operand.
        Op::Convert(Convert::Value(d)) if d.is_float() && flow.ty(&operands[0]).dtype.is_float() => {
            todo.push(Term::Plain(operands[0].clone()));
        }
        Op::Binary(b) => match (b.kind, &operands[0], &operands[1]) {
            (BinaryKind::Add, x, y) => todo.extend([Term::Plain(x.clone()), Term::Plain(y.clone())]),
            (BinaryKind::Multiply, x, y) if x == y => todo.push(Term::Square(x.clone())),
            (BinaryKind::Power, x, n) if flow.number(n) == Some(2.0) => todo.push(Term::Square(x.clone())),
            _ => return None,
        },
        Op::Reduce(r) if r.monoid == Monoid::Sum => todo.push(Term::Plain(operands[0].clone())),
        Op::Concatenate(_) => todo.extend(operands.into_iter().map(Term::Plain)),
        Op::DotGeneral(d) => {
            let same = operands[0] == operands[1]
                && d.lhs_batch == d.rhs_batch
                && d.lhs_contract == d.rhs_contract
                && d.lhs_batch.len() + d.lhs_contract.len() == flow.ty(&operands[0]).rank();
            if !same {
                return None;
            }
            todo.push(Term::Square(operands[0].clone()));
        }
        _ => return None,
    }
    Some(())
}

/// The parts that a value is put together of.
fn parts(flow: &Flow<'_>, at: &Place) -> Option<Vec<Place>> {
    match flow.maker(at)?.op {
        Op::Concatenate(_) => Some(flow.op(at)?.1.to_vec()),
        _ => None,
    }
}

/// The tensors that a value consists of, in whatever layout: itself, or its parts.
pub fn pieces(flow: &Flow<'_>, at: &Place) -> BTreeSet<Place> {
    let mut out = BTreeSet::new();
    let mut todo = vec![at.clone()];
    while let Some(at) = todo.pop() {
        match flow.same(&at).map(|s| vec![s]).or_else(|| parts(flow, &at)) {
            Some(next) => todo.extend(next),
            None => {
                out.insert(at);
            }
        }
    }
    out
}
