//! Routers whose weights are picked at the places that other numbers choose, as where a bias balances experts: a descending
//! sort that carries places along, of which the first few are kept, and a gather of one element each at those places.
//!
//! All of it is read exactly; what is done with the weights after that stays what it is.

use super::is_index;
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::one_hot::behind_layout;
use crate::recognise::probe::program::{Index, Program};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::fused::{FusedKind, Route};
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, GraphId, Module, Monoid, Op, Shape, ValueDef};
use std::collections::BTreeSet;

/// Integers that are computed from places: beside what is picked there, each of many experts may compare them with its number.
const MAX_BETWEEN: usize = 4096;

/// A choice by the places of the largest numbers.
struct Choice {
    x: Index,
    /// The places, `[…,k]`.
    i: Index,
    chosen: usize,
    experts: usize,
    /// Indices of rows, with the dimension along which.
    rows: BTreeSet<(Index, usize)>,
}

/// Routers of a program with their gradients, but for those that choose by `known` numbers.
pub(super) fn found(
    p: &Program<'_>,
    module: &Module,
    known: &BTreeSet<Index>,
) -> Vec<(Found, Option<Found>)> {
    let mut out = Vec::new();
    for sort in 0..p.values.len() {
        let Some(mut c) = choice(p, module, sort).filter(|c| !known.contains(&c.x)) else { continue };
        let between = between(p, &c);
        // Guards that count negative indices from the end are seen through.
        let mut bands = p.bands(module);
        let vectors = between.iter().filter_map(|&g| p.values[g].operands.get(1)).copied();
        let parts = vectors.filter(|&v| matches!(p.op(v), Some(Op::Concatenate(_))));
        let parts: BTreeSet<Index> = parts.flat_map(|v| p.values[v].operands.iter().copied()).collect();
        c.rows = parts.into_iter().filter_map(|part| Some((part, bands.index(part)?))).collect();
        // What is picked from numbers of the same type.
        let picked = between.iter().copied().find(|&g| {
            let from = p.values[g].operands.first().copied();
            matches!(p.op(g), Some(Op::Gather(_)))
                && from.is_some_and(|s| p.values[s].ty == p.values[c.x].ty)
                && picks(p, &c, g)
        });
        let Some(w) = picked else { continue };
        let s = p.values[w].operands[0];
        let adds = between.iter().copied().find(|&g| adds(p, &c, g));
        let route = Route { chosen: c.chosen, shares: false, apart: s != c.x };
        out.push((forward(p, &c, route, (s, w)), adds.map(|dx| backward(p, route, s, dx))));
    }
    out
}

/// Whether a comparator says that its first operand is the larger in total order.
fn is_descending(module: &Module, comparator: GraphId) -> bool {
    let g = module.graph(comparator);
    let (&[r], &[a, b, ..]) = (g.results(), g.params()) else { return false };
    match g.value(r).def {
        ValueDef::Result(op, _) => {
            let data = g.op(op);
            data.operands.as_slice() == [a, b]
                && matches!(&data.op, Op::Compare(c) if c.direction == Direction::Gt && c.total_order)
        }
        ValueDef::Param(_) => false,
    }
}

fn choice(p: &Program<'_>, module: &Module, sort: Index) -> Option<Choice> {
    let (Op::Sort(s), 1) = p.values[sort].op? else { return None };
    let &[x, index] = p.values[sort].operands.as_slice() else { return None };
    let (ty, places) = (p.values[x].ty, p.values[sort].ty);
    let last = ty.rank().checked_sub(1)?;
    let fits = s.dim == last
        && s.stable
        && ty.dtype.is_float()
        && places.dtype == DType::I32
        && is_index(p, index, last)
        && is_descending(module, s.comparator);
    if !fits {
        return None;
    }
    let i = p.values[sort].users.iter().copied().find(|&u| {
        let shape = &p.values[u].ty.shape;
        matches!(p.op(u), Some(Op::Slice(Slice::Static { start, stride, .. }))
            if start.iter().all(|&n| n == 0) && stride.iter().all(|&n| n == 1))
            && shape[..last] == ty.shape[..last]
            && shape[last] < ty.shape[last]
    })?;
    let (chosen, experts) = (p.values[i].ty.shape[last], ty.shape[last]);
    Some(Choice { x, i, chosen, experts, rows: BTreeSet::new() })
}

