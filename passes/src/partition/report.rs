//! What the partitioner reports.

use super::facts::Draft;
use super::isolate;
use super::problem::Problem;
use super::sequence::SequenceReport;
use crate::cost::DeviceModel;
use crate::error::Result;
use msc_ir::module::Sharding;
use msc_ir::ops::call::executions;
use msc_ir::ops::collective::Collective;
use msc_ir::{GraphId, Module, Monoid, Op, Operation};
use std::collections::BTreeSet;

/// One collective and the two facts that made it necessary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveReport {
    /// Graph it is in.
    pub graph: String,
    /// `all_reduce`, …
    pub kind: &'static str,
    /// What combines, if it combines.
    pub monoid: Option<Monoid>,
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
    /// What was found of sequence parallelism, if it was looked for.
    pub sequence: Option<SequenceReport>,
    /// Axes along which experts are not dealt to ranks: their state is stored in shards with all other.
    pub experts_in_shards: Vec<String>,
    /// Axes, or parts of axes, that found nothing to split, and their ranks: these compute the same.
    pub idle: Vec<(String, usize)>,
    /// Dimensions that are padded, as `name[dimension]` of the first parameter that has each, with the true size and
    /// the padded one.
    pub padded: Vec<(String, usize, usize)>,
    /// Parameters that are not laid out as was asked for, with what was asked.
    pub not_as_asked: Vec<(String, String)>,
    /// Dimensions of state that no axis may split, as `name[dimension]` of the first parameter that has each, and the op
    /// that needs it whole.
    pub whole: Vec<(String, String)>,
}

/// Dimensions of state that stay whole, and why.
pub(super) fn kept_whole(problem: &Problem, module: &Module) -> Vec<(String, String)> {
    let g = module.graph(problem.entry);
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for v in problem.state(g) {
        for atom in (0..g.ty(v).rank()).flat_map(|d| problem.atoms.dim(v, d)) {
            if problem.atoms.is_whole(atom) && seen.insert(atom) {
                let because = isolate::reason(problem, module, atom);
                let because = because.unwrap_or_else(|| "its uses have no common refinement".into());
                out.push((problem.name(module, atom), because));
            }
        }
    }
    out
}

/// The collectives of a program, callees first.
pub(super) fn collectives(draft: &Draft, entry: GraphId, device: &DeviceModel) -> Vec<CollectiveReport> {
    let module = &draft.module;
    let runs = executions(module, entry);
    let mut out = Vec::new();
    for id in msc_ir::ops::call::reachable(module) {
        let (g, Some(&executed)) = (module.graph(id), runs.get(&id)) else { continue };
        for (_, data) in g.ops() {
            let Op::Collective(c) = &data.op else { continue };
            let Some(&operand) = data.operands.first() else { continue };
            let fact = draft.facts.get(&(id, data.results[0]));
            let (comes, needed) = match fact {
                Some(f) => (f.comes.clone(), f.needed.clone()),
                None => ("the program has it".into(), module.locations.describe(data.loc).to_string()),
            };
            out.push(CollectiveReport {
                graph: g.name.clone(),
                kind: data.op.name(),
                monoid: match c {
                    Collective::AllReduce { monoid, .. } | Collective::ReduceScatter { monoid, .. } => {
                        Some(*monoid)
                    }
                    _ => None,
                },
                axes: c.axes().iter().map(|a| module.mesh.axes[a.0 as usize].name.clone()).collect(),
                bytes: g.ty(operand).bytes() as u64,
                executed,
                predicted_ps: device.collective_ps_on(c, g.ty(operand), &module.mesh, c.axes()),
                partial_because: comes,
                whole_because: needed,
            });
        }
    }
    out
}

/// The report of a program that is not split.
pub(super) fn unsplit(module: &mut Module) -> Result<Report> {
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
