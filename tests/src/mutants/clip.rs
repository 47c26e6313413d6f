//! Mistakes in clipping by the global norm.

use super::Found;
use super::edit::{Change, other, times};
use super::facts::{Facts, binary, is_view, unary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{OpData, ValueId};
use std::collections::BTreeSet;

/// A tensor is left out of the norm: its share may be tiny.
pub(super) const ONE_OF_MANY: &str = "norm without one tensor";

/// A square root of a scalar that comes from sums over tensors: a norm.
fn norms(f: &Facts<'_>) -> Vec<ValueId> {
    let scalar = |d: &OpData| d.results.iter().all(|&r| f.graph.ty(r).rank() == 0);
    let of_sums = |v: ValueId| {
        let summed = |d: &OpData| matches!(d.op, Op::Reduce(_)) && f.graph.ty(d.operands[0]).rank() > 0;
        let back = f.back(v, |d| scalar(d) && !summed(d));
        back.iter().any(|&x| f.def(x).is_some_and(|(_, d)| summed(d)))
    };
    f.ops()
        .filter(|(_, d)| unary(&d.op) == Some(UnaryKind::Sqrt) && scalar(d) && of_sums(d.operands[0]))
        .map(|(_, d)| d.results[0])
        .collect()
}

/// The scalars that a norm decides, and views of them.
fn cone(f: &Facts<'_>, norm: ValueId) -> BTreeSet<ValueId> {
    f.forward(norm, |d| {
        let scalar = d.results.iter().all(|&r| f.graph.ty(r).rank() == 0);
        is_view(&d.op)
            || scalar && matches!(d.op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_))
    })
}

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    for norm in norms(f) {
        let cone = cone(f, norm);
        let after = f.forward(norm, |_| true);
        let (mut all, mut first) = (Vec::new(), Vec::new());
        for (_, d) in f.ops() {
            let [r] = d.results.as_slice() else { continue };
            if cone.contains(r) || f.graph.ty(*r).rank() == 0 {
                continue;
            }
            let unclipped = match (&d.op, d.operands.as_slice()) {
                (Op::Binary(b), &[x, c]) if cone.contains(&c) && !cone.contains(&x) => {
                    matches!(b.kind, BinaryKind::Multiply | BinaryKind::Divide).then_some(x)
                }
                (Op::Binary(b), &[c, x]) if cone.contains(&c) && !cone.contains(&x) => {
                    (b.kind == BinaryKind::Multiply).then_some(x)
                }
                (Op::Select(Select::Select), &[p, a, b]) if cone.contains(&p) => {
                    [a, b].into_iter().find(|v| !after.contains(v))
                }
                _ => None,
            };
            if let Some(x) = unclipped {
                all.push(Change::Value(*r, other(x)));
                first.push((*r, x));
            }
        }
        if all.is_empty() {
            continue;
        }
        let at = format!("%{}", norm.0);
        out.add("no clip", &*at, all);
        for (r, x) in first {
            out.add("one gradient not clipped", format!("%{}", r.0), vec![Change::Value(r, other(x))]);
        }
        out.add(
            "norm without its root",
            &*at,
            f.def(norm).map(|(_, d)| Change::Value(norm, other(d.operands[0]))).into_iter().collect(),
        );
        out.add("norm of one rank of four", &*at, vec![Change::Value(norm, times(0.5))]);
        // A tensor's share left out of the sum.
        for &v in &f.back(norm, |d| {
            d.results.iter().all(|&r| f.graph.ty(r).rank() == 0) && !matches!(d.op, Op::Reduce(_))
        }) {
            let Some((_, d)) = f.def(v) else { continue };
            if binary(&d.op) == Some(BinaryKind::Add) && f.scalar(d.operands[1]).is_some() {
                out.add(ONE_OF_MANY, format!("%{}", v.0), vec![Change::Value(v, other(d.operands[0]))]);
            }
        }
    }
}
