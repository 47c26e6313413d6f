//! `scatter` by a graph: several inputs at once, or an update computation that is no monoid.

use super::reducer::expect_reducer;
use super::scatter::Scatter;
use super::window::rounds;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::interp::lift::run_lifted;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// `scatter`: `T₁[…], …, Tₖ[…], i[…], T₁[updates], …, Tₖ[updates] → T₁[…], …, Tₖ[…]` (StableHLO specification,
/// "scatter"). Updates of one element are combined in their row-major order.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ScatterBy {
    /// The dimension numbers; its `combine` is not used.
    pub numbers: Scatter,
    /// `k` scalars that stand there, then `k` updates, to `k` scalars.
    pub body: GraphId,
}

impl ScatterBy {
    /// Reads the op if `name` is of this family: a `scatter` with a `body`.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<ScatterBy>> {
        if name != "scatter" || !a.has("body") {
            return Ok(None);
        }
        let body = a.known_graph("body", module)?;
        Ok(Some(ScatterBy { numbers: Scatter::read_numbers(a)?, body }))
    }
}

impl Operation for ScatterBy {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let mut m = self.numbers.attrs(module);
        m.remove("combine");
        m.insert("body", AttrValue::Graph(module.graph(self.body).name.clone()));
        m
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        if operands.len() < 3 || operands.len().is_multiple_of(2) {
            return Err(IrError::ty(self.name(), "takes inputs, indices and as many updates"));
        }
        let k = operands.len() / 2;
        let (inputs, updates) = (&operands[..k], &operands[k + 1..]);
        for (x, u) in inputs.iter().zip(updates) {
            self.numbers.infer(&[x, operands[k], u], module)?;
            if x.shape != inputs[0].shape || u.shape != updates[0].shape {
                return Err(IrError::ty(self.name(), format!("{x} and {} differ in shape", inputs[0])));
            }
        }
        let elements: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        expect_reducer(self.name(), self.body, &elements, module)?;
        Ok(inputs.iter().map(|&t| t.clone()).collect())
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let k = results.len();
        let (xs, updates) = (&inputs[..k], &inputs[k + 1..]);
        let hits = self.numbers.hits(&xs[0].shape, inputs[k], &updates[0].shape);
        let mut out: Vec<Storage> = xs.iter().map(|t| t.data.clone()).collect();
        for round in rounds(&hits) {
            let n = round.len();
            let there = out.iter().map(|s| s.pick(round.iter().map(|p| p.0)));
            let new = updates.iter().map(|t| t.data.pick(round.iter().map(|p| p.1)));
            let args: Vec<Tensor> = there.chain(new).map(|s| Tensor::new([n], s)).collect();
            let refs: Vec<&Tensor> = args.iter().collect();
            for (s, t) in out.iter_mut().zip(run_lifted(cx, self.body, &refs, n)?) {
                s.put(round.iter().map(|p| p.0), &t.data)?;
            }
        }
        Ok(xs.iter().zip(out).map(|(t, data)| Tensor { shape: t.shape.clone(), data }).collect())
    }

    /// That of an overwriting scatter, for every input alike, without splitting the table.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
        let k = results.len();
        let one =
            self.numbers.factor_rule(&[operands[0], operands[k], operands[k + 1]], &results[..1], module);
        let mut rule = FactorRule::empty(operands, results);
        rule.factors = one.factors;
        for f in &mut rule.factors {
            if f.kind != FactorKind::Pass {
                f.kind = FactorKind::Whole;
            }
        }
        for i in 0..k {
            rule.operands[i] = one.operands[0].clone();
            rule.operands[k + 1 + i] = one.operands[2].clone();
            rule.results[i] = one.results[0].clone();
        }
        rule.operands[k] = one.operands[1].clone();
        rule
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
