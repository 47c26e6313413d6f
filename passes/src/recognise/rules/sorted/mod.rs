//! Tokens that are sorted by the experts that they choose, and back, as a probe: a stable sort of choices that carries their
//! places along, and what moves rows by it.
//!
//! What is done with indices is read exactly: every vector that is computed from the order element by element is computed
//! for all places there are. What is done with rows is tried on numbers, with the order left out.

mod index;
mod moves;

use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::{Reason, Run};
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::found::Found;
use crate::recognise::probe::program::{Index, Program};
use crate::recognise::probe::unite::unite;
use index::Sorted;
use msc_ir::ops::fused::FusedKind;
use std::collections::BTreeMap;

/// Looks for sorted choices in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    if !run.reasons.iter().any(is_route) {
        return;
    }
    let program = Program::new(graph, region);
    let chosen = choices(&program, run);
    let mut all: Vec<(Sorted, Vec<Found>)> = Vec::new();
    let mut refused: Vec<(&'static str, Index, String)> = Vec::new();
    for order in 0..program.values.len() {
        match index::sorted(&program, &graph.analysis.module, &chosen, order) {
            None => {}
            Some(Err(why)) => refused.push(("moe-sort", order, why)),
            Some(Ok(s)) => {
                let found = moves::found(&program, &graph.analysis.module, &s, &mut refused);
                // An order that moves nothing is no dispatch.
                if !found.is_empty() {
                    all.push((s, found));
                }
            }
        }
    }
    for (s, found) in all {
        match unite(graph, region, &program, &s.found(), None, run) {
            Err(why) => refused.push(("moe-sort", s.order, why.to_string())),
            Ok(tuple) => {
                for f in found {
                    if let Err(why) = unite(graph, region, &program, &f, Some(tuple), run) {
                        refused.push((f.rule, f.outputs[0].value, why.to_string()));
                    }
                }
            }
        }
    }
    for (rule, at, why) in refused {
        run.refuse(rule, why, Some(program.values[at].at));
    }
}

fn is_route(r: &Reason) -> bool {
    matches!(r.fused.kind, FusedKind::MoeRoute(_))
}

/// Choices of experts that routers of the e-graph made, with how many experts there are.
fn choices(p: &Program<'_>, run: &Run) -> BTreeMap<Index, usize> {
    let each = run.reasons.iter().filter(|r| is_route(r)).flat_map(|r| {
        let experts = r.inputs.first().and_then(|x| x.ty.shape.last().copied()).unwrap_or(0);
        let places = r.outputs.iter().filter(|o| o.result == 1).flat_map(|o| &o.values);
        places.map(move |at| (*at, experts))
    });
    let known: BTreeMap<At, usize> = each.collect();
    (0..p.values.len()).filter_map(|i| Some((i, *known.get(&p.values[i].at)?))).collect()
}
