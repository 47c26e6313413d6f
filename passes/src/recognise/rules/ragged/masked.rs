//! Rows that are zero outside of their run.

use crate::recognise::check::random::Random;
use crate::recognise::probe::found::closed;
use crate::recognise::probe::one_hot::index_dim;
use crate::recognise::probe::program::{Index, Program};
use msc_ir::interp::{self, Mode};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::select::Select;
use msc_ir::{Module, Op, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Vectors between the lengths of runs and their ends; exporters have up to four.
const MAX_VECTORS: usize = 24;

/// Draws of lengths.
const DRAWS: u64 = 6;

/// Where runs start or end: a vector, and what is added to it.
type Bound = (Index, i64);

/// A value `[E,M,C]` of rows `[M,C]`, each in its run.
#[derive(Clone, Debug)]
pub(super) struct Masked {
    /// The rows, and their dimensions of rows and columns.
    pub x: Index,
    pub x_dims: [usize; 2],
    /// Dimensions of the value.
    pub run: usize,
    pub row: usize,
    pub column: usize,
    /// Row `m` is in a run from its start on and before its end.
    start: Bound,
    end: Bound,
}

impl Masked {
    /// The rows without zeros that were added behind them, and how many they are if there are such.
    pub fn rows(&self, p: &Program<'_>) -> (Index, [usize; 2], Option<usize>) {
        match unpadded(p, self.x, self.x_dims[0]) {
            Some(x) => (x, self.x_dims, Some(p.values[x].ty.shape[self.x_dims[0]])),
            None => (self.x, self.x_dims, None),
        }
    }
}

/// A value to which zeros were added behind the last element of a dimension, before they were.
pub(super) fn unpadded(p: &Program<'_>, x: Index, dim: usize) -> Option<Index> {
    let Some(Op::Pad(pad)) = p.op(x) else { return None };
    let &[from, with] = p.values[x].operands.as_slice() else { return None };
    let rest = (0..pad.high.len()).all(|d| pad.high[d] == 0 || d == dim && pad.high[d] > 0);
    let behind = rest && pad.low.iter().all(|&l| l == 0) && pad.interior.iter().all(|&n| n == 0);
    (behind && p.splat(with) == Some(0.0)).then_some(from)
}

/// Where a dimension of `to` comes from in the operand of a layout op, or in its result's terms: of each operand dimension the
/// result's.
fn spread(p: &Program<'_>, i: Index) -> Option<(Index, Vec<usize>)> {
    match p.op(i)? {
        Op::Broadcast(b) => Some((p.values[i].operands[0], b.dims.to_vec())),
        Op::Permute(msc_ir::ops::permute::Permute::Transpose(t)) => {
            let order = (0..t.len()).filter_map(|d| t.iter().position(|&x| x == d)).collect();
            Some((p.values[i].operands[0], order))
        }
        _ => None,
    }
}

/// Rows in their runs, if a value is such.
pub(super) fn masked(p: &Program<'_>, i: Index) -> Option<Masked> {
    if p.values[i].ty.rank() != 3 {
        return None;
    }
    let v = &p.values[i];
    let (mask, rows) = match p.op(i)? {
        Op::Select(Select::Select) if p.splat(v.operands[2]) == Some(0.0) => (v.operands[0], v.operands[1]),
        Op::Binary(b) if b.kind == BinaryKind::Multiply => {
            let is_mask = |&i: &Index| matches!(p.op(unspread(p, i)), Some(Op::Convert(Convert::Value(_))));
            let &[a, b] = v.operands.as_slice() else { return None };
            if is_mask(&a) { (a, b) } else { (b, a) }
        }
        _ => return None,
    };
    let (x, dims) = spread(p, rows)?;
    if dims.len() != 2 || p.values[x].ty.rank() != 2 {
        return None;
    }
    let run = (0..3).find(|d| !dims.contains(d))?;
    // Down to the comparisons, with where each dimension is.
    let (mut mask, mut at): (Index, Vec<usize>) = (mask, vec![0, 1, 2]);
    let both = loop {
        match p.op(mask)? {
            Op::Binary(b) if b.kind == BinaryKind::And => break p.values[mask].operands.clone(),
            Op::Convert(Convert::Value(_)) => mask = p.values[mask].operands[0],
            _ => {
                let (from, dims) = spread(p, mask)?;
                at = dims.iter().map(|&d| at[d]).collect();
                mask = from;
            }
        }
    };
    let (mut start, mut end, mut row) = (None, None, None);
    for &c in &both {
        let (dim, of, bound, is_start) = comparison(p, c)?;
        if at[of] != run || row.is_some_and(|r| r != at[dim]) {
            return None;
        }
        row = Some(at[dim]);
        *(if is_start { &mut start } else { &mut end }) = Some(bound);
    }
    let row = row?;
    let column = (0..3).find(|&d| d != run && d != row)?;
    let dim = |of: usize| dims.iter().position(|&d| d == of);
    Some(Masked { x, x_dims: [dim(row)?, dim(column)?], run, row, column, start: start?, end: end? })
}

fn unspread(p: &Program<'_>, mut i: Index) -> Index {
    while let Some((from, _)) = spread(p, i) {
        i = from;
    }
    i
}

/// A comparison of the index along one dimension with a vector along another: both dimensions, the vector, and whether the
/// index is from there on, rather than before it.
fn comparison(p: &Program<'_>, c: Index) -> Option<(usize, usize, Bound, bool)> {
    let Some(Op::Compare(x)) = p.op(c) else { return None };
    let &[a, b] = p.values[c].operands.as_slice() else { return None };
    // index ? vector.
    let (dim, vector, direction) = match (index_dim(p, a), index_dim(p, b)) {
        (Some(d), None) => (d, b, x.direction),
        (None, Some(d)) => {
            let turned = match x.direction {
                Direction::Lt => Direction::Gt,
                Direction::Le => Direction::Ge,
                Direction::Gt => Direction::Lt,
                Direction::Ge => Direction::Le,
                other => other,
            };
            (d, a, turned)
        }
        _ => return None,
    };
    let (mut from, mut at): (Index, Vec<usize>) = (vector, (0..p.values[vector].ty.rank()).collect());
    while p.values[from].ty.rank() != 1 {
        let (next, dims) = spread(p, from)?;
        at = dims.iter().map(|&d| at[d]).collect();
        from = next;
    }
    let &[of] = at.as_slice() else { return None };
    let (bound, is_start) = match direction {
        Direction::Ge => ((from, 0), true),
        Direction::Gt => ((from, 1), true),
        Direction::Lt => ((from, 0), false),
        Direction::Le => ((from, 1), false),
        _ => return None,
    };
    Some((dim, of, bound, is_start))
}

/// Lengths of runs by their bounds, as found so far.
#[derive(Default)]
pub(super) struct Runs(BTreeMap<(Bound, Bound), Option<Index>>);

impl Runs {
    /// The lengths of the runs that rows are in, if they are runs one after the other.
    pub fn sizes(&mut self, p: &Program<'_>, module: &Module, m: &Masked) -> Option<Index> {
        let key = (m.start, m.end);
        *self.0.entry(key).or_insert_with(|| sizes(p, module, m.start, m.end))
    }
}

fn sizes(p: &Program<'_>, module: &Module, start: Bound, end: Bound) -> Option<Index> {
    let ty = p.values[end.0].ty;
    if p.values[start.0].ty != ty {
        return None;
    }
    // What the ends are computed from, the nearest first.
    let mut seen = BTreeSet::from([end.0]);
    let mut todo = seen.clone();
    let mut candidates = Vec::new();
    while let Some(i) = todo.pop_last() {
        if p.values[i].ty == ty && p.splat(i).is_none() {
            candidates.push(i);
        }
        if candidates.len() >= MAX_VECTORS || seen.len() >= MAX_VECTORS * 4 {
            break;
        }
        todo.extend(p.values[i].operands.iter().copied().filter(|&o| seen.insert(o)));
    }
    let all_closed = |c: &Index| closed(p, &[*c], start.0) && closed(p, &[*c], end.0);
    candidates.into_iter().filter(all_closed).find(|&c| are_runs(p, module, c, start, end).unwrap_or(false))
}

/// Whether bounds are those of runs of lengths `of`, one after the other.
fn are_runs(p: &Program<'_>, module: &Module, of: Index, start: Bound, end: Bound) -> Option<bool> {
    let mut scratch = Module::new("runs");
    let slice = p.slice(module, &mut scratch, &[of], &[start.0, end.0]).ok()?;
    let graph = scratch.add_graph(slice.graph);
    let n = p.values[of].ty.elements();
    for draw in 0..DRAWS {
        let mut rng = Random::new(0x7275_6e73 ^ draw);
        let most = [2, 5, 40, 1000][draw as usize % 4];
        let lengths: Vec<i64> = (0..n).map(|_| rng.below(most) as i64).collect();
        let data: Vec<f64> = lengths.iter().map(|&l| l as f64).collect();
        let made =
            interp::run(&scratch, graph, &[Tensor::from_f64s(p.values[of].ty, &data)], Mode::Spec).ok()?;
        let (starts, ends) = (made[0].data.to_f64s(), made[1].data.to_f64s());
        let mut sum = 0;
        for (e, &length) in lengths.iter().enumerate() {
            let (from, to) = (starts[e] as i64 + start.1, ends[e] as i64 + end.1);
            if from != sum || to != sum + length {
                return Some(false);
            }
            sum += length;
        }
    }
    Some(true)
}
