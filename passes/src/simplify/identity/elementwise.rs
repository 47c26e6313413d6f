//! Identities of elementwise ops.

use super::{Rewrite, View};
use msc_ir::DType;
use msc_ir::ValueId;
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::convert::Convert;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;

pub(super) fn unary(view: &View<'_>, kind: UnaryKind, operands: &[ValueId]) -> Option<Rewrite> {
    let involution = matches!(kind, UnaryKind::Negate | UnaryKind::Not);
    match &view.def(operands[0])?.op {
        Op::Unary(inner) if involution && inner.kind == kind => {
            Some(Rewrite::Value(view.def(operands[0])?.operands[0]))
        }
        _ => None,
    }
}

/// `x·1`, `x/1`, `x¹`, `x + (−0)`, `x − 0`, `max(x, −∞)`, `min(x, ∞)`; on integers and booleans, and of squares and
/// magnitudes, also `x + 0`; on integers and booleans `x ∨ 0`, `x ⊕ 0`, `x ∧ 1…1` and shifts by 0.
pub(super) fn binary(view: &View<'_>, kind: BinaryKind, operands: &[ValueId]) -> Option<Rewrite> {
    use BinaryKind::*;
    let (a, b) = (operands[0], operands[1]);
    let neutral = |v: ValueId, other: ValueId| {
        let float = view.ty(v).dtype.is_float();
        match kind {
            Multiply | Divide | Power => view.is(v, 1.0),
            Add if float => view.is(v, -0.0) || view.is(v, 0.0) && is_no_negative_zero(view, other),
            Add | Subtract | Or | Xor | ShiftLeft | ShiftRightArithmetic | ShiftRightLogical => {
                view.is(v, 0.0)
            }
            Maximum if float => view.is(v, f64::NEG_INFINITY),
            Minimum if float => view.is(v, f64::INFINITY),
            And => view.is_ones(v),
            Maximum | Minimum | Atan2 | Remainder => false,
        }
    };
    if neutral(b, a) {
        return Some(Rewrite::Value(a));
    }
    (kind.is_commutative() && neutral(a, b)).then_some(Rewrite::Value(b))
}

/// Whether a value is a square or a magnitude: −0 is the only number that adding 0 changes.
fn is_no_negative_zero(view: &View<'_>, v: ValueId) -> bool {
    view.def(v).is_some_and(|d| match &d.op {
        Op::Binary(b) => b.kind == BinaryKind::Multiply && d.operands[0] == d.operands[1],
        Op::Unary(u) => u.kind == UnaryKind::Abs,
        _ => false,
    })
}

/// A constant predicate, or two equal branches.
pub(super) fn select(view: &View<'_>, op: Select, operands: &[ValueId]) -> Option<Rewrite> {
    let (p, a, b) = (operands[0], operands[1], operands[2]);
    match op {
        Select::Clamp => None,
        Select::Select if a == b || view.is_ones(p) => Some(Rewrite::Value(a)),
        Select::Select => view.is(p, 0.0).then_some(Rewrite::Value(b)),
    }
}

/// To the same type; back from a type that holds every value of the first; through such a type to a third.
pub(super) fn convert(view: &View<'_>, op: Convert, operands: &[ValueId]) -> Option<Rewrite> {
    let x = operands[0];
    let from = view.ty(x).dtype;
    match op {
        Convert::Value(to) | Convert::Bits(to) if to == from => Some(Rewrite::Value(x)),
        Convert::Bits(_) => None,
        Convert::Value(to) => {
            let inner = view.def(x)?;
            let Op::Convert(Convert::Value(_)) = inner.op else { return None };
            let origin = view.ty(inner.operands[0]).dtype;
            // An integer becomes a narrower one by wrapping, a float by saturating: no shortcut past a float.
            let wraps = origin.is_int() && from.is_float() && to.is_int() && origin != to;
            if wraps || !holds_all(origin, from) {
                return None;
            }
            if origin == to {
                return Some(Rewrite::Value(inner.operands[0]));
            }
            Rewrite::op(Convert::Value(to), &[inner.operands[0]])
        }
    }
}

/// Whether `to` represents every value of `from` exactly.
fn holds_all(from: DType, to: DType) -> bool {
    let bits = |d: DType| 8 * d.size_bytes() as u32;
    // Significant bits and, for floats, the exponent range that goes with them.
    let float = |d: DType| match d {
        DType::F16 => (11, 15),
        DType::BF16 => (8, 127),
        DType::F32 => (24, 127),
        _ => (53, 1023),
    };
    match (from.is_float(), to.is_float()) {
        (true, true) => float(from).0 <= float(to).0 && float(from).1 <= float(to).1,
        (true, false) => false,
        (false, true) => from == DType::I1 || bits(from) <= float(to).0,
        (false, false) => match (from, to) {
            (DType::I1, _) => true,
            (_, DType::I1) => false,
            (a, b) if a.is_unsigned() == b.is_unsigned() => bits(a) <= bits(b),
            (a, b) => a.is_unsigned() && bits(a) < bits(b),
        },
    }
}

/// `number(p) ≠ 0` and `number(p) > 0` of a boolean `p` are `p`.
pub(super) fn compare(view: &View<'_>, op: Compare, operands: &[ValueId]) -> Option<Rewrite> {
    let inner = view.def(operands[0])?;
    let Op::Convert(Convert::Value(_)) = inner.op else { return None };
    let p = inner.operands[0];
    let asks_for_it = matches!(op.direction, Direction::Ne | Direction::Gt) && view.is(operands[1], 0.0);
    (view.ty(p).dtype == DType::I1 && asks_for_it).then_some(Rewrite::Value(p))
}
