//! Which blocks of a plan's inputs are stored where.

use super::cover::{Fault, Place, covered_once};
use crate::data::DataError;
use crate::plan::{Plan, Which};
use msc_ir::tensor::IndexSpace;
use msc_ir::{Shape, TensorType};
use std::path::Path;

/// A tensor and the ranks that store its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// Its global type.
    pub ty: TensorType,
    /// Rank and block. Of ranks that hold the same block the first one stores it. Where a dimension consists of parts that
    /// are cut each on its own, a rank has a block of each.
    pub blocks: Vec<(usize, Place)>,
}

/// The blocks of an input.
///
/// # Errors
/// [`DataError::Shards`] if the plan's blocks do not hold each element once; `path` stands for the plan.
pub fn placed(plan: &Plan, n: usize, path: &Path) -> Result<Placed, DataError> {
    let info = &plan.entry().params[n];
    let laid = |rank: usize| plan.laid(Which::Input(n), rank);
    let (ty, parts) = (laid(0).global_type(), laid(0).parts());
    let mut blocks: Vec<(usize, Place)> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for rank in 0..plan.mesh().ranks() {
        let Some(held) = laid(rank).part(rank) else { continue };
        let start = held.start.clone();
        if !known.insert(start.clone()) {
            continue;
        }
        // What lies behind the true size is padding, and stored nowhere.
        let inside = |d: usize| {
            let room = held.size[d] / parts[d];
            room.min((ty.shape[d] / parts[d]).saturating_sub(start[d]))
        };
        let size: Shape = (0..parts.len()).map(inside).collect();
        let is_padding = |d: usize| size[d] == 0 && ty.shape[d] > 0;
        if (0..parts.len()).any(is_padding) {
            continue;
        }
        for which in IndexSpace::new(&parts) {
            let at = |d: usize| start[d] + which[d] * (ty.shape[d] / parts[d]);
            blocks.push((rank, Place { start: (0..parts.len()).map(at).collect(), size: size.clone() }));
        }
    }
    let places: Vec<Place> = blocks.iter().map(|(_, p)| p.clone()).collect();
    covered_once(&ty.shape, &places).map_err(|fault| {
        let message = match fault {
            Fault::Gap(at) => format!("the plan lays {at} of `{}` on no rank", info.name),
            Fault::Overlap(a, b, at) => format!(
                "the plan lays {at} of `{}` on ranks {} and {} as parts of different blocks",
                info.name, blocks[a].0, blocks[b].0
            ),
            Fault::TooIrregular => format!("the plan's blocks of `{}` are no layout", info.name),
        };
        super::refuse(path, message, "compile the model again")
    })?;
    Ok(Placed { name: info.name.clone(), ty, blocks })
}
