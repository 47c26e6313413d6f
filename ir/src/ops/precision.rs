//! `reduce_precision`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use half::{bf16, f16};

/// `reduce_precision`: `T[…] → T[…]`, rounded to a float format of fewer bits and back (StableHLO specification,
/// "reduce_precision"). Subnormals of that format become zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReducePrecision {
    /// Exponent bits of the format, at least 1.
    pub exponent_bits: u32,
    /// Mantissa bits of the format, the leading one not counted.
    pub mantissa_bits: u32,
}

/// A float format: bits of exponent and mantissa.
#[derive(Clone, Copy)]
struct Format {
    exponent: u32,
    mantissa: u32,
}

impl ReducePrecision {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<ReducePrecision>> {
        if name != "reduce_precision" {
            return Ok(None);
        }
        let mut bits = |key| Ok(u32::try_from(a.index(key)?).unwrap_or(u32::MAX));
        Ok(Some(ReducePrecision {
            exponent_bits: bits("exponent_bits")?,
            mantissa_bits: bits("mantissa_bits")?,
        }))
    }

    /// Rounds the bits of a number of format `f`.
    fn round(&self, bits: u64, f: Format) -> u64 {
        let sign = bits & (1 << (f.exponent + f.mantissa));
        let infinity = ((1u64 << f.exponent) - 1) << f.mantissa;
        let mut x = bits & !(1 << (f.exponent + f.mantissa));
        if x > infinity {
            return bits;
        }
        if self.mantissa_bits < f.mantissa {
            // To nearest, ties to even; a carry runs into the exponent as it should.
            let dropped = f.mantissa - self.mantissa_bits;
            let even = (x >> dropped) & 1;
            x += (1u64 << (dropped - 1)) - 1 + even;
            x &= !((1u64 << dropped) - 1);
        }
        if self.exponent_bits < f.exponent {
            let bias = |e: u32| (1u64 << (e - 1)) - 1;
            let exponent = x >> f.mantissa;
            let (mine, theirs) = (bias(f.exponent), bias(self.exponent_bits));
            if exponent > mine + theirs {
                x = infinity;
            } else if exponent <= mine - theirs {
                x = 0;
            }
        }
        sign | x.min(infinity)
    }
}

impl Operation for ReducePrecision {
    fn name(&self) -> &'static str {
        "reduce_precision"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("exponent_bits", AttrValue::Int(i64::from(self.exponent_bits))),
            ("mantissa_bits", AttrValue::Int(i64::from(self.mantissa_bits))),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        if !operands[0].dtype.is_float() {
            return Err(IrError::ty(self.name(), format!("is not defined on {}", operands[0])));
        }
        if self.exponent_bits == 0 {
            return Err(IrError::attr(self.name(), "exponent_bits", "should be at least 1"));
        }
        Ok(vec![operands[0].clone()])
    }

    /// The identity in wide mode, as every other rounding.
    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        if cx.is_wide() {
            return Ok(vec![x.clone()]);
        }
        let of = |exponent, mantissa| Format { exponent, mantissa };
        let data = match &x.data {
            Storage::F16(v) => Storage::F16(
                v.iter()
                    .map(|a| f16::from_bits(self.round(u64::from(a.to_bits()), of(5, 10)) as u16))
                    .collect(),
            ),
            Storage::BF16(v) => Storage::BF16(
                v.iter()
                    .map(|a| bf16::from_bits(self.round(u64::from(a.to_bits()), of(8, 7)) as u16))
                    .collect(),
            ),
            Storage::F32(v) => Storage::F32(
                v.iter()
                    .map(|a| f32::from_bits(self.round(u64::from(a.to_bits()), of(8, 23)) as u32))
                    .collect(),
            ),
            Storage::F64(v) => {
                Storage::F64(v.iter().map(|a| f64::from_bits(self.round(a.to_bits(), of(11, 52)))).collect())
            }
            _ => return Err(IrError::ty(self.name(), "is not defined on integers")),
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
