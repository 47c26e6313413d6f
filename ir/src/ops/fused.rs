//! Fused operations: a name and a definition.
//!
//! A fused op computes exactly what its definition, a graph of plain ops, computes. The interpreter runs the
//! definition, so every rewrite into a fused op can be checked; kernels are built from the definition too, the
//! kind only says which kernel family and which library op may stand for it.

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

/// A finite f64 that can be compared and hashed, by its bits.
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

/// What a fused op is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FusedKind {
    /// Root-mean-square norm over the last dimension `D`:
    /// `x[…,D], γ[D] → y[…,D], rstd[…]` with `rstd = (Σx²/D + eps)^-½`, `y = γ·(x·rstd)`
    /// (Zhang & Sennrich, "Root Mean Square Layer Normalization").
    RmsNorm {
        /// Added to the mean square.
        eps: Scalar,
        /// Narrow floats: whether the scaled result is rounded, rather than `x·rstd` before it is scaled.
        late: bool,
    },
    /// Its gradient, with the residual stream's gradient added where `residual`:
    /// `dy[…,D], x[…,D], γ[D], rstd[…] (, r[…,D]) → dx[…,D], dγ[D]`,
    /// `dx = (r +) rstd·g − x·rstd³·Σ(g·x)/D` with `g = γ·dy`, `dγ = Σ dy·x·rstd`.
    RmsNormGrad {
        /// Whether the residual gradient is an operand.
        residual: bool,
        /// As in the norm.
        late: bool,
        /// Narrow floats: whether `rstd·g` and the rest of dx are rounded one by one.
        split: bool,
    },
    /// Layer norm over the last dimension `D`:
    /// `x[…,D] (, γ[D]) (, β[D]) → y[…,D], rstd[…]` with `μ = Σx/D`, `rstd = (Σ(x−μ)²/D + eps)^-½`,
    /// `y = γ·(x−μ)·rstd + β` (Ba, Kiros & Hinton, "Layer Normalization").
    LayerNorm {
        /// Added to the variance.
        eps: Scalar,
        /// Whether γ is an operand.
        scale: bool,
        /// Whether β is an operand.
        shift: bool,
    },
    /// Its gradient, with the residual stream's gradient added where `residual`:
    /// `dy[…,D], x[…,D] (, γ[D]), rstd[…] (, r[…,D]) → dx[…,D] (, dγ[D]) (, dβ[D])`, with `g = γ·dy` and
    /// `x̂ = (x−μ)·rstd`: `dx = (r +) rstd·(g − Σg/D − x̂·Σ(g·x̂)/D)`, `dγ = Σ dy·x̂`, `dβ = Σ dy`.
    LayerNormGrad {
        /// Whether the residual gradient is an operand.
        residual: bool,
        /// Whether γ is an operand and dγ a result.
        scale: bool,
        /// Whether dβ is a result.
        shift: bool,
        /// Narrow floats: whether `rstd·g` and the rest of dx are rounded one by one.
        split: bool,
    },
    /// A generated group of elementwise ops and reductions of rows; the definition says all.
    RowGroup,
}

impl FusedKind {
    /// Whether it computes row by row and across rows only, so that elementwise neighbours may join it.
    pub fn is_row_wise(&self) -> bool {
        match self {
            FusedKind::RmsNorm { .. }
            | FusedKind::RmsNormGrad { .. }
            | FusedKind::LayerNorm { .. }
            | FusedKind::LayerNormGrad { .. } => true,
            FusedKind::RowGroup => false,
        }
    }

    /// The op's name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            FusedKind::RmsNorm { .. } => "rms_norm",
            FusedKind::RmsNormGrad { .. } => "rms_norm_grad",
            FusedKind::LayerNorm { .. } => "layer_norm",
            FusedKind::LayerNormGrad { .. } => "layer_norm_grad",
            FusedKind::RowGroup => "row_group",
        }
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
        let kind = match name {
            "rms_norm" => FusedKind::RmsNorm { eps: Scalar::new(a.float("eps")?), late: flag(a, "late")? },
            "rms_norm_grad" => FusedKind::RmsNormGrad {
                residual: a.bool("residual")?,
                late: flag(a, "late")?,
                split: flag(a, "split")?,
            },
            "layer_norm" => FusedKind::LayerNorm {
                eps: Scalar::new(a.float("eps")?),
                scale: a.bool("scale")?,
                shift: a.bool("shift")?,
            },
            "layer_norm_grad" => FusedKind::LayerNormGrad {
                residual: a.bool("residual")?,
                scale: a.bool("scale")?,
                shift: a.bool("shift")?,
                split: flag(a, "split")?,
            },
            "row_group" => FusedKind::RowGroup,
            _ => return Ok(None),
        };
        let g = a.graph("definition")?;
        let definition = module.graph_by_name(&g).ok_or_else(|| {
            IrError::attr(name, "definition", format!("there is no graph @{g} before this one"))
        })?;
        Ok(Some(Fused { kind, definition }))
    }
}

/// A flag that is written only where it is set.
fn flag(a: &mut AttrReader, name: &str) -> Result<bool> {
    if a.has(name) { a.bool(name) } else { Ok(false) }
}

fn set(m: &mut AttrMap, flags: &[(&'static str, bool)]) {
    m.extend(flags.iter().filter(|f| f.1).map(|&(name, on)| (name, AttrValue::Bool(on))));
}

impl Operation for Fused {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let mut m =
            AttrMap::from([("definition", AttrValue::Graph(module.graph(self.definition).name.clone()))]);
        match &self.kind {
            FusedKind::RmsNorm { eps, late } => {
                m.insert("eps", AttrValue::Float(eps.get().to_bits()));
                set(&mut m, &[("late", *late)]);
            }
            FusedKind::RmsNormGrad { residual, late, split } => {
                m.insert("residual", AttrValue::Bool(*residual));
                set(&mut m, &[("late", *late), ("split", *split)]);
            }
            FusedKind::LayerNorm { eps, scale, shift } => {
                m.insert("eps", AttrValue::Float(eps.get().to_bits()));
                m.insert("scale", AttrValue::Bool(*scale));
                m.insert("shift", AttrValue::Bool(*shift));
            }
            FusedKind::LayerNormGrad { residual, scale, shift, split } => {
                let flags = [("residual", residual), ("scale", scale), ("shift", shift)];
                m.extend(flags.map(|(name, &on)| (name, AttrValue::Bool(on))));
                set(&mut m, &[("split", *split)]);
            }
            FusedKind::RowGroup => {}
        }
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
