//! Near misses of norms.

use crate::mutants::Found;
use crate::mutants::edit::{Change, make, other};
use crate::mutants::facts::{Facts, binary};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Monoid, Shape};

/// The mean of absolute values.
pub(super) const ABSOLUTE: &str = "|x| for x²";
/// The mean over another dimension.
pub(super) const OTHER_AXIS: &str = "mean over another axis";
/// A layer norm of rows that keep their mean.
pub(super) const NOT_CENTRED: &str = "mean not subtracted";
/// A value inside a norm that something else needs too.
pub(super) const SECOND_USER: &str = "second user of an inner value";

pub(super) fn near(f: &Facts<'_>, out: &mut Found<'_>) {
    for (_, d) in f.ops() {
        let Op::Reduce(r) = &d.op else { continue };
        let x = d.operands[0];
        let ty = f.graph.ty(x);
        if r.monoid != Monoid::Sum || ty.rank() < 2 || r.dims.as_slice() != [ty.rank() - 1] {
            continue;
        }
        let Some((_, square)) = f.def(x) else { continue };
        if binary(&square.op) != Some(BinaryKind::Multiply) || square.operands[0] != square.operands[1] {
            continue;
        }
        let at = format!("%{}", d.results[0].0);
        let inner = square.operands[0];
        let absolute = make(move |e, _| {
            let v = e.get(inner)?;
            e.op(UnaryKind::Abs, &[v])
        });
        out.add(ABSOLUTE, &*at, vec![Change::Value(x, absolute)]);
        other_axis(f, d, out);
        second_user(f, d.results[0], out);
        // x − mean(x), where the variance is that of centred rows.
        if let Some((_, s)) = f.root_def(inner)
            && binary(&s.op) == Some(BinaryKind::Subtract)
        {
            out.add(NOT_CENTRED, &*at, vec![Change::Value(s.results[0], other(s.operands[0]))]);
        }
    }
}

/// The sum over the dimension before the last, cut to the right size.
fn other_axis(f: &Facts<'_>, d: &msc_ir::OpData, out: &mut Found<'_>) {
    let x = d.operands[0];
    let n = f.graph.ty(x).rank();
    let want: Shape = f.graph.ty(d.results[0]).shape.iter().copied().collect();
    let shape: Vec<usize> = f.graph.ty(x).shape.to_vec();
    if shape[n - 1] < shape[n - 2] || want.len() != n - 1 {
        return;
    }
    let sum = make(move |e, _| {
        let v = e.get(x)?;
        let dims: Shape = [n - 2].into_iter().collect();
        let r = e.op(Reduce { dims, monoid: Monoid::Sum }, &[v])?;
        let zeros: Shape = want.iter().map(|_| 0).collect();
        let ones: Shape = want.iter().map(|_| 1).collect();
        e.op(Slice::Static { start: zeros, limit: want.clone(), stride: ones }, &[r])
    });
    out.add(OTHER_AXIS, format!("%{}", d.results[0].0), vec![Change::Value(d.results[0], sum)]);
}

/// The first float result of rank 0 gets some of an inner value.
fn second_user(f: &Facts<'_>, v: msc_ir::ValueId, out: &mut Found<'_>) {
    let scalar = f.graph.results().iter().position(|&r| {
        let ty = f.graph.ty(r);
        ty.rank() == 0 && ty.dtype == f.graph.ty(v).dtype
    });
    let Some(result) = scalar.filter(|_| f.is_entry()) else { return };
    let more = make(move |e, r| {
        let x = e.get(v)?;
        let rank = e.ty(x).rank();
        let sum = e.op(Reduce { dims: (0..rank).collect(), monoid: Monoid::Sum }, &[x])?;
        let some = e.with(BinaryKind::Multiply, sum, 1e-3)?;
        e.op(BinaryKind::Add, &[r, some])
    });
    out.add(SECOND_USER, format!("%{}", v.0), vec![Change::Result(result, more)]);
}
