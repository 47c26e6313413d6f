//! How a step is spread over ranks: the options that commands on models share.

use clap::Args;
use msc::config::{Config, Parallel};
use msc::options::{Options, parse_mesh};
use msc::{Error, Result};
use msc_passes::partition::SequenceParallel;
use std::path::PathBuf;

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
    /// Splits the sequence along tp between products: auto, on, off.
    #[arg(long, value_name = "auto|on|off")]
    sequence_parallel: Option<SequenceParallel>,
    /// Leaves out the file's sharding annotations.
    #[arg(long)]
    ignore_annotations: bool,
    /// Takes from a YAML file what the command line does not give (docs/config.md).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Layout {
    /// Whether any of these options is given.
    pub fn is_given(&self) -> bool {
        [self.tp, self.dp, self.fsdp, self.cp, self.ep].iter().any(Option::is_some)
            || self.mesh.is_some()
            || !self.shard.is_empty()
            || self.topology.is_some()
            || self.sequence_parallel.is_some()
            || self.config.is_some()
            || self.ignore_annotations
    }

    /// As options of a compilation, and the file that --config names.
    ///
    /// # Errors
    /// A malformed `--mesh` or file.
    pub fn options(&self) -> Result<(Options, Config)> {
        let config = self.config.as_deref().map(Config::open).transpose()?.unwrap_or_default();
        let mut file = config.parallel.clone();
        let mesh = match &self.mesh {
            Some(text) => Some(parse_mesh(text).map_err(|e| Error::Usage(format!("--mesh '{text}': {e}")))?),
            None => None,
        };
        let named = [self.tp, self.dp, self.fsdp, self.cp, self.ep];
        // Either way of naming axes takes the place of the other one.
        if mesh.is_some() {
            file = Parallel { tp: None, dp: None, fsdp: None, cp: None, ep: None, ..file };
        } else if named.iter().any(Option::is_some) {
            file.mesh = None;
        }
        let of_file = [file.tp, file.dp, file.fsdp, file.cp, file.ep];
        let axes: Vec<Option<usize>> = named.iter().zip(of_file).map(|(n, f)| n.or(f)).collect();
        let mesh = mesh.or(file.mesh);
        let given = mesh.is_some() || axes.iter().any(Option::is_some);
        let size = |i: usize| axes[i].unwrap_or(1);
        let mut o = Options {
            tp: size(0),
            dp: size(1),
            fsdp: size(2),
            cp: size(3),
            ep: size(4),
            mesh: mesh.unwrap_or_default(),
            shard: file.shard.into_iter().chain(self.shard.iter().cloned()).collect(),
            topology: self.topology.clone().or(file.topology),
            sequence_parallel: self.sequence_parallel.or(file.sequence_parallel).unwrap_or_default(),
            recognise: config.model.recognise.unwrap_or(true),
            fuse: config.model.fuse.unwrap_or(true),
            annotations: !self.ignore_annotations && file.annotations.unwrap_or(true),
        };
        // Whoever asks for one rank does not mean the file's mesh.
        o.annotations &= !given || o.names_axes();
        Ok((o, config))
    }
}
