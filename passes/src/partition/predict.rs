//! Predicted time of a step.

use crate::cost::DeviceModel;
use msc_ir::ops::while_loop::trip_count;
use msc_ir::{GraphId, Module, Op, TensorType};
use std::collections::BTreeMap;

/// How often one run of the entry runs each graph it calls. Loops count by their trips where these are known.
pub(super) fn executions(module: &Module, entry: GraphId) -> BTreeMap<GraphId, usize> {
    let mut runs = BTreeMap::from([(entry, 1usize)]);
    let mut order = msc_ir::ops::call::reachable(module);
    order.reverse();
    for g in order {
        let Some(&mine) = runs.get(&g) else { continue };
        for (id, o) in module.graph(g).ops() {
            if matches!(o.op, Op::Fused(_)) {
                continue;
            }
            let trips = trip_count(module, module.graph(g), id).unwrap_or(1) as usize;
            for w in msc_ir::ops::call::wires(&o.op) {
                *runs.entry(w.graph).or_insert(0) += mine.saturating_mul(trips);
            }
        }
    }
    runs
}

/// Predicted time of one run of the entry on one rank, one op after the other, in picoseconds.
pub(super) fn step_ps(module: &Module, entry: GraphId, device: &DeviceModel) -> u64 {
    let graph = |(&id, &n): (&GraphId, &usize)| -> u64 {
        let g = module.graph(id);
        let ops = g.ops().map(|(_, data)| {
            let operands: Vec<&TensorType> = data.operands.iter().map(|&v| g.ty(v)).collect();
            let results: Vec<&TensorType> = data.results.iter().map(|&v| g.ty(v)).collect();
            match &data.op {
                Op::Collective(c) if !operands.is_empty() => {
                    device.collective_ps_on(c, operands[0], &module.mesh, c.axes())
                }
                op => device.op_ps(op, &operands, &results),
            }
        });
        ops.fold(0u64, u64::saturating_add).saturating_mul(n as u64)
    };
    executions(module, entry).iter().map(graph).fold(0u64, u64::saturating_add)
}
