//! Mistakes in rotary position embedding, forward and backward.

use super::Found;
use super::edit::{Change, other};
use super::facts::{Facts, binary, is_elementwise, is_view, unary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::{Unary, UnaryKind};
use msc_ir::{OpData, ValueId};

/// What an op negates.
fn negated(f: &Facts<'_>, d: &OpData) -> Option<ValueId> {
    if unary(&d.op) == Some(UnaryKind::Negate) {
        return Some(d.operands[0]);
    }
    match (binary(&d.op), f.with_scalar(d)) {
        (Some(BinaryKind::Multiply), Some((_, -1.0, x))) => Some(x),
        _ => None,
    }
}

fn is_half(f: &Facts<'_>, v: ValueId) -> bool {
    let Some((_, d)) = f.root_def(v) else { return false };
    match &d.op {
        Op::Slice(Slice::Static { .. }) => true,
        _ => negated(f, d).is_some_and(|x| is_half(f, x)),
    }
}

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        let Some(&r) = d.results.first() else { continue };
        if !f.graph.ty(r).dtype.is_float() {
            continue;
        }
        let at = format!("%{}", r.0);
        if let Some(x) = negated(f, d) {
            let joins = f.forward(r, |d| is_view(&d.op)).iter().any(|&v| {
                f.graph
                    .value(v)
                    .uses
                    .iter()
                    .any(|u| matches!(f.graph.op(u.op).op, Op::Concatenate(_) | Op::Pad(_)))
            });
            if joins && is_half(f, x) {
                out.add("RoPE sign", &*at, vec![Change::Value(r, other(x))]);
            }
        }
        if let (Op::Concatenate(_), &[a, b]) = (&d.op, d.operands.as_slice())
            && f.graph.ty(a) == f.graph.ty(b)
            && (is_half(f, a) && is_half(f, b))
        {
            let swap = vec![Change::Operand(id, 0, other(b)), Change::Operand(id, 1, other(a))];
            out.add("RoPE halves swapped", &*at, swap);
        }
        let kind = match unary(&d.op) {
            Some(UnaryKind::Sine) => UnaryKind::Cosine,
            Some(UnaryKind::Cosine) => UnaryKind::Sine,
            _ => continue,
        };
        out.add("sine for cosine", &*at, vec![Change::Op(id, Box::new(Unary { kind }.into()))]);
        let angles = f.back(d.operands[0], |d| is_elementwise(&d.op) || matches!(d.op, Op::Concatenate(_)));
        for &v in &angles {
            if let Some((dot, p)) = f.def(v)
                && (matches!(p.op, Op::DotGeneral(_)) || binary(&p.op) == Some(BinaryKind::Divide))
            {
                let ahead = super::edit::make(|e, v| e.with(BinaryKind::Add, v, 1.0));
                out.add("positions one ahead", format!("%{}", v.0), vec![Change::Operand(dot, 0, ahead)]);
            }
        }
    }
}
