//! What a fused op is: the named operations, with their operands and results.

use super::{
    Activation, AdamW, AtBound, Clip, Gate, Lion, Load, Normalizer, Number, Outside, Route, Scalar, Sgd,
    Slots, Smoothing, Weighting,
};
use crate::ops::attention::AttentionForm;

/// What a fused op is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FusedKind {
    /// Root-mean-square norm over the last dimension `D`:
    /// `x[…,D] (, γ[D]) (, eps[]) → y[…,D], rstd[…]` with `rstd = (Σx²/D + eps)^-½`, `y = γ·(x·rstd)`
    /// (Zhang & Sennrich, "Root Mean Square Layer Normalization").
    RmsNorm {
        /// Added to the mean square.
        eps: Number,
        /// Whether γ is an operand.
        scale: bool,
        /// Narrow floats: whether the scaled result is rounded, rather than `x·rstd` before it is scaled.
        late: bool,
        /// Whether a residual is added first, and the sum is a result.
        residual: bool,
    },
    /// Its gradient, with the residual stream's gradient added where `residual`:
    /// `dy[…,D], x[…,D] (, γ[D]), rstd[…] (, r[…,D]) (, k[]) → dx[…,D] (, dγ[D])`,
    /// `dx = (r +) rstd·g + k·x·rstd³·Σ(g·x)` with `g = γ·dy`, `dγ = Σ dy·x·rstd`, and `k = −1/D` unless it is an operand.
    RmsNormGrad {
        /// Whether the residual gradient is an operand.
        residual: bool,
        /// Whether γ is an operand and dγ a result.
        scale: bool,
        /// As in the norm.
        late: bool,
        /// Narrow floats: whether `rstd·g` and the rest of dx are rounded one by one.
        split: bool,
        /// Whether `k` is an operand.
        factor: bool,
    },
    /// Layer norm over the last dimension `D`:
    /// `x[…,D] (, γ[D]) (, β[D]) (, eps[]) → y[…,D], rstd[…]` with `μ = Σx/D`, `rstd = (Σ(x−μ)²/D + eps)^-½`,
    /// `y = γ·(x−μ)·rstd + β` (Ba, Kiros & Hinton, "Layer Normalization"). Where `residual`, the rows are a sum, as in
    /// [`FusedKind::RmsNorm`]: `x[…,D] (, γ[D]) (, β[D]), r[…,D] (, eps[]) → y[…,D], rstd[…], h[…,D]`.
    LayerNorm {
        /// Added to the variance.
        eps: Number,
        /// Whether γ is an operand.
        scale: bool,
        /// Whether β is an operand.
        shift: bool,
        /// Whether a residual is added first, and the sum is a result.
        residual: bool,
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
    /// An activation `a`, of any shape: `x → y` with `y = a(x)`, or gated: `gate, up → h` with `h = a(gate)·up`, or
    /// `a(gate)·(up + bias)`, of operands within bounds (Shazeer, "GLU Variants Improve Transformer"; see [`Gate`]).
    Activation {
        /// Which function.
        function: Activation,
        /// How it gates a second operand.
        gate: Option<Gate>,
    },
    /// Its gradient: `dy, x → dx` with `dx = dy·a'(x)`, or gated: `dh, gate, up → dgate, dup` with
    /// `dgate = dh·(up + bias)·a'(gate)`, `dup = dh·a(gate)`, of operands within bounds; an operand out of bounds has none.
    ActivationGrad {
        /// Which function.
        function: Activation,
        /// How it gates a second operand.
        gate: Option<Gate>,
        /// What passes at a bound, where there is one.
        at_bound: Option<AtBound>,
    },
    /// Scaled dot-product attention of `H` query heads over `K` heads of keys and values, `H` a multiple of `K`
    /// (Vaswani et al., "Attention Is All You Need"; Ainslie et al., "GQA"):
    /// `q[B,H,S,h], k[B,K,T,h], v[B,K,T,w] (, operands of the form) → o[B,H,S,w], m[B,H,S], l[B,H,S]`
    /// with scores `s = form(q·kᵀ)`, `m = max s`, `l = Σ exp(s − m)` and `o = (exp(s − m)/l)·v`; a sink is one more score in
    /// `m` and `l`. Where the form's layout says so, q, k, v, o and their gradients have positions before heads, `[B,S,H,h]`.
    Attention(AttentionForm),
    /// Its gradient: `q, k, v (, operands of the form), dy[B,H,S,w], m, l (, o) → dq, dk, dv (, dsink)`. With `p = exp(s − m)/l`
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
    /// gradient. Tables may be wider floats than `x` and `y`.
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
    /// Rows of a table by index: `table[V,H], ids[…] → y[…,H]`, `y = table[ids]`.
    Embedding {
        /// What an index outside the table gives: NaN, zeros, or the nearest row.
        outside: Outside,
    },
    /// Its gradient: `dy[…,H], ids[…] → dtable[V,H]`, each row of `dy` added to the row that `ids` names. Rows whose
    /// index lies outside the table are dropped.
    EmbeddingGrad {
        /// Rows of the table, `V`.
        rows: usize,
    },
    /// Cross-entropy of each row's softmax against one label: `x[…,V], labels[…] → loss[…], lse[…] (, rest[…])` with
    /// `lse = log Σ exp x` and `loss = lse − x[label]`, computed in f32 where `x` is narrower; smoothed, with
    /// `rest = V·lse − Σx`, see [`Smoothing`].
    CrossEntropy {
        /// What a label outside `0..V` gives.
        outside: Outside,
        /// What is counted beside the label.
        smoothing: Smoothing,
    },
    /// Its gradient: `x[…,V], labels[…] (, w[…]) (, s[…]) (, u[…]), lse[…] → dx[…,V]` with `p = exp(x − lse)` and
    /// `dx = w·(p − onehot(label))`, `w·(s·p − onehot(label))` or `s·p − w·onehot(label)`. Means, masks and weights of
    /// the loss are in `w`. Smoothed, `dx = w·(label·(p − onehot(label)) + each·(V·p − 1))`, or
    /// `w·(p − onehot(label)) + u·(V·p − 1)` where `rest` has the weight `u`.
    CrossEntropyGrad {
        /// What a label outside `0..V` gives.
        outside: Outside,
        /// Whether `w` is an operand, and multiplies or divides.
        weight: Weighting,
        /// Whether `s` is an operand, and what for.
        normalizer: Normalizer,
        /// What is counted beside the label.
        smoothing: Smoothing,
    },
    /// One parameter's step of AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization"), of any shape:
    /// `p, h, m, v, c, d (, numbers) → p', m', v'` with scalars `c`, `d`; see [`AdamW`].
    AdamW(AdamW),
    /// One parameter's step of gradient descent, of any shape: `p, g (, t) (, s) → p' (, t')` with the momentum `t`
    /// (Polyak, "Some methods of speeding up the convergence of iteration methods"; Nesterov, "A method of solving a
    /// convex programming problem with convergence rate O(1/k²)") and a scalar `s`; see [`Sgd`].
    Sgd(Sgd),
    /// One parameter's step of Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms"), of any shape:
    /// `p, g, m (, s) → p', m'` with a scalar `s`; see [`Lion`].
    Lion(Lion),
    /// Dropout with a mask of random bits, of any shape (Srivastava et al., "Dropout"): `x, mask → y` with `y = x·scale`,
    /// or `x/scale` where `divides`, where the i1 mask is true, and 0 elsewhere. Its gradient is the same of `dy`.
    Dropout {
        /// What is kept is multiplied or divided by this.
        scale: Scalar,
        /// Whether it is divided.
        divides: bool,
    },
    /// The choice of `k` of `E` experts for each token (Shazeer et al., "Outrageously Large Neural Networks"):
    /// `x[…,E] (, s[…,E]) → w[…,k], i[…,k]`, `i` the places of the largest scores in descending order, as i32, and `w` those
    /// scores, or what `s` is there, or their shares of their sum; see [`Route`].
    MoeRoute(Route),
    /// Its gradient: `dw[…,k], x[…,E], w, i → dx[…,E]`, `x` what weights are taken from. Only what was chosen has one: `dw`,
    /// or `(dw − Σ dw·w)/Σ v` with the chosen scores `v`.
    MoeRouteGrad(Route),
    /// What a choice loads experts with: `p[G…,…,E] (, i[G…,…,k]) → f[G…,E], q[G…,E]` with leading `groups` dimensions, `f`
    /// how often each expert is in `i`, or among the `chosen` largest of each row of `p`, and `q = Σ p` over rows.
    MoeLoad(Load),
    /// The auxiliary loss that balances experts (Shazeer et al.; Fedus et al., "Switch Transformers"):
    /// `f[…,E], q[…,E] → loss[]` with `loss = scale·Σ f∘q`. Means over tokens and the loss's weight are in `scale`.
    MoeBalance {
        /// What the sum is multiplied by.
        scale: Scalar,
    },
    /// Its gradient: `(d[],) f[…,E] → dq[…,E]` with `dq = scale·(d·)f`. Counts have none; that of each probability is its
    /// expert's.
    MoeBalanceGrad {
        /// What counts are multiplied by.
        scale: Scalar,
        /// Whether the loss's gradient `d` is an operand.
        seeded: bool,
    },
    /// Tokens in the slots of experts with a capacity (Lepikhin et al., "GShard"):
    /// `x[G,N,D], slot[G,N,E] (, share[G,N,E]) → inside[G,E,C,D]`: slot `c` of expert `e` holds the sum of the tokens whose
    /// `slot` there is `c`, zeros if there are none; see [`Slots`].
    MoeDispatch(Slots),
    /// Its gradient: `d_inside[G,E,C,D], slot[G,N,E] (, share[G,N,E]) → dx[G,N,D]`.
    MoeDispatchGrad(Slots),
    /// What slots hold, back at the tokens: `inside[G,E,C,D], slot[G,N,E], share[G,N,E] → y[G,N,D]`, each token the sum over
    /// experts of its share of what its slot holds.
    MoeCombine(Slots),
    /// Its gradient: `dy[G,N,D], inside[G,E,C,D], slot[G,N,E], share[G,N,E] → d_inside[G,E,C,D], d_share[G,N,E]`.
    MoeCombineGrad(Slots),
    /// Choices sorted by their expert, so that those of each are one run (Gale et al., "MegaBlocks"):
    /// `i[…] → order[M], place[M], sizes[E]`: the choice at place `r` of the order is `order[r]` of the `M` choices in row-major
    /// order, those of one expert as they were; `place` is the inverse; `sizes` are how many choices each expert has. All
    /// are i32.
    MoeSort {
        /// How many experts there are, `E`.
        experts: usize,
    },
    /// Tokens in the order of their choices: `x[N,D], order[M] → rows[M,D]`, `rows[r] = x[order[r]/k]` with `k = M/N`.
    MoePermute,
    /// Its gradient: `d_rows[M,D], place[M] → dx[N,D]`, the sum over the `k` choices of each token.
    MoePermuteGrad {
        /// Choices of a token, `k`.
        chosen: usize,
    },
    /// Sorted rows back at their tokens: `rows[M,D], w[N,k], place[M] → y[N,D]`, each token the sum of its choices' rows by
    /// their weights.
    MoeUnpermute,
    /// Its gradient: `dy[N,D], rows[M,D], w[N,k], order[M], place[M] → d_rows[M,D], dw[N,k]`.
    MoeUnpermuteGrad,
    /// A matrix product for each of `E` groups of rows with the group's own matrix, as experts have (Gale et al.,
    /// "MegaBlocks"): `x[E,…,D], w[E,D,F] → y[E,…,F]`, `y[e] = x[e]·w[e]`; or of runs of rows, of run-time lengths:
    /// `x[M,D], w[E,D,F], sizes[E] → y[M,F]`. Rows behind the last run give zeros.
    GroupedMatmul {
        /// Whether groups are runs of rows.
        ragged: bool,
    },
    /// Its gradient: `dy[E,…,F], x[E,…,D], w[E,D,F] → dx[E,…,D], dw[E,D,F]` with `dx[e] = dy[e]·w[e]ᵀ`,
    /// `dw[e] = x[e]ᵀ·dy[e]`; or of runs of rows, `dy[M,F], x[M,D], w[E,D,F], sizes[E] → dx[M,D], dw[E,D,F]`.
    GroupedMatmulGrad {
        /// Whether groups are runs of rows.
        ragged: bool,
    },
    /// The auxiliary loss that keeps a router's logits small (Zoph et al., "ST-MoE"): `x[…,E] → loss[], lse[…]` with
    /// `lse = log Σ exp x` and `loss = scale·Σ lse²`, computed in f32 where `x` is narrower. A mean over tokens and the loss's
    /// weight are in `scale`.
    MoeZLoss {
        /// What the sum is multiplied by.
        scale: Scalar,
    },
    /// Its gradient: `(d[],) x[…,E], lse[…] → dx[…,E]` with `dx = scale·(d·)lse·exp(x − lse)`.
    MoeZLossGrad {
        /// What is multiplied, twice the loss's where there is no `d` beside it.
        scale: Scalar,
        /// Whether the loss's gradient `d` is an operand.
        seeded: bool,
    },
    /// The sum of the squares of all elements of a tensor of any shape, its part of a global norm: `x → s[]`.
    SumOfSquares,
    /// What clipping by the global norm makes of the sum of squares of all gradients (Pascanu et al., "On the
    /// difficulty of training recurrent neural networks"): `s[] (, max[]) (, eps[]) → n[], t[]` with the norm `n = √s`, and `t` by its form:
    /// `n < max`, or the factor `min(1, max/(n + eps))`. The sum's terms and the scaling of each gradient stay ops of
    /// the graphs that hold the gradients.
    Clip(Clip),
    /// A generated group of elementwise ops and reductions of rows; the definition says all.
    RowGroup,
}

