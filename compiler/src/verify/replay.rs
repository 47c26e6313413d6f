//! Replays of all reasons, by kind of operation.

use crate::examine::Examined;
use msc_ir::interp::Mode;
use msc_ir::{DType, Operation};
use msc_passes::recognise::engine::Reason;
use msc_passes::recognise::{Compared, RegionReport, Replayer, check};
use serde::Serialize;
use std::collections::BTreeMap;

/// A kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindRow {
    /// Its name.
    pub operation: String,
    /// Reasons that were executed again.
    pub replayed: usize,
    /// Of these, ops that were found and are not used.
    pub unused: usize,
    /// The largest difference, relative to the largest element.
    pub largest: f64,
    /// What is allowed: a literal that an exporter rounded.
    pub allowed: f64,
    /// Where narrow floats occur: the least share of elements with the program's bits in the working types.
    pub same_bits: Option<f64>,
    /// There, how far from its value in f64 an output is, in terms of how far the program's is.
    pub rounding: Option<f64>,
    /// What differs.
    pub faults: Vec<SiteFault>,
}

/// A site whose op does not compute what the program does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteFault {
    /// The rule.
    pub rule: String,
    /// Where, in the user's file.
    pub location: String,
    /// What differs.
    pub what: String,
}

/// Replays the reasons of all regions.
pub fn all(e: &Examined, seed: u64) -> Vec<KindRow> {
    let mut kinds: BTreeMap<&'static str, KindRow> = BTreeMap::new();
    for region in &e.report.regions {
        let mut replayer = Replayer::new(&e.recognised, region);
        let used = region.reasons.iter().map(|r| (r, true));
        for (reason, used) in used.chain(region.unused.iter().map(|r| (r, false))) {
            let name = reason.fused.name();
            let row = kinds.entry(name).or_insert_with(|| KindRow {
                operation: name.to_string(),
                allowed: check::tolerance(DType::F32, Mode::Wide),
                ..KindRow::default()
            });
            row.replayed += 1;
            row.unused += usize::from(!used);
            match replayer.fresh(reason, seed) {
                Ok(outputs) => add(row, e, region, reason, &outputs),
                Err(why) => row.fault(e, region, reason, why.to_string()),
            }
        }
    }
    kinds.into_values().collect()
}

fn add(row: &mut KindRow, e: &Examined, region: &RegionReport, reason: &Reason, outputs: &[Compared]) {
    for o in outputs {
        row.largest = row.largest.max(o.difference);
        if let Some(r) = o.rounding {
            row.same_bits = Some(row.same_bits.map_or(r.same, |s| s.min(r.same)));
            row.rounding = Some(row.rounding.map_or(r.worse, |w| w.max(r.worse)));
        }
    }
    let wrong = outputs.iter().filter(|o| !o.agrees()).map(|o| match o.rounding {
        Some(r) if o.difference <= row.allowed => format!(
            "{} has the same bits in {:.1} % of its elements only, and rounds {:.1} times as far as the program",
            o.name,
            r.same * 100.0,
            r.worse
        ),
        _ => format!("{} differs by {:.1e} of its largest element", o.name, o.difference),
    });
    let wrong: Vec<String> = wrong.collect();
    if !wrong.is_empty() {
        row.fault(e, region, reason, wrong.join("; "));
    } else if outputs.is_empty() && !is_given(region, reason) {
        row.fault(e, region, reason, "no output of it is a value of the program".into());
    }
}

/// Whether a gradient takes results of an op: it is replayed with them, as the op's definition makes them.
fn is_given(region: &RegionReport, reason: &Reason) -> bool {
    let takes = |r: &Reason| r.inputs.iter().any(|i| i.given_by.is_some_and(|(op, _)| op == reason.op));
    region.reasons.iter().any(takes)
}

impl KindRow {
    fn fault(&mut self, e: &Examined, region: &RegionReport, reason: &Reason, what: String) {
        let at = reason.outputs.iter().find_map(|o| o.values.first());
        let location = at.and_then(|at| {
            let graph = region.sources.get(at.part)?;
            let (op, _) = graph.def(at.value)?;
            Some(e.describe(graph.op(op).loc))
        });
        let location = location.unwrap_or_else(|| "an unknown place".into());
        self.faults.push(SiteFault { rule: reason.rule.to_string(), location, what });
    }
}
