//! How a step is spread over ranks: the options that `msc compile` and `msc kernels` share.

use clap::Args;
use msc::options::{Options, parse_mesh};
use msc::{Error, Result};

/// The layout.
#[derive(Args)]
pub struct Layout {
    /// Ranks that split the model's state (tensor parallelism).
    #[arg(long, value_name = "RANKS")]
    tp: Option<usize>,
    /// Ranks that split the batch (data parallelism).
    #[arg(long, value_name = "RANKS")]
    dp: Option<usize>,
    /// Ranks that split the batch and store state in shards (fully sharded data parallelism).
    #[arg(long, value_name = "RANKS")]
    fsdp: Option<usize>,
    /// Ranks that split the sequence (context parallelism).
    #[arg(long, value_name = "RANKS")]
    cp: Option<usize>,
    /// Ranks that split the experts, and the batch elsewhere (expert parallelism).
    #[arg(long, value_name = "RANKS")]
    ep: Option<usize>,
    /// Axes of any name instead, outermost first: dp=2,tp=4.
    #[arg(long, value_name = "NAME=RANKS,…", conflicts_with_all = ["tp", "dp", "fsdp", "cp", "ep"])]
    mesh: Option<String>,
    /// Lays out parameters whose names match: REGEX=SPEC, an entry for each dimension: axes joined by +, - for whole,
    /// ? for free. May be given several times; a later one wins.
    #[arg(long, value_name = "REGEX=SPEC")]
    shard: Vec<String>,
    /// Devices and links: 910b-8, 910b-64, 910c-384, host, or a JSON file (docs/topologies.md).
    #[arg(long, value_name = "NAME|FILE")]
    topology: Option<String>,
    /// Leaves out the file's sharding annotations.
    #[arg(long)]
    ignore_annotations: bool,
}

impl Layout {
    /// As options of a compilation.
    ///
    /// # Errors
    /// A malformed `--mesh`.
    pub fn options(&self) -> Result<Options> {
        let mesh = match &self.mesh {
            Some(text) => parse_mesh(text).map_err(|e| Error::Usage(format!("--mesh '{text}': {e}")))?,
            None => Vec::new(),
        };
        let named = [self.tp, self.dp, self.fsdp, self.cp, self.ep];
        let [tp, dp, fsdp, cp, ep] = named.map(|n| n.unwrap_or(1));
        let (shard, topology) = (self.shard.clone(), self.topology.clone());
        let mut o = Options { tp, dp, fsdp, cp, ep, mesh, shard, topology, ..Options::default() };
        // Whoever asks for one rank does not mean the file's mesh.
        let one_rank = (self.mesh.is_some() || named.iter().any(Option::is_some)) && !o.names_axes();
        o.annotations = !self.ignore_annotations && !one_rank;
        Ok(o)
    }
}
