//! `constant`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::constant::{ConstData, ConstId};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::EvalCx;
use crate::location::LocId;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::ops::slice::Slice;
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::SmallVec;

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

/// Adds a tensor of one value to a graph.
///
/// # Errors
/// As [`Graph::add`].
pub fn splat(
    module: &mut Module,
    graph: &mut Graph,
    ty: TensorType,
    value: f64,
    loc: LocId,
) -> Result<ValueId> {
    let id = module.constants.intern_splat(ty, value);
    graph.add1(module, ConstantOp { id }, &[], loc)
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

    /// A splat's dimensions pass; a shard of another constant is the slice of it where the shard starts.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let splat = module.constants.splat_value(self.id).is_some();
        for (d, &n) in results[0].shape.iter().enumerate() {
            let f = r.factor(n, if splat { FactorKind::Pass } else { FactorKind::Offset });
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
        graph: &mut Graph,
        _: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let c = module.constants.get(self.id);
        if c.ty == results[0] {
            return graph.add(module, *self, &[], loc);
        }
        if let ConstData::Splat(e) = &c.data {
            let e = e.clone();
            let id = module.constants.intern_splat_bytes(results[0].clone(), &e);
            return graph.add(module, ConstantOp { id }, &[], loc);
        }
        let global = c.ty.clone();
        let mut operands = vec![graph.add1(module, *self, &[], loc)?];
        for d in 0..global.rank() {
            // Factor `d` is dimension `d`.
            operands.push(match starts.get(&d) {
                Some(s) => s.value,
                None if global.shape[d] == results[0].shape[d] => {
                    splat(module, graph, TensorType::scalar(Slice::START), 0.0, loc)?
                }
                None => {
                    return Err(IrError::unsupported(
                        self.name(),
                        format!("a constant of differing elements of type {global} at {}", results[0]),
                    ));
                }
            });
        }
        graph.add(module, Slice::Dynamic { sizes: results[0].shape.clone() }, &operands, loc)
    }
}
