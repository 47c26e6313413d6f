//! Transposes between named operations.
//!
//! Exporters transpose queries, keys and values to `[B,N,S,h]` and what comes of them back, around an attention and the
//! rotations before it. Kernels take either order. After extraction, operations with a law ([`laws`]) that hand each other
//! values form islands, over all parts of a region, as forward and backward share what was saved; an island takes the order
//! in which the fewest elements are moved. Layout ops then cancel, products take their matrices as they are stored (transposed,
//! with rows in more than one dimension), and what a part keeps for a later one is kept in one shape. Nothing else changes:
//! no bits do.
//!
//! This is no rule of the e-graph: which order is best is seen only once it is known which operations stand, and every
//! value in two orders would double the terms. Reasons follow, so that a replay runs the operation as it stands.

mod build;
mod chain;
mod cost;
mod dots;
mod islands;
mod laws;
mod part;
mod reasons;

use super::engine::region::Region;
use super::engine::run::Run;
use super::extract::Extraction;
use crate::error::{PassError, Result};
use build::build;
use cost::{Cost, total};
use islands::Islands;
use msc_ir::Module;
use std::collections::BTreeSet;

/// Whether a parameter, by its part and index, is one value for all instances of a region.
pub(super) type Shared<'s> = &'s dyn Fn(usize, usize) -> bool;

/// Islands that are tried one by one. Regions have one for each attention of a layer; a program that is not cut into layers
/// has many, all alike, and they are taken together.
const MOST_TRIED: usize = 16;

/// Lays out the named operations of an extraction so that little is transposed between them.
///
/// # Errors
/// [`PassError::Broken`] if the parts do not fit together.
pub(super) fn cancel(
    module: &mut Module,
    (region, run): (&Region, &mut Run),
    extraction: &mut Extraction,
    shared: Shared<'_>,
) -> Result<()> {
    let islands = Islands::new(&extraction.parts);
    let mut left = |which: &BTreeSet<usize>| -> Result<Cost> {
        Ok(total(&build(module, &extraction.parts, &islands, (which, true))?, shared))
    };
    let mut best = (left(&BTreeSet::new())?, BTreeSet::new());
    let number = islands.all.len();
    let mut ways: Vec<BTreeSet<usize>> = Vec::new();
    if number > 0 {
        ways.push((0..number).collect());
    }
    if number > 1 && number <= MOST_TRIED {
        ways.extend((0..number).map(|i| BTreeSet::from([i])));
    }
    for change in ways {
        let which: BTreeSet<usize> = best.1.symmetric_difference(&change).copied().collect();
        let cost = left(&which)?;
        if cost < best.0 {
            best = (cost, which);
        }
    }
    let (cost, which) = best;
    if cost < total(&extraction.parts, shared) {
        let parts = build(module, &extraction.parts, &islands, (&which, false))?;
        reasons::follow(module, (region, run), &extraction.parts, &islands, &which)?;
        extraction.parts = parts;
    }
    Ok(())
}

fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}
