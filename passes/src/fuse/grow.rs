//! How a group grows.

use crate::cost::DeviceModel;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::{Graph, Op, TensorType};
use std::collections::BTreeSet;

/// A group has at most this many ops besides its anchor: a kernel with more live tiles no longer keeps its rows
/// on chip.
const MAX_NEIGHBOURS: usize = 8;

/// A set of ops that will be one kernel.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The named op it grew from.
    pub anchor: OpId,
    /// Members in program order.
    pub ops: Vec<OpId>,
    /// Values that come from outside, in order of first use.
    pub inputs: Vec<ValueId>,
    /// Members' results that are used outside.
    pub outputs: Vec<ValueId>,
    /// Predicted time of the members one by one.
    pub separate_ps: u64,
    /// Predicted time as one kernel.
    pub fused_ps: u64,
}

fn types<'a>(g: &'a Graph, values: &[ValueId]) -> Vec<&'a TensorType> {
    values.iter().map(|&v| g.ty(v)).collect()
}

/// Grows a group from `anchor`; `taken` belong to other groups.
pub(super) fn grow(g: &Graph, anchor: OpId, taken: &[OpId], device: &DeviceModel) -> Group {
    let full = g.ty(g.op(anchor).results[0]).clone();
    let mut best = measure(g, anchor, vec![anchor], device);
    let position: Vec<usize> = {
        let mut p = vec![usize::MAX; g.op_count()];
        g.order().iter().enumerate().for_each(|(i, o)| p[o.0 as usize] = i);
        p
    };
    while best.ops.len() <= MAX_NEIGHBOURS {
        let gain = |x: &Group| x.separate_ps as i128 - x.fused_ps as i128;
        let mut next: Option<Group> = None;
        for op in neighbours(g, &best, &full) {
            if taken.contains(&op) {
                continue;
            }
            let mut ops = best.ops.clone();
            ops.push(op);
            ops.sort_by_key(|o| position[o.0 as usize]);
            if !is_convex(g, &ops, &position) {
                continue;
            }
            let candidate = measure(g, anchor, ops, device);
            if gain(&candidate) > gain(&best) && next.as_ref().is_none_or(|n| gain(&candidate) > gain(n)) {
                next = Some(candidate);
            }
        }
        match next {
            Some(n) => best = n,
            None => break,
        }
    }
    best
}

/// Elementwise ops at the full shape that feed the group or are fed by it, in program order of discovery.
fn neighbours(g: &Graph, group: &Group, full: &TensorType) -> Vec<OpId> {
    let fits = |op: OpId| {
        let d = g.op(op);
        let elementwise = matches!(d.op, Op::Unary(_) | Op::Binary(_));
        elementwise && full.dtype.is_float() && g.ty(d.results[0]) == full
    };
    let producers = group.inputs.iter().filter_map(|&v| g.def(v)).map(|(op, _)| op);
    let consumers = group.outputs.iter().flat_map(|&v| g.value(v).uses.iter().map(|u| u.op));
    let mut out: Vec<OpId> = Vec::new();
    for op in producers.chain(consumers) {
        if fits(op) && !group.ops.contains(&op) && !out.contains(&op) {
            out.push(op);
        }
    }
    out.sort();
    out
}

/// Whether no path leaves the set and enters it again.
fn is_convex(g: &Graph, ops: &[OpId], position: &[usize]) -> bool {
    let members: BTreeSet<OpId> = ops.iter().copied().collect();
    let last = ops.iter().map(|o| position[o.0 as usize]).max().unwrap_or(0);
    let mut seen: BTreeSet<OpId> = BTreeSet::new();
    let mut stack: Vec<OpId> = Vec::new();
    let outside = |op: OpId, stack: &mut Vec<OpId>| {
        for &r in &g.op(op).results {
            stack.extend(g.value(r).uses.iter().map(|u| u.op));
        }
    };
    for &op in ops {
        outside(op, &mut stack);
    }
    stack.retain(|o| !members.contains(o));
    while let Some(op) = stack.pop() {
        if members.contains(&op) {
            return false;
        }
        // Nothing behind the last member can lead back.
        if position[op.0 as usize] < last && seen.insert(op) {
            outside(op, &mut stack);
        }
    }
    true
}

fn measure(g: &Graph, anchor: OpId, ops: Vec<OpId>, device: &DeviceModel) -> Group {
    let members: BTreeSet<OpId> = ops.iter().copied().collect();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let mut separate = 0u64;
    let mut work = 0u64;
    for &op in &ops {
        let d = g.op(op);
        separate =
            separate.saturating_add(device.op_ps(&d.op, &types(g, &d.operands), &types(g, &d.results)));
        work += d.results.iter().map(|&r| g.ty(r).elements() as u64).max().unwrap_or(0);
        for &v in &d.operands {
            let inside = g.def(v).is_some_and(|(o, _)| members.contains(&o));
            if !inside && !inputs.contains(&v) {
                inputs.push(v);
            }
        }
        for &r in &d.results {
            let used = g.value(r).uses.iter().any(|u| !members.contains(&u.op)) || g.results().contains(&r);
            if used {
                outputs.push(r);
            }
        }
    }
    let bytes: u64 = inputs.iter().chain(&outputs).map(|&v| g.ty(v).bytes() as u64).sum();
    let fused = device.kernel_ps(work, bytes);
    Group { anchor, ops, inputs, outputs, separate_ps: separate, fused_ps: fused }
}
