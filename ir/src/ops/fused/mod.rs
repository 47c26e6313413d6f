//! Fused operations: a name and a definition.
//!
//! A fused op computes exactly what its definition, a graph of plain ops, computes. The interpreter runs the
//! definition, so every rewrite into a fused op can be checked; kernels are built from the definition too, the
//! kind only says which kernel family and which library op may stand for it.

mod activation;
mod clip;
mod kind;
mod lookup;
mod number;
mod optimizer;
mod route;
mod text;

pub use activation::{Activation, AtBound, Bounds, Gate, has_bound};
pub use clip::{Clip, ClipForm};
pub use kind::FusedKind;
pub use lookup::{Normalizer, Outside, Smoothing, Weighting};
pub use number::Number;
pub use optimizer::{AdamW, Clipping, Lion, PlainAdamW, Sgd};
pub use route::{Load, Route, Slots};

use super::call::signature;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::factor::solve::graph_rule;
use crate::interp::{EvalCx, RanksCx, Row};
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// An f64 that can be compared and hashed, by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scalar(u64);

impl Scalar {
    /// Wraps a number.
    pub fn new(x: f64) -> Scalar {
        Scalar(x.to_bits())
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// A fused op: operands and results are those of its definition.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fused {
    /// What it is.
    pub kind: FusedKind,
    /// The graph of plain ops that it computes.
    pub definition: GraphId,
}

impl Fused {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Fused>> {
        let Some(kind) = FusedKind::read(name, a)? else { return Ok(None) };
        let g = a.graph("definition")?;
        let definition = module.graph_by_name(&g).ok_or_else(|| {
            IrError::attr(name, "definition", format!("there is no graph @{g} before this one"))
        })?;
        Ok(Some(Fused { kind, definition }))
    }
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let mut m =
            AttrMap::from([("definition", AttrValue::Graph(module.graph(self.definition).name.clone()))]);
        self.kind.attrs(&mut m);
        m
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        signature(self.name(), self.definition, operands, module)
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.run(self.definition, inputs)
    }

    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        cx.run(self.definition, inputs)
    }

    /// The definition's rule, solved over its ops.
    fn factor_rule(&self, _: &[&TensorType], _: &[TensorType], module: &Module) -> FactorRule {
        graph_rule(module, module.graph(self.definition))
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.definition]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.definition]
    }

    /// The same kind with a definition at the local sizes.
    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut crate::graph::Graph,
        operands: &[crate::graph::ValueId],
        results: &[TensorType],
        starts: &crate::factor::Starts,
        loc: crate::location::LocId,
    ) -> Result<SmallVec<[crate::graph::ValueId; 1]>> {
        let types: Vec<TensorType> = operands.iter().map(|&v| graph.ty(v).clone()).collect();
        let source = module.graph(self.definition).clone();
        let definition = if source.param_types() == types {
            self.definition
        } else {
            let local = crate::factor::resize::shard_graph(module, &source, &types, results, starts)?;
            match &self.kind {
                // Generated groups are told apart by their definitions.
                FusedKind::RowGroup => module.add_graph(local),
                kind => module.define(kind.clone(), local),
            }
        };
        graph.add(module, Fused { kind: self.kind.clone(), definition }, operands, loc)
    }
}
