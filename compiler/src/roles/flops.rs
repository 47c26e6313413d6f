//! The work of a step's matrix products.

use msc_ir::ops::while_loop::trip_count;
use msc_ir::{GraphId, Module, Op, Operation};
use std::collections::BTreeMap;

/// Floating-point operations of all matrix products and convolutions of a graph, those of its loops and calls
/// included: two for each multiply-add. A loop of unknown length counts once, of several branches the costliest.
pub fn matmul_flops(module: &Module, graph: GraphId) -> u64 {
    count(module, graph, &mut BTreeMap::new())
}

fn count(module: &Module, graph: GraphId, known: &mut BTreeMap<GraphId, u64>) -> u64 {
    if let Some(&n) = known.get(&graph) {
        return n;
    }
    let g = module.graph(graph);
    let mut sum = 0u64;
    for (id, data) in g.ops() {
        let flops = match &data.op {
            Op::DotGeneral(d) => {
                let (b, m, n, k) = d.matmul_sizes(g.ty(data.operands[0]), g.ty(data.operands[1]));
                [b, m, n, k].iter().fold(2u64, |a, &x| a.saturating_mul(x as u64))
            }
            Op::Convolution(c) => {
                let kernel = g.ty(data.operands[1]);
                let out = g.ty(data.results[0]).elements() as u64;
                let per_output = kernel.elements() / kernel.shape[c.rhs_out].max(1);
                out.saturating_mul(2 * per_output as u64)
            }
            Op::While(w) => {
                let trips = trip_count(module, g, id).unwrap_or(1);
                count(module, w.body, known).saturating_mul(trips)
            }
            Op::Branch(b) => b.callees().into_iter().map(|c| count(module, c, known)).max().unwrap_or(0),
            op => op.callees().into_iter().fold(0u64, |a, c| a.saturating_add(count(module, c, known))),
        };
        sum = sum.saturating_add(flops);
    }
    known.insert(graph, sum);
    sum
}
