//! `map`.

use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::EvalCx;
use crate::interp::lift::run_lifted;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// `map`: `T₁[…], …, Tₖ[…] → U[…]`, a graph of scalars on every element (StableHLO specification, "map"; it maps
/// over all dimensions, so they are no attribute here).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Map {
    /// `T₁[], …, Tₖ[] → U[]`.
    pub body: GraphId,
}

impl Map {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Map>> {
        if name != "map" {
            return Ok(None);
        }
        Ok(Some(Map { body: a.known_graph("body", module)? }))
    }
}

impl Operation for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        AttrMap::from([("body", AttrValue::Graph(module.graph(self.body).name.clone()))])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let Some(first) = operands.first() else { return Err(IrError::ty(self.name(), "has no operand")) };
        if let Some(t) = operands.iter().find(|t| t.shape != first.shape) {
            return Err(IrError::ty(self.name(), format!("{t} and {first} differ in shape")));
        }
        let scalars: Vec<TensorType> = operands.iter().map(|t| TensorType::scalar(t.dtype)).collect();
        let refs: Vec<&TensorType> = scalars.iter().collect();
        let out = super::call::signature(self.name(), self.body, &refs, module)?;
        match out.as_slice() {
            [one] if one.rank() == 0 => Ok(vec![first.with_dtype(one.dtype)]),
            _ => Err(IrError::ty(self.name(), format!("the body gives {out:?}, not one scalar"))),
        }
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let n = inputs[0].len();
        let flat: Vec<Tensor> = inputs.iter().map(|&t| t.clone().reshaped(&[n])).collect();
        let refs: Vec<&Tensor> = flat.iter().collect();
        let out = run_lifted(cx, self.body, &refs, n)?;
        Ok(out.into_iter().map(|t| t.reshaped(&results[0].shape)).collect())
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::elementwise(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.body]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.body]
    }
}
