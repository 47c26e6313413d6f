//! What a user asks of `msc compile`.

use crate::error::{Error, Result};
use msc_ir::module::{Mesh, MeshAxis};

/// The options that shape a plan. Together with the source and the msc version they determine it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ranks that split model state.
    pub tp: usize,
    /// Ranks that split the batch.
    pub dp: usize,
    /// Ranks that split the batch, and on which state is stored in shards and gathered where it is used.
    pub fsdp: usize,
    /// Ranks that split the sequence.
    pub cp: usize,
    /// Ranks that split the experts, and the batch elsewhere.
    pub ep: usize,
    /// Whether ops are recognised as named operations.
    pub recognise: bool,
    /// Whether named operations are fused with their neighbours and executed by generated kernels.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { tp: 1, dp: 1, fsdp: 1, cp: 1, ep: 1, recognise: true, fuse: true }
    }
}

/// Ranks a plan may have: far above any cluster, and small enough that a mistyped number is refused.
const MAX_RANKS: usize = 1 << 16;

impl Options {
    /// The axes, slow ones first: `dp` outside, `tp` inside (neighbouring ranks have the fastest links).
    fn axes(&self) -> [(&'static str, usize); 5] {
        [("dp", self.dp), ("fsdp", self.fsdp), ("ep", self.ep), ("cp", self.cp), ("tp", self.tp)]
    }

    /// The mesh.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size of zero or absurd sizes.
    pub fn mesh(&self) -> Result<Mesh> {
        let axes = self.axes();
        let ranks = axes.iter().try_fold(1usize, |a, (_, n)| a.checked_mul(*n)).filter(|&n| n <= MAX_RANKS);
        if axes.iter().any(|(_, n)| *n == 0) || ranks.is_none() {
            let given: Vec<String> = axes.iter().map(|(name, n)| format!("--{name} {n}")).collect();
            return Err(Error::Usage(format!(
                "{}: ranks must be between 1 and {MAX_RANKS}",
                given.join(" ")
            )));
        }
        Ok(Mesh {
            axes: axes
                .iter()
                .filter(|(_, n)| *n > 1)
                .map(|&(n, size)| MeshAxis { name: n.into(), size })
                .collect(),
        })
    }

    /// Names and values for the plan's header.
    pub fn describe(&self) -> Vec<(String, String)> {
        let axes = self.axes().into_iter().rev().map(|(name, n)| (name.to_string(), n.to_string()));
        let stages = [("recognise", self.recognise), ("fuse", self.fuse)];
        axes.chain(stages.map(|(name, on)| (name.to_string(), on.to_string()))).collect()
    }
}
