//! `reshard`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader};
use crate::error::Result;
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// `reshard`: the identity. The layouts of its operand and of its result over the mesh have nothing to do with each
/// other; the partitioner puts one where a layout may change, and makes of it what the change needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reshard;

impl Reshard {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, _: &mut AttrReader, _: &Module) -> Result<Option<Reshard>> {
        Ok((name == "reshard").then_some(Reshard))
    }
}

impl Operation for Reshard {
    fn name(&self) -> &'static str {
        "reshard"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::new()
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        Ok(vec![operands[0].clone()])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    /// No factor: nothing ties the result's dimensions to the operand's.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::empty(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
