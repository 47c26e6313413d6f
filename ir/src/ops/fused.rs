//! Fused operations: a name and a definition.
//!
//! A fused op computes exactly what its definition, a graph of plain ops, computes. The interpreter runs the
//! definition, so every rewrite into a fused op can be checked; kernels are built from the definition too, the
//! kind only says which kernel family and which library op may stand for it.

use super::attention::AttentionForm;
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
    /// Scaled dot-product attention of `H` query heads over `K` heads of keys and values, `H` a multiple of `K`
    /// (Vaswani et al., "Attention Is All You Need"; Ainslie et al., "GQA"):
    /// `q[B,H,S,h], k[B,K,T,h], v[B,K,T,w] (, operands of the form) → o[B,H,S,w], m[B,H,S], l[B,H,S]`
    /// with scores `s = form(q·kᵀ)`, `m = max s`, `l = Σ exp(s − m)` and `o = (exp(s − m)/l)·v`.
    Attention(AttentionForm),
    /// Its gradient: `q, k, v (, operands of the form), dy[B,H,S,w], m, l (, o) → dq, dk, dv`. With `p = exp(s − m)/l`
    /// and `dp = dy·vᵀ`: `ds = p∘(dp − δ)`, where δ is `Σ dy∘o` over `w` with `output`, otherwise `Σ p∘dp` over keys
    /// (Dao, "FlashAttention-2").
    AttentionGrad {
        /// The attention's form.
        form: AttentionForm,
        /// Whether `o` is an operand.
        output: bool,
    },
    /// Rotary position embedding of the first `rotated` elements of the last dimension
    /// (Su et al., "RoFormer"): `x[…,h], cos[…|1,t], sin[…|1,t] → y[…,h]`, tables of the rank of `x` with `t` either
    /// `rotated` or half of it. Element `i` is paired with `i + rotated/2`, or `2i` with `2i + 1` where `interleaved`;
    /// `y = x∘cos + rot(x)∘sin` with `rot(a, b) = (−b, a)` on pairs, and its transpose `y = x∘cos − rot(x∘sin)`, the
    /// gradient.
    Rope {
        /// Neighbours are pairs.
        interleaved: bool,
        /// The gradient.
        transposed: bool,
        /// Elements that are rotated.
        rotated: usize,
    },
    /// Softmax over the last dimension: `x[…,D] → y[…,D]`, `y = e/Σe` with `e = exp(x − max x)`.
    Softmax,
    /// Its gradient: `dy[…,D], y[…,D] → dx[…,D]`, `dx = y∘(dy − Σ dy∘y)`.
    SoftmaxGrad,
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
            FusedKind::Attention(_) => "attention",
            FusedKind::AttentionGrad { .. } => "attention_grad",
            FusedKind::Rope { transposed: false, .. } => "rope",
            FusedKind::Rope { transposed: true, .. } => "rope_grad",
            FusedKind::Softmax => "softmax",
            FusedKind::SoftmaxGrad => "softmax_grad",
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

fn form(a: &mut AttrReader) -> Result<AttentionForm> {
    let text = a.text("scores")?;
    AttentionForm::parse(&text)
        .ok_or_else(|| IrError::attr(a.op(), "scores", format!("`{text}` names no steps of an attention")))
}

impl Fused {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Fused>> {
        let kind = match name {
            "rms_norm" => FusedKind::RmsNorm { eps: Scalar::new(a.float("eps")?) },
            "rms_norm_grad" => FusedKind::RmsNormGrad { residual: a.bool("residual")? },
            "attention" => FusedKind::Attention(form(a)?),
            "attention_grad" => FusedKind::AttentionGrad { form: form(a)?, output: a.bool("output")? },
            "rope" | "rope_grad" => FusedKind::Rope {
                interleaved: a.bool("interleaved")?,
                transposed: name == "rope_grad",
                rotated: a.index("rotated")?,
            },
            "softmax" => FusedKind::Softmax,
            "softmax_grad" => FusedKind::SoftmaxGrad,
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
            FusedKind::Attention(form) => {
                m.insert("scores", AttrValue::Text(form.to_string()));
            }
            FusedKind::AttentionGrad { form, output } => {
                m.insert("scores", AttrValue::Text(form.to_string()));
                m.insert("output", AttrValue::Bool(*output));
            }
            FusedKind::Rope { interleaved, rotated, .. } => {
                m.insert("interleaved", AttrValue::Bool(*interleaved));
                m.insert("rotated", AttrValue::Int(*rotated as i64));
            }
            FusedKind::Softmax | FusedKind::SoftmaxGrad | FusedKind::RowGroup => {}
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