/// Gathers and scatters that places lead to, by integers alone.
fn between(p: &Program<'_>, c: &Choice) -> BTreeSet<Index> {
    let (mut seen, mut out) = (BTreeSet::from([c.i]), BTreeSet::new());
    let mut todo = vec![c.i];
    while let Some(i) = todo.pop() {
        for &u in &p.values[i].users {
            if p.values[u].ty.dtype.is_float() {
                if matches!(p.op(u), Some(Op::Gather(_) | Op::Scatter(_))) {
                    out.insert(u);
                }
            } else if seen.len() < MAX_BETWEEN && seen.insert(u) {
                todo.push(u);
            }
        }
    }
    out
}

/// An index before a guard that counts negative ones from the end: it is none.
fn unguarded(p: &Program<'_>, i: Index) -> Index {
    let i = behind_layout(p, i);
    let v = &p.values[i];
    let (Some(Op::Select(Select::Select)), &[guard, _, index]) = (p.op(i), v.operands.as_slice()) else {
        return i;
    };
    let guard = behind_layout(p, guard);
    let negative = matches!(p.op(guard), Some(Op::Compare(c)) if c.direction == Direction::Lt)
        && behind_layout(p, p.values[guard].operands[0]) == behind_layout(p, index)
        && p.splat(p.values[guard].operands[1]) == Some(0.0);
    if negative { behind_layout(p, index) } else { i }
}

/// Whether vectors `[…,k,n]` of indices are those of the rows, then that of the place.
fn is_row_and_place(p: &Program<'_>, c: &Choice, vectors: Index) -> bool {
    let rows = p.values[c.i].ty.rank() - 1;
    let Some(Op::Concatenate(cat)) = p.op(vectors) else { return false };
    let parts = &p.values[vectors].operands;
    let counts = |(d, &part): (usize, &Index)| {
        let v = &p.values[part];
        v.ty.shape[..=rows] == p.values[c.i].ty.shape[..] && c.rows.contains(&(part, d))
    };
    cat.dim == rows + 1
        && parts.len() == rows + 1
        && parts[..rows].iter().enumerate().all(counts)
        && unguarded(p, parts[rows]) == c.i
        && keeps_places(p, parts[rows], c.i)
}

/// Whether only dimensions of size 1 are between a value and the places.
fn keeps_places(p: &Program<'_>, part: Index, places: Index) -> bool {
    let squeezed = |i: Index| -> Shape { p.values[i].ty.shape.iter().copied().filter(|&n| n != 1).collect() };
    let mut i = part;
    let want = squeezed(places);
    while i != places {
        let ordered = match p.op(i) {
            Some(Op::Broadcast(b)) => b.dims.is_sorted(),
            Some(Op::Permute(_)) => false,
            _ => true,
        };
        if !ordered || squeezed(i) != want {
            return false;
        }
        let next = match p.op(i) {
            Some(Op::Select(_)) => p.values[i].operands.get(2),
            _ => p.values[i].operands.first(),
        };
        match next {
            Some(&n) => i = n,
            None => return false,
        }
    }
    true
}

/// Whether dimensions of an indexed op say one element at each row's place.
fn is_one_each(c: &Choice, p: &Program<'_>, vectors: Index, dims: [&Shape; 3], vector_dim: usize) -> bool {
    let rows = p.values[c.i].ty.rank() - 1;
    let [batching, map, dropped] = dims;
    let counted = |s: &Shape, n: std::ops::Range<usize>| s.iter().copied().eq(n);
    if batching.is_empty() {
        return vector_dim == rows + 1
            && counted(map, 0..rows + 1)
            && counted(dropped, 0..rows + 1)
            && is_row_and_place(p, c, vectors);
    }
    counted(batching, 0..rows)
        && counted(map, rows..rows + 1)
        && counted(dropped, rows..rows + 1)
        && vector_dim == rows + 1
        && unguarded(p, vectors) == c.i
        && keeps_places(p, vectors, c.i)
}

