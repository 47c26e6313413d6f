//! Mistakes in normalisations: epsilon, the count under the mean, the weight.

use super::Found;
use super::edit::{Change, make, other, splat};
use super::facts::{Facts, Role, binary, unary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, ValueId};

/// A mean over another count: of rows that are nearly centred it changes next to nothing.
pub(super) const OTHER_COUNT: &str = "mean over n - 1";

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    epsilon(f, out);
    count(f, out);
    weight(f, out);
}

/// `(v + ε)^±½` of rows.
fn epsilon(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let Some(kind @ (UnaryKind::Sqrt | UnaryKind::Rsqrt)) = unary(&d.op) else { continue };
        let r = d.results[0];
        let Some((add, sum)) = f.root_def(d.operands[0]) else { continue };
        if binary(&sum.op) != Some(BinaryKind::Add) || f.graph.ty(r).rank() == 0 {
            continue;
        }
        let Some((i, c, x)) = f.with_scalar(sum) else { continue };
        if c <= 0.0 || c > 1e-2 {
            continue;
        }
        let at = format!("%{}", r.0);
        out.add("eps times 100", &*at, vec![Change::Operand(add, i, splat(c * 100.0))]);
        out.add("eps missing", &*at, vec![Change::Value(sum.results[0], other(x))]);
        if f.graph.ty(x) == f.graph.ty(d.operands[0]) {
            let outside = make(move |e, v| {
                let x = e.get(x)?;
                let root = e.op(UnaryKind::Sqrt, &[x])?;
                let sum = e.with(BinaryKind::Add, root, c)?;
                if kind == UnaryKind::Sqrt {
                    return Ok(sum);
                }
                let one = e.splat(v, 1.0)?;
                e.op(BinaryKind::Divide, &[one, sum])
            });
            out.add("eps outside the root", &*at, vec![Change::Value(r, outside)]);
        }
    }
}

/// A mean over rows by another count.
fn count(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let Some(kind @ (BinaryKind::Divide | BinaryKind::Multiply)) = binary(&d.op) else { continue };
        let Some((i, c, x)) = f.with_scalar(d) else { continue };
        let n = if kind == BinaryKind::Divide { c } else { 1.0 / c };
        let mean = i == 1 && n > 1.5 && n.fract() == 0.0 && f.graph.ty(x).rank() > 0;
        let summed =
            f.root_def(x).is_some_and(|(_, s)| matches!(&s.op, Op::Reduce(r) if r.monoid == Monoid::Sum));
        if mean && summed {
            let r = d.results[0];
            let at = format!("%{}", r.0);
            let by = n / (n - 1.0);
            let unbiased = make(move |e, v| e.with(BinaryKind::Multiply, v, by));
            out.add(OTHER_COUNT, &*at, vec![Change::Value(r, unbiased)]);
            out.add("sum for mean", &*at, vec![Change::Value(r, other(x))]);
        }
    }
}

/// The weight of another layer's norm, at one of the weight's uses.
fn weight(f: &Facts<'_>, out: &mut Found<'_>) {
    let params: Vec<(ValueId, &str)> = f
        .states()
        .iter()
        .filter(|s| s.role == Role::Weight && f.graph.ty(f.graph.params()[s.param]).rank() == 1)
        .map(|s| (f.graph.params()[s.param], f.subject.entry.params[s.param].name.as_str()))
        .collect();
    for (k, &(p, name)) in params.iter().enumerate() {
        let alike = |&&(q, _): &&(ValueId, &str)| f.graph.ty(q) == f.graph.ty(p) && q != p;
        let Some(&(q, of)) = params[k + 1..].iter().chain(&params[..k]).find(alike) else { continue };
        for u in &f.graph.value(p).uses {
            if matches!(f.graph.op(u.op).op, Op::Broadcast(_) | Op::Reshape(_) | Op::DotGeneral(_)) {
                let site = format!("{of} for {name}");
                out.add(
                    "weight of another norm",
                    site,
                    vec![Change::Operand(u.op, u.index as usize, other(q))],
                );
            }
        }
    }
}
