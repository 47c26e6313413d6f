//! New graphs for a template's entry and segments after what its calls take has changed.

use super::sink::broken;
use crate::error::Result;
use crate::template::Template;
use msc_ir::{Graph, GraphId, OpData, OpId, ValueId};
use std::collections::BTreeMap;

/// For each value of the old graph what stands for it in the new one.
pub(super) type Values = Vec<Option<ValueId>>;

/// Where the ops of each graph that changed went.
pub(super) type Moved = Vec<(GraphId, BTreeMap<OpId, OpId>)>;

/// Copies the ops of `old` that `keeps` says to the end of `new`, and its results; where they went. `map` has what stands
/// for the parameters and for results of ops that are not kept.
///
/// # Errors
/// If an op or a result needs what nothing stands for.
pub(super) fn rest(
    old: &Graph,
    new: &mut Graph,
    map: &mut Values,
    keeps: impl Fn(OpId) -> bool,
) -> Result<BTreeMap<OpId, OpId>> {
    let mut moved = BTreeMap::new();
    for (id, _) in old.ops().filter(|(id, _)| keeps(*id)) {
        moved.insert(id, OpId(new.op_count() as u32));
        new.copy_op(old, id, map)?;
    }
    results(old, new, map)?;
    Ok(moved)
}

fn results(old: &Graph, new: &mut Graph, map: &Values) -> Result<()> {
    let results: Option<Vec<ValueId>> = old.results().iter().map(|r| map[r.0 as usize]).collect();
    new.set_results(results.ok_or_else(|| broken(&format!("a result of @{} is gone", old.name)))?);
    Ok(())
}

/// Rebuilds the entry with other operands for the calls of a template: `operand` gives that of parameter `p` of segment
/// `s` for `(s, p)` and the value it was, and may add ops before the call. Other ops stay where `keeps` says so. Where
/// the ops went.
///
/// # Errors
/// If an op or a result needs what is not there.
pub(super) fn calls(
    old: &Graph,
    t: &Template,
    keeps: impl Fn(&OpData) -> bool,
    mut operand: impl FnMut(&mut Graph, &Values, (usize, usize), ValueId) -> Option<ValueId>,
) -> Result<(Graph, BTreeMap<OpId, OpId>)> {
    let segment_of = segment_of(t);
    let mut new = Graph::new(old.name.clone());
    let mut map: Values = vec![None; old.value_count()];
    for &p in old.params() {
        map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
    }
    let mut moved = BTreeMap::new();
    for (id, data) in old.ops().filter(|(_, d)| keeps(d)) {
        let Some(&s) = segment_of.get(&id) else {
            moved.insert(id, OpId(new.op_count() as u32));
            new.copy_op(old, id, &mut map)?;
            continue;
        };
        let operands = data.operands.iter().enumerate().map(|(p, &v)| operand(&mut new, &map, (s, p), v));
        let operands: Option<Vec<ValueId>> = operands.collect();
        let operands = operands.ok_or_else(|| broken("a call takes a value that is not there yet"))?;
        moved.insert(id, OpId(new.op_count() as u32));
        let types = data.results.iter().map(|&r| old.ty(r).clone());
        let made = new.add_typed(data.op.clone(), &operands, types, data.loc);
        for (&r, v) in data.results.iter().zip(made) {
            map[r.0 as usize] = Some(v);
        }
    }
    results(old, &mut new, &map)?;
    Ok((new, moved))
}

/// For each call of a template its segment.
pub(super) fn segment_of(t: &Template) -> BTreeMap<OpId, usize> {
    let calls =
        t.segments.iter().enumerate().flat_map(|(s, segment)| segment.calls.iter().map(move |&c| (c, s)));
    calls.collect()
}
