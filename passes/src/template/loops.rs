//! Layers that the exporter kept as a loop: a `while` whose number of trips is plain to see.

use super::types::Loop;
use msc_ir::Module;
use msc_ir::op::Op;
use msc_ir::ops::call::reachable;
use msc_ir::ops::while_loop::{While, trip_count};

/// Loops of at least two trips that carry an activation, wherever they are; inner loops first.
pub(super) fn loops(module: &Module) -> Vec<Loop> {
    let mut out = Vec::new();
    for id in reachable(module) {
        let graph = module.graph(id);
        for (op, data) in graph.ops() {
            let Op::While(w) = data.op else { continue };
            if let Some(trips) = trip_count(module, graph, op).filter(|&n| n >= 2 && carries(module, &w)) {
                out.push(Loop { op, graph: id, body: w.body, trips });
            }
        }
    }
    out
}

/// Whether the loop hands a tensor of floats on from trip to trip; counters and random bits are no layers.
fn carries(module: &Module, w: &While) -> bool {
    let body = module.graph(w.body);
    body.params().iter().enumerate().any(|(i, &p)| {
        let t = body.ty(p);
        t.dtype.is_float() && t.elements() > 1 && !w.is_invariant(module, i)
    })
}
