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

/// The numbers of AdamW, and in which order its scalars are applied: roundings differ.
///
/// `v' = b2·v + r2·g²`, and
/// - plain: `m' = r1·g + b1·m`, `p' = p + s·(m'/c / (√(v'/d) + eps) + decay·p)`: `c` and `d` correct the bias, `s` is
///   the negative learning rate;
/// - folded: `m' = m + r1·(g − m)`, `p' = keep·p + m' / (√v'/c + d)`: learning rate and corrections are in `c`, `d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AdamW {
    /// `b1` and `r1`; folded: `keep` and `r1`.
    pub first: (Scalar, Scalar),
    /// `b2` and `r2`.
    pub second: (Scalar, Scalar),
    /// `eps` and `decay`; `None` where folded.
    pub plain: Option<(Scalar, Scalar)>,
    /// `s` where it is a constant; otherwise it is an operand of the plain form.
    pub step: Option<Scalar>,
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
    /// One parameter's step of AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization"), of any shape:
    /// `p, g, m, v, c, d (, s) → p', m', v'` with scalars `c`, `d`, `s`; see [`AdamW`].
    AdamW(AdamW),
    /// A generated group of elementwise ops and reductions of rows; the definition says all.
    RowGroup,
}

impl FusedKind {
    /// Whether it computes row by row and across rows only, so that elementwise neighbours may join it.
    pub fn is_row_wise(&self) -> bool {
        use FusedKind::*;
        matches!(self, RmsNorm { .. } | RmsNormGrad { .. } | LayerNorm { .. } | LayerNormGrad { .. })
    }

    /// The op's name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            FusedKind::RmsNorm { .. } => "rms_norm",
            FusedKind::RmsNormGrad { .. } => "rms_norm_grad",
            FusedKind::LayerNorm { .. } => "layer_norm",
            FusedKind::LayerNormGrad { .. } => "layer_norm_grad",
            FusedKind::Activation { function, gated } => function.name(*gated, false),
            FusedKind::ActivationGrad { function, gated } => function.name(*gated, true),
            FusedKind::Attention(_) => "attention",
            FusedKind::AttentionGrad { .. } => "attention_grad",
            FusedKind::Rope { transposed: false, .. } => "rope",
            FusedKind::Rope { transposed: true, .. } => "rope_grad",
            FusedKind::Softmax => "softmax",
            FusedKind::SoftmaxGrad => "softmax_grad",
            FusedKind::AdamW(_) => "adamw",
            FusedKind::RowGroup => "row_group",
        }
    }
}

impl AdamW {
    fn attrs(&self, m: &mut AttrMap) {
        let mut put = |name, s: Scalar| m.insert(name, AttrValue::Float(s.get().to_bits()));
        put("r1", self.first.1);
        put("b2", self.second.0);
        put("r2", self.second.1);
        match self.plain {
            None => put("keep", self.first.0),
            Some((eps, decay)) => {
                put("b1", self.first.0);
                put("eps", eps);
                put("decay", decay)
            }
        };
        if let Some(s) = self.step {
            put("step", s);
        }
        m.insert("folded", AttrValue::Bool(self.plain.is_none()));
        m.insert("fixed", AttrValue::Bool(self.step.is_some()));
    }

    fn read(a: &mut AttrReader) -> Result<AdamW> {
        let (folded, fixed) = (a.bool("folded")?, a.bool("fixed")?);
        let mut take = |name| Ok(Scalar::new(a.float(name)?));
        let plain = if folded { None } else { Some((take("eps")?, take("decay")?)) };
        Ok(AdamW {
            first: (take(if folded { "keep" } else { "b1" })?, take("r1")?),
            second: (take("b2")?, take("r2")?),
            plain,
            step: if fixed { Some(take("step")?) } else { None },
        })
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
            "adamw" => FusedKind::AdamW(AdamW::read(a)?),
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
            FusedKind::AdamW(adamw) => adamw.attrs(&mut m),
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
