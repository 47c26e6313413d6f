//! What layout costs.

use super::super::extract::{Extracted, Outcome, Param};
use super::Shared;
use super::chain::{is_layout, moved};
use msc_ir::ValueId;
use std::collections::BTreeSet;

/// What layout costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Cost {
    /// Elements that transposes move.
    pub moved: usize,
    /// Elements that are kept for later parts.
    pub kept: usize,
    /// Ops.
    pub ops: usize,
}

/// What the layout of some parts costs. What is done to a value that all layers share is done in front of them, if
/// nothing else is done with it.
pub(super) fn total(parts: &[Extracted], shared: Shared<'_>) -> Cost {
    let mut sum = Cost::default();
    for (at, part) in parts.iter().enumerate() {
        let g = &part.graph;
        let is_result = g.result_table();
        let mut in_front: BTreeSet<ValueId> = BTreeSet::new();
        for (&p, &v) in part.params.iter().zip(g.params()) {
            let (part, index) = match p {
                Param::Old(index) => (at, index),
                Param::Outer { part, index } => (part, index),
                Param::Result { .. } => continue,
            };
            if shared(part, index) {
                in_front.insert(v);
            }
        }
        for (_, d) in g.ops().filter(|(_, d)| is_layout(&d.op)) {
            let v = d.operands[0];
            if in_front.contains(&v) && g.value(v).uses.len() == 1 && !is_result[v.0 as usize] {
                in_front.insert(d.results[0]);
                continue;
            }
            sum.moved += moved(&d.op, g.ty(v).elements());
            sum.ops += 1;
        }
        let kept = part.results.iter().zip(g.results()).filter(|(o, _)| matches!(o, Outcome::Export));
        sum.kept += kept.map(|(_, &v)| g.ty(v).elements()).sum::<usize>();
    }
    sum
}
