//! Residual connections that are cut, forward and backward.

use super::Found;
use super::edit::{Change, other};
use super::facts::{Facts, binary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let (Some(BinaryKind::Add), &[a, b]) = (binary(&d.op), d.operands.as_slice()) else { continue };
        let r = d.results[0];
        let ty = f.graph.ty(r);
        if ty.rank() < 2 || !ty.dtype.is_float() || a == b {
            continue;
        }
        for (x, branch) in [(a, b), (b, a)] {
            // The branch is computed from x through a matrix product: x + f(x).
            let x = f.root(x);
            let path = f.back(branch, |_| true);
            if path.contains(&x) && f.scalar(x).is_none() && through_a_product(f, x, &path) {
                let at = format!("%{}", r.0);
                out.add("residual missing", &*at, vec![Change::Value(r, other(branch))]);
                let kept = if x == f.root(a) { a } else { b };
                out.add("sublayer missing", &*at, vec![Change::Value(r, other(kept))]);
                break;
            }
        }
    }
}

fn through_a_product(
    f: &Facts<'_>,
    x: msc_ir::ValueId,
    path: &std::collections::BTreeSet<msc_ir::ValueId>,
) -> bool {
    let below = f.forward(x, |d| d.results.iter().any(|r| path.contains(r)));
    below.iter().any(|&v| {
        v != x && path.contains(&v) && f.def(v).is_some_and(|(_, d)| matches!(d.op, Op::DotGeneral(_)))
    })
}
