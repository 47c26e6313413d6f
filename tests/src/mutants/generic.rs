//! Mutations that know nothing of training: at places chosen by a seed, among those that reach an output.

use super::edit::{Change, make, other, splat, times};
use super::facts::{Facts, binary};
use super::{Found, Mutant};
use msc_ir::op::Op;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::slice::Slice;
use msc_ir::{Monoid, OpData, OpId};
use msc_passes::recognise::check::random::Random;

/// At most `n` mutants of all graphs, drawn evenly from the kinds.
pub(super) fn mutants(facts: &[Facts<'_>], n: usize, random: &mut Random) -> Vec<Mutant> {
    let mut all = Vec::new();
    for f in facts {
        let mut out = Found { facts: f, out: &mut all };
        for (id, d) in f.ops() {
            at(f, id, d, &mut out);
        }
    }
    let mut kinds: Vec<Vec<Mutant>> = Vec::new();
    for m in all {
        match kinds.iter_mut().find(|k| k[0].family == m.family) {
            Some(k) => k.push(m),
            None => kinds.push(vec![m]),
        }
    }
    let mut out = Vec::new();
    while out.len() < n && !kinds.is_empty() {
        for k in &mut kinds {
            let i = random.below(k.len());
            out.push(k.swap_remove(i));
        }
        kinds.retain(|k| !k.is_empty());
    }
    out.truncate(n);
    out.sort_by_key(|m| m.family);
    out
}

fn at(f: &Facts<'_>, id: OpId, d: &OpData, out: &mut Found<'_>) {
    let &[r] = d.results.as_slice() else { return };
    let ty = f.graph.ty(r);
    let site = format!("{} %{}", msc_ir::Operation::name(&d.op), r.0);
    // Integers count loops and address rows; what they decide is mutated elsewhere.
    if ty.dtype.is_float() {
        if !matches!(d.op, Op::Constant(_)) {
            out.add("any: value zeroed", &*site, vec![Change::Value(r, splat(0.0))]);
            out.add("any: value negated", &*site, vec![Change::Value(r, times(-1.0))]);
            out.add("any: value times 1.5", &*site, vec![Change::Value(r, times(1.5))]);
        }
        for &v in &d.operands {
            if f.graph.ty(v) == ty {
                out.add("any: op left out", format!("{site} for %{}", v.0), vec![Change::Value(r, other(v))]);
            }
        }
        if let (Some(kind), &[a, b]) = (binary(&d.op), d.operands.as_slice())
            && !kind.is_commutative()
        {
            let swap = vec![Change::Operand(id, 0, other(b)), Change::Operand(id, 1, other(a))];
            out.add("any: operands swapped", &*site, swap);
        }
    }
    match &d.op {
        Op::Constant(ConstantOp { id: c })
            if ty.dtype.is_float() && factor(f.subject.module.constants.splat_value(*c)) =>
        {
            for u in &f.graph.value(r).uses {
                let site = format!("{site} in op {}", u.op.0);
                let more = Change::Operand(u.op, u.index as usize, times(1.5));
                out.add("any: constant times 1.5", site, vec![more]);
            }
        }
        Op::Reduce(x) if ty.dtype.is_float() => {
            let monoid = if x.monoid == Monoid::Sum { Monoid::Max } else { Monoid::Sum };
            out.add(
                "any: other reduction",
                &*site,
                vec![Change::Op(id, Box::new(Reduce { monoid, ..x.clone() }.into()))],
            );
        }
        Op::DotGeneral(_) => {
            for (i, &v) in d.operands.iter().enumerate() {
                let shape = &f.graph.ty(v).shape;
                let n = shape.len();
                if n >= 2 && shape[n - 1] == shape[n - 2] {
                    let turned = make(move |e, v| {
                        let mut p: msc_ir::Shape = (0..n).collect();
                        p.swap(n - 1, n - 2);
                        e.op(Permute::Transpose(p), &[v])
                    });
                    out.add("any: square operand turned", &*site, vec![Change::Operand(id, i, turned)]);
                }
            }
        }
        Op::Permute(Permute::Transpose(_)) => {
            // Rows read as columns: the elements in their old order under the new shape.
            let shape = ty.shape.clone();
            let from = d.operands[0];
            let flat = make(move |e, _| {
                let v = e.get(from)?;
                e.op(msc_ir::ops::reshape::Reshape { shape: shape.clone() }, &[v])
            });
            out.add("any: transpose only renamed", &*site, vec![Change::Value(r, flat)]);
        }
        Op::Slice(Slice::Static { start, limit, stride }) => {
            let whole = &f.graph.ty(d.operands[0]).shape;
            for dim in 0..whole.len() {
                let (mut start, mut limit) = (start.clone(), limit.clone());
                if start[dim] > 0 {
                    start[dim] -= 1;
                    limit[dim] -= 1;
                } else if limit[dim] < whole[dim] {
                    start[dim] += 1;
                    limit[dim] += 1;
                } else {
                    continue;
                }
                let op = Slice::Static { start, limit, stride: stride.clone() };
                out.add(
                    "any: slice off by one",
                    format!("{site} dim {dim}"),
                    vec![Change::Op(id, Box::new(op.into()))],
                );
            }
        }
        Op::Iota(_) if ty.rank() > 0 => {
            let ahead = make(|e, v| e.with(msc_ir::ops::binary::BinaryKind::Add, v, 1.0));
            out.add("any: ramp starts at 1", &*site, vec![Change::Value(r, ahead)]);
        }
        Op::Select(msc_ir::ops::select::Select::Select) => {
            let (a, b) = (d.operands[1], d.operands[2]);
            let swap = vec![Change::Operand(id, 1, other(b)), Change::Operand(id, 2, other(a))];
            out.add("any: selection the other way", &*site, swap);
        }
        Op::Compare(c) if ty.rank() > 0 => {
            let direction = c.direction.swapped();
            if direction != c.direction {
                let op = msc_ir::ops::compare::Compare { direction, ..*c };
                out.add("any: comparison the other way", &*site, vec![Change::Op(id, Box::new(op.into()))]);
            }
        }
        _ => {}
    }
}

/// Whether a constant is changed by a factor.
fn factor(splat: Option<f64>) -> bool {
    splat.is_some_and(|x| x != 0.0 && x.is_finite())
}
