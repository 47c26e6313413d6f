//! Near misses of attentions: masks that are other masks.

use crate::mutants::Found;
use crate::mutants::edit::{Change, make};
use crate::mutants::facts::Facts;
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};

/// A causal mask whose diagonal lies two further up.
pub(super) const SHIFTED: &str = "mask shifted by two";
/// A causal mask that is a window as well, by width: neighbours, so that one too many or too few shows.
pub(super) const WINDOWS: [(&str, i64); 3] =
    [("sliding window of 3", 3), ("sliding window of 4", 4), ("sliding window of 5", 5)];

pub(super) fn near(f: &Facts<'_>, out: &mut Found<'_>) {
    for (id, d) in f.ops() {
        let Op::Compare(c) = &d.op else { continue };
        let (a, b) = (d.operands[0], d.operands[1]);
        let ty = f.graph.ty(a);
        if ty.dtype.is_float() || ty.rank() < 2 || f.graph.ty(b) != ty || !ramp(f, a) || !ramp(f, b) {
            continue;
        }
        // Queries and keys.
        let (late, early, first) = match c.direction {
            Direction::Le => (b, a, 1),
            Direction::Ge => (a, b, 0),
            _ => continue,
        };
        let r = d.results[0];
        let ahead = make(|e, v| e.with(BinaryKind::Add, v, 2.0));
        out.add(SHIFTED, format!("%{}", r.0), vec![Change::Operand(id, first, ahead)]);
        for (family, w) in WINDOWS {
            let compare = *c;
            let window = make(move |e, v| {
                let (i, j) = (e.get(late)?, e.get(early)?);
                let behind = e.op(BinaryKind::Subtract, &[i, j])?;
                let width = e.splat(behind, w as f64)?;
                let near = e.op(Compare { direction: Direction::Lt, ..compare }, &[behind, width])?;
                e.op(BinaryKind::And, &[v, near])
            });
            out.add(family, format!("%{}", r.0), vec![Change::Value(r, window)]);
        }
    }
}

/// Whether a value is an `iota` that was spread.
fn ramp(f: &Facts<'_>, v: msc_ir::ValueId) -> bool {
    f.root_def(v).is_some_and(|(_, d)| matches!(d.op, Op::Iota(_)))
}
