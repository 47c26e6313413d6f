//! Partition: splits the program over the mesh.
//!
//! Before: a verified module of global shapes whose entry calls one graph per template segment; the mesh is
//! empty. After: the same program for one rank, at local shapes, with the collectives that the split makes
//! necessary; `module.mesh` is the mesh, the entry's parameters and results carry their sharding. Running the
//! program on every rank, with each rank's blocks of the inputs, gives each rank's blocks of the results.
//!
//! All of it follows from the ops' factor rules. The rules of the entry and of the graphs it calls are solved
//! together ([`msc_ir::factor::solve`]): each *atom* is a class of dimensions, over the whole program and all
//! instances of a layer, that can only be split together. [`assign`] decides which atoms each mesh axis splits;
//! [`lower`] then rewrites each graph at local sizes. Where an op reduces a split atom its result is a partial
//! value; where someone needs that value whole, one collective combines it, and the report keeps both facts.

pub mod assign;
mod expand;
pub mod given;
pub mod lower;
mod sums;
mod unshare;

use crate::cost::DeviceModel;
use crate::error::Result;
use assign::Assignment;
use given::Given;
use msc_ir::module::{Mesh, Sharding};
use msc_ir::{GraphId, Module, Monoid, Op};

/// What a user asks of the partitioner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The mesh. Axes `tp` split model state, axes `dp` split the batch.
    pub mesh: Mesh,
    /// Rates for the search.
    pub device: DeviceModel,
    /// Layouts that are asked for.
    pub given: Given,
}

/// One collective and the two facts that made it necessary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveReport {
    /// Graph it is in.
    pub graph: String,
    /// `all_reduce`, …
    pub kind: &'static str,
    /// What combines.
    pub monoid: Monoid,
    /// Mesh axes, by name.
    pub axes: Vec<String>,
    /// Bytes each rank contributes.
    pub bytes: u64,
    /// How often the entry runs the graph.
    pub executed: usize,
    /// Predicted time of one run, in picoseconds.
    pub predicted_ps: u64,
    /// Why the value is partial: the op that reduces a split dimension, where it is, and which dimension.
    pub partial_because: String,
    /// Why it cannot stay partial: the op that needs it whole, and where it is.
    pub whole_because: String,
}

/// One split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitReport {
    /// Mesh axis, by name.
    pub axis: String,
    /// Size of the dimension that is split.
    pub size: usize,
    /// Parameters that have it, as `name[dimension]`.
    pub parameters: Vec<String>,
}

/// What the partitioner decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The splits, in mesh order.
    pub splits: Vec<SplitReport>,
    /// The collectives, in program order (callees first).
    pub collectives: Vec<CollectiveReport>,
    /// Bytes of donated state on each rank.
    pub state_bytes: u64,
    /// Bytes of donated state on one rank if nothing were split.
    pub state_bytes_unsplit: u64,
    /// Predicted time of one step on one rank, communication included, in picoseconds.
    pub predicted_ps: u64,
    /// Layouts that the search compared.
    pub layouts_compared: usize,
}

/// Splits a module's default entry over a mesh.
///
/// # Errors
/// [`crate::PassError::Layout`] where no legal split exists for an axis of more than one rank.
pub fn partition(module: &mut Module, options: &Options) -> Result<Report> {
    module.mesh = options.mesh.clone();
    if options.mesh.ranks() == 1 {
        return Ok(Report { layouts_compared: 1, ..unsplit(module)? });
    }
    let graphs = split_graphs(module);
    expand::expand(module, &graphs, &options.mesh)?;
    unshare::split(module, &graphs);
    let problem = assign::Problem::new(module)?;
    let chosen = assign::choose(&problem, module, options)?;
    let lowered = lower::lower(module, &problem, &chosen.assignment, &options.device)?;
    let report = Report {
        splits: problem.describe(module, &chosen.assignment),
        collectives: lowered.collectives,
        state_bytes: problem.state_bytes(module, &chosen.assignment),
        state_bytes_unsplit: problem.state_bytes(module, &Assignment::default()),
        predicted_ps: lowered.predicted_ps,
        layouts_compared: chosen.compared,
    };
    *module = lowered.module;
    let graphs = split_graphs(module);
    unshare::merge(module, &graphs);
    Ok(report)
}

/// The entry's graph and those it calls; definitions of fused ops are not theirs to change.
fn split_graphs(module: &Module) -> Vec<GraphId> {
    let called = msc_ir::ops::call::reachable(module);
    let definition = |g: &GraphId| {
        let defines = |f: &GraphId| {
            module.graph(*f).ops().any(|(_, o)| matches!(&o.op, Op::Fused(x) if x.definition == *g))
        };
        called.iter().any(defines)
    };
    called.iter().copied().filter(|g| !definition(g)).collect()
}

fn unsplit(module: &mut Module) -> Result<Report> {
    let entry = module.entry()?;
    let graph = module.graph(entry.graph);
    let state: u64 = entry
        .params
        .iter()
        .zip(graph.params())
        .filter(|(p, _)| p.alias.is_some())
        .map(|(_, &v)| graph.ty(v).bytes() as u64)
        .sum();
    for p in &mut module.entries[0].params {
        p.sharding = Sharding::default();
    }
    Ok(Report { state_bytes: state, state_bytes_unsplit: state, ..Report::default() })
}
