//! `constant`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::constant::ConstId;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// A constant of the module's store: `→ T[…]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConstantOp {
    /// Which constant.
    pub id: ConstId,
}

impl ConstantOp {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<ConstantOp>> {
        if name != "constant" {
            return Ok(None);
        }
        Ok(Some(ConstantOp { id: ConstId(a.constant("value")?) }))
    }
}

impl Operation for ConstantOp {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("value", AttrValue::Const(self.id.0))])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 0)?;
        let c = module
            .constants
            .try_get(self.id)
            .ok_or_else(|| IrError::attr(self.name(), "value", "names no constant of the module"))?;
        Ok(vec![c.ty.clone()])
    }

    fn eval(&self, _: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![cx.module().constants.get(self.id).tensor().converted(results[0].dtype)])
    }

    /// A splat's dimensions pass; those of other constants are whole (a shard is a slice of it).
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let splat = module.constants.splat_value(self.id).is_some();
        for (d, &n) in results[0].shape.iter().enumerate() {
            let f = r.factor(n, if splat { FactorKind::Pass } else { FactorKind::Whole });
            r.on_result(0, d, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut crate::graph::Graph,
        _: &[crate::graph::ValueId],
        results: &[TensorType],
        _: &crate::factor::Starts,
        loc: crate::location::LocId,
    ) -> Result<smallvec::SmallVec<[crate::graph::ValueId; 1]>> {
        let c = module.constants.get(self.id);
        let id = if c.ty == results[0] {
            self.id
        } else {
            let v = c.splat_value().ok_or_else(|| {
                IrError::unsupported(self.name(), "a constant of differing elements has no shard")
            })?;
            module.constants.intern_splat(results[0].clone(), v)
        };
        graph.add(module, ConstantOp { id }, &[], loc)
    }
}
