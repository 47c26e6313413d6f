//! Fuse: generated row-wise groups.
//!
//! Before: a module at local shapes. After: the same program in which elementwise ops around a named row-wise
//! op (a norm and its gradient) have become one [`FusedKind::RowGroup`] with it, wherever the cost model
//! predicts a gain. Collectives and matrix products are never inside a group.
//!
//! A group grows from its anchor one neighbour at a time, the best first, as long as the predicted time falls.
//! A neighbour is a producer or a consumer, elementwise at the anchor's full shape. A group stays *convex*: no
//! path leaves it and comes back, so it can run as one kernel. Values that others use become results of the
//! group; nothing is computed twice.

mod grow;

use crate::cost::DeviceModel;
use crate::error::Result;
use grow::{Group, grow};
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::fused::{Fused, FusedKind};
use msc_ir::{Graph, GraphId, Module, Op, Operation};
use smallvec::SmallVec;

/// One group that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// Graph it is in.
    pub graph: String,
    /// Names of its ops in program order, named ones by their own name.
    pub ops: Vec<String>,
    /// Where its anchor comes from.
    pub location: String,
    /// Predicted time of its ops one by one, in picoseconds.
    pub separate_ps: u64,
    /// Predicted time as one kernel, in picoseconds.
    pub fused_ps: u64,
}

/// Fuses every graph that the entry calls, and the entry.
///
/// # Errors
/// What the IR says of a group that does not fit; that is a bug here.
pub fn fuse(module: &mut Module, device: &DeviceModel) -> Result<Vec<GroupReport>> {
    let definitions: Vec<GraphId> = module
        .graphs()
        .flat_map(|(_, g)| {
            g.ops().filter_map(|(_, o)| if let Op::Fused(f) = &o.op { Some(f.definition) } else { None })
        })
        .collect();
    let targets: Vec<GraphId> =
        msc_ir::ops::call::reachable(module).into_iter().filter(|g| !definitions.contains(g)).collect();
    let mut report = Vec::new();
    for id in targets {
        let anchors: Vec<OpId> =
            module.graph(id).ops().filter(|(_, o)| is_anchor(&o.op)).map(|(op, _)| op).collect();
        let mut groups: Vec<Group> = Vec::new();
        for anchor in anchors {
            if groups.iter().any(|g| g.ops.contains(&anchor)) {
                continue;
            }
            let taken: Vec<OpId> = groups.iter().flat_map(|g| g.ops.iter().copied()).collect();
            let group = grow(module.graph(id), anchor, &taken, device);
            if group.ops.len() > 1 {
                groups.push(group);
            }
        }
        if groups.is_empty() {
            continue;
        }
        let source = module.graph(id).clone();
        for g in &groups {
            report.push(GroupReport {
                graph: source.name.clone(),
                ops: g.ops.iter().map(|&o| source.op(o).op.name().to_string()).collect(),
                location: module.locations.describe(source.op(g.anchor).loc),
                separate_ps: g.separate_ps,
                fused_ps: g.fused_ps,
            });
        }
        let fused = rebuild(module, &source, &groups)?;
        module.set_graph(id, fused);
    }
    module.drop_unreachable_graphs();
    Ok(report)
}

fn is_anchor(op: &Op) -> bool {
    matches!(op, Op::Fused(f) if f.kind.is_row_wise())
}

/// The graph with each group as one op. A group stands where its last member stood; ops that use its results
/// and stood before that move behind it.
fn rebuild(module: &mut Module, source: &Graph, groups: &[Group]) -> Result<Graph> {
    let mut owner: Vec<Option<usize>> = vec![None; source.op_count()];
    for (n, g) in groups.iter().enumerate() {
        for op in &g.ops {
            owner[op.0 as usize] = Some(n);
        }
    }
    let mut out = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &p in source.params() {
        map[p.0 as usize] = Some(out.add_param(source.ty(p).clone()));
    }
    let mut built = vec![false; groups.len()];
    // Emission in dependency order: an op is emitted once its operands are; groups count as one op.
    let mut waiting: Vec<OpId> = source.order().to_vec();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        for id in waiting {
            match owner[id.0 as usize] {
                Some(n) if built[n] => {}
                Some(n) => {
                    let g = &groups[n];
                    if g.inputs.iter().all(|v| map[v.0 as usize].is_some()) {
                        emit(module, source, g, &mut out, &mut map)?;
                        built[n] = true;
                    } else {
                        later.push(id);
                    }
                }
                None if source.op(id).operands.iter().all(|v| map[v.0 as usize].is_some()) => {
                    out.copy_op(source, id, &mut map)?;
                }
                None => later.push(id),
            }
        }
        if later.len() == before {
            return Err(crate::PassError::Broken {
                pass: "fuse",
                message: format!("@{} has a cycle of groups", source.name),
            });
        }
        waiting = later;
    }
    out.set_results(source.results().iter().filter_map(|r| map[r.0 as usize]).collect());
    Ok(out)
}

fn emit(
    module: &mut Module,
    source: &Graph,
    g: &Group,
    out: &mut Graph,
    map: &mut [Option<ValueId>],
) -> Result<()> {
    let mut def = Graph::new(format!("{}_group", source.name));
    let mut inner: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &v in &g.inputs {
        inner[v.0 as usize] = Some(def.add_param(source.ty(v).clone()));
    }
    for &op in &g.ops {
        let data = source.op(op);
        let Op::Fused(f) = &data.op else {
            def.copy_op(source, op, &mut inner)?;
            continue;
        };
        // A named op contributes the plain ops of its definition.
        let named = module.graph(f.definition).clone();
        let mut deep: Vec<Option<ValueId>> = vec![None; named.value_count()];
        for (&p, v) in named.params().iter().zip(&data.operands) {
            deep[p.0 as usize] = inner[v.0 as usize];
        }
        for (id, _) in named.ops() {
            def.copy_op(&named, id, &mut deep)?;
        }
        for (&r, v) in named.results().iter().zip(&data.results) {
            inner[v.0 as usize] = deep[r.0 as usize];
        }
    }
    def.set_results(g.outputs.iter().filter_map(|v| inner[v.0 as usize]).collect());
    let definition = module.add_graph(def);
    let operands: SmallVec<[ValueId; 8]> = g.inputs.iter().filter_map(|v| map[v.0 as usize]).collect();
    let loc = source.op(g.anchor).loc;
    let results = out.add(module, Fused { kind: FusedKind::RowGroup, definition }, &operands, loc)?;
    for (&v, r) in g.outputs.iter().zip(results) {
        map[v.0 as usize] = Some(r);
    }
    Ok(())
}