/// Whether a gather picks one number for each place.
fn picks(p: &Program<'_>, c: &Choice, g: Index) -> bool {
    let Some(Op::Gather(op)) = p.op(g) else { return false };
    let vectors = p.values[g].operands[1];
    let batching = &op.operand_batching_dims;
    *batching == op.start_indices_batching_dims
        && op.offset_dims.is_empty()
        && op.slice_sizes.iter().all(|&n| n == 1)
        && p.values[g].ty.shape == p.values[c.i].ty.shape
        && is_one_each(
            c,
            p,
            vectors,
            [batching, &op.start_index_map, &op.collapsed_slice_dims],
            op.index_vector_dim,
        )
}

/// Whether a scatter adds one number for each place to zeros.
fn adds(p: &Program<'_>, c: &Choice, g: Index) -> bool {
    let Some(Op::Scatter(op)) = p.op(g) else { return false };
    let &[base, vectors, updates] = p.values[g].operands.as_slice() else { return false };
    let batching = &op.input_batching_dims;
    op.combine == Some(Monoid::Sum)
        && *batching == op.scatter_indices_batching_dims
        && op.update_window_dims.is_empty()
        && p.splat(base) == Some(0.0)
        && p.values[g].ty == p.values[c.x].ty
        && p.values[updates].ty.shape == p.values[c.i].ty.shape
        && is_one_each(
            c,
            p,
            vectors,
            [batching, &op.scatter_dims_to_operand_dims, &op.inserted_window_dims],
            op.index_vector_dim,
        )
}

/// What is picked behind a guard that its place is one of the experts: it is.
fn guarded(p: &Program<'_>, c: &Choice, w: Index) -> Index {
    let guard = p.values[w].users.iter().copied().find(|&u| {
        matches!(p.op(u), Some(Op::Select(Select::Select)))
            && p.values[u].operands.get(1) == Some(&w)
            && is_inside(p, c, p.values[u].operands[0])
    });
    guard.unwrap_or(w)
}

/// Whether a condition says of places no more than that they are those of experts.
fn is_inside(p: &Program<'_>, c: &Choice, condition: Index) -> bool {
    let i = behind_layout(p, condition);
    let v = &p.values[i];
    match p.op(i) {
        Some(Op::Binary(b)) if b.kind == BinaryKind::And => v.operands.iter().all(|&o| is_inside(p, c, o)),
        Some(Op::Reduce(Reduce { monoid: Monoid::And, .. })) => is_inside(p, c, v.operands[0]),
        Some(Op::Compare(x)) => {
            let (place, bound) = (unguarded(p, v.operands[0]), p.splat(v.operands[1]));
            let last = c.experts as f64 - 1.0;
            place == c.i
                && bound.is_some_and(|b| match x.direction {
                    Direction::Ge => b <= 0.0,
                    Direction::Gt => b < 0.0,
                    Direction::Le => b >= last,
                    Direction::Lt => b > last,
                    _ => false,
                })
        }
        _ => false,
    }
}

fn plain(name: &'static str, value: Index) -> Operand {
    Operand { name, value, ops: Vec::new(), cut: (value, Vec::new()) }
}

fn forward(p: &Program<'_>, c: &Choice, route: Route, (s, w): (Index, Index)) -> Found {
    let mut operands = vec![plain("x", c.x)];
    if route.apart {
        operands.push(plain("s", s));
    }
    let output = |name, result, value| Output { name, result, value, ops: Vec::new() };
    Found {
        rule: "moe-route-apart",
        kind: FusedKind::MoeRoute(route),
        operands,
        given: Vec::new(),
        outputs: vec![output("w", 0, guarded(p, c, w)), output("i", 1, c.i)],
    }
}

fn backward(p: &Program<'_>, route: Route, s: Index, dx: Index) -> Found {
    Found {
        rule: "moe-route-apart-grad",
        kind: FusedKind::MoeRouteGrad(route),
        operands: vec![plain("dw", p.values[dx].operands[2]), plain("x", s)],
        given: vec![("w", 0), ("i", 1)],
        outputs: vec![Output { name: "dx", result: 0, value: dx, ops: Vec::new() }],
    }
}
