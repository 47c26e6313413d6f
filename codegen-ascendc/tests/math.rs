//! Elementwise functions and conversions of the CPU back end against exact references.

mod common;

use std::collections::BTreeMap;

use common::{Random, Tensor, run};
use half::{bf16, f16};
use msc_codegen::tile::build::{RowGroup, RowShape, build_rows};
use msc_codegen::tile::{DType, DeviceSpec, UnaryOp};

/// Applies an elementwise function to all values on the CPU.
fn apply(op: UnaryOp, values: &[f32]) -> Vec<f32> {
    let mut g = RowGroup::new("apply", 1, values.len() as i64);
    let x = g.input("x", RowShape::Full, DType::F32);
    let y = g.unary(op, x);
    g.store("y", y, DType::F32);
    let x: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let tensors = BTreeMap::from([("x".to_owned(), Tensor { dtype: DType::F32, bytes: x })]);
    bits(&compute(&g, &tensors, "y")).into_iter().map(f32::from_bits).collect()
}

fn compute(g: &RowGroup, tensors: &BTreeMap<String, Tensor>, name: &str) -> Tensor {
    let built = build_rows(g, &DeviceSpec::ascend_910b3()).expect("the group builds");
    run(&built, tensors, 2)[name].clone()
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.bytes.chunks(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Values over all magnitudes, and the special ones.
fn samples(low: f64, high: f64) -> Vec<f32> {
    let mut values = vec![0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    values.extend([f32::MIN_POSITIVE, f32::MIN_POSITIVE / 3.0, 1e-45, f32::MAX, f32::MIN, 88.7228, -103.9]);
    let mut random = Random::new(7);
    for n in 0..60_000 {
        values.push((low + (high - low) * f64::from(n) / 60_000.0) as f32);
        values.push(f32::from_bits(random.next() as u32));
    }
    values
}

/// Distance in units in the last place of the correctly rounded result (subnormals: of the least one).
fn units(found: f32, wanted: f64) -> f64 {
    let rounded = wanted as f32;
    if rounded.is_nan() {
        return if found.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || found.is_infinite() || found.is_nan() {
        return if found == rounded { 0.0 } else { f64::INFINITY };
    }
    let magnitude = rounded.abs().max(f32::MIN_POSITIVE);
    let unit = f64::from(f32::from_bits(magnitude.to_bits() + 1)) - f64::from(magnitude);
    (f64::from(found) - wanted).abs() / unit
}

fn check(op: UnaryOp, reference: fn(f64) -> f64, range: (f64, f64), limit: f64) {
    let values = samples(range.0, range.1);
    let found = apply(op, &values);
    for (x, y) in values.iter().zip(found) {
        let wanted = reference(f64::from(*x));
        assert!(units(y, wanted) <= limit, "{op}({x:e}) = {y:e}, not {wanted:e}");
    }
}

#[test]
fn exp() {
    check(UnaryOp::Exp, f64::exp, (-105.0, 90.0), 2.0);
}

#[test]
fn log() {
    check(UnaryOp::Log, f64::ln, (0.0, 4.0), 2.0);
}

#[test]
fn tanh() {
    check(UnaryOp::Tanh, f64::tanh, (-10.0, 10.0), 3.0);
}

#[test]
fn logistic() {
    // Where e^-x overflows the true result is subnormal and 0 is given instead.
    let reference = |x: f64| if x < -88.7 { 0.0 } else { 1.0 / (1.0 + (-x).exp()) };
    let values = samples(-88.0, 30.0);
    let found = apply(UnaryOp::Logistic, &values);
    for (x, y) in values.iter().zip(found) {
        let wanted = reference(f64::from(*x));
        let tiny = *x < -87.0 && f64::from(y).abs() < 2e-38;
        assert!(tiny || units(y, wanted) <= 2.0, "logistic({x:e}) = {y:e}, not {wanted:e}");
    }
}

#[test]
fn correctly_rounded_functions() {
    let values = samples(0.0, 100.0);
    for (op, reference) in [
        (UnaryOp::Sqrt, (|x: f32| x.sqrt()) as fn(f32) -> f32),
        (UnaryOp::Rsqrt, |x| 1.0 / x.sqrt()),
        (UnaryOp::Recip, |x| 1.0 / x),
        (UnaryOp::Neg, |x| -x),
        (UnaryOp::Abs, f32::abs),
    ] {
        for (x, y) in values.iter().zip(apply(op, &values)) {
            let wanted = reference(*x);
            assert!(
                y.to_bits() == wanted.to_bits() || (y.is_nan() && wanted.is_nan()),
                "{op}({x:e}) = {y:e}"
            );
        }
    }
}

/// f32 values around every rounding boundary of a 16-bit type, and random ones.
fn boundaries(widen: fn(u16) -> f32) -> Vec<f32> {
    let mut values = Vec::new();
    for pattern in (0..=u16::MAX).step_by(3) {
        let (a, b) = (widen(pattern), widen(pattern.wrapping_add(1)));
        let middle = ((f64::from(a) + f64::from(b)) / 2.0) as f32;
        for v in [a, middle] {
            let bits = v.to_bits();
            values.extend([v, f32::from_bits(bits.wrapping_add(1)), f32::from_bits(bits.wrapping_sub(1))]);
        }
    }
    values.extend(samples(-70_000.0, 70_000.0));
    values
}

/// Converts f32 values to a 16-bit type on the CPU.
fn narrow(values: &[f32], dtype: DType) -> Vec<u16> {
    let mut g = RowGroup::new("narrow", 1, values.len() as i64);
    let x = g.input("x", RowShape::Full, DType::F32);
    let y = g.convert(x, dtype);
    g.store("y", y, dtype);
    let x: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let tensors = BTreeMap::from([("x".to_owned(), Tensor { dtype: DType::F32, bytes: x })]);
    let y = compute(&g, &tensors, "y");
    y.bytes.chunks(2).map(|b| u16::from_ne_bytes([b[0], b[1]])).collect()
}

#[test]
fn to_bf16_rounds_to_nearest_even() {
    let values = boundaries(|p| bf16::from_bits(p).to_f32());
    for (x, y) in values.iter().zip(narrow(&values, DType::BF16)) {
        let wanted = bf16::from_f32(*x);
        let same = y == wanted.to_bits() || (x.is_nan() && bf16::from_bits(y).is_nan());
        assert!(same, "{x:e}: {y:04x}, not {:04x}", wanted.to_bits());
    }
}

#[test]
fn to_f16_rounds_to_nearest_even() {
    let values = boundaries(|p| f16::from_bits(p).to_f32());
    for (x, y) in values.iter().zip(narrow(&values, DType::F16)) {
        let wanted = f16::from_f32(*x);
        let same = y == wanted.to_bits() || (x.is_nan() && f16::from_bits(y).is_nan());
        assert!(same, "{x:e}: {y:04x}, not {:04x}", wanted.to_bits());
    }
}

#[test]
fn from_16_bits_is_exact_for_every_pattern() {
    for (dtype, widen) in [
        (DType::BF16, (|p| bf16::from_bits(p).to_f32()) as fn(u16) -> f32),
        (DType::F16, |p| f16::from_bits(p).to_f32()),
    ] {
        let mut g = RowGroup::new("widen", 64, 1024);
        let x = g.input("x", RowShape::Full, dtype);
        let y = g.convert(x, DType::F32);
        g.store("y", y, DType::F32);
        let x: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        let tensors = BTreeMap::from([("x".to_owned(), Tensor { dtype, bytes: x })]);
        for (p, y) in (0..=u16::MAX).zip(bits(&compute(&g, &tensors, "y"))) {
            let wanted = widen(p);
            let same = y == wanted.to_bits() || (wanted.is_nan() && f32::from_bits(y).is_nan());
            assert!(same, "{dtype} {p:04x}: {y:08x}, not {:08x}", wanted.to_bits());
        }
    }
}
