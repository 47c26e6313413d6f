//! Elementwise functions on vectors, from IEEE operations alone: no library call, hence the same bits on
//! every machine.
//!
//! Accuracy (checked by this crate's tests over dense samples): exp, log and logistic within 2 units in
//! the last place, tanh within 3; the rest is exact or correctly rounded. exp keeps subnormal results.

use inkwell::{FloatPredicate, IntPredicate};

use super::code::{Code, Res, Vector};
use crate::tile::{BinaryOp, CompareOp, UnaryOp};

/// Applies an elementwise function.
pub(super) fn unary<'c>(c: &Code<'c>, op: UnaryOp, a: Vector<'c>) -> Res<Vector<'c>> {
    match op {
        UnaryOp::Copy => Ok(a),
        UnaryOp::Neg => c.fneg(a),
        UnaryOp::Abs => c.intrinsic("llvm.fabs", &[a]),
        UnaryOp::Exp => exp(c, a),
        UnaryOp::Log => log(c, a),
        UnaryOp::Sqrt => c.intrinsic("llvm.sqrt", &[a]),
        UnaryOp::Rsqrt => c.fdiv(c.f32s(1.0), c.intrinsic("llvm.sqrt", &[a])?),
        UnaryOp::Recip => c.fdiv(c.f32s(1.0), a),
        UnaryOp::Tanh => tanh(c, a),
        UnaryOp::Logistic => logistic(c, a),
    }
}

/// Applies an elementwise function of two operands.
pub(super) fn binary<'c>(c: &Code<'c>, op: BinaryOp, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
    match op {
        BinaryOp::Add => c.fadd(a, b),
        BinaryOp::Sub => c.fsub(a, b),
        BinaryOp::Mul => c.fmul(a, b),
        BinaryOp::Div => c.fdiv(a, b),
        BinaryOp::Max => c.intrinsic("llvm.maximum", &[a, b]),
        BinaryOp::Min => c.intrinsic("llvm.minimum", &[a, b]),
    }
}

/// Compares f32 vectors.
pub(super) fn compare<'c>(c: &Code<'c>, op: CompareOp, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
    let predicate = match op {
        CompareOp::Eq => FloatPredicate::OEQ,
        CompareOp::Ne => FloatPredicate::UNE,
        CompareOp::Lt => FloatPredicate::OLT,
        CompareOp::Le => FloatPredicate::OLE,
        CompareOp::Gt => FloatPredicate::OGT,
        CompareOp::Ge => FloatPredicate::OGE,
    };
    c.fcmp(predicate, a, b)
}

/// Compares i32 vectors.
pub(super) fn compare_ints<'c>(c: &Code<'c>, op: CompareOp, a: Vector<'c>, b: Vector<'c>) -> Res<Vector<'c>> {
    let predicate = match op {
        CompareOp::Eq => IntPredicate::EQ,
        CompareOp::Ne => IntPredicate::NE,
        CompareOp::Lt => IntPredicate::SLT,
        CompareOp::Le => IntPredicate::SLE,
        CompareOp::Gt => IntPredicate::SGT,
        CompareOp::Ge => IntPredicate::SGE,
    };
    c.icmp(predicate, a, b)
}

/// `coefficients[0]·x^n + … + coefficients[n]` by Horner's rule.
fn polynomial<'c>(c: &Code<'c>, x: Vector<'c>, coefficients: &[f32]) -> Res<Vector<'c>> {
    let mut sum = c.f32s(coefficients.first().copied().unwrap_or(0.0));
    for k in coefficients.iter().skip(1) {
        sum = c.fadd(c.fmul(sum, x)?, c.f32s(*k))?;
    }
    Ok(sum)
}

/// 2^n for integer lanes -126 ..= 127.
fn power_of_two<'c>(c: &Code<'c>, n: Vector<'c>) -> Res<Vector<'c>> {
    let bits = c.shl(c.iadd(n, c.i32s(127))?, 23)?;
    c.cast(bits, c.f32v)
}

/// e^x = 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln 2 / 2; ln 2 is subtracted in two parts, the first
/// short enough for n times it to be exact. e^r is its Taylor polynomial of degree 7, whose remainder,
/// r^8 / 8! ≤ 5.2e-9, is below a tenth of a unit in the last place.
fn exp<'c>(c: &Code<'c>, x: Vector<'c>) -> Res<Vector<'c>> {
    const ROUNDER: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer.
    // Beyond these the result is 0 or infinite anyway; NaN passes through to the polynomial.
    let low = c.fcmp(FloatPredicate::OLT, x, c.f32s(-104.0))?;
    let high = c.fcmp(FloatPredicate::OGT, x, c.f32s(89.0))?;
    let clamped = c.select(high, c.f32s(89.0), c.select(low, c.f32s(-104.0), x)?)?;
    let shifted = c.fadd(c.fmul(clamped, c.f32s(std::f32::consts::LOG2_E))?, c.f32s(ROUNDER))?;
    let n = c.fsub(shifted, c.f32s(ROUNDER))?;
    // ln 2 = 0.693359375 - 2.12194440e-4
    let r = c.fsub(clamped, c.fmul(n, c.f32s(0.693_359_4))?)?;
    let r = c.fsub(r, c.fmul(n, c.f32s(-2.121_944_4e-4))?)?;
    let taylor = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    let tail = c.fmul(polynomial(c, r, &taylor)?, c.fmul(r, r)?)?;
    let value = c.fadd(c.fadd(tail, r)?, c.f32s(1.0))?;
    // The integer is in the low bits of `shifted`. Two factors, so that subnormal results and 2^128 can
    // be reached.
    let int = c.isub(c.cast(shifted, c.i32v)?, c.i32s(ROUNDER.to_bits() as i32))?;
    let half = c.sar(int, 1)?;
    let value = c.fmul(value, power_of_two(c, half)?)?;
    let value = c.fmul(value, power_of_two(c, c.isub(int, half)?)?)?;
    let nan = c.fcmp(FloatPredicate::UNO, x, x)?;
    c.select(nan, x, value)
}

