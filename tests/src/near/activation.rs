//! Near misses of activations.

use crate::mutants::Found;
use crate::mutants::edit::{Change, make, times};
use crate::mutants::facts::{Facts, binary, is_elementwise, unary};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{OpData, ValueId};

/// A constant under the hyperbolic tangent of GELU.
pub(super) const TANH: &str = "tanh GELU's constant";
/// A constant under the error function of GELU.
pub(super) const ERF: &str = "erf GELU's constant";
/// The factor in the argument of a swish's sigmoid.
pub(super) const FACTOR: &str = "swish's factor";
/// A number that an operand of a gate is kept below or above.
pub(super) const BOUND: &str = "a gate's bound";
/// Another threshold of ReLU than zero.
pub(super) const THRESHOLD: &str = "ReLU's threshold";
/// Gate and up exchanged, in the forward alone.
pub(super) const EXCHANGED: &str = "gate and up exchanged on one side";

pub(super) fn near(f: &Facts<'_>, out: &mut Found<'_>) {
    for (at, d) in f.ops() {
        let Some(&r) = d.results.first() else { continue };
        match unary(&d.op) {
            Some(UnaryKind::Tanh) => constant(f, d, TANH, out),
            Some(UnaryKind::Erf | UnaryKind::Erfc) => constant(f, d, ERF, out),
            _ => {}
        }
        if let Some(x) = sigmoid_of(f, r)
            && let Some((id, p)) = f.def(x)
            && binary(&p.op) == Some(BinaryKind::Multiply)
            && let Some((i, c, _)) = f.with_scalar(p)
        {
            out.add(FACTOR, format!("{c} at %{}", x.0), vec![Change::Operand(id, i, times(1.01))]);
        }
        if matches!(binary(&d.op), Some(BinaryKind::Minimum | BinaryKind::Maximum))
            && f.graph.ty(r).dtype.is_float()
            && f.graph.ty(r).rank() > 1
            && let Some((i, c, x)) = f.with_scalar(d)
            && c.is_finite()
            && (c != 0.0 || f.root_def(x).is_some_and(|(_, d)| matches!(d.op, msc_ir::op::Op::DotGeneral(_))))
        {
            let above = make(|e, v| e.with(BinaryKind::Add, v, 0.1));
            let (family, change) = if c == 0.0 { (THRESHOLD, above) } else { (BOUND, times(1.25)) };
            out.add(family, format!("{c} at %{}", r.0), vec![Change::Operand(at, i, change)]);
        }
        // h = (x·σ(x))·up
        if binary(&d.op) != Some(BinaryKind::Multiply) {
            continue;
        }
        for (silu, up) in [(d.operands[0], d.operands[1]), (d.operands[1], d.operands[0])] {
            let Some(gate) = silu_of(f, silu) else { continue };
            if f.graph.ty(up) != f.graph.ty(gate) || f.graph.ty(up).rank() < 2 || !feeds_product(f, r) {
                continue;
            }
            let exchanged = make(move |e, _| {
                let (g, u) = (e.get(gate)?, e.get(up)?);
                let s = e.op(UnaryKind::Logistic, &[u])?;
                let a = e.op(BinaryKind::Multiply, &[u, s])?;
                e.op(BinaryKind::Multiply, &[a, g])
            });
            out.add(EXCHANGED, format!("%{}", r.0), vec![Change::Value(r, exchanged)]);
        }
    }
}

/// A number in the argument, a hundredth larger.
fn constant(f: &Facts<'_>, d: &OpData, family: &'static str, out: &mut Found<'_>) {
    for &v in &f.back(d.operands[0], |d| is_elementwise(&d.op)) {
        let Some((id, p)) = f.def(v) else { continue };
        if !matches!(binary(&p.op), Some(BinaryKind::Multiply | BinaryKind::Divide)) {
            continue;
        }
        if let Some((i, c, _)) = f.with_scalar(p)
            && c.abs() < 2.0
            && c.abs() != 1.0
        {
            out.add(family, format!("{c} at %{}", v.0), vec![Change::Operand(id, i, times(1.01))]);
        }
    }
}

/// The value of which `v` is the SiLU.
fn silu_of(f: &Facts<'_>, v: ValueId) -> Option<ValueId> {
    let (_, d) = f.def(v)?;
    match binary(&d.op) {
        Some(BinaryKind::Multiply) => {
            let (a, b) = (d.operands[0], d.operands[1]);
            [(a, b), (b, a)].into_iter().find(|&(x, s)| sigmoid_of(f, s) == Some(x)).map(|p| p.0)
        }
        Some(BinaryKind::Divide) => {
            let x = d.operands[0];
            (one_plus_exp(f, d.operands[1]) == Some(x)).then_some(x)
        }
        _ => None,
    }
}

fn sigmoid_of(f: &Facts<'_>, v: ValueId) -> Option<ValueId> {
    let (_, d) = f.def(v)?;
    match (unary(&d.op), binary(&d.op)) {
        (Some(UnaryKind::Logistic), _) => Some(d.operands[0]),
        (_, Some(BinaryKind::Divide)) if f.scalar(d.operands[0]) == Some(1.0) => {
            one_plus_exp(f, d.operands[1])
        }
        _ => None,
    }
}

/// `x` of `1 + exp(−x)`.
fn one_plus_exp(f: &Facts<'_>, v: ValueId) -> Option<ValueId> {
    let (_, d) = f.def(v)?;
    let (_, one, e) = f.with_scalar(d).filter(|_| binary(&d.op) == Some(BinaryKind::Add))?;
    let (_, exp) = f.def(e).filter(|_| one == 1.0)?;
    let (_, minus) = f.def(exp.operands[0]).filter(|_| unary(&exp.op) == Some(UnaryKind::Exponential))?;
    (unary(&minus.op) == Some(UnaryKind::Negate)).then(|| minus.operands[0])
}

/// Whether a matrix product takes the value, some layout aside.
fn feeds_product(f: &Facts<'_>, v: ValueId) -> bool {
    let forms = f.forward(v, |d| crate::mutants::facts::is_view(&d.op));
    forms.iter().any(|&v| {
        let uses = &f.graph.value(v).uses;
        uses.iter().any(|u| matches!(f.graph.op(u.op).op, msc_ir::op::Op::DotGeneral(_)))
    })
}
