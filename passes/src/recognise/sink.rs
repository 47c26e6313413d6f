//! Scalars that a layer gets spread out are spread out inside it instead.
//!
//! What all layers share is computed once, in front of them; for a scalar of the program that becomes a tensor (an
//! epsilon, a decay rate, a clipping factor) that hides from the layer that it has one value. The bits are the same.

use super::rebuild::{Moved, Values, calls, rest, segment_of};
use super::templates::shared;
use crate::error::{PassError, Result};
use crate::template::Template;
use msc_ir::{Graph, GraphId, Module, Op, OpData, OpId, ValueId};
use std::collections::BTreeMap;

/// By segment and parameter, the scalar of the entry that the parameter is spread out of.
type Sunk = BTreeMap<(usize, usize), ValueId>;

/// Sinks scalars into the segments of a template; where the ops of its graphs and of the entry went, the entry last.
///
/// # Errors
/// None in practice: what is copied was there.
pub(super) fn scalars(module: &mut Module, entry: GraphId, t: &Template) -> Result<Moved> {
    let graph = module.graph(entry);
    let mut sunk = Sunk::new();
    for (s, segment) in t.segments.iter().enumerate() {
        for p in 0..segment.params.len() {
            if let Some(scalar) = shared(graph, t, s, p).and_then(|v| spread(graph, v)) {
                sunk.insert((s, p), scalar);
            }
        }
    }
    if sunk.is_empty() {
        return Ok(Moved::new());
    }
    let mut moved = Moved::new();
    for (s, segment) in t.segments.iter().enumerate() {
        let (new, ops) = inside(module, entry, segment.graph, |p| sunk.get(&(s, p)).copied(), t, s)?;
        module.set_graph(segment.graph, new);
        moved.push((segment.graph, ops));
    }
    moved.push((entry, outside(module, entry, t, &sunk)?));
    Ok(moved)
}

/// The scalar that a value of floats is, spread out; constants are known anyway.
fn spread(graph: &Graph, v: ValueId) -> Option<ValueId> {
    let data = graph.op(graph.def(v)?.0);
    let &scalar = data.operands.first()?;
    let constant = graph.def(scalar).is_some_and(|(op, _)| matches!(graph.op(op).op, Op::Constant(_)));
    let is = matches!(data.op, Op::Broadcast(_)) && graph.ty(scalar).rank() == 0;
    (is && graph.ty(v).dtype.is_float() && !constant).then_some(scalar)
}

/// A segment's graph with scalars for the parameters that are sunk.
fn inside(
    module: &Module,
    entry: GraphId,
    segment: GraphId,
    sunk: impl Fn(usize) -> Option<ValueId>,
    t: &Template,
    s: usize,
) -> Result<(Graph, BTreeMap<OpId, OpId>)> {
    let (outer, old) = (module.graph(entry), module.graph(segment));
    let mut new = Graph::new(old.name.clone());
    let mut map: Values = vec![None; old.value_count()];
    let mut spread = Vec::new();
    for (i, &p) in old.params().iter().enumerate() {
        let scalar = sunk(i);
        let v = new.add_param(scalar.map_or(old.ty(p), |s| outer.ty(s)).clone());
        match scalar {
            None => map[p.0 as usize] = Some(v),
            Some(_) => spread.push((i, p, v)),
        }
    }
    for (i, p, v) in spread {
        let value = t.segments[s].calls.first().and_then(|&c| outer.op(c).operands.get(i).copied());
        let made = value.and_then(|v| outer.def(v)).map(|(op, _)| outer.op(op));
        let made = made.ok_or_else(|| broken("a shared value is gone"))?;
        map[p.0 as usize] = Some(new.add1(module, made.op.clone(), &[v], made.loc)?);
    }
    let moved = rest(old, &mut new, &mut map, |_| true)?;
    Ok((new, moved))
}

/// The entry with the scalars as operands of the calls; what only spread them out is gone.
fn outside(module: &mut Module, entry: GraphId, t: &Template, sunk: &Sunk) -> Result<BTreeMap<OpId, OpId>> {
    let segment_of = segment_of(t);
    let old = module.take_graph(entry);
    let sinks =
        |u: &msc_ir::Use| segment_of.get(&u.op).is_some_and(|&s| sunk.contains_key(&(s, u.index as usize)));
    let is_result = old.result_table();
    let gone = |v: ValueId| {
        let uses = &old.value(v).uses;
        !uses.is_empty() && uses.iter().all(sinks) && !is_result[v.0 as usize]
    };
    let keeps = |d: &OpData| d.results.len() != 1 || !gone(d.results[0]);
    let (new, moved) = calls(&old, t, keeps, |_, map, at, v| map[sunk.get(&at).unwrap_or(&v).0 as usize])?;
    module.set_graph(entry, new);
    Ok(moved)
}

pub(super) fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}
