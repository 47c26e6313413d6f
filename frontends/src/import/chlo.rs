//! CHLO's ops, in StableHLO's.
//!
//! Functions that StableHLO does not have are written by the identities that XLA uses, so that results stay close
//! to it. Those that need tables of coefficients (gamma functions, Bessel functions, zeta) are not supported.

use super::expand::Expand;
use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::binary::BinaryKind::{Add, Atan2, Divide, Multiply, Subtract};
use msc_ir::ops::compare::Direction;
use msc_ir::ops::unary::UnaryKind::{
    Abs, Erf, Erfc, Exponential, ExponentialMinusOne, Log, LogPlusOne, Negate, Sign, Sqrt, Tan,
};
use msc_ir::{DType, LocId, ValueId};
use smallvec::smallvec;
use std::f64::consts::{LN_2, PI};

impl<'r, 'a> Importer<'r, 'a> {
    /// An op of the CHLO dialect.
    pub(super) fn chlo(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        match name {
            "top_k" => {
                let [x] = self.operands_n(op)?;
                let k = self.index(op, "k")?;
                return self.top_k(op, x, k, loc);
            }
            "ragged_dot" => return self.ragged_dot(op, loc),
            _ => {}
        }
        if let Some(plain) = name.strip_prefix("broadcast_") {
            return self.broadcast_binary(op, plain, loc);
        }
        let Some(f) = function(name) else { return Err(self.unknown(op)) };
        let [x] = self.operands_n(op)?;
        let dtype = self.graph.ty(x).dtype;
        if name != "square" && !dtype.is_float() {
            let message = format!("{} is not defined on {}", op.name, self.graph.ty(x));
            return Err(self.error(op, Code::Invalid, message));
        }
        // Identities lose digits that a narrow type does not have to spare.
        let narrow =
            matches!(dtype, DType::F16 | DType::BF16) && !matches!(name, "square" | "erf" | "erfc" | "tan");
        let mut e = self.expand(op, loc);
        let x = if narrow { e.convert(x, DType::F32)? } else { x };
        let y = f(&mut e, x)?;
        let boolean = e.ty(y).dtype == DType::I1;
        let y = if narrow && !boolean { e.convert(y, dtype)? } else { y };
        Ok(smallvec![y])
    }
}

type Function = fn(&mut Expand<'_, '_, '_>, ValueId) -> Result<ValueId>;

/// The function of one value with this name.
fn function(name: &str) -> Option<Function> {
    Some(match name {
        "square" => |e, x| e.bin(Multiply, x, x),
        "erf" => |e, x| e.un(Erf, x),
        "erfc" => |e, x| e.un(Erfc, x),
        "erf_inv" => super::erf_inv::erf_inv,
        "tan" => |e, x| e.un(Tan, x),
        "sinh" => sinh,
        "cosh" => |e, x| {
            let (a, b) = halves(e, x)?;
            e.bin(Add, a, b)
        },
        "asin" => |e, x| {
            let root = one_minus_square_root(e, x)?;
            let d = e.with(Add, root, 1.0)?;
            let half = e.bin(Atan2, x, d)?;
            e.with(Multiply, half, 2.0)
        },
        "acos" => acos,
        "atan" => |e, x| {
            let one = e.number(e.ty(x), 1.0)?;
            e.bin(Atan2, x, one)
        },
        "asinh" => asinh,
        "acosh" => acosh,
        "atanh" => |e, x| {
            let minus = e.un(Negate, x)?;
            let (a, b) = (e.un(LogPlusOne, x)?, e.un(LogPlusOne, minus)?);
            let d = e.bin(Subtract, a, b)?;
            e.with(Multiply, d, 0.5)
        },
        "is_inf" => |e, x| {
            let a = e.un(Abs, x)?;
            e.compare_with(Direction::Eq, a, f64::INFINITY)
        },
        "is_pos_inf" => |e, x| e.compare_with(Direction::Eq, x, f64::INFINITY),
        "is_neg_inf" => |e, x| e.compare_with(Direction::Eq, x, f64::NEG_INFINITY),
        _ => return None,
    })
}

/// eˣ/2 and e⁻ˣ/2, which do not overflow before their sum does.
fn halves(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<(ValueId, ValueId)> {
    let up = e.with(Add, x, -LN_2)?;
    let minus = e.un(Negate, x)?;
    let down = e.with(Add, minus, -LN_2)?;
    Ok((e.un(Exponential, up)?, e.un(Exponential, down)?))
}

/// Near zero by eˣ − 1, which does not cancel.
fn sinh(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let (a, b) = halves(e, x)?;
    let large = e.bin(Subtract, a, b)?;
    let m = e.un(ExponentialMinusOne, x)?;
    let d = e.with(Add, m, 1.0)?;
    let q = e.bin(Divide, m, d)?;
    let s = e.bin(Add, m, q)?;
    let small = e.with(Multiply, s, 0.5)?;
    let size = e.un(Abs, x)?;
    let near = e.compare_with(Direction::Lt, size, 1.0)?;
    e.select(near, small, large)
}

/// √((1 − x)(1 + x)).
fn one_minus_square_root(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let one = e.number(e.ty(x), 1.0)?;
    let (a, b) = (e.bin(Subtract, one, x)?, e.bin(Add, one, x)?);
    let p = e.bin(Multiply, a, b)?;
    e.un(Sqrt, p)
}

/// 2·atan2(√(1 − x²), 1 + x), and π at −1.
fn acos(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let root = one_minus_square_root(e, x)?;
    let d = e.with(Add, x, 1.0)?;
    let half = e.bin(Atan2, root, d)?;
    let value = e.with(Multiply, half, 2.0)?;
    let inside = e.compare_with(Direction::Ne, x, -1.0)?;
    let pi = e.number(e.ty(x), PI)?;
    e.select(inside, value, pi)
}

/// sign(x)·log1p(|x| + x²/(1 + √(x² + 1))); log|x| + log 2 where x² would overflow.
fn asinh(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let size = e.un(Abs, x)?;
    let square = e.bin(Multiply, x, x)?;
    let s = e.with(Add, square, 1.0)?;
    let root = e.un(Sqrt, s)?;
    let d = e.with(Add, root, 1.0)?;
    let q = e.bin(Divide, square, d)?;
    let t = e.bin(Add, size, q)?;
    let small = e.un(LogPlusOne, t)?;
    let large = log_of_double(e, size)?;
    let huge = e.compare_with(Direction::Ge, size, 1e15)?;
    let value = e.select(huge, large, small)?;
    let sign = e.un(Sign, x)?;
    e.bin(Multiply, sign, value)
}

/// log(x + √((x + 1)(x − 1))), NaN below 1.
fn acosh(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let (a, b) = (e.with(Add, x, 1.0)?, e.with(Add, x, -1.0)?);
    let (a, b) = (e.un(Sqrt, a)?, e.un(Sqrt, b)?);
    let p = e.bin(Multiply, a, b)?;
    let s = e.bin(Add, x, p)?;
    let small = e.un(Log, s)?;
    let large = log_of_double(e, x)?;
    let huge = e.compare_with(Direction::Ge, x, 1e15)?;
    let value = e.select(huge, large, small)?;
    let inside = e.compare_with(Direction::Ge, x, 1.0)?;
    let nan = e.number(e.ty(x), f64::NAN)?;
    e.select(inside, value, nan)
}

/// log(2x) without forming 2x.
fn log_of_double(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let log = e.un(Log, x)?;
    e.with(Add, log, LN_2)
}