/// x = 2^n · m with m in [√½, √2); ln x = n ln 2 + ln m with ln m from s = (m - 1) / (m + 1) as
/// 2 (s + s³/3 + s⁵/5 + s⁷/7 + s⁹/9); the remainder 2 s¹¹/11 is below 7e-10 for |s| ≤ 0.1716.
fn log<'c>(c: &Code<'c>, x: Vector<'c>) -> Res<Vector<'c>> {
    let subnormal = c.fcmp(FloatPredicate::OLT, x, c.f32s(f32::MIN_POSITIVE))?;
    let scaled = c.select(subnormal, c.fmul(x, c.f32s(33_554_432.0))?, x)?; // 2^25
    let bits = c.cast(scaled, c.i32v)?;
    // √½ has the bits 0x3f3504f3: subtracting them splits exponent and mantissa there.
    let split = c.isub(bits, c.i32s(0x3f35_04f3))?;
    let exponent = c.sar(split, 23)?;
    let m = c.iadd(c.and(split, c.i32s(0x007f_ffff))?, c.i32s(0x3f35_04f3))?;
    let m = c.cast(m, c.f32v)?;
    let exponent = c.isub(exponent, c.select(subnormal, c.i32s(25), c.i32s(0))?)?;
    let n = c.b.build_signed_int_to_float(exponent, c.f32v, "")?;
    let f = c.fsub(m, c.f32s(1.0))?;
    let s = c.fdiv(f, c.fadd(f, c.f32s(2.0))?)?;
    let s2 = c.fmul(s, s)?;
    let series = polynomial(c, s2, &[2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0])?;
    // ln m = f - s·(f - s²·series): the leading term f is exact, which keeps results near 1 accurate.
    let ln_m = c.fsub(f, c.fmul(s, c.fsub(f, c.fmul(s2, series)?)?)?)?;
    let value = c.fadd(ln_m, c.fmul(n, c.f32s(-2.121_944_4e-4))?)?;
    let value = c.fadd(value, c.fmul(n, c.f32s(0.693_359_4))?)?;
    let zero = c.fcmp(FloatPredicate::OEQ, x, c.f32s(0.0))?;
    let negative = c.fcmp(FloatPredicate::ULT, x, c.f32s(0.0))?; // NaN too
    let infinite = c.fcmp(FloatPredicate::OEQ, x, c.f32s(f32::INFINITY))?;
    let value = c.select(infinite, x, value)?;
    let value = c.select(zero, c.f32s(f32::NEG_INFINITY), value)?;
    c.select(negative, c.f32s(f32::NAN), value)
}

/// 1 / (1 + e^-x).
fn logistic<'c>(c: &Code<'c>, x: Vector<'c>) -> Res<Vector<'c>> {
    let e = exp(c, c.fneg(x)?)?;
    c.fdiv(c.f32s(1.0), c.fadd(c.f32s(1.0), e)?)
}

/// For |x| < 0.625 an odd polynomial (the coefficients of Cephes' tanhf), else 1 - 2 / (e^2|x| + 1) with
/// the sign of x.
fn tanh<'c>(c: &Code<'c>, x: Vector<'c>) -> Res<Vector<'c>> {
    let magnitude = c.intrinsic("llvm.fabs", &[x])?;
    let x2 = c.fmul(x, x)?;
    let coefficients = [-5.704_988_7e-3, 2.063_909e-2, -5.373_971e-2, 1.333_144_2e-1, -3.333_328e-1];
    let near = c.fadd(c.fmul(c.fmul(polynomial(c, x2, &coefficients)?, x2)?, x)?, x)?;
    let e = exp(c, c.fadd(magnitude, magnitude)?)?;
    let far = c.fsub(c.f32s(1.0), c.fdiv(c.f32s(2.0), c.fadd(e, c.f32s(1.0))?)?)?;
    let far = c.intrinsic("llvm.copysign", &[far, x])?;
    let small = c.fcmp(FloatPredicate::ULT, magnitude, c.f32s(0.625))?;
    c.select(small, near, far)
}
