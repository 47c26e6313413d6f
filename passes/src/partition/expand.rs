//! Lookups, sums of squares, experts' products and the masks of their slots as plain ops.
//!
//! Sums of squares and products are one or two ops each, and as such what other parts of the partitioner know: what measures gradients, what
//! an expert computes.
//!
//! Where model state is split, so is the vocabulary: of a table's rows, and of the logits. A lookup of rows that lie on
//! other ranks, and a maximum, a sum and a pick that follow from each other, are split op by op, with a collective
//! between them; as one op they would need the whole vocabulary on every rank.

use crate::error::Result;
use msc_ir::inline::inline;
use msc_ir::module::Mesh;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{GraphId, Module, Op};

/// Whether an op computes over a vocabulary.
fn is_lookup(op: &Op) -> bool {
    use FusedKind::*;
    match op {
        Op::Fused(f) => matches!(
            f.kind,
            Embedding { .. } | EmbeddingGrad { .. } | CrossEntropy { .. } | CrossEntropyGrad { .. }
        ),
        _ => false,
    }
}

/// Whether an op is a name for one or two ops.
fn is_short(op: &Op) -> bool {
    use FusedKind::*;
    matches!(op, Op::Fused(f) if matches!(f.kind, SumOfSquares | GroupedMatmul { .. } | GroupedMatmulGrad { .. }))
}

/// Whether an op moves tokens to experts or back.
fn deals(op: &Op) -> bool {
    use FusedKind::*;
    matches!(op, Op::Fused(f)
        if matches!(f.kind, MoeDispatch(_) | MoeDispatchGrad(_) | MoeCombine(_) | MoeCombineGrad(_)))
}

/// Whether an op sorts tokens by expert, or moves them to that order or back: whose tokens lie where is known at run time.
fn sorts(op: &Op) -> bool {
    use FusedKind::*;
    matches!(op, Op::Fused(f)
        if matches!(f.kind, MoeSort { .. } | MoePermute | MoePermuteGrad { .. } | MoeUnpermute | MoeUnpermuteGrad))
}

/// Puts the definitions of short ops in their place, if an axis of the mesh splits model state those of lookups, and if
/// one deals experts those that move tokens to them: which of the products with masks are exchanges is decided there. On
/// several ranks the same holds of what sorts tokens: a sort needs all of them, what is gathered by it does not.
///
/// # Errors
/// If a graph does not define operands before uses.
pub(super) fn expand(module: &mut Module, graphs: &[GraphId], mesh: &Mesh) -> Result<()> {
    let splits_state = mesh.axes.iter().any(|a| a.name == "tp" && a.size > 1);
    let deals_experts = mesh.axes.iter().any(|a| a.name == "ep" && a.size > 1);
    let splits = mesh.axes.iter().any(|a| a.size > 1);
    let is_plain = |op: &Op| {
        is_short(op) || splits && sorts(op) || splits_state && is_lookup(op) || deals_experts && deals(op)
    };
    for &id in graphs {
        if module.graph(id).ops().any(|(_, d)| is_plain(&d.op)) {
            let graph = inline(module, module.graph(id), is_plain)?;
            module.set_graph(id, graph);
        }
    }
    Ok(())
}
