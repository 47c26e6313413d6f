//! Sinks (Xiao et al., "Efficient Streaming Language Models with Attention Sinks"): a column of numbers beside the scores,
//! which takes its share of each row's softmax and meets no value.

use super::find::Place;
use crate::recognise::probe::program::{Index, Program};
use msc_ir::Monoid;
use msc_ir::Op;
use msc_ir::ops::slice::Slice;

/// Ops from the column's gradient to that of the operand: sums and layout.
const MAX_AFTER: usize = 12;

/// A column beside scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sink {
    /// Both in one value.
    pub joined: Index,
    /// The scores.
    pub scores: Index,
    /// The column.
    pub column: Index,
    /// The dimension along which it stands beside them.
    pub dim: usize,
}

impl Sink {
    /// The sink that a value is joined with, if it is scores and one column.
    pub fn of(p: &Program<'_>, i: Index) -> Option<Sink> {
        let Some(Op::Concatenate(c)) = p.op(i) else { return None };
        let &[a, b] = p.values[i].operands.as_slice() else { return None };
        let width = |x: Index| p.values[x].ty.shape[c.dim];
        let (scores, column) = match (width(a), width(b)) {
            (n, 1) if n > 1 => (a, b),
            (1, n) if n > 1 => (b, a),
            _ => return None,
        };
        Some(Sink { joined: i, scores, column, dim: c.dim })
    }
}

/// Values that may be the gradient of a sink: the column is cut out of what is computed of both, and summed.
pub fn gradients(p: &Program<'_>, place: &Place) -> Vec<Index> {
    let Some(sink) = place.sink else { return Vec::new() };
    let wide = p.values[sink.joined].ty.elements();
    let mut out: Vec<Index> = Vec::new();
    for &i in place.local.iter().filter(|&&i| p.values[i].ty.elements() == wide) {
        let column = |&&u: &&Index| {
            matches!(p.op(u), Some(Op::Slice(Slice::Static { .. })))
                && p.values[u].ty.elements() == p.values[sink.column].ty.elements()
        };
        let mut todo: Vec<Index> = p.values[i].users.iter().filter(column).copied().collect();
        let mut seen = 0;
        while let Some(u) = todo.pop() {
            seen += 1;
            if seen > MAX_AFTER || out.contains(&u) {
                continue;
            }
            out.push(u);
            let fits = |&&u: &&Index| {
                p.values[u].is_layout()
                    && p.values[u].ty.elements() == p.values[p.values[u].operands[0]].ty.elements()
                    || matches!(p.op(u), Some(Op::Reduce(r)) if r.monoid == Monoid::Sum)
            };
            todo.extend(p.values[u].users.iter().filter(fits));
        }
    }
    out
}
