//! How a step is spread over ranks: the options that `msc compile` and `msc kernels` share.

use clap::Args;
use msc::options::Options;

/// The layout.
#[derive(Args)]
pub struct Layout {
    /// Ranks that split the model's state (tensor parallelism).
    #[arg(long, default_value_t = 1)]
    tp: usize,
    /// Ranks that split the batch (data parallelism).
    #[arg(long, default_value_t = 1)]
    dp: usize,
    /// Ranks that split the batch and store state in shards (fully sharded data parallelism).
    #[arg(long, default_value_t = 1)]
    fsdp: usize,
    /// Ranks that split the sequence (context parallelism).
    #[arg(long, default_value_t = 1)]
    cp: usize,
    /// Ranks that split the experts, and the batch elsewhere (expert parallelism).
    #[arg(long, default_value_t = 1)]
    ep: usize,
}

impl Layout {
    /// As options of a compilation.
    pub fn options(&self) -> Options {
        let Layout { tp, dp, fsdp, cp, ep } = *self;
        Options { tp, dp, fsdp, cp, ep, ..Options::default() }
    }
}
