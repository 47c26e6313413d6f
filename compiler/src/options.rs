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
    /// Whether ops are recognised as named operations.
    pub recognise: bool,
    /// Whether named operations are fused with their neighbours and executed by generated kernels.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { tp: 1, dp: 1, recognise: true, fuse: true }
    }
}

/// Ranks a plan may have: far above any cluster, and small enough that a mistyped number is refused.
const MAX_RANKS: usize = 1 << 16;

impl Options {
    /// The mesh, slow axes first: `dp` outside, `tp` inside (neighbouring ranks have the fastest links).
    ///
    /// # Errors
    /// [`Error::Usage`] for a size of zero or absurd sizes.
    pub fn mesh(&self) -> Result<Mesh> {
        let axes = [("dp", self.dp), ("tp", self.tp)];
        let ranks = axes.iter().try_fold(1usize, |a, (_, n)| a.checked_mul(*n)).filter(|&n| n <= MAX_RANKS);
        if axes.iter().any(|(_, n)| *n == 0) || ranks.is_none() {
            return Err(Error::Usage(format!(
                "--tp {} --dp {}: ranks must be between 1 and {MAX_RANKS}",
                self.tp, self.dp
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
        vec![
            ("tp".into(), self.tp.to_string()),
            ("dp".into(), self.dp.to_string()),
            ("recognise".into(), self.recognise.to_string()),
            ("fuse".into(), self.fuse.to_string()),
        ]
    }
}
