//! Near misses of AdamW, one weight at a time.

use crate::mutants::Found;
use crate::mutants::edit::{Change, make, other, splat};
use crate::mutants::facts::{Facts, Role, binary, is_elementwise, is_view, unary};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{OpId, ValueId};

/// ε under the root.
pub(super) const INSIDE: &str = "one weight's eps inside the root";
/// Another ε.
pub(super) const LARGER: &str = "one weight's eps times 100";
/// The bias corrections of the two moments, each in the other's place.
pub(super) const CORRECTIONS: &str = "bias corrections exchanged";

pub(super) fn near(f: &Facts<'_>, out: &mut Found<'_>) {
    for s in f.states().iter().filter(|s| s.role == Role::Second) {
        let name = f.subject.entry.results[s.result].name.clone();
        let mut seen: Vec<OpId> = Vec::new();
        for v in f.news(s) {
            for &x in &f.forward(v, |d| is_elementwise(&d.op)) {
                let Some((op, d)) = f.def(x) else { continue };
                if binary(&d.op) != Some(BinaryKind::Add) || seen.contains(&op) {
                    continue;
                }
                let Some((i, c, y)) = f.with_scalar(d) else { continue };
                let Some(root) = root_above(f, y) else { continue };
                if c == 0.0 || c.abs() > 1e-2 {
                    continue;
                }
                seen.push(op);
                let add = make(move |e, v| e.with(BinaryKind::Add, v, c.abs()));
                let inside = vec![Change::Operand(root, 0, add), Change::Value(x, other(y))];
                out.add(INSIDE, &*name, inside);
                out.add(LARGER, &*name, vec![Change::Operand(op, i, splat(c * 100.0))]);
            }
        }
    }
    corrections(f, out);
}

/// The square root that `v` is, but for views and factors.
fn root_above(f: &Facts<'_>, v: ValueId) -> Option<OpId> {
    let (op, d) = f.def(v)?;
    if unary(&d.op) == Some(UnaryKind::Sqrt) {
        return Some(op);
    }
    match binary(&d.op) {
        Some(BinaryKind::Multiply | BinaryKind::Divide) => {
            // The correction may be a scalar of this very step, which is no number to the program.
            let [a, b] = d.operands.as_slice() else { return None };
            root_above(f, *a).or_else(|| root_above(f, *b))
        }
        _ if is_view(&d.op) => root_above(f, d.operands[0]),
        _ => None,
    }
}

/// `1 − β₁ᵗ` and `1 − β₂ᵗ`, where both are scalars of the step.
fn corrections(f: &Facts<'_>, out: &mut Found<'_>) {
    let of_power = |d: &msc_ir::OpData| {
        binary(&d.op) == Some(BinaryKind::Subtract)
            && f.graph.ty(d.results[0]).rank() == 0
            && f.root_def(d.operands[1]).is_some_and(|(_, p)| binary(&p.op) == Some(BinaryKind::Power))
    };
    let sites: Vec<ValueId> = f.ops().filter(|(_, d)| of_power(d)).map(|(_, d)| d.results[0]).collect();
    for pair in sites.chunks(2) {
        let &[a, b] = pair else { continue };
        let mut changes = Vec::new();
        for (mine, theirs) in [(a, b), (b, a)] {
            for u in &f.graph.value(mine).uses {
                changes.push(Change::Operand(u.op, u.index as usize, other(theirs)));
            }
        }
        out.add(CORRECTIONS, format!("%{} and %{}", a.0, b.0), changes);
    }
}
