//! Near misses of experts: other choices, other slots, other runs.

use crate::mutants::Found;
use crate::mutants::edit::{Change, Make, make, other, times};
use crate::mutants::facts::{Facts, is_view, unary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, OpData, OpId, ValueId};

/// Each chosen expert with the weight of another.
const WEIGHTS: &str = "weights of other choices";
/// One choice too far: the second to the last.
const NEXT: &str = "choices from the second on";
/// Sorted choices from the last to the first.
const ORDER: &str = "order of choices reversed";
/// Rows back by the order that they came by.
const BACK: &str = "back by the order itself";
/// One slot more.
const CAPACITY: &str = "capacity one more";
/// Experts or slots that are counted from the end.
const COUNTED: &str = "experts or slots from the last";
/// How many choices other experts have.
const SIZES: &str = "sizes of other runs";
/// How often other experts are chosen.
const LOAD: &str = "load of other experts";
/// A loss of larger logarithms.
const LOGARITHM: &str = "logarithm of a sum times 1.5";

pub(super) fn near(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        match &d.op {
            Op::Sort(_) => sorted(f, d, out),
            Op::Compare(_) => compared(f, id, d, out),
            Op::Scatter(_) | Op::Reduce(_) => counted(f, d, out),
            _ => {
                let r = d.results.first().copied();
                if unary(&d.op) == Some(UnaryKind::Log)
                    && let Some(r) = r.filter(|&r| f.graph.ty(r).rank() > 0)
                {
                    out.add(LOGARITHM, format!("%{}", r.0), vec![Change::Uses(r, times(1.5))]);
                }
            }
        }
    }
}

/// The value from the last to the first along a dimension.
fn reversed(dim: usize) -> Make {
    make(move |e, v| e.op(Permute::Reverse([dim].into_iter().collect()), &[v]))
}

/// The slice of the first few along the last dimension that is made of a value.
fn first_few<'f>(f: &'f Facts<'_>, v: ValueId) -> Option<(OpId, &'f OpData)> {
    let last = f.graph.ty(v).rank().checked_sub(1)?;
    let uses = &f.graph.value(v).uses;
    uses.iter().map(|u| (u.op, f.graph.op(u.op))).find(|(_, d)| match &d.op {
        Op::Slice(Slice::Static { start, limit, .. }) => {
            start.iter().all(|&s| s == 0) && limit[last] + 1 < f.graph.ty(v).shape[last]
        }
        _ => false,
    })
}

fn sorted(f: &Facts<'_>, d: &OpData, out: &mut Found<'_>) {
    let &[keys, places] = d.results.as_slice() else { return };
    let ty = f.graph.ty(keys);
    let at = format!("%{}", places.0);
    if ty.dtype.is_float() && ty.rank() > 1 {
        let last = ty.rank() - 1;
        let few = [keys, places].map(|v| first_few(f, v));
        if let Some((_, weights)) = few[0] {
            out.add(WEIGHTS, &*at, vec![Change::Uses(weights.results[0], reversed(last))]);
        }
        let next = |&(id, d): &(OpId, &OpData)| {
            let Op::Slice(Slice::Static { start, limit, stride }) = &d.op else { return None };
            let (mut start, mut limit) = (start.clone(), limit.clone());
            start[last] += 1;
            limit[last] += 1;
            let op = Slice::Static { start, limit, stride: stride.clone() };
            Some(Change::Op(id, Box::new(op.into())))
        };
        out.add(NEXT, &*at, few.iter().flatten().filter_map(next).collect());
    }
    if ty.dtype.is_int() && ty.rank() == 1 {
        let by = f.root(d.operands[0]);
        let order = f.def(by).filter(|(_, d)| matches!(d.op, Op::Sort(_)) && d.results.get(1) == Some(&by));
        match order {
            Some(_) => out.add(BACK, &*at, vec![Change::Uses(places, other(by))]),
            None => out.add(ORDER, &*at, vec![Change::Uses(places, reversed(0))]),
        }
    }
}

fn compared(f: &Facts<'_>, id: OpId, d: &OpData, out: &mut Found<'_>) {
    let Op::Compare(c) = &d.op else { return };
    let ty = f.graph.ty(d.operands[0]);
    if !ty.dtype.is_int() || ty.rank() < 2 {
        return;
    }
    let at = format!("%{}", d.results[0].0);
    match c.direction {
        Direction::Le | Direction::Lt => {
            // A running count of tokens.
            let counts = |v| f.root_def(v).is_some_and(|(_, x)| matches!(x.op, Op::Windowed(_)));
            if let Some((i, _, count)) = f.with_scalar(d)
                && counts(count)
            {
                let more = make(|e, v| e.with(BinaryKind::Add, v, 1.0));
                out.add(CAPACITY, at, vec![Change::Operand(id, i, more)]);
            }
        }
        Direction::Eq => {
            let is_ramp =
                |i: &usize| f.root_def(d.operands[*i]).is_some_and(|(_, x)| matches!(x.op, Op::Iota(_)));
            let ramp = (0..2).find(is_ramp);
            let last = ty.rank() - 1;
            if let Some(i) = ramp {
                out.add(COUNTED, at, vec![Change::Operand(id, i, reversed(last))]);
            }
        }
        _ => {}
    }
}

fn counted(f: &Facts<'_>, d: &OpData, out: &mut Found<'_>) {
    let r = d.results[0];
    let ty = f.graph.ty(r);
    let at = format!("%{}", r.0);
    match &d.op {
        Op::Scatter(s) if s.combine == Some(Monoid::Sum) && ty.dtype.is_int() && ty.rank() == 1 => {
            out.add(SIZES, at, vec![Change::Uses(r, reversed(0))]);
        }
        Op::Reduce(s) if s.monoid == Monoid::Sum && ty.dtype.is_float() && ty.rank() > 0 => {
            let through = |d: &OpData| is_view(&d.op) || matches!(d.op, Op::Convert(_) | Op::Reduce(_));
            let from = f.back(d.operands[0], through);
            let converted = from.iter().any(|&v| {
                f.def(v).is_some_and(|(_, x)| matches!(&x.op, Op::Compare(c) if c.direction == Direction::Eq))
            });
            if converted {
                out.add(LOAD, at, vec![Change::Uses(r, reversed(ty.rank() - 1))]);
            }
        }
        _ => {}
    }
}
