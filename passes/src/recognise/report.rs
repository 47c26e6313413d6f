//! What recognition did, as data.

use super::accumulation::{Accumulation, Refused};
use super::engine::run::{Reason, Refusal, Run, Step, StopReason};
use super::engine::{At, PartSpec, Region};
use msc_ir::{Graph, Operation};
use std::collections::BTreeMap;

/// One e-graph.
#[derive(Clone, Debug)]
pub struct RegionReport {
    /// Names of the graphs it was built from.
    pub graphs: Vec<String>,
    /// The graphs with the sources of their parameters.
    pub specs: Vec<PartSpec>,
    /// The graphs themselves as they were then, so that reasons can be executed again.
    pub sources: Vec<Graph>,
    /// How often the program executes it.
    pub executed: u64,
    /// Rounds.
    pub iterations: usize,
    /// Nodes at the end.
    pub nodes: usize,
    /// Classes at the end.
    pub classes: usize,
    /// Why it stopped.
    pub stop: StopReason,
    /// By rule: unions that changed something.
    pub applied: BTreeMap<&'static str, usize>,
    /// By rule: why matches were refused.
    pub refused: BTreeMap<&'static str, BTreeMap<String, usize>>,
    /// The same with places.
    pub refusals: Vec<Refusal>,
    /// Rules of spelling that applied, in order.
    pub steps: Vec<Step>,
    /// Named ops used, in order of application.
    pub reasons: Vec<Reason>,
    /// Named ops found and not used: another covers the same values, or it would have needed itself.
    pub unused: Vec<Reason>,
}

/// How often a named operation was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fusions {
    /// Places in the program text.
    pub sites: usize,
    /// Executions: a place in a template counts once per instance.
    pub executed: u64,
}

/// Recognition of a module.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One per e-graph.
    pub regions: Vec<RegionReport>,
    /// By operation name.
    pub fusions: BTreeMap<String, Fusions>,
    /// Loops over microbatches, in the recognised module.
    pub accumulations: Vec<Accumulation>,
    /// Loops that carry sums and are none over microbatches.
    pub no_accumulations: Vec<Refused>,
}

impl RegionReport {
    pub(super) fn new(region: &Region, run: &Run, executed: u64, used: &[Vec<usize>]) -> RegionReport {
        let used: Vec<usize> = used.iter().flatten().copied().collect();
        let pick = |want: bool| {
            let all = run.reasons.iter().enumerate();
            all.filter(|(i, _)| used.contains(i) == want).map(|(_, r)| r.clone()).collect()
        };
        RegionReport {
            graphs: region.parts.iter().map(|p| p.graph.name.clone()).collect(),
            specs: region.parts.iter().map(|p| p.spec.clone()).collect(),
            sources: region.parts.iter().map(|p| p.graph.clone()).collect(),
            executed,
            iterations: run.iterations,
            nodes: run.nodes,
            classes: run.classes,
            stop: run.stop,
            applied: run.applied.clone(),
            refused: run.refused.clone(),
            refusals: run.refusals.clone(),
            steps: run.steps.clone(),
            reasons: pick(true),
            unused: pick(false),
        }
    }
}

impl Report {
    pub(super) fn add(&mut self, region: RegionReport) {
        for r in &region.reasons {
            let f = self.fusions.entry(r.fused.name().to_string()).or_default();
            f.sites += 1;
            f.executed += region.executed;
        }
        self.regions.push(region);
    }

    /// Number of e-graphs.
    pub fn runs(&self) -> usize {
        self.regions.len()
    }

    /// Nodes of all e-graphs.
    pub fn nodes(&self) -> usize {
        self.regions.iter().map(|r| r.nodes).sum()
    }
}

/// A cut value's place in words: `%value of @graph`.
pub fn describe(region: &Region, at: At) -> String {
    format!("%{} of @{}", at.value.0, region.parts[at.part].graph.name)
}
