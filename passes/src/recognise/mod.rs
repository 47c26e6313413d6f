//! recognise: finds the named operations of a program.
//!
//! Before: a simplified module. After: the same module in which named operations ([`msc_ir::ops::fused`]) stand
//! wherever they were found, each with its definition; every other op is as it was. Nothing is decided by cost.
//!
//! One e-graph per template holds all its segments, so that a backward segment sees what its forward segment
//! saved as the terms that it is; the rest of the program is a region of its own.

pub mod accumulation;
pub mod check;
pub mod define;
pub mod engine;
pub mod extract;
mod hoist;
mod known;
pub mod probe;
mod rebuild;
mod replay;
mod report;
pub mod rules;
mod sink;
mod templates;
mod transposes;
pub mod why;

pub use replay::{Compared, Replayer, Rounding, replay};
pub use report::{Fusions, RegionReport, Report, describe};
pub use templates::{recognise, recognise_observed};

use crate::error::Result;
use engine::region::{PartSpec, Region, Source};
use engine::{Limits, run};
use msc_ir::{GraphId, Module, OpId};
use std::collections::BTreeMap;

/// Looks at each e-graph once recognition is done with it.
pub type Observer<'o> = &'o mut dyn FnMut(&engine::term::Graph, &Region, &engine::Run);

/// Recognises the named operations of one graph; its signature stays. Calls in it are opaque.
///
/// # Errors
/// [`crate::PassError::Broken`] on a bug of the engine or a rule; the module is then as it was.
pub fn recognise_graph(module: &mut Module, graph: GraphId) -> Result<Report> {
    let mut report = Report::default();
    let params = vec![Source::Outside; module.graph(graph).params().len()];
    graph_region(module, graph, params, 1, &mut report, &mut |_, _, _| {})?;
    Ok(report)
}

/// One graph, whose parameters are from outside, as a region; where each op that stays went.
fn graph_region(
    module: &mut Module,
    graph: GraphId,
    params: Vec<Source>,
    executed: u64,
    report: &mut Report,
    observer: Observer<'_>,
) -> Result<BTreeMap<OpId, OpId>> {
    let spec = PartSpec { graph, params };
    let (mut egraph, region) = Region::build(std::mem::take(module), &[spec]);
    let keep = vec![vec![true; region.parts[0].graph.results().len()]];
    let outcome = rewrite(&mut egraph, &region, (&keep, true), &|_, _| false, observer);
    *module = std::mem::take(&mut egraph.analysis.module);
    let (run, mut extraction) = outcome?;
    let found = RegionReport::new(&region, &run, executed, &extraction.used);
    let moved = match extraction.parts.pop() {
        Some(part) if !found.reasons.is_empty() => {
            module.set_graph(graph, part.graph);
            part.moved
        }
        _ => module.graph(graph).order().iter().map(|&op| (op, op)).collect(),
    };
    report.add(found);
    Ok(moved)
}

fn rewrite(
    egraph: &mut engine::term::Graph,
    region: &Region,
    (keep, keep_params): (&extract::Keep, bool),
    shared: transposes::Shared<'_>,
    observer: Observer<'_>,
) -> Result<(engine::Run, extract::Extraction)> {
    let (normal, mut named) = (rules::normal_form(), rules::normal_form());
    named.extend(rules::named());
    let mut run = run(egraph, region, &[&normal, &named], Limits::default())?;
    rules::probes(egraph, region, &mut run);
    run.settle(egraph)?;
    observer(egraph, region, &run);
    let mut extraction = extract::extract(egraph, region, &run, keep, keep_params)?;
    transposes::cancel(&mut egraph.analysis.module, (region, &mut run), &mut extraction, shared)?;
    Ok((run, extraction))
}
