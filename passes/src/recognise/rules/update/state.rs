//! State: what a step takes and gives back in the same place.

use crate::recognise::engine::region::Region;
use msc_ir::{Graph, Module, Op, OpData, ValueDef, ValueId};
use std::collections::BTreeMap;

/// A value before and after the step, in one part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The part.
    pub part: usize,
    /// Before: a parameter of the part's graph.
    pub old: ValueId,
    /// After: a result of it.
    pub new: ValueId,
}

/// The state that the graphs of a region step: wherever they are called, the entry gives back the result in the place
/// of the parameter.
pub fn states(module: &Module, region: &Region) -> Vec<State> {
    let Ok(entry) = module.entry() else { return Vec::new() };
    // For each parameter of the entry the result in its place.
    let main = module.graph(entry.graph);
    let back: BTreeMap<ValueId, ValueId> = main
        .params()
        .iter()
        .zip(&entry.params)
        .filter_map(|(&p, info)| Some((p, *main.results().get(info.alias? as usize)?)))
        .collect();
    let mut out = Vec::new();
    for (part, p) in region.parts.iter().enumerate() {
        if p.spec.graph == entry.graph {
            let own = p.graph.params().iter().zip(&entry.params).filter_map(|(&old, info)| {
                Some(State { part, old, new: *p.graph.results().get(info.alias? as usize)? })
            });
            out.extend(own);
            continue;
        }
        let is_call = |d: &&OpData| matches!(&d.op, Op::Call(c) if c.graph == p.spec.graph);
        let calls: Vec<&OpData> = main.ops().map(|(_, d)| d).filter(is_call).collect();
        out.extend(stepped(&p.graph, &calls, &back).map(|(old, new)| State { part, old, new }));
    }
    out
}

/// The parameters of a graph that come back as its results in all of `calls`.
fn stepped<'a>(
    graph: &'a Graph,
    calls: &'a [&'a OpData],
    back: &'a BTreeMap<ValueId, ValueId>,
) -> impl Iterator<Item = (ValueId, ValueId)> + 'a {
    graph.params().iter().enumerate().filter_map(move |(i, &old)| {
        let result = |c: &OpData| {
            let want = back.get(c.operands.get(i)?)?;
            c.results.iter().position(|r| r == want)
        };
        let first = result(calls.first()?)?;
        let new = *graph.results().get(first)?;
        calls.iter().all(|c| result(c) == Some(first)).then_some((old, new))
    })
}

/// What a step gives where it is not skipped: a step that is skipped gives back the old value.
pub fn taken(graph: &Graph, state: &State) -> ValueId {
    if let ValueDef::Result(op, _) = graph.value(state.new).def {
        let data = graph.op(op);
        if matches!(data.op, Op::Select(msc_ir::ops::select::Select::Select)) {
            match *data.operands.as_slice() {
                [_, new, old] if old == state.old => return new,
                [_, old, new] if old == state.old => return new,
                _ => {}
            }
        }
    }
    state.new
}
