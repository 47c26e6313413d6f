//! Elementwise ops of one operand.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor, bf16_from_f64, f16_from_f64};
use crate::types::TensorType;

macro_rules! kinds {
    ($($(#[$d:meta])* $k:ident = $n:literal),* $(,)?) => {
        /// Which function.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum UnaryKind { $($(#[$d])* $k,)* }
        impl UnaryKind {
            /// Every kind.
            pub const ALL: &'static [UnaryKind] = &[$(UnaryKind::$k,)*];
            /// Name in the text form.
            pub fn name(self) -> &'static str { match self { $(UnaryKind::$k => $n,)* } }
        }
    };
}

kinds! {
    /// |x|.
    Abs = "abs",
    /// Cube root.
    Cbrt = "cbrt",
    /// Round towards +∞.
    Ceil = "ceil",
    /// Leading zero bits (integers).
    CountLeadingZeros = "count_leading_zeros",
    /// Cosine.
    Cosine = "cosine",
    /// Error function.
    Erf = "erf",
    /// Complementary error function.
    Erfc = "erfc",
    /// eˣ.
    Exponential = "exponential",
    /// eˣ − 1.
    ExponentialMinusOne = "exponential_minus_one",
    /// Round towards −∞.
    Floor = "floor",
    /// Whether neither infinite nor NaN; the result is `i1`.
    IsFinite = "is_finite",
    /// Natural logarithm.
    Log = "log",
    /// ln(1 + x).
    LogPlusOne = "log_plus_one",
    /// 1 / (1 + e⁻ˣ).
    Logistic = "logistic",
    /// −x; wraps on integers.
    Negate = "negate",
    /// Logical (i1) or bitwise complement.
    Not = "not",
    /// Set bits (integers).
    Popcnt = "popcnt",
    /// Round to nearest, ties away from zero.
    RoundNearestAfz = "round_nearest_afz",
    /// Round to nearest, ties to even.
    RoundNearestEven = "round_nearest_even",
    /// 1 / √x.
    Rsqrt = "rsqrt",
    /// −1, 0 or 1; zeros keep their sign, NaN stays.
    Sign = "sign",
    /// Sine.
    Sine = "sine",
    /// √x.
    Sqrt = "sqrt",
    /// Tangent.
    Tan = "tan",
    /// Hyperbolic tangent.
    Tanh = "tanh",
}

impl UnaryKind {
    fn takes_float(self) -> bool {
        !matches!(self, UnaryKind::CountLeadingZeros | UnaryKind::Not | UnaryKind::Popcnt)
    }

    fn takes_int(self) -> bool {
        use UnaryKind::*;
        matches!(self, Abs | CountLeadingZeros | Negate | Not | Popcnt | Sign)
    }
}

/// An elementwise op of one operand: `[…] → […]` (StableHLO specification, ops of the same names; `erf` and
/// `erfc` are CHLO's).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Unary {
    /// Which function.
    pub kind: UnaryKind,
}

impl Unary {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, _: &mut AttrReader, _: &Module) -> Result<Option<Unary>> {
        Ok(UnaryKind::ALL.iter().find(|k| k.name() == name).map(|&kind| Unary { kind }))
    }
}

impl From<UnaryKind> for Op {
    fn from(kind: UnaryKind) -> Op {
        Op::Unary(Unary { kind })
    }
}

/// Error function by Abramowitz–Stegun-free means: series below 2.5, continued fraction above, to f64 accuracy.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() < 2.5 {
        // Maclaurin series in Kummer's form, all terms positive: no cancellation.
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    } else {
        x.signum() * (1.0 - erfc_tail(x.abs()))
    }
}

/// Complementary error function.
pub fn erfc(x: f64) -> f64 {
    if x < 2.5 { 1.0 - erf(x) } else { erfc_tail(x) }
}

/// erfc for x ≥ 2.5 by Lentz's evaluation of the continued fraction.
fn erfc_tail(x: f64) -> f64 {
    if x > 27.3 {
        return 0.0;
    }
    let mut f = x;
    for k in (1..=60).rev() {
        f = x + k as f64 / 2.0 / f;
    }
    (-x * x).exp() / (f * std::f64::consts::PI.sqrt())
}

