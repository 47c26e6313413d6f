//! Inverse error function.

use super::expand::Expand;
use crate::error::Result;
use msc_ir::ValueId;
use msc_ir::ops::binary::BinaryKind::{Add, Multiply, Subtract};
use msc_ir::ops::compare::Direction;
use msc_ir::ops::unary::UnaryKind::{Abs, LogPlusOne, Negate, Sqrt};

/// Coefficients for w < 5, highest power first (M. Giles, "Approximating the erfinv function", single precision).
const CENTRAL: [f64; 9] = [
    2.810_226_36e-8,
    3.432_739_39e-7,
    -3.523_387_7e-6,
    -4.391_506_54e-6,
    2.185_808_7e-4,
    -1.253_725_03e-3,
    -4.177_681_64e-3,
    2.466_407_27e-1,
    1.501_409_41,
];

/// Coefficients for w ≥ 5.
const TAIL: [f64; 9] = [
    -2.002_142_57e-4,
    1.009_505_58e-4,
    1.349_343_22e-3,
    -3.673_428_44e-3,
    5.739_507_73e-3,
    -7.622_461_3e-3,
    9.438_870_47e-3,
    1.001_674_06,
    2.832_976_82,
];

/// x·p(w) with w = −log(1 − x²) and one of two polynomials; relative error about 3e-7, so doubles do not gain.
/// ±∞ at ±1.
pub(super) fn erf_inv(e: &mut Expand<'_, '_, '_>, x: ValueId) -> Result<ValueId> {
    let minus = e.un(Negate, x)?;
    let square = e.bin(Multiply, x, minus)?;
    let log = e.un(LogPlusOne, square)?;
    let w = e.un(Negate, log)?;
    let central = e.with(Subtract, w, 2.5)?;
    let root = e.un(Sqrt, w)?;
    let tail = e.with(Subtract, root, 3.0)?;
    let (central, tail) = (polynomial(e, central, &CENTRAL)?, polynomial(e, tail, &TAIL)?);
    let near = e.compare_with(Direction::Lt, w, 5.0)?;
    let p = e.select(near, central, tail)?;
    let value = e.bin(Multiply, p, x)?;
    let size = e.un(Abs, x)?;
    let end = e.compare_with(Direction::Eq, size, 1.0)?;
    let infinite = e.with(Multiply, x, f64::INFINITY)?;
    e.select(end, infinite, value)
}

/// Horner's scheme.
fn polynomial(e: &mut Expand<'_, '_, '_>, x: ValueId, coefficients: &[f64]) -> Result<ValueId> {
    let mut p = e.number(e.ty(x), coefficients[0])?;
    for &c in &coefficients[1..] {
        let m = e.bin(Multiply, p, x)?;
        p = e.with(Add, m, c)?;
    }
    Ok(p)
}
