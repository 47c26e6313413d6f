//! `transpose` and `reverse`.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType, strides};

/// Ops that move elements about (StableHLO specification, "transpose" and "reverse").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Permute {
    /// Result dimension `i` is operand dimension `permutation[i]`.
    Transpose(Shape),
    /// These dimensions run backwards.
    Reverse(Shape),
}

impl Permute {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Permute>> {
        Ok(match name {
            "transpose" => Some(Permute::Transpose(a.indices("permutation")?)),
            "reverse" => Some(Permute::Reverse(a.indices("dims")?)),
            _ => None,
        })
    }
}

impl Operation for Permute {
    fn name(&self) -> &'static str {
        match self {
            Permute::Transpose(_) => "transpose",
            Permute::Reverse(_) => "reverse",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        match self {
            Permute::Transpose(p) => AttrMap::from([("permutation", ints(p))]),
            Permute::Reverse(d) => AttrMap::from([("dims", ints(d))]),
        }
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let t = operands[0];
        match self {
            Permute::Transpose(p) => {
                expect_dims(self.name(), "permutation", p, t.rank())?;
                if p.len() != t.rank() {
                    return Err(IrError::attr(
                        self.name(),
                        "permutation",
                        format!("{p:?} does not permute {t}"),
                    ));
                }
                Ok(vec![t.with_shape(p.iter().map(|&d| t.shape[d]))])
            }
            Permute::Reverse(d) => {
                expect_dims(self.name(), "dims", d, t.rank())?;
                Ok(vec![t.clone()])
            }
        }
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        let shape = &results[0].shape;
        let data = match self {
            Permute::Transpose(p) => x.in_order(p),
            Permute::Reverse(_) if x.is_empty() => x.data.clone(),
            Permute::Reverse(dims) => {
                let st = strides(&x.shape);
                let sign = |d: usize| if dims.contains(&d) { -1 } else { 1 };
                let step: Vec<isize> = st.iter().enumerate().map(|(d, &s)| sign(d) * s as isize).collect();
                x.data.strided(dims.iter().map(|&d| (shape[d] - 1) * st[d]).sum(), shape, &step)
            }
        };
        Ok(vec![Tensor::new(shape.iter().copied(), data)])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in results[0].shape.iter().enumerate() {
            match self {
                Permute::Transpose(p) => {
                    let f = r.factor(n, FactorKind::Pass);
                    r.on_operand(0, p[d], f);
                    r.on_result(0, d, f);
                }
                Permute::Reverse(dims) => {
                    let f = r.factor(n, if dims.contains(&d) { FactorKind::Whole } else { FactorKind::Pass });
                    r.on_operand(0, d, f);
                    r.on_result(0, d, f);
                }
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
