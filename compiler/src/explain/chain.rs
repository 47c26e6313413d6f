//! The way from the user's spelling to a named operation: the rules of spelling that applied between its operands and
//! its results, in the order in which they did, and the formulas of the rule that named it.

use super::names::Names;
use msc_ir::ValueId;
use msc_passes::recognise::RegionReport;
use msc_passes::recognise::engine::{Reason, Rule, Tag};
use msc_passes::recognise::rules;
use msc_passes::recognise::why::operation_of;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One rule on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The rule.
    pub rule: String,
    /// What it looks for.
    pub formula: String,
    /// Whether the other spelling has the same bits, or is equal but for rounding.
    pub exact: bool,
    /// File and line of what it spells otherwise.
    pub location: String,
}

/// The rules, by name.
pub(super) struct Chains(BTreeMap<&'static str, Rule>);

impl Chains {
    pub fn new() -> Chains {
        Chains(rules::normal_form().into_iter().chain(rules::named()).map(|r| (r.name, r)).collect())
    }

    /// The rules of spelling that applied within a reason's cut.
    pub fn links(&self, region: &RegionReport, names: &Names<'_>, r: &Reason) -> Vec<Link> {
        let inside = covered(region, r);
        let mut out: Vec<Link> = Vec::new();
        let spelling = region.steps.iter().filter(|s| operation_of(s.rule).is_none());
        for s in spelling.filter(|s| inside.contains(&(s.at.part, s.at.value))) {
            let formula = self.0.get(s.rule).and_then(|r| Some(r.roots.first()?.pattern.to_string()));
            let link = Link {
                rule: s.rule.to_string(),
                formula: formula.unwrap_or_default(),
                exact: s.tag == Tag::Exact,
                location: names.location(s.at),
            };
            if !out.contains(&link) {
                out.push(link);
            }
        }
        out
    }

    /// What the rule that named an operation looks for, root by root; nothing for a probe.
    pub fn formulas(&self, rule: &str) -> Vec<String> {
        let roots = self.0.get(rule).map(|r| r.roots.as_slice()).unwrap_or_default();
        roots.iter().map(|r| format!("{} = {}", r.name, r.pattern)).collect()
    }
}

/// The values of the program between a reason's operands and its results, results included. Parameters and constants are
/// nobody's own.
pub(super) fn covered(region: &RegionReport, r: &Reason) -> BTreeSet<(usize, ValueId)> {
    let cut: BTreeSet<(usize, ValueId)> =
        r.inputs.iter().flat_map(|i| &i.values).map(|at| (at.part, at.value)).collect();
    let mut todo: Vec<(usize, ValueId)> =
        r.outputs.iter().flat_map(|o| &o.values).map(|at| (at.part, at.value)).collect();
    let mut out = BTreeSet::new();
    while let Some((part, v)) = todo.pop() {
        let graph = &region.sources[part];
        let Some((op, _)) = graph.def(v).filter(|(op, _)| !graph.op(*op).operands.is_empty()) else {
            continue;
        };
        if !cut.contains(&(part, v)) && out.insert((part, v)) {
            todo.extend(graph.op(op).operands.iter().map(|&o| (part, o)));
        }
    }
    out
}
