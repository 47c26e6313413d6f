//! Mistakes in attention: scale, mask, softmax, grouped heads.

use super::Found;
use super::edit::{Change, make, other};
use super::facts::{Facts, binary, is_elementwise, is_view, unary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, OpData, Tensor, ValueId};

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    scale(f, out);
    compared_mask(f, out);
    softmax(f, out);
    groups(f, out);
}

fn is_batched_dot(op: &Op) -> bool {
    matches!(op, Op::DotGeneral(d) if !d.lhs_batch.is_empty())
}

/// A factor on scores, on queries, or on their gradients: before or behind a batched product.
fn scale(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let kind = binary(&d.op);
        if !matches!(kind, Some(BinaryKind::Multiply | BinaryKind::Divide)) {
            continue;
        }
        let Some((i, c, x)) = f.with_scalar(d) else { continue };
        let r = d.results[0];
        if c.abs() == 1.0
            || c == 0.0
            || f.graph.ty(r).rank() < 3
            || (i == 0 && kind == Some(BinaryKind::Divide))
        {
            continue;
        }
        let behind = f.root_def(x).is_some_and(|(_, p)| is_batched_dot(&p.op));
        let before = f
            .forward(r, |d| is_view(&d.op))
            .iter()
            .any(|&v| f.graph.value(v).uses.iter().any(|u| is_batched_dot(&f.graph.op(u.op).op)));
        if !behind && !before {
            continue;
        }
        let at = format!("%{}", r.0);
        out.add("scale missing", &*at, vec![Change::Value(r, other(x))]);
        let kind = kind.unwrap_or(BinaryKind::Multiply);
        out.add("scale squared", &*at, vec![Change::Value(r, make(move |e, v| e.with(kind, v, c)))]);
    }
}

/// Whether a value is made of index ramps and constants only.
fn is_index(f: &Facts<'_>, v: ValueId) -> bool {
    let through = |d: &OpData| is_elementwise(&d.op) || matches!(d.op, Op::Slice(_) | Op::Concatenate(_));
    let leaves = f.back(v, through);
    leaves.iter().all(|&x| match f.def(x) {
        Some((_, d)) => through(d) || matches!(d.op, Op::Iota(_) | Op::Constant(_)),
        None => f.graph.ty(x).rank() == 0,
    }) && leaves.iter().any(|&x| f.def(x).is_some_and(|(_, d)| !through(d) && f.scalar(x).is_none()))
}

/// A comparison of two indices: the mask as it is computed.
fn compared_mask(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        let Op::Compare(c) = &d.op else { continue };
        let (a, b) = (d.operands[0], d.operands[1]);
        if f.graph.ty(a).rank() < 2 || !is_index(f, a) || !is_index(f, b) {
            continue;
        }
        let direction = match c.direction {
            Direction::Ge => Direction::Gt,
            Direction::Gt => Direction::Ge,
            Direction::Le => Direction::Lt,
            Direction::Lt => Direction::Le,
            _ => continue,
        };
        let at = format!("%{}", d.results[0].0);
        out.add("mask off by one", &*at, vec![Change::Op(id, Box::new(Compare { direction, ..*c }.into()))]);
        let swapped = Compare { direction: c.direction.swapped(), ..*c };
        out.add("mask the other way", &*at, vec![Change::Op(id, Box::new(swapped.into()))]);
        // Everything is as the lower left corner, which a causal mask keeps and a window drops.
        let inclusive = matches!(c.direction, Direction::Ge | Direction::Le);
        let open = Tensor::splat(f.graph.ty(d.results[0]), f64::from(u8::from(inclusive)));
        out.add("no mask", &*at, vec![Change::Value(d.results[0], make(move |e, _| e.constant(&open)))]);
    }
}

/// `e / Σe` and the maximum under the exponent.
fn softmax(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        if unary(&d.op) == Some(UnaryKind::Exponential)
            && let Some((shift, s)) = f.def(d.operands[0])
            && binary(&s.op) == Some(BinaryKind::Subtract)
            && f.back(s.operands[1], |d| is_elementwise(&d.op)).iter().any(|&v| {
                f.def(v).is_some_and(|(_, d)| matches!(&d.op, Op::Reduce(r) if r.monoid == Monoid::Max))
            })
        {
            let at = format!("%{}", d.results[0].0);
            out.add(
                "maximum added, not subtracted",
                &*at,
                vec![Change::Op(shift, Box::new(BinaryKind::Add.into()))],
            );
            out.add("maximum not subtracted", &*at, vec![Change::Operand(id, 0, other(s.operands[0]))]);
        }
        if binary(&d.op) == Some(BinaryKind::Divide)
            && let Some((_, sum)) = f.root_def(d.operands[1])
            && matches!(&sum.op, Op::Reduce(r) if r.monoid == Monoid::Sum)
            && f.root(sum.operands[0]) == f.root(d.operands[0])
        {
            let at = format!("%{}", d.results[0].0);
            out.add("softmax not normalised", at, vec![Change::Value(d.results[0], other(d.operands[0]))]);
        }
    }
}

/// Where each key head is repeated for its group of query heads, or query heads are split into groups: the groups
/// interleaved instead.
fn groups(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let r = d.results[0];
        let ty = f.graph.ty(r);
        if !ty.dtype.is_float() || ty.rank() < 4 {
            continue;
        }
        let at = match &d.op {
            // One new dimension between kept ones, merged with its left neighbour afterwards.
            Op::Broadcast(b) if b.dims.len() >= 3 => {
                let new: Vec<usize> = (0..ty.rank()).filter(|i| !b.dims.contains(i)).collect();
                let old = f.graph.ty(d.operands[0]);
                let grown: Vec<usize> = (0..b.dims.len())
                    .filter(|&i| old.shape[i] == 1 && ty.shape[b.dims[i]] > 1)
                    .map(|i| b.dims[i])
                    .collect();
                match (new.as_slice(), grown.as_slice()) {
                    (&[k], []) | ([], &[k]) => k,
                    _ => continue,
                }
            }
            // One dimension split in two.
            Op::Reshape(_) => {
                let old = f.graph.ty(d.operands[0]);
                let split = (0..ty.rank() - 1).find(|&i| {
                    old.rank() + 1 == ty.rank()
                        && old.shape[..i] == ty.shape[..i]
                        && old.shape[i] == ty.shape[i] * ty.shape[i + 1]
                        && old.shape[i + 1..] == ty.shape[i + 2..]
                });
                match split {
                    Some(i) => i + 1,
                    None => continue,
                }
            }
            _ => continue,
        };
        if at == 0 || at + 1 >= ty.rank() || ty.shape[at] < 2 || ty.shape[at - 1] < 2 {
            continue;
        }
        let feeds_dot = f
            .forward(r, |d| is_view(&d.op))
            .iter()
            .any(|&v| f.graph.value(v).uses.iter().any(|u| is_batched_dot(&f.graph.op(u.op).op)));
        if !feeds_dot {
            continue;
        }
        let shape = ty.shape.clone();
        let interleave = make(move |e, v| {
            let mut p: msc_ir::Shape = (0..shape.len()).collect();
            p.swap(at - 1, at);
            let t = e.op(Permute::Transpose(p), &[v])?;
            e.op(Reshape { shape: shape.clone() }, &[t])
        });
        out.add("wrong group of heads", format!("%{}", r.0), vec![Change::Value(r, interleave)]);
    }
}
