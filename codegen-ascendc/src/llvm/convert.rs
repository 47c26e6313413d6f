//! Conversions between element types, in integer arithmetic: LLVM would lower the float ones differently
//! from CPU to CPU (library calls, or instructions that flush subnormals).

use inkwell::{FloatPredicate, IntPredicate};

use super::LlvmError;
use super::code::{Code, Res, Vector};
use crate::tile::DType;

/// Converts lanes, rounding to nearest even; f32 to i32 truncates.
pub(super) fn convert<'c>(c: &Code<'c>, a: Vector<'c>, from: DType, to: DType) -> Res<Vector<'c>> {
    match (from, to) {
        (DType::BF16, DType::F32) => bf16_to_f32(c, a),
        (DType::F16, DType::F32) => f16_to_f32(c, a),
        (DType::F32, DType::BF16) => f32_to_bf16(c, a),
        (DType::F32, DType::F16) => f32_to_f16(c, a),
        (DType::I32, DType::F32) => Ok(c.b.build_signed_int_to_float(a, c.f32v, "")?),
        // Saturating: a plain conversion of an out-of-range value has no defined result in LLVM.
        (DType::F32, DType::I32) => {
            let types = [c.i32v.into(), c.f32v.into()];
            Ok(c.call("llvm.fptosi.sat", &types, &[a.into()])?.into_vector_value())
        }
        _ if from == to => Ok(a),
        _ => Err(LlvmError::Internal(format!("conversion from {from} to {to}"))),
    }
}

fn widen<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    Ok(c.b.build_int_z_extend(a, c.i32v, "")?)
}

fn narrow<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    Ok(c.b.build_int_truncate(a, c.i16v, "")?)
}

fn bf16_to_f32<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    let bits = c.shl(widen(c, a)?, 16)?;
    c.cast(bits, c.f32v)
}

fn f32_to_bf16<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    let bits = c.cast(a, c.i32v)?;
    let odd = c.and(c.shr(bits, 16)?, c.i32s(1))?;
    let rounded = c.shr(c.iadd(bits, c.iadd(odd, c.i32s(0x7fff))?)?, 16)?;
    // A NaN keeps its sign and upper payload and is made quiet, so that it cannot round to infinity.
    let quiet = c.or(c.shr(bits, 16)?, c.i32s(0x0040))?;
    let nan = c.fcmp(FloatPredicate::UNO, a, a)?;
    narrow(c, c.select(nan, quiet, rounded)?)
}

fn f16_to_f32<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    let bits = widen(c, a)?;
    let sign = c.shl(c.and(bits, c.i32s(0x8000))?, 16)?;
    let magnitude = c.and(bits, c.i32s(0x7fff))?;
    // Exponent and mantissa in place, too small by 2^112; the product is exact, subnormals included.
    let small = c.cast(c.shl(magnitude, 13)?, c.f32v)?;
    let value = c.cast(c.fmul(small, c.f32s(f32::from_bits(0x7780_0000)))?, c.i32v)?;
    let special = c.icmp(IntPredicate::UGE, magnitude, c.i32s(0x7c00))?;
    let infinite = c.or(c.shl(magnitude, 13)?, c.i32s(0x7f80_0000))?;
    let value = c.or(c.select(special, infinite, value)?, sign)?;
    c.cast(value, c.f32v)
}

fn f32_to_f16<'c>(c: &Code<'c>, a: Vector<'c>) -> Res<Vector<'c>> {
    let bits = c.cast(a, c.i32v)?;
    let sign = c.and(c.shr(bits, 16)?, c.i32s(0x8000))?;
    let magnitude = c.and(bits, c.i32s(0x7fff_ffff))?;
    // Normal: rebias the exponent by 15 - 127 and round at bit 13. Overflow carries into infinity.
    let odd = c.and(c.shr(magnitude, 13)?, c.i32s(1))?;
    let rebias = ((15 - 127) << 23) + 0x0fff;
    let normal = c.shr(c.iadd(c.iadd(magnitude, c.i32s(rebias))?, odd)?, 13)?;
    // Subnormal: adding 0.5 aligns the mantissa so that the addition itself rounds.
    let half = c.f32s(0.5);
    let aligned = c.fadd(c.cast(magnitude, c.f32v)?, half)?;
    let subnormal = c.isub(c.cast(aligned, c.i32v)?, c.cast(half, c.i32v)?)?;
    let is_small = c.icmp(IntPredicate::ULT, magnitude, c.i32s(0x3880_0000))?; // 2^-14
    let is_large = c.icmp(IntPredicate::UGE, magnitude, c.i32s(0x4780_0000))?; // 2^16
    let is_nan = c.icmp(IntPredicate::UGT, magnitude, c.i32s(0x7f80_0000))?;
    let payload = c.or(c.and(c.shr(magnitude, 13)?, c.i32s(0x03ff))?, c.i32s(0x7e00))?;
    let large = c.select(is_nan, payload, c.i32s(0x7c00))?;
    let value = c.select(is_large, large, c.select(is_small, subnormal, normal)?)?;
    narrow(c, c.or(value, sign)?)
}
