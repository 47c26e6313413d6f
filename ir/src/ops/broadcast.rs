//! `broadcast_in_dim`.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType, strides};

/// `broadcast_in_dim`: operand dimension `i` becomes result dimension `dims[i]`; size-1 dimensions stretch
/// (StableHLO specification, "broadcast_in_dim").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BroadcastInDim {
    /// The result's shape.
    pub shape: Shape,
    /// For each operand dimension, the result dimension it becomes.
    pub dims: Shape,
}

impl BroadcastInDim {
    /// The broadcast of a scalar to a shape.
    pub fn scalar(shape: &[usize]) -> BroadcastInDim {
        BroadcastInDim { shape: shape.into(), dims: Shape::new() }
    }

    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<BroadcastInDim>> {
        if name != "broadcast_in_dim" {
            return Ok(None);
        }
        Ok(Some(BroadcastInDim { shape: a.indices("shape")?, dims: a.indices("dims")? }))
    }
}

impl Operation for BroadcastInDim {
    fn name(&self) -> &'static str {
        "broadcast_in_dim"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("dims", ints(&self.dims)), ("shape", ints(&self.shape))])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let t = operands[0];
        if self.dims.len() != t.rank() {
            return Err(IrError::attr(
                self.name(),
                "dims",
                format!("has {} entries for operand {t}", self.dims.len()),
            ));
        }
        expect_dims(self.name(), "dims", &self.dims, self.shape.len())?;
        for (i, &d) in self.dims.iter().enumerate() {
            if t.shape[i] != 1 && t.shape[i] != self.shape[d] {
                return Err(IrError::ty(
                    self.name(),
                    format!("dimension {i} of {t} does not fit dimension {d} of {:?}", self.shape),
                ));
            }
        }
        Ok(vec![t.with_shape(self.shape.iter().copied())])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        let st = strides(&x.shape);
        let mut step = vec![0isize; self.shape.len()];
        for (i, &d) in self.dims.iter().enumerate() {
            if x.shape[i] != 1 {
                step[d] = st[i] as isize;
            }
        }
        Ok(vec![Tensor::new(self.shape.iter().copied(), x.data.strided(0, &self.shape, &step))])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in results[0].shape.iter().enumerate() {
            let f = r.factor(n, FactorKind::Pass);
            r.on_result(0, d, f);
            if let Some(i) = self.dims.iter().position(|&x| x == d)
                && operands[0].shape[i] == n
            {
                r.on_operand(0, i, f);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        Ok(BroadcastInDim { shape: results[0].shape.clone(), dims: self.dims.clone() }.into())
    }
}
