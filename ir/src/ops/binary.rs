//! Elementwise ops of two operands of one type.

use super::{expect_operands, expect_same};
use crate::attr::{AttrMap, AttrReader};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use half::{bf16, f16};

macro_rules! kinds {
    ($($(#[$d:meta])* $k:ident = $n:literal),* $(,)?) => {
        /// Which function.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum BinaryKind { $($(#[$d])* $k,)* }
        impl BinaryKind {
            /// Every kind.
            pub const ALL: &'static [BinaryKind] = &[$(BinaryKind::$k,)*];
            /// Name in the text form.
            pub fn name(self) -> &'static str { match self { $(BinaryKind::$k => $n,)* } }
        }
    };
}

kinds! {
    /// a + b; logical or on `i1`.
    Add = "add",
    /// a ∧ b, logical or bitwise.
    And = "and",
    /// atan2(a, b).
    Atan2 = "atan2",
    /// a / b; integers truncate towards zero.
    Divide = "divide",
    /// The greater; NaN wins; or on `i1`.
    Maximum = "maximum",
    /// The lesser; NaN wins; and on `i1`.
    Minimum = "minimum",
    /// a · b; logical and on `i1`.
    Multiply = "multiply",
    /// a ∨ b, logical or bitwise.
    Or = "or",
    /// aᵇ.
    Power = "power",
    /// a − trunc(a / b) · b.
    Remainder = "remainder",
    /// a << b; 0 where b is the width or more.
    ShiftLeft = "shift_left",
    /// a >> b, sign-extending.
    ShiftRightArithmetic = "shift_right_arithmetic",
    /// a >> b, zero-extending.
    ShiftRightLogical = "shift_right_logical",
    /// a − b.
    Subtract = "subtract",
    /// a ⊕ b, logical or bitwise.
    Xor = "xor",
}

impl BinaryKind {
    /// Whether `op(a, b) = op(b, a)`.
    pub fn is_commutative(self) -> bool {
        use BinaryKind::*;
        matches!(self, Add | And | Maximum | Minimum | Multiply | Or | Xor)
    }

    fn supports(self, d: DType) -> bool {
        use BinaryKind::*;
        match self {
            Add | Maximum | Minimum | Multiply => true,
            And | Or | Xor => !d.is_float(),
            Atan2 => d.is_float(),
            ShiftLeft | ShiftRightArithmetic | ShiftRightLogical => d.is_int(),
            Divide | Power | Remainder | Subtract => d != DType::I1,
        }
    }
}

/// An elementwise op of two operands of one type: `[…], […] → […]` (StableHLO specification, ops of the same names).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Binary {
    /// Which function.
    pub kind: BinaryKind,
}

impl Binary {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, _: &mut AttrReader, _: &Module) -> Result<Option<Binary>> {
        Ok(BinaryKind::ALL.iter().find(|k| k.name() == name).map(|&kind| Binary { kind }))
    }
}

impl From<BinaryKind> for Op {
    fn from(kind: BinaryKind) -> Op {
        Op::Binary(Binary { kind })
    }
}

macro_rules! float_fn {
    ($name:ident, $t:ty) => {
        fn $name(k: BinaryKind, a: $t, b: $t) -> $t {
            use BinaryKind::*;
            match k {
                Add => a + b,
                Atan2 => a.atan2(b),
                Divide => a / b,
                Maximum if a.is_nan() || b.is_nan() => <$t>::NAN,
                Minimum if a.is_nan() || b.is_nan() => <$t>::NAN,
                // IEEE 754-2019 maximum: +0 above −0.
                Maximum => {
                    if a > b || (a == b && a.is_sign_positive()) {
                        a
                    } else {
                        b
                    }
                }
                Minimum => {
                    if a < b || (a == b && a.is_sign_negative()) {
                        a
                    } else {
                        b
                    }
                }
                Multiply => a * b,
                // A square is one multiplication, exactly rounded; the general power goes through f64.
                Power if b == 2.0 => a * a,
                Power => f64::from(a).powf(f64::from(b)) as $t,
                Remainder => a % b,
                Subtract => a - b,
                And | Or | Xor | ShiftLeft | ShiftRightArithmetic | ShiftRightLogical => <$t>::NAN,
            }
        }
    };
}
float_fn!(f32_fn, f32);
float_fn!(f64_fn, f64);

