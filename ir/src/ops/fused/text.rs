//! The attributes of named operations in the text form.

use super::{
    Activation, AdamW, Clip, FusedKind, Lion, Load, Normalizer, Number, Outside, Route, Scalar, Sgd, Slots,
    Smoothing, Weighting,
};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::error::{IrError, Result};
use crate::ops::attention::{AttentionForm, AttentionLayout};

impl FusedKind {
    /// Reads the kind that `name` stands for, if it is one.
    pub(super) fn read(name: &str, a: &mut AttrReader) -> Result<Option<FusedKind>> {
        Ok(Some(match name {
            "rms_norm" => FusedKind::RmsNorm {
                eps: Number::read(a, "eps")?,
                scale: !flag(a, "unscaled")?,
                late: flag(a, "late")?,
                residual: flag(a, "residual")?,
            },
            "rms_norm_grad" => FusedKind::RmsNormGrad {
                residual: a.bool("residual")?,
                scale: !flag(a, "unscaled")?,
                late: flag(a, "late")?,
                split: flag(a, "split")?,
                factor: flag(a, "factor")?,
            },
            "layer_norm" => FusedKind::LayerNorm {
                eps: Number::read(a, "eps")?,
                scale: a.bool("scale")?,
                shift: a.bool("shift")?,
                residual: flag(a, "residual")?,
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
            "embedding" => FusedKind::Embedding { outside: Outside::read(a)? },
            "embedding_grad" => FusedKind::EmbeddingGrad { rows: a.index("rows")? },
            "cross_entropy" => {
                FusedKind::CrossEntropy { outside: Outside::read(a)?, smoothing: Smoothing::read(a)? }
            }
            "cross_entropy_grad" => FusedKind::CrossEntropyGrad {
                outside: Outside::read(a)?,
                weight: Weighting::read(a)?,
                normalizer: Normalizer::read(a)?,
                smoothing: Smoothing::read(a)?,
            },
            "row_group" => FusedKind::RowGroup,
            "adamw" => FusedKind::AdamW(AdamW::read(a)?),
            "sgd" => FusedKind::Sgd(Sgd::read(a)?),
            "lion" => FusedKind::Lion(Lion::read(a)?),
            "dropout" => {
                FusedKind::Dropout { scale: Scalar::new(a.float("scale")?), divides: a.bool("divides")? }
            }
            "moe_route" => FusedKind::MoeRoute(Route::read(a)?),
            "moe_route_grad" => FusedKind::MoeRouteGrad(Route::read(a)?),
            "moe_load" => FusedKind::MoeLoad(Load::read(a)?),
            "moe_balance" => FusedKind::MoeBalance { scale: Scalar::new(a.float("scale")?) },
            "moe_balance_grad" => {
                FusedKind::MoeBalanceGrad { scale: Scalar::new(a.float("scale")?), seeded: a.bool("seeded")? }
            }
            "moe_dispatch" => FusedKind::MoeDispatch(Slots::read(a)?),
            "moe_dispatch_grad" => FusedKind::MoeDispatchGrad(Slots::read(a)?),
            "moe_combine" => FusedKind::MoeCombine(Slots::read(a)?),
            "moe_combine_grad" => FusedKind::MoeCombineGrad(Slots::read(a)?),
            "moe_sort" => FusedKind::MoeSort { experts: a.index("experts")? },
            "moe_permute" => FusedKind::MoePermute,
            "moe_permute_grad" => FusedKind::MoePermuteGrad { chosen: a.index("chosen")? },
            "moe_unpermute" => FusedKind::MoeUnpermute,
            "moe_unpermute_grad" => FusedKind::MoeUnpermuteGrad,
            "grouped_matmul" => FusedKind::GroupedMatmul { ragged: flag(a, "ragged")? },
            "grouped_matmul_grad" => FusedKind::GroupedMatmulGrad { ragged: flag(a, "ragged")? },
            "moe_z_loss" => FusedKind::MoeZLoss { scale: Scalar::new(a.float("scale")?) },
            "moe_z_loss_grad" => {
                FusedKind::MoeZLossGrad { scale: Scalar::new(a.float("scale")?), seeded: a.bool("seeded")? }
            }
            "sum_of_squares" => FusedKind::SumOfSquares,
            "clip" => FusedKind::Clip(Clip::read(a)?),
            name => match Activation::kind(name, a)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        }))
    }

    /// Writes the attributes that [`Self::read`] reads.
    pub(super) fn attrs(&self, m: &mut AttrMap) {
        match self {
            FusedKind::RmsNorm { eps, scale, late, residual } => {
                m.insert("eps", eps.attr());
                set(m, &[("unscaled", !*scale), ("late", *late), ("residual", *residual)]);
            }
            FusedKind::RmsNormGrad { residual, scale, late, split, factor } => {
                m.insert("residual", AttrValue::Bool(*residual));
                set(m, &[("unscaled", !*scale), ("late", *late), ("split", *split), ("factor", *factor)]);
            }
            FusedKind::LayerNorm { eps, scale, shift, residual } => {
                set(m, &[("residual", *residual)]);
                m.insert("eps", eps.attr());
                m.insert("scale", AttrValue::Bool(*scale));
                m.insert("shift", AttrValue::Bool(*shift));
            }
            FusedKind::LayerNormGrad { residual, scale, shift, split } => {
                let flags = [("residual", residual), ("scale", scale), ("shift", shift)];
                m.extend(flags.map(|(name, &on)| (name, AttrValue::Bool(on))));
                set(m, &[("split", *split)]);
            }
            FusedKind::Activation { function, gate } => function.attrs(*gate, None, m),
            FusedKind::ActivationGrad { function, gate, at_bound } => function.attrs(*gate, *at_bound, m),
            FusedKind::Attention(form) => set_form(m, form),
            FusedKind::AttentionGrad { form, output } => {
                set_form(m, form);
                m.insert("output", AttrValue::Bool(*output));
            }
            FusedKind::Rope { interleaved, rotated, .. } => {
                m.insert("interleaved", AttrValue::Bool(*interleaved));
                m.insert("rotated", AttrValue::Int(*rotated as i64));
            }
            FusedKind::Embedding { outside } => outside.attr(m),
            FusedKind::CrossEntropy { outside, smoothing } => {
                outside.attr(m);
                smoothing.attr(m);
            }
            FusedKind::EmbeddingGrad { rows } => {
                m.insert("rows", AttrValue::Int(*rows as i64));
            }
            FusedKind::CrossEntropyGrad { outside, weight, normalizer, smoothing } => {
                outside.attr(m);
                weight.attr(m);
                normalizer.attr(m);
                smoothing.attr(m);
            }
            FusedKind::AdamW(adamw) => adamw.attrs(m),
            FusedKind::Sgd(sgd) => sgd.attrs(m),
            FusedKind::Lion(lion) => lion.attrs(m),
            FusedKind::Dropout { scale, divides } => {
                m.insert("scale", AttrValue::Float(scale.get().to_bits()));
                m.insert("divides", AttrValue::Bool(*divides));
            }
            FusedKind::MoeRoute(route) | FusedKind::MoeRouteGrad(route) => route.attrs(m),
            FusedKind::MoeLoad(load) => load.attrs(m),
            FusedKind::MoeDispatch(slots)
            | FusedKind::MoeDispatchGrad(slots)
            | FusedKind::MoeCombine(slots)
            | FusedKind::MoeCombineGrad(slots) => slots.attrs(m),
            FusedKind::MoeBalance { scale } | FusedKind::MoeZLoss { scale } => {
                m.insert("scale", AttrValue::Float(scale.get().to_bits()));
            }
            FusedKind::MoeBalanceGrad { scale, seeded } | FusedKind::MoeZLossGrad { scale, seeded } => {
                m.insert("scale", AttrValue::Float(scale.get().to_bits()));
                m.insert("seeded", AttrValue::Bool(*seeded));
            }
            FusedKind::Clip(clip) => clip.attrs(m),
            FusedKind::MoeSort { experts } => {
                m.insert("experts", AttrValue::Int(*experts as i64));
            }
            FusedKind::MoePermuteGrad { chosen } => {
                m.insert("chosen", AttrValue::Int(*chosen as i64));
            }
            FusedKind::GroupedMatmul { ragged } | FusedKind::GroupedMatmulGrad { ragged } => {
                set(m, &[("ragged", *ragged)]);
            }
            FusedKind::Softmax
            | FusedKind::SoftmaxGrad
            | FusedKind::MoePermute
            | FusedKind::MoeUnpermute
            | FusedKind::MoeUnpermuteGrad
            | FusedKind::SumOfSquares
            | FusedKind::RowGroup => {}
        }
    }
}

fn form(a: &mut AttrReader) -> Result<AttentionForm> {
    let text = a.text("scores")?;
    let form = AttentionForm::parse(&text)
        .ok_or_else(|| IrError::attr(a.op(), "scores", format!("`{text}` names no steps of an attention")))?;
    let layout = match a.has("layout") {
        true => a.word_as("layout", AttentionLayout::from_name)?,
        false => AttentionLayout::default(),
    };
    Ok(AttentionForm { layout, ..form })
}

/// The layout is written only where it is not the default.
fn set_form(m: &mut AttrMap, form: &AttentionForm) {
    m.insert("scores", AttrValue::Text(form.to_string()));
    if form.layout != AttentionLayout::default() {
        m.insert("layout", word(form.layout.name()));
    }
}

/// A flag that is written only where it is set.
fn flag(a: &mut AttrReader, name: &str) -> Result<bool> {
    if a.has(name) { a.bool(name) } else { Ok(false) }
}

fn set(m: &mut AttrMap, flags: &[(&'static str, bool)]) {
    m.extend(flags.iter().filter(|f| f.1).map(|&(name, on)| (name, AttrValue::Bool(on))));
}
