//! Dropout, as a probe: a value that is kept where random numbers are below a threshold, and divided by it. The mask of
//! an attention's weights is spread over heads; it belongs to the attention.

use crate::recognise::engine::region::Region;
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::{Found, Operand, Output};
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite;
use msc_ir::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::{FusedKind, Scalar};
use msc_ir::ops::select::Select;

/// Ops between random bits and the number that is compared.
const MAX_OPS: usize = 12;

/// The scale may be the threshold rounded to a narrow type.
const NEAR: f64 = 5e-3;

/// Looks for dropouts in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let program = Program::new(graph, region);
    let mut found = Vec::new();
    for mask in 0..program.values.len() {
        let Some(keep) = kept(&program, mask) else { continue };
        for &user in &program.values[mask].users {
            found.extend(dropout(&program, mask, user, keep));
        }
    }
    for f in found {
        if let Err(why) = unite(graph, region, &program, &f, None, run) {
            run.refuse("dropout", why.to_string(), None);
        }
    }
}

/// How likely an element of a mask is true, if it says whether random numbers of `[0, 1)` are below a threshold.
fn kept(p: &Program<'_>, mask: Index) -> Option<f64> {
    let v = &p.values[mask];
    let Some(Op::Compare(c)) = p.op(mask) else { return None };
    let (number, threshold, below) = match (p.splat(v.operands[0]), p.splat(v.operands[1]), c.direction) {
        (None, Some(t), Direction::Lt | Direction::Le) => (v.operands[0], t, true),
        (None, Some(t), Direction::Gt | Direction::Ge) => (v.operands[0], t, false),
        (Some(t), None, Direction::Gt | Direction::Ge) => (v.operands[1], t, true),
        (Some(t), None, Direction::Lt | Direction::Le) => (v.operands[1], t, false),
        _ => return None,
    };
    let keep = if below { threshold } else { 1.0 - threshold };
    (keep > 0.0 && keep < 1.0 && is_uniform(p, number)).then_some(keep)
}

/// Whether a value is random bits as the fraction of a number of `[1, 2)`, less 1.
fn is_uniform(p: &Program<'_>, number: Index) -> bool {
    let mut at = number;
    let mut offset = 0.0;
    for _ in 0..MAX_OPS {
        let v = &p.values[at];
        let splats: Vec<Option<f64>> = v.operands.iter().map(|&o| p.splat(o)).collect();
        at = match (p.op(at), splats.as_slice()) {
            (Some(Op::Binary(b)), &[None, Some(c)]) if b.kind == BinaryKind::Subtract => {
                offset -= c;
                v.operands[0]
            }
            (Some(Op::Binary(b)), &[x, y]) => match (b.kind, x, y) {
                (BinaryKind::Add, None, Some(c)) => {
                    offset += c;
                    v.operands[0]
                }
                (BinaryKind::Add, Some(c), None) => {
                    offset += c;
                    v.operands[1]
                }
                (BinaryKind::Maximum, None, Some(0.0)) | (BinaryKind::Multiply, None, Some(1.0)) => {
                    v.operands[0]
                }
                (BinaryKind::Maximum, Some(0.0), None) | (BinaryKind::Multiply, Some(1.0), None) => {
                    v.operands[1]
                }
                _ => return false,
            },
            (Some(Op::Reshape(_)), _) => v.operands[0],
            (Some(Op::Convert(Convert::Bits(_))), _) => {
                return offset == -1.0 && is_fraction(p, v.operands[0]);
            }
            _ => return false,
        };
    }
    false
}

/// Whether a value is shifted bits below the exponent of 1.
fn is_fraction(p: &Program<'_>, bits: Index) -> bool {
    let v = &p.values[bits];
    let Some(Op::Binary(b)) = p.op(bits) else { return false };
    let (from, one) = match *v.operands.as_slice() {
        [x, y] if p.splat(y).is_some() => (x, y),
        [x, y] if p.splat(x).is_some() => (y, x),
        _ => return false,
    };
    let one = p.splat(one).unwrap_or(0.0);
    let Some(Op::Binary(shift)) = p.op(from) else { return false };
    let by = p.values[from].operands.get(1).and_then(|&o| p.splat(o));
    b.kind == BinaryKind::Or
        && one == f64::from(1.0f32.to_bits())
        && shift.kind == BinaryKind::ShiftRightLogical
        && by == Some(9.0)
}

/// The operand and the number by which a value is divided or multiplied, and whether it is divided.
fn scaled(p: &Program<'_>, i: Index) -> Option<(Index, f64, bool)> {
    let Some(Op::Binary(b)) = p.op(i) else { return None };
    let (x, y) = (p.values[i].operands[0], p.values[i].operands[1]);
    match (b.kind, p.splat(x), p.splat(y)) {
        (BinaryKind::Multiply, None, Some(c)) => Some((x, c, false)),
        (BinaryKind::Multiply, Some(c), None) => Some((y, c, false)),
        (BinaryKind::Divide, None, Some(c)) => Some((x, c, true)),
        _ => None,
    }
}

fn dropout(p: &Program<'_>, mask: Index, select: Index, keep: f64) -> Option<Found> {
    let v = &p.values[select];
    let (&[m, x, zero], Some(Op::Select(Select::Select))) = (v.operands.as_slice(), p.op(select)) else {
        return None;
    };
    if m != mask || p.splat(zero) != Some(0.0) || p.values[m].ty.shape != v.ty.shape || !v.ty.dtype.is_float()
    {
        return None;
    }
    let fits = |scale: f64, divides: bool| {
        let inverse = if divides { scale } else { 1.0 / scale };
        (inverse - keep).abs() <= NEAR * keep
    };
    // Scaled before it is chosen, or after.
    let before =
        scaled(p, x).filter(|s| fits(s.1, s.2)).map(|(x, scale, divides)| (x, scale, divides, select));
    let after = || {
        v.users.iter().find_map(|&y| {
            let (from, scale, divides) = scaled(p, y)?;
            (from == select && fits(scale, divides)).then_some((x, scale, divides, y))
        })
    };
    let (x, scale, divides, y) = before.or_else(after)?;
    let operand = |name, value| Operand { name, value, ops: Vec::new(), cut: (value, Vec::new()) };
    Some(Found {
        rule: "dropout",
        kind: FusedKind::Dropout { scale: Scalar::new(scale), divides },
        operands: vec![operand("x", x), operand("mask", mask)],
        given: Vec::new(),
        outputs: vec![Output { name: "y", result: 0, value: y, ops: Vec::new() }],
    })
}
