//! Too few bits where the program asks for more.

use super::Found;
use super::edit::{Change, Make, make};
use super::facts::{Facts, Role, unary};
use msc_ir::op::Op;
use msc_ir::ops::precision::ReducePrecision;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, ValueId};

/// Rounds to so many bits of fraction, with the exponents of f32.
fn to(mantissa_bits: u32) -> Make {
    make(move |e, v| e.op(ReducePrecision { exponent_bits: 8, mantissa_bits }, &[v]))
}

/// The fraction of bfloat16.
const BF16: u32 = 7;
/// The fraction of the fast f32 modes of matrix units (TF32, HF32).
const FAST_F32: u32 = 10;

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    let f32s = |v: ValueId| f.graph.ty(v).dtype == DType::F32;
    let (mut fast, mut all) = (Vec::new(), Vec::new());
    for (id, d) in f.ops() {
        let Some(&r) = d.results.first() else { continue };
        let at = format!("%{}", r.0);
        match &d.op {
            Op::DotGeneral(_) if d.operands.iter().all(|&v| f32s(v)) => {
                let both = |bits| (0..2).map(move |i| Change::Operand(id, i, to(bits)));
                fast.extend(both(FAST_F32));
                all.extend(both(BF16));
                out.rounding("one product of bf16 operands", at, both(BF16).collect());
            }
            Op::DotGeneral(_) if f32s(r) => {
                out.rounding("sum of products kept in bf16", at, vec![Change::Value(r, to(BF16))]);
            }
            Op::Reduce(_) if f32s(r) && f32s(d.operands[0]) && f.graph.ty(r).rank() > 0 => {
                out.rounding("one sum of rows in bf16", at, vec![Change::Value(r, to(BF16))]);
            }
            _ if unary(&d.op) == Some(UnaryKind::Exponential) && f32s(r) => {
                out.rounding("one exponential in bf16", at, vec![Change::Value(r, to(BF16))]);
            }
            _ => {}
        }
    }
    out.rounding("all products of TF32 operands", "all", fast);
    out.rounding("all products of bf16 operands", "all", all);
    let states = f.states();
    for (family, role) in [
        ("first moments kept in bf16", Role::First),
        ("second moments kept in bf16", Role::Second),
        ("weights kept in bf16", Role::Weight),
    ] {
        let of = states.iter().filter(|s| s.role == role && f32s(f.graph.results()[s.result]));
        out.rounding(family, "all", of.map(|s| Change::Result(s.result, to(BF16))).collect());
    }
}
