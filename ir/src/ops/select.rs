//! `select` and `clamp`.

use super::{expect_operands, expect_same};
use crate::attr::{AttrMap, AttrReader};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::ops::binary::{BinaryKind, combine};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// Ternary elementwise ops (StableHLO specification, "select" and "clamp").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Select {
    /// `i1[…] or i1[], T[…], T[…] → T[…]`: the second operand where the first is true, else the third.
    Select,
    /// `T[…] or T[], T[…], T[…] or T[] → T[…]`: min, operand, max.
    Clamp,
}

impl Select {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, _: &mut AttrReader, _: &Module) -> Result<Option<Select>> {
        Ok(match name {
            "select" => Some(Select::Select),
            "clamp" => Some(Select::Clamp),
            _ => None,
        })
    }
}

fn spread(t: &Tensor, n: usize) -> Storage {
    if t.len() == n && !t.shape.is_empty() { t.data.clone() } else { t.data.pick(std::iter::repeat_n(0, n)) }
}

impl Operation for Select {
    fn name(&self) -> &'static str {
        match self {
            Select::Select => "select",
            Select::Clamp => "clamp",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::new()
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 3)?;
        let fits = |t: &TensorType, like: &TensorType| t.rank() == 0 || t.shape == like.shape;
        match self {
            Select::Select => {
                expect_same(self.name(), operands[1], operands[2])?;
                if operands[0].dtype != DType::I1 || !fits(operands[0], operands[1]) {
                    return Err(IrError::ty(
                        self.name(),
                        format!(
                            "predicate {} should be i1 of the shape of {} or a scalar",
                            operands[0], operands[1]
                        ),
                    ));
                }
            }
            Select::Clamp => {
                for bound in [operands[0], operands[2]] {
                    if bound.dtype != operands[1].dtype || !fits(bound, operands[1]) {
                        return Err(IrError::ty(
                            self.name(),
                            format!("bound {bound} does not fit {}", operands[1]),
                        ));
                    }
                }
            }
        }
        Ok(vec![operands[1].clone()])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[1];
        let wrong = || IrError::ty(self.name(), "operands of different element types");
        let data = match self {
            Select::Select => {
                let Storage::I1(p) = &inputs[0].data else { return Err(wrong()) };
                let scalar = inputs[0].shape.is_empty();
                let pred = |i: usize| p[if scalar { 0 } else { i }] != 0;
                macro_rules! pick {
                    ($($v:ident),*) => {
                        match (&x.data, &inputs[2].data) {
                            $((Storage::$v(a), Storage::$v(b)) => Storage::$v(
                                a.iter().zip(b).enumerate().map(|(i, (&t, &f))| if pred(i) { t } else { f }).collect(),
                            ),)*
                            _ => return Err(wrong()),
                        }
                    };
                }
                pick!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64)
            }
            Select::Clamp => {
                let low =
                    combine(BinaryKind::Maximum, &spread(inputs[0], x.len()), &x.data).ok_or_else(wrong)?;
                combine(BinaryKind::Minimum, &low, &spread(inputs[2], x.len())).ok_or_else(wrong)?
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
