//! What every layer does to a table that all layers share is done once, in front of them.
//!
//! Named operations take tables in their own layout, so that recognition leaves reshapes and transposes of sines and
//! cosines in every layer. Where all that a segment makes of a shared parameter is one op that only moves its elements,
//! the entry does that, once for all segments, and the parameter is what came of it. The bits are the same.

use super::rebuild::{Moved, Values, calls, rest};
use super::templates::shared;
use crate::error::Result;
use crate::template::Template;
use msc_ir::op::Op;
use msc_ir::{Graph, GraphId, LocId, Module, OpId, TensorType, ValueId};
use std::collections::BTreeMap;

/// How often it is worth to look again: a table may be taken through two or three ops.
pub(super) const ROUNDS: usize = 4;

/// An op that the entry is to do in place of a segment.
struct Hoisted {
    op: Op,
    /// The shared value of the entry that it takes.
    of: ValueId,
    /// The op in the segment's graph.
    inside: OpId,
    ty: TensorType,
    loc: LocId,
}

/// By segment and parameter.
type Plan = BTreeMap<(usize, usize), Hoisted>;

/// Hoists one op of each table out of the segments of a template; where the ops of its graphs and of the entry went,
/// the entry last.
///
/// # Errors
/// None in practice: what is copied was there.
pub(super) fn layouts(module: &mut Module, entry: GraphId, t: &Template) -> Result<Moved> {
    let plan = plan(module, entry, t);
    let mut moved = Moved::new();
    if plan.is_empty() {
        return Ok(moved);
    }
    for (s, segment) in t.segments.iter().enumerate() {
        let here: BTreeMap<usize, &Hoisted> =
            plan.iter().filter(|(k, _)| k.0 == s).map(|(k, h)| (k.1, h)).collect();
        if !here.is_empty() {
            let (new, ops) = inside(module.graph(segment.graph), &here)?;
            module.set_graph(segment.graph, new);
            moved.push((segment.graph, ops));
        }
    }
    moved.push((entry, outside(module, entry, t, &plan)?));
    Ok(moved)
}

/// Whether an op gives its one operand's elements in another order or shape.
fn only_moves(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(_))
}

fn plan(module: &Module, entry: GraphId, t: &Template) -> Plan {
    let outer = module.graph(entry);
    let mut out = Plan::new();
    for (s, segment) in t.segments.iter().enumerate() {
        let g = module.graph(segment.graph);
        let is_result = g.result_table();
        for (p, &param) in g.params().iter().enumerate() {
            let [only] = g.value(param).uses.as_slice() else { continue };
            let data = g.op(only.op);
            if is_result[param.0 as usize] || !only_moves(&data.op) {
                continue;
            }
            let Some(of) = shared(outer, t, s, p) else { continue };
            let ty = g.ty(data.results[0]).clone();
            out.insert((s, p), Hoisted { op: data.op.clone(), of, inside: only.op, ty, loc: data.loc });
        }
    }
    out
}

/// A segment's graph whose parameters are what came of the hoisted ops.
fn inside(old: &Graph, here: &BTreeMap<usize, &Hoisted>) -> Result<(Graph, BTreeMap<OpId, OpId>)> {
    let mut new = Graph::new(old.name.clone());
    let mut map: Values = vec![None; old.value_count()];
    for (i, &p) in old.params().iter().enumerate() {
        let (value, ty) = match here.get(&i) {
            Some(h) => (old.op(h.inside).results[0], &h.ty),
            None => (p, old.ty(p)),
        };
        map[value.0 as usize] = Some(new.add_param(ty.clone()));
    }
    let moved = rest(old, &mut new, &mut map, |id| here.values().all(|h| h.inside != id))?;
    Ok((new, moved))
}

/// The entry with the hoisted ops before the first call that takes what comes of them.
fn outside(module: &mut Module, entry: GraphId, t: &Template, plan: &Plan) -> Result<BTreeMap<OpId, OpId>> {
    let old = module.take_graph(entry);
    let mut made: BTreeMap<(ValueId, &Op), ValueId> = BTreeMap::new();
    let operand = |new: &mut Graph, map: &Values, at: (usize, usize), v: ValueId| {
        let Some(h) = plan.get(&at) else { return map[v.0 as usize] };
        let known = made.get(&(h.of, &h.op)).copied();
        known.or_else(|| {
            let value = new.add_typed(h.op.clone(), &[map[h.of.0 as usize]?], [h.ty.clone()], h.loc)[0];
            made.insert((h.of, &h.op), value);
            Some(value)
        })
    };
    let (new, moved) = calls(&old, t, |_| true, operand)?;
    module.set_graph(entry, new);
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{ParamSource, Role, Segment};
    use msc_ir::text;

    /// Two layers; `USE` is what a layer makes of the table beside its reshape.
    const MODEL: &str = "module @m
graph @layer(%0: f32[2,3], %1: f32[1,2,3]) {
  %2 = reshape %1 {shape = [2, 3]} : f32[2,3]
  %3 = add %0, %2 : f32[2,3]
  return %3USE
}
graph @main(%0: f32[2,3], %1: f32[1,2,3]) {
  %2CALL = call %0, %1 {graph = @layer} : f32[2,3]TYPE
  %4CALL = call %2, %1 {graph = @layer} : f32[2,3]TYPE
  return %4
}
entry \"main\" @main {
  param \"x\"
  param \"table\"
  result \"y\"
}";

    fn model(other_use: bool) -> (Module, GraphId, Template) {
        let (result, ty) = if other_use { (", %1", ", f32[1,2,3]") } else { ("", "") };
        let text = MODEL.replace("USE", result).replace("TYPE", ty);
        let text = match other_use {
            true => text.replace("%2CALL", "%2, %3").replace("%4CALL", "%4, %5"),
            false => text.replace("%2CALL", "%2").replace("%4CALL", "%3").replace("%4", "%3"),
        };
        let module = text::parse(&text).expect("parses");
        let entry = module.entry().expect("an entry").graph;
        let graph = module.graphs().find(|(_, g)| g.name == "layer").expect("a layer").0;
        let calls = module.graph(entry).order().to_vec();
        let carry = ParamSource::Carry { segment: 0, result: 0, offset: -1 };
        let segment = Segment { graph, role: Role::Forward, calls, params: vec![carry, ParamSource::Shared] };
        let t = Template { name: "layer".into(), segments: vec![segment], instances: 2 };
        (module, entry, t)
    }

    #[test]
    fn a_table_of_all_layers_is_reshaped_once() {
        let (mut module, entry, t) = model(false);
        let moved = layouts(&mut module, entry, &t).expect("hoists");
        msc_ir::verify::verify(&module).expect("a sound module");
        let count =
            |g: GraphId| module.graph(g).ops().filter(|(_, d)| matches!(d.op, Op::Reshape(_))).count();
        assert_eq!((count(t.segments[0].graph), count(entry)), (0, 1));
        assert_eq!(moved.len(), 2);
    }

    #[test]
    fn a_table_that_is_used_as_it_is_stays() {
        let (mut module, entry, t) = model(true);
        let before = text::print(&module);
        assert!(layouts(&mut module, entry, &t).expect("looks").is_empty());
        assert_eq!(text::print(&module), before);
    }
}