macro_rules! int_fn {
    ($name:ident, $t:ty, $u:ty, $s:ty) => {
        fn $name(k: BinaryKind, a: $t, b: $t) -> $t {
            use BinaryKind::*;
            let in_range = (b as u64) < <$t>::BITS as u64;
            match k {
                Add => a.wrapping_add(b),
                And => a & b,
                // Division by zero gives all ones, its remainder the dividend (as XLA does); overflow wraps.
                Divide if b == 0 => !0,
                Divide => a.wrapping_div(b),
                Maximum => a.max(b),
                Minimum => a.min(b),
                Multiply => a.wrapping_mul(b),
                Or => a | b,
                Power => int_power(a as i128, b as i128) as $t,
                Remainder if b == 0 => a,
                Remainder => a.wrapping_rem(b),
                ShiftLeft if in_range => a << b,
                ShiftLeft => 0,
                ShiftRightArithmetic => ((a as $s) >> if in_range { b as u32 } else { <$t>::BITS - 1 }) as $t,
                ShiftRightLogical if in_range => ((a as $u) >> b) as $t,
                ShiftRightLogical => 0,
                Subtract => a.wrapping_sub(b),
                Xor => a ^ b,
                Atan2 => 0,
            }
        }
    };
}
int_fn!(i8_fn, i8, u8, i8);
int_fn!(i16_fn, i16, u16, i16);
int_fn!(i32_fn, i32, u32, i32);
int_fn!(i64_fn, i64, u64, i64);
int_fn!(u8_fn, u8, u8, i8);
int_fn!(u16_fn, u16, u16, i16);
int_fn!(u32_fn, u32, u32, i32);
int_fn!(u64_fn, u64, u64, i64);

/// a^b with wrapping; a negative exponent gives the truncated quotient 1/aⁿ.
fn int_power(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut base, mut e) = (1i128, a, b);
    while e > 0 {
        if e & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    result
}

fn bool_fn(k: BinaryKind, a: u8, b: u8) -> u8 {
    use BinaryKind::*;
    match k {
        Add | Or | Maximum => a | b,
        Multiply | And | Minimum => a & b,
        _ => a ^ b,
    }
}

/// Combines two tensors of one shape element by element.
pub fn combine(kind: BinaryKind, a: &Storage, b: &Storage) -> Option<Storage> {
    macro_rules! zip {
        ($x:ident, $y:ident, $variant:ident, $f:expr) => {
            Storage::$variant($x.iter().zip($y).map(|(&p, &q)| $f(kind, p, q)).collect())
        };
    }
    // The common ones with the function outside of the loop.
    macro_rules! fast {
        ($($variant:ident),*) => {
            match (kind, a, b) {
                $(
                    (BinaryKind::Add, Storage::$variant(x), Storage::$variant(y)) => {
                        return Some(Storage::$variant(x.iter().zip(y).map(|(p, q)| p + q).collect()));
                    }
                    (BinaryKind::Subtract, Storage::$variant(x), Storage::$variant(y)) => {
                        return Some(Storage::$variant(x.iter().zip(y).map(|(p, q)| p - q).collect()));
                    }
                    (BinaryKind::Multiply, Storage::$variant(x), Storage::$variant(y)) => {
                        return Some(Storage::$variant(x.iter().zip(y).map(|(p, q)| p * q).collect()));
                    }
                    (BinaryKind::Divide, Storage::$variant(x), Storage::$variant(y)) => {
                        return Some(Storage::$variant(x.iter().zip(y).map(|(p, q)| p / q).collect()));
                    }
                )*
                _ => {}
            }
        };
    }
    fast!(F32, F64);
    let narrow16 = |k, p: f16, q: f16| f16::from_f32(f32_fn(k, p.to_f32(), q.to_f32()));
    let narrow_b = |k, p: bf16, q: bf16| bf16::from_f32(f32_fn(k, p.to_f32(), q.to_f32()));
    Some(match (a, b) {
        (Storage::F32(x), Storage::F32(y)) => zip!(x, y, F32, f32_fn),
        (Storage::F64(x), Storage::F64(y)) => zip!(x, y, F64, f64_fn),
        (Storage::F16(x), Storage::F16(y)) => zip!(x, y, F16, narrow16),
        (Storage::BF16(x), Storage::BF16(y)) => zip!(x, y, BF16, narrow_b),
        (Storage::I1(x), Storage::I1(y)) => zip!(x, y, I1, bool_fn),
        (Storage::I8(x), Storage::I8(y)) => zip!(x, y, I8, i8_fn),
        (Storage::I16(x), Storage::I16(y)) => zip!(x, y, I16, i16_fn),
        (Storage::I32(x), Storage::I32(y)) => zip!(x, y, I32, i32_fn),
        (Storage::I64(x), Storage::I64(y)) => zip!(x, y, I64, i64_fn),
        (Storage::U8(x), Storage::U8(y)) => zip!(x, y, U8, u8_fn),
        (Storage::U16(x), Storage::U16(y)) => zip!(x, y, U16, u16_fn),
        (Storage::U32(x), Storage::U32(y)) => zip!(x, y, U32, u32_fn),
        (Storage::U64(x), Storage::U64(y)) => zip!(x, y, U64, u64_fn),
        _ => return None,
    })
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::new()
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        expect_same(self.name(), operands[0], operands[1])?;
        if !self.kind.supports(operands[0].dtype) {
            return Err(IrError::ty(self.name(), format!("is not defined on {}", operands[0])));
        }
        Ok(vec![operands[0].clone()])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let data = combine(self.kind, &inputs[0].data, &inputs[1].data)
            .ok_or_else(|| IrError::ty(self.name(), "operands of different element types"))?;
        Ok(vec![Tensor { shape: inputs[0].shape.clone(), data }])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::elementwise(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