impl FusedKind {
    /// Whether it computes row by row and across rows only, so that elementwise neighbours may join it.
    pub fn is_row_wise(&self) -> bool {
        use FusedKind::*;
        matches!(self, RmsNorm { .. } | RmsNormGrad { .. } | LayerNorm { .. } | LayerNormGrad { .. })
    }

    /// Whether it is an optimizer's step, which writes over the state that it reads.
    pub fn is_update(&self) -> bool {
        matches!(self, FusedKind::AdamW(_) | FusedKind::Sgd(_) | FusedKind::Lion(_))
    }

    /// The op's name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            FusedKind::RmsNorm { .. } => "rms_norm",
            FusedKind::RmsNormGrad { .. } => "rms_norm_grad",
            FusedKind::LayerNorm { .. } => "layer_norm",
            FusedKind::LayerNormGrad { .. } => "layer_norm_grad",
            FusedKind::Activation { function, gate } => function.name(gate.is_some(), false),
            FusedKind::ActivationGrad { function, gate, .. } => function.name(gate.is_some(), true),
            FusedKind::Attention(_) => "attention",
            FusedKind::AttentionGrad { .. } => "attention_grad",
            FusedKind::Rope { transposed: false, .. } => "rope",
            FusedKind::Rope { transposed: true, .. } => "rope_grad",
            FusedKind::Softmax => "softmax",
            FusedKind::SoftmaxGrad => "softmax_grad",
            FusedKind::Embedding { .. } => "embedding",
            FusedKind::EmbeddingGrad { .. } => "embedding_grad",
            FusedKind::CrossEntropy { .. } => "cross_entropy",
            FusedKind::CrossEntropyGrad { .. } => "cross_entropy_grad",
            FusedKind::AdamW(_) => "adamw",
            FusedKind::Sgd(_) => "sgd",
            FusedKind::Lion(_) => "lion",
            FusedKind::Dropout { .. } => "dropout",
            FusedKind::MoeRoute(_) => "moe_route",
            FusedKind::MoeRouteGrad(_) => "moe_route_grad",
            FusedKind::MoeLoad(_) => "moe_load",
            FusedKind::MoeBalance { .. } => "moe_balance",
            FusedKind::MoeBalanceGrad { .. } => "moe_balance_grad",
            FusedKind::MoeDispatch(_) => "moe_dispatch",
            FusedKind::MoeDispatchGrad(_) => "moe_dispatch_grad",
            FusedKind::MoeCombine(_) => "moe_combine",
            FusedKind::MoeCombineGrad(_) => "moe_combine_grad",
            FusedKind::MoeSort { .. } => "moe_sort",
            FusedKind::MoePermute => "moe_permute",
            FusedKind::MoePermuteGrad { .. } => "moe_permute_grad",
            FusedKind::MoeUnpermute => "moe_unpermute",
            FusedKind::MoeUnpermuteGrad => "moe_unpermute_grad",
            FusedKind::GroupedMatmul { .. } => "grouped_matmul",
            FusedKind::GroupedMatmulGrad { .. } => "grouped_matmul_grad",
            FusedKind::MoeZLoss { .. } => "moe_z_loss",
            FusedKind::MoeZLossGrad { .. } => "moe_z_loss_grad",
            FusedKind::SumOfSquares => "sum_of_squares",
            FusedKind::Clip(_) => "clip",
            FusedKind::RowGroup => "row_group",
        }
    }
}
