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

/// An activation function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Activation {
    /// `x·σ(x)` (Elfwing et al., "Sigmoid-Weighted Linear Units"); gated: SwiGLU.
    Silu,
    /// `½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))` (Hendrycks & Gimpel, "Gaussian Error Linear Units"); gated: GeGLU.
    GeluTanh,
    /// `½x·(1 + erf(x/√2))`; gated: GeGLU.
    GeluErf,
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
    },
    /// Its gradient, with the residual stream's gradient added where `residual`:
    /// `dy[…,D], x[…,D], γ[D], rstd[…] (, r[…,D]) → dx[…,D], dγ[D]`,
    /// `dx = (r +) rstd·g − x·rstd³·Σ(g·x)/D` with `g = γ·dy`, `dγ = Σ dy·x·rstd`.
    RmsNormGrad {
        /// Whether the residual gradient is an operand.
        residual: bool,
    },
    /// An activation `a`, of any shape: `x → y` with `y = a(x)`, or gated: `gate, up → h` with `h = a(gate)·up`
    /// (Shazeer, "GLU Variants Improve Transformer").
    Activation {
        /// Which function.
        function: Activation,
        /// Whether it gates a second operand.
        gated: bool,
    },
    /// Its gradient: `dy, x → dx` with `dx = dy·a'(x)`, or gated: `dh, gate, up → dgate, dup` with
    /// `dgate = dh·up·a'(gate)`, `dup = dh·a(gate)`.
    ActivationGrad {
        /// Which function.
        function: Activation,
        /// Whether it gates a second operand.
        gated: bool,
    },
    /// A generated group of elementwise ops and reductions of rows; the definition says all.
    RowGroup,
}

impl FusedKind {
    /// The op's name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            FusedKind::RmsNorm { .. } => "rms_norm",
            FusedKind::RmsNormGrad { .. } => "rms_norm_grad",
            FusedKind::Activation { function, gated } => function.name(*gated, false),
            FusedKind::ActivationGrad { function, gated } => function.name(*gated, true),
            FusedKind::RowGroup => "row_group",
        }
    }
}

impl Activation {
    /// The name of an op of this function.
    fn name(self, gated: bool, gradient: bool) -> &'static str {
        match (self == Activation::Silu, gated, gradient) {
            (true, false, false) => "silu",
            (true, false, true) => "silu_grad",
            (true, true, false) => "swiglu",
            (true, true, true) => "swiglu_grad",
            (false, false, false) => "gelu",
            (false, false, true) => "gelu_grad",
            (false, true, false) => "geglu",
            (false, true, true) => "geglu_grad",
        }
    }

    /// Reads an op of this family.
    fn kind(name: &str, a: &mut AttrReader) -> Result<Option<FusedKind>> {
        let (gated, gradient) = match name {
            "silu" | "gelu" => (false, false),
            "silu_grad" | "gelu_grad" => (false, true),
            "swiglu" | "geglu" => (true, false),
            "swiglu_grad" | "geglu_grad" => (true, true),
            _ => return Ok(None),
        };
        let function = match name.starts_with('s') {
            true => Activation::Silu,
            false if a.bool("tanh")? => Activation::GeluTanh,
            false => Activation::GeluErf,
        };
        Ok(Some(if gradient {
            FusedKind::ActivationGrad { function, gated }
        } else {
            FusedKind::Activation { function, gated }
        }))
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
            "rms_norm" => FusedKind::RmsNorm { eps: Scalar::new(a.float("eps")?) },
            "rms_norm_grad" => FusedKind::RmsNormGrad { residual: a.bool("residual")? },
            "row_group" => FusedKind::RowGroup,
            name => match Activation::kind(name, a)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
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
        match &self.kind {
            FusedKind::RmsNorm { eps } => {
                m.insert("eps", AttrValue::Float(eps.get().to_bits()));
            }
            FusedKind::RmsNormGrad { residual } => {
                m.insert("residual", AttrValue::Bool(*residual));
            }
            FusedKind::Activation { function, .. } | FusedKind::ActivationGrad { function, .. } => {
                if *function != Activation::Silu {
                    m.insert("tanh", AttrValue::Bool(*function == Activation::GeluTanh));
                }
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
