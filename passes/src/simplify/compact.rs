//! Dead code elimination.
//!
//! **After:** every op has a result that the graph's results need; op and value ids are dense and in order.
//! An `optimization_barrier` loses the operands whose results nobody needs, which keeps what it holds alive from
//! being more than the program says.

use crate::error::{PassError, Result};
use msc_ir::op::Op;
use msc_ir::{Graph, OpId, ValueId};
use smallvec::SmallVec;

/// A copy of `graph` without its dead ops.
///
/// # Errors
/// [`PassError::Broken`] if an operand is not defined before its use.
pub fn compact(graph: &Graph) -> Result<Graph> {
    compact_mapped(graph).map(|(g, _)| g)
}

/// [`compact`], and for each old op id the new one, if the op is still there.
///
/// # Errors
/// As [`compact`].
pub fn compact_mapped(graph: &Graph) -> Result<(Graph, Vec<Option<OpId>>)> {
    let mut ids = vec![None; graph.op_count()];
    let needed = needed(graph);
    let mut out = Graph::new(graph.name.clone());
    out.reserve_as(graph);
    let mut map: Vec<Option<ValueId>> = vec![None; graph.value_count()];
    for &p in graph.params() {
        map[p.0 as usize] = Some(out.add_param(graph.ty(p).clone()));
    }
    let lookup = |map: &[Option<ValueId>], v: ValueId| {
        map[v.0 as usize].ok_or_else(|| PassError::Broken {
            pass: "simplify",
            message: format!("value {} of @{} is used before it is defined", v.0, graph.name),
        })
    };
    for (id, data) in graph.ops() {
        let live = |i: usize| needed[data.results[i].0 as usize];
        if !(0..data.results.len()).any(live) {
            continue;
        }
        let partial = matches!(data.op, Op::Barrier(_));
        let kept: SmallVec<[usize; 4]> = (0..data.results.len()).filter(|&i| !partial || live(i)).collect();
        let operands: SmallVec<[ValueId; 4]> = data
            .operands
            .iter()
            .enumerate()
            .filter(|(i, _)| !partial || live(*i))
            .map(|(_, &v)| lookup(&map, v))
            .collect::<Result<_>>()?;
        let types = kept.iter().map(|&i| graph.ty(data.results[i]).clone());
        ids[id.0 as usize] = Some(OpId(out.op_count() as u32));
        let results = out.add_typed(data.op.clone(), &operands, types, data.loc);
        for (&i, v) in kept.iter().zip(results) {
            map[data.results[i].0 as usize] = Some(v);
        }
    }
    let results = graph.results().iter().map(|&r| lookup(&map, r)).collect::<Result<_>>()?;
    out.set_results(results);
    Ok((out, ids))
}

/// For each value whether the graph's results need it.
fn needed(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.value_count()];
    for r in graph.results() {
        needed[r.0 as usize] = true;
    }
    for (_, data) in graph.ops().rev() {
        if matches!(data.op, Op::Barrier(_)) {
            for (r, v) in data.results.iter().zip(&data.operands) {
                needed[v.0 as usize] |= needed[r.0 as usize];
            }
        } else if data.results.iter().any(|r| needed[r.0 as usize]) {
            for v in &data.operands {
                needed[v.0 as usize] = true;
            }
        }
    }
    needed
}
