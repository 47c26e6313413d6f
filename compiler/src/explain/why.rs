//! Why an operation was not found: what comes near it, and what is missing there.

use super::chain::covered;
use super::names::Names;
use crate::examine::Examined;
use msc_ir::{Operation, ValueId};
use msc_passes::recognise::RegionReport;
use msc_passes::recognise::accumulation::NAME;
use msc_passes::recognise::engine::partial::Partial;
use msc_passes::recognise::engine::{At, Reason};
use msc_passes::recognise::why::{Near, concerns};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A place that comes near.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NearSite {
    /// File and line.
    pub location: String,
    /// Which layers.
    pub executions: String,
    /// The rule or probe.
    pub rule: String,
    /// What failed first.
    pub why: String,
    /// What would make it match, where that can be said.
    pub help: String,
    /// The operation that it is part of instead.
    pub part_of: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The operation.
    pub operation: String,
    /// Where it was found.
    pub found: Vec<String>,
    /// Where it was found and another operation was preferred.
    pub unused: Vec<String>,
    /// What comes near elsewhere, the nearest first.
    pub near: Vec<NearSite>,
}

/// Places of one region that are told.
const MOST: usize = 6;

/// Answers from the report and from what the e-graphs showed, one for each region.
pub fn answer(e: &Examined, operation: &str, near: &[Near]) -> Answer {
    let mut out =
        Answer { operation: operation.to_string(), found: Vec::new(), unused: Vec::new(), near: Vec::new() };
    for (i, region) in e.report.regions.iter().enumerate() {
        let names = Names::new(e, region);
        let covers = Covers::new(region);
        for (reasons, list) in [(&region.reasons, &mut out.found), (&region.unused, &mut out.unused)] {
            for r in reasons.iter().filter(|r| r.fused.name() == operation) {
                let at = r.outputs.iter().find_map(|o| o.values.first());
                list.extend(at.map(|&at| names.location(at)));
            }
        }
        out.near.extend(refused(operation, region, &names, &covers));
        let Some(near) = near.get(i) else { continue };
        out.near.extend(near.partial.iter().take(MOST).map(|p| partial(p, &names, &covers)));
        out.near.extend(near.unlike.iter().take(MOST).map(|&(at, why)| NearSite {
            part_of: covers.at(at, &names),
            location: names.location(at),
            executions: names.executions(at.part),
            rule: operation.replace('_', "-"),
            why: why.to_string(),
            help: "scores are a product of queries and keys, exponentiated and divided by their sum over keys".into(),
        }));
    }
    if operation == NAME {
        out.found.extend(e.report.accumulations.iter().map(|a| e.describe(a.loc)));
        out.near.extend(e.report.no_accumulations.iter().map(|r| NearSite {
            location: e.describe(r.loc),
            executions: "a loop".into(),
            rule: "gradient-accumulation".into(),
            why: r.why.clone(),
            help: "a loop over microbatches adds each trip's gradients to carries that start from zero, and reads them only after the loop".into(),
            part_of: None,
        }));
    }
    // Two rules may find the same.
    out.unused.retain(|at| !out.found.contains(at));
    // What is part of the operation itself is no near miss; what is part of another is one of little interest.
    let own = format!("{operation} at ");
    out.near.retain(|n| n.part_of.as_ref().is_none_or(|p| !p.starts_with(&own)));
    out.near.sort_by_key(|n| n.part_of.is_some());
    out
}

/// For each value between the operands and results of a named operation, the operation.
struct Covers<'r> {
    of: BTreeMap<(usize, ValueId), &'r Reason>,
}

