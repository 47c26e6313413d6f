//! `optimization_barrier`.

use crate::attr::{AttrMap, AttrReader};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// `optimization_barrier`: the identity on every operand. Transparent to recognition; opaque to common
/// subexpressions, scheduling order and liveness, so that rematerialised values stay rematerialised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OptimizationBarrier;

impl OptimizationBarrier {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(
        name: &str,
        _: &mut AttrReader,
        _: &Module,
    ) -> Result<Option<OptimizationBarrier>> {
        Ok((name == "optimization_barrier").then_some(OptimizationBarrier))
    }
}

impl Operation for OptimizationBarrier {
    fn name(&self) -> &'static str {
        "optimization_barrier"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::new()
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        if operands.is_empty() {
            return Err(IrError::ty(self.name(), "has no operand"));
        }
        Ok(operands.iter().map(|&t| t.clone()).collect())
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        Ok(inputs.iter().map(|&t| t.clone()).collect())
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (i, t) in operands.iter().enumerate() {
            for (d, &n) in t.shape.iter().enumerate() {
                let f = r.factor(n, FactorKind::Pass);
                r.on_operand(i, d, f);
                r.on_result(i, d, f);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
