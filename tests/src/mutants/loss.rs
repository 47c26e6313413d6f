//! Mistakes in the loss: its mean, its gradient's mean, a part of the batch lost.

use super::Found;
use super::edit::{Change, make, other, splat, times};
use super::facts::{Facts, binary, is_elementwise, is_view, unary};
use super::gradient::half_lost;
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, OpData, ValueId};
use std::collections::BTreeSet;

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    mean(f, out);
    gradient(f, out);
}

/// A sum over tensors, or what is selected from or added to one, that is divided by a scalar.
fn mean(f: &Facts<'_>, out: &mut Found<'_>) {
    let scalar = |v: ValueId| f.graph.ty(v).rank() == 0 && f.graph.ty(v).dtype.is_float();
    let is_sum = |d: &OpData| matches!(&d.op, Op::Reduce(r) if r.monoid == Monoid::Sum);
    for (id, d) in f.ops() {
        let (Some(kind @ (BinaryKind::Divide | BinaryKind::Multiply)), &[a, b]) =
            (binary(&d.op), d.operands.as_slice())
        else {
            continue;
        };
        let r = d.results[0];
        let sum = |v: ValueId| f.root_def(v).filter(|(_, s)| is_sum(s)).map(|(_, s)| f.root(s.operands[0]));
        if !scalar(r) || sum(a).is_none_or(|x| f.graph.ty(x).rank() == 0) {
            continue;
        }
        let Some(c) = f.scalar(b) else { continue };
        let n = if kind == BinaryKind::Divide { c } else { 1.0 / c };
        let counted = n.is_finite() && n > 1.5;
        if !counted {
            continue;
        }
        let at = format!("%{} over {n}", r.0);
        out.add("loss: sum for mean", &*at, vec![Change::Value(r, other(a))]);
        for by in [1.0, -1.0] {
            let c = if kind == BinaryKind::Divide { n + by } else { 1.0 / (n + by) };
            out.add("loss over N±1", format!("{at} by {by}"), vec![Change::Operand(id, 1, splat(c))]);
        }
        // The same count wherever the gradient is divided by it, or multiplied by its inverse.
        for by in [1.0, -1.0] {
            let mut changes = Vec::new();
            for (o, d) in f.ops() {
                let k = binary(&d.op);
                for (i, &v) in d.operands.iter().enumerate() {
                    let Some(x) = f.scalar(v).filter(|_| o != id && f.graph.ty(v).dtype.is_float()) else {
                        continue;
                    };
                    let over = k == Some(BinaryKind::Divide) && i == 1 && x == n && f.root(v) == f.root(b);
                    let inverse = (x.abs() * n - 1.0).abs() < 1e-6 && !matches!(d.op, Op::Broadcast(_));
                    if over {
                        changes.push(Change::Operand(o, i, times((n + by) / n)));
                    } else if inverse {
                        changes.push(Change::Operand(o, i, times(n / (n + by))));
                    }
                }
            }
            out.add("gradient over N±1", format!("{at} by {by}"), changes);
        }
    }
}

/// The gradient of logits: depends on the logarithm's sum of exponentials (or its logits) and has their shape.
fn gradient(f: &Facts<'_>, out: &mut Found<'_>) {
    let mut found: BTreeSet<ValueId> = BTreeSet::new();
    for (_, d) in f.ops() {
        if unary(&d.op) != Some(UnaryKind::Log) {
            continue;
        }
        let near = f.back(d.operands[0], |d| is_elementwise(&d.op) || matches!(d.op, Op::Reduce(_)));
        let exps = near
            .iter()
            .filter_map(|&v| f.def(v))
            .filter(|(_, d)| unary(&d.op) == Some(UnaryKind::Exponential));
        for (_, e) in exps {
            let ty = f.graph.ty(e.results[0]);
            let cone = f.forward(e.results[0], |d| !matches!(d.op, Op::DotGeneral(_)));
            for &v in &cone {
                let same =
                    f.graph.ty(v).shape == ty.shape && f.graph.ty(v).dtype.is_float() && ty.rank() >= 2;
                let reaches_dot = || {
                    f.forward(v, |d| is_view(&d.op)).iter().any(|&x| {
                        f.graph.value(x).uses.iter().any(|u| matches!(f.graph.op(u.op).op, Op::DotGeneral(_)))
                    })
                };
                if same && f.def(v).is_some_and(|(_, d)| !is_view(&d.op)) && reaches_dot() {
                    found.insert(v);
                }
            }
        }
    }
    for v in found {
        let at = format!("%{}", v.0);
        out.add("microbatch lost", &*at, vec![Change::Value(v, half_lost())]);
        out.add("gradient of logits doubled", &*at, vec![Change::Value(v, times(2.0))]);
        let first_row = make(|e, v| {
            let keep: Vec<f64> = (0..e.ty(v).elements())
                .map(|i| if i < e.ty(v).shape.last().copied().unwrap_or(1) { 0.0 } else { 1.0 })
                .collect();
            let mask = e.constant(&msc_ir::Tensor::from_f64s(&e.ty(v), &keep))?;
            e.op(BinaryKind::Multiply, &[v, mask])
        });
        out.add("one token's gradient lost", &*at, vec![Change::Value(v, first_row)]);
    }
}
