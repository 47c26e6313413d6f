//! `reduce` by a graph: several operands at once (argmax), or a reducer that is no monoid.

use super::expect_dims;
use super::reducer::Reducer;
use crate::attr::{AttrMap, AttrReader, AttrValue, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::{IndexSpace, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::{SmallVec, smallvec};

/// `reduce`: `T₁[…], …, Tₖ[…], T₁[], …, Tₖ[] → T₁[…], …, Tₖ[…]` without `dims`; the last `k` operands are the initial
/// values (StableHLO specification, "reduce"). Elements are taken in row-major order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReduceBy {
    /// Reduced dimensions, ascending.
    pub dims: Shape,
    /// `k` accumulated scalars, then `k` new ones, to `k` scalars.
    pub body: GraphId,
}

impl ReduceBy {
    /// Reads the op if `name` is of this family: a `reduce` with a `body`.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<ReduceBy>> {
        if name != "reduce" || !a.has("body") {
            return Ok(None);
        }
        Ok(Some(ReduceBy { dims: a.indices("dims")?, body: a.known_graph("body", module)? }))
    }
}

impl Operation for ReduceBy {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let body = AttrValue::Graph(module.graph(self.body).name.clone());
        AttrMap::from([("dims", ints(&self.dims)), ("body", body)])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let (inputs, _) = Reducer::Graph(self.body).operands(self.name(), operands, module)?;
        expect_dims(self.name(), "dims", &self.dims, inputs[0].rank())?;
        if !self.dims.is_sorted() {
            return Err(IrError::attr(self.name(), "dims", "should be ascending"));
        }
        let kept: Vec<usize> = (0..inputs[0].rank()).filter(|d| !self.dims.contains(d)).collect();
        Ok(inputs.iter().map(|t| t.with_shape(kept.iter().map(|&d| t.shape[d]))).collect())
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (inputs, inits) = inputs.split_at(inputs.len() / 2);
        let (full, shape) = (&inputs[0].shape, &results[0].shape);
        let st = strides(full);
        let kept: Shape = (0..full.len()).filter(|d| !self.dims.contains(d)).collect();
        let base: Vec<usize> =
            IndexSpace::new(shape).map(|ix| ix.iter().zip(&kept).map(|(i, &d)| i * st[d]).sum()).collect();
        let inner: Shape = self.dims.iter().map(|&d| full[d]).collect();
        let reducer = Reducer::Graph(self.body);
        let mut acc = reducer.start(inits, results[0].dtype, base.len());
        for ix in IndexSpace::new(&inner) {
            let o: usize = ix.iter().zip(&self.dims).map(|(i, &d)| i * st[d]).sum();
            let new = inputs.iter().map(|t| t.data.pick(base.iter().map(|b| b + o))).collect();
            acc = reducer.fold(cx, acc, new)?;
        }
        Ok(acc.into_iter().map(|s| Tensor::new(shape.iter().copied(), s)).collect())
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let mut out = 0;
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let reduced = self.dims.contains(&d);
            let f = r.factor(n, if reduced { FactorKind::Whole } else { FactorKind::Pass });
            for i in 0..results.len() {
                r.on_operand(i, d, f);
                if !reduced {
                    r.on_result(i, out, f);
                }
            }
            out += usize::from(!reduced);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.body]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.body]
    }
}
