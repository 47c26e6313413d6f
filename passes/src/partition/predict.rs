//! Predicted time of a step.

use crate::cost::DeviceModel;
use msc_ir::ops::call::executions;
use msc_ir::{GraphId, Module, Op, TensorType};

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