impl<'r> Covers<'r> {
    fn new(region: &'r RegionReport) -> Covers<'r> {
        let mut of = BTreeMap::new();
        for r in &region.reasons {
            for at in covered(region, r) {
                of.entry(at).or_insert(r);
            }
        }
        Covers { of }
    }

    fn at(&self, at: At, names: &Names<'_>) -> Option<String> {
        let r = self.of.get(&(at.part, at.value))?;
        let main = r.outputs.iter().find_map(|o| o.values.first())?;
        Some(format!("{} at {}", r.fused.name(), names.location(*main)))
    }
}

fn refused(operation: &str, region: &RegionReport, names: &Names<'_>, covers: &Covers<'_>) -> Vec<NearSite> {
    let used = |at: At| {
        let outputs = region.reasons.iter().flat_map(|r| &r.outputs);
        outputs.filter_map(|o| o.values.first()).any(|v| *v == at)
    };
    let mut out: Vec<NearSite> = Vec::new();
    for r in region.refusals.iter().filter(|r| concerns(r.rule, operation)) {
        let Some(at) = r.at else { continue };
        // Another rule found the operation at the same place.
        if used(at) {
            continue;
        }
        let site = NearSite {
            location: names.location(at),
            executions: names.executions(at.part),
            rule: r.rule.to_string(),
            why: r.why.clone(),
            help: help(&r.why).to_string(),
            part_of: covers.at(at, names),
        };
        if !out.iter().any(|s| s.location == site.location && s.why == site.why) {
            out.push(site);
        }
    }
    out.truncate(MOST);
    out
}

/// What would make a refused place match.
fn help(why: &str) -> &'static str {
    if why.contains("something else than the program") {
        "it has the operation's shape and gives other numbers: compare scale, mask and order with its definition in docs/ops.md"
    } else if why.contains("LayerNorm") {
        "ask --why-not layer_norm instead"
    } else if why.starts_with("it is not known that") {
        "make it visible: by a constant epsilon that is added, an absolute value, a sum of squares"
    } else if why.contains("is needed to compute") {
        "one result must not decide an operand: compute both from the same values"
    } else if why.contains("multiplied with no values") {
        "nothing sums weights times values: this is a softmax of its own"
    } else {
        ""
    }
}

fn partial(p: &Partial, names: &Names<'_>, covers: &Covers<'_>) -> NearSite {
    let location = |at: Option<At>| at.map_or_else(|| "a derived value".to_string(), |at| names.location(at));
    let mut why = String::new();
    if !p.found.is_empty() {
        let found: Vec<String> =
            p.found.iter().map(|&(name, at)| format!("{name} ({})", location(at))).collect();
        let _ = write!(why, "{} is there; ", found.join(", "));
    }
    let _ = write!(why, "no {} = {}", p.root, p.formula);
    let mut help = String::new();
    if let Some(m) = &p.part {
        let at = location(m.at);
        match (&m.instead, m.dropped) {
            (_, true) => {
                let _ = write!(why, ": at {at} is all of it but `{}`", m.formula);
                help = format!("it would match with `{}` there", m.formula);
            }
            (Some(other), _) => {
                let _ = write!(why, ": at {at} is all of it but for {}", names.op(*other));
                help = format!("it would match with `{}` in that place", m.formula);
            }
            (None, _) => {
                let _ = write!(why, ": at {at} something else stands for `{}`", m.formula);
                help = format!("it would match with `{}` there", m.formula);
            }
        }
    }
    NearSite {
        location: location(p.at),
        executions: p.at.map_or_else(String::new, |at| names.executions(at.part)),
        rule: p.rule.to_string(),
        why,
        help,
        part_of: p.at.and_then(|at| covers.at(at, names)),
    }
}

impl Answer {
    /// For the terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = match self.found.len() {
            0 => writeln!(out, "{} was not found", self.operation),
            1 => writeln!(out, "{} was found at {}", self.operation, self.found[0]),
            n => writeln!(out, "{} was found at {n} sites: {}", self.operation, self.found.join(", ")),
        };
        for at in &self.unused {
            let _ = writeln!(out, "found and not used at {at}: another operation covers the same values");
        }
        if self.near.is_empty() {
            let _ = writeln!(out, "nothing else comes near it");
        }
        for n in &self.near {
            let _ = writeln!(out, "not at {}", n.location);
            if !n.executions.is_empty() {
                let _ = writeln!(out, "  {}", n.executions);
            }
            let _ = writeln!(out, "  {}: {}", n.rule, n.why);
            if let Some(other) = &n.part_of {
                let _ = writeln!(out, "  it is part of the {other}");
            } else if !n.help.is_empty() {
                let _ = writeln!(out, "  help: {}", n.help);
            }
        }
        out
    }
}