fn float64(kind: UnaryKind, x: f64) -> f64 {
    use UnaryKind::*;
    match kind {
        Abs => x.abs(),
        Cbrt => x.cbrt(),
        Ceil => x.ceil(),
        Cosine => x.cos(),
        Erf => erf(x),
        Erfc => erfc(x),
        Exponential => x.exp(),
        ExponentialMinusOne => x.exp_m1(),
        Floor => x.floor(),
        Log => x.ln(),
        LogPlusOne => x.ln_1p(),
        Logistic if x < 0.0 => x.exp() / (1.0 + x.exp()),
        Logistic => 1.0 / (1.0 + (-x).exp()),
        Negate => -x,
        RoundNearestAfz => x.round(),
        RoundNearestEven => x.round_ties_even(),
        Rsqrt => 1.0 / x.sqrt(),
        Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Sine => x.sin(),
        Sqrt => x.sqrt(),
        Tan => x.tan(),
        Tanh => x.tanh(),
        IsFinite | CountLeadingZeros | Not | Popcnt => f64::NAN,
    }
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::new()
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let t = operands[0];
        let ok = match t.dtype {
            DType::I1 => self.kind == UnaryKind::Not,
            d if d.is_float() => self.kind.takes_float(),
            _ => self.kind.takes_int(),
        };
        if !ok {
            return Err(IrError::ty(self.name(), format!("is not defined on {t}")));
        }
        let dtype = if self.kind == UnaryKind::IsFinite { DType::I1 } else { t.dtype };
        Ok(vec![t.with_dtype(dtype)])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let k = self.kind;
        let x = inputs[0];
        macro_rules! ints {
            ($v:ident, $variant:ident, $abs:expr, $sign:expr) => {
                Storage::$variant(
                    $v.iter()
                        .map(|&a| match k {
                            UnaryKind::Abs => $abs(a),
                            UnaryKind::Sign => $sign(a),
                            UnaryKind::Negate => a.wrapping_neg(),
                            UnaryKind::Popcnt => a.count_ones() as _,
                            UnaryKind::CountLeadingZeros => a.leading_zeros() as _,
                            _ => !a,
                        })
                        .collect(),
                )
            };
        }
        macro_rules! floats {
            ($v:ident, $variant:ident, $narrow:expr) => {
                // A narrow float's function is computed in f64 and rounded once.
                Storage::$variant($v.iter().map(|&a| $narrow(float64(k, a.to_f64()))).collect())
            };
        }
        let data = if k == UnaryKind::IsFinite {
            Storage::I1((0..x.len()).map(|i| u8::from(x.data.get_f64(i).is_finite())).collect())
        } else {
            match &x.data {
                Storage::F16(v) => floats!(v, F16, f16_from_f64),
                Storage::BF16(v) => floats!(v, BF16, bf16_from_f64),
                Storage::F32(v) => Storage::F32(v.iter().map(|&a| float64(k, f64::from(a)) as f32).collect()),
                Storage::F64(v) => Storage::F64(v.iter().map(|&a| float64(k, a)).collect()),
                Storage::I1(v) => Storage::I1(v.iter().map(|&a| 1 - a).collect()),
                Storage::I8(v) => ints!(v, I8, i8::wrapping_abs, i8::signum),
                Storage::I16(v) => ints!(v, I16, i16::wrapping_abs, i16::signum),
                Storage::I32(v) => ints!(v, I32, i32::wrapping_abs, i32::signum),
                Storage::I64(v) => ints!(v, I64, i64::wrapping_abs, i64::signum),
                Storage::U8(v) => ints!(v, U8, |a| a, |a: u8| a.min(1)),
                Storage::U16(v) => ints!(v, U16, |a| a, |a: u16| a.min(1)),
                Storage::U32(v) => ints!(v, U32, |a| a, |a: u32| a.min(1)),
                Storage::U64(v) => ints!(v, U64, |a| a, |a: u64| a.min(1)),
            }
        };
        Ok(vec![Tensor { shape: x.shape.clone(), data }])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::elementwise(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
