//! Experts that are parameters of their own, as one stack.
//!
//! A dense loop over `E` experts writes `y = Σ_e w_e·f(x; W_e)`: `E` *lanes* that compute the same with other parameters.
//! Before: such a program. After: the lanes are one computation over a leading dimension of `E`, sums over lanes are
//! reductions of it, and each of their parameters, with its moments and its next value, is one place of a stack
//! ([`msc_ir::outside`]). It computes the same, up to the order of sums, and a mesh axis may now deal experts to ranks by
//! splitting that dimension as any other.
//!
//! Lanes are found by what a sum over experts is ([`seeds`]): its terms differ by the state they use, and by a number,
//! that of the expert, which they compare with or slice at. [`tie`] proves values isomorphic from their operands,
//! [`grow`] follows them to their uses through all graphs, down to the update. What is not isomorphic stays as it is, on
//! single lanes cut out of the stack. [`rewrite`] builds the graphs anew, op by op with [`batch`].

mod batch;
mod entry;
mod found;
mod grow;
mod parts;
mod rewrite;
mod seeds;
mod tie;

use crate::error::Result;
use msc_ir::factor::common_divisor;
use msc_ir::{GraphId, Module, ValueId};
use std::collections::BTreeSet;
use tie::Bundles;

/// What became of the entry's parameters.
#[derive(Debug)]
pub(super) struct Stacked {
    /// For each parameter as it was, which it is now; none for those that became a place of a stack.
    pub moved: Vec<Option<usize>>,
}

/// Stacks the lanes of a program for an axis of `ranks`; `None`, and nothing is changed, where there are none, or none
/// that the axis could split. Parameters in `apart` stay by themselves.
///
/// # Errors
/// Where a graph that was built breaks a rule of the IR.
pub(super) fn stack(
    module: &mut Module,
    graphs: &[GraphId],
    ranks: usize,
    apart: &BTreeSet<usize>,
) -> Result<Option<Stacked>> {
    let entry = module.entry()?.graph;
    let mut bundles = Bundles::new(module, entry, graphs, apart);
    seeds::plant(&mut bundles);
    if common_divisor([bundles.lanes, ranks]) < 2 {
        return Ok(None);
    }
    grow::grow(&mut bundles);
    let found = bundles.finish();
    if found.entry_params().is_empty() {
        return Ok(None);
    }
    rewrite::rewrite(module, &found)
}

/// What a graph takes or gives: a value, or one for each lane.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Slot {
    One(usize),
    /// Positions by lane.
    Many(Vec<usize>),
}

/// The values of one position of all lanes, in one graph.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Bundle {
    graph: GraphId,
    values: Vec<ValueId>,
}
