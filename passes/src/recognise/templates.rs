//! Recognition of a whole module: one region per template, one for what is left of the entry, one per loop body.

use super::accumulation;
use super::engine::region::{PartSpec, Region, Source};
use super::engine::term;
use super::extract::{Extraction, Keep, Outcome, Param};
use super::known::{self, Scopes};
use super::probe::band::Bands;
use super::rebuild::Moved;
use super::report::{RegionReport, Report};
use super::{Observer, graph_region, hoist, rewrite, sink};
use crate::error::{PassError, Result};
use crate::template::{ParamSource, Segment, Template, Templates};
use msc_ir::{Graph, GraphId, Module, OpId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Recognises the named operations of every template, loop body and of the default entry around them. Templates
/// keep describing the module: their segments' parameters and calls are updated.
///
/// # Errors
/// [`PassError::Broken`] on a bug of the engine or a rule.
pub fn recognise(module: &mut Module, templates: &mut Templates) -> Result<Report> {
    recognise_observed(module, templates, &mut |_, _, _| {})
}

/// The same; `observer` is called once for each region of the report, in its order.
///
/// # Errors
/// As [`recognise`].
pub fn recognise_observed(
    module: &mut Module,
    templates: &mut Templates,
    observer: Observer<'_>,
) -> Result<Report> {
    let _span = tracing::info_span!("recognise").entered();
    let entry = module.entry()?.graph;
    let mut report = Report::default();
    for at in 0..templates.templates.len() {
        template(module, entry, templates, at, &mut report, observer)?;
    }
    let sources: Vec<_> =
        templates.loops.iter().map(|l| known::body(module, &templates.loops, l.body)).collect();
    for (at, params) in sources.into_iter().enumerate() {
        let body = templates.loops[at].body;
        let moved = graph_region(module, body, params, executed(templates, body), &mut report, observer)?;
        follow(templates, body, &moved)?;
    }
    let outside = vec![Source::Outside; module.graph(entry).params().len()];
    let moved = graph_region(module, entry, outside, 1, &mut report, observer)?;
    follow_entry(templates, entry, &moved)?;
    (report.accumulations, report.no_accumulations) = accumulation::find(module);
    for a in &report.accumulations {
        let f = report.fusions.entry(accumulation::NAME.to_string()).or_default();
        f.sites += 1;
        f.executed += a.executed;
    }
    Ok(report)
}

/// How often a graph runs: the trips of the loops around it, times the instances of the template it is a segment of.
fn executed(templates: &Templates, graph: GraphId) -> u64 {
    let mut runs = 1u64;
    let mut at = graph;
    // A loop lies in another graph than its body, so each is passed once.
    for _ in 0..=templates.loops.len() {
        let Some(l) = templates.loops.iter().find(|l| l.body == at) else { break };
        runs = runs.saturating_mul(l.trips);
        at = l.graph;
    }
    let segment = |t: &&Template| t.segments.iter().any(|s| s.graph == at);
    runs.saturating_mul(templates.templates.iter().find(segment).map_or(1, |t| t.instances as u64))
}

fn broken(message: impl Into<String>) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}

fn template(
    module: &mut Module,
    entry: GraphId,
    templates: &mut Templates,
    at: usize,
    report: &mut Report,
    observer: Observer<'_>,
) -> Result<()> {
    let moved = sink::scalars(module, entry, &templates.templates[at])?;
    follow_all(templates, entry, &moved)?;
    let t = &templates.templates[at];
    let graph = module.graph(entry);
    let scopes = Scopes::new(module, &templates.loops);
    let mut bands = Bands::new(&scopes, module);
    let specs: Vec<PartSpec> =
        (0..t.segments.len()).map(|i| spec((entry, graph), t, i, &mut bands)).collect();
    let keep = needed_outside(graph, t);
    let instances = t.instances;
    let common: BTreeSet<(usize, usize)> = (0..t.segments.len())
        .flat_map(|s| (0..t.segments[s].params.len()).map(move |p| (s, p)))
        .filter(|&(s, p)| shared(graph, t, s, p).is_some())
        .collect();
    let (mut egraph, region): (term::Graph, Region) = Region::build(std::mem::take(module), &specs);
    let is_common = |part: usize, index: usize| common.contains(&(part, index));
    let outcome = rewrite(&mut egraph, &region, (&keep, false), &is_common, observer);
    *module = std::mem::take(&mut egraph.analysis.module);
    let (run, extraction) = outcome?;
    let found = RegionReport::new(&region, &run, instances as u64, &extraction.used);
    if !found.reasons.is_empty() {
        let new = segments(&templates.templates[at], &extraction)?;
        let moved = calls(module, entry, &templates.templates[at], &extraction)?;
        for (s, part) in new.iter().zip(extraction.parts) {
            module.set_graph(s.graph, part.graph);
            follow(templates, s.graph, &part.moved)?;
        }
        templates.templates[at].segments = new;
        follow_entry(templates, entry, &moved)?;
        for _ in 0..hoist::ROUNDS {
            let moved = hoist::layouts(module, entry, &templates.templates[at])?;
            follow_all(templates, entry, &moved)?;
            if moved.is_empty() {
                break;
            }
        }
    }
    report.add(found);
    Ok(())
}

fn spec(entry: (GraphId, &Graph), t: &Template, index: usize, bands: &mut Bands<'_, Scopes<'_>>) -> PartSpec {
    let s = &t.segments[index];
    let mut source = |(at, p): (usize, &ParamSource)| match *p {
        ParamSource::FromSegment { segment, result } if segment < index => {
            Source::Result { part: segment, index: result }
        }
        ParamSource::FromSegment { .. } => Source::Outside,
        // A weight that forward and backward both take is one value.
        _ => match same_param(entry.1, t, index, at) {
            Some(same) => same,
            None => match shared(entry.1, t, index, at) {
                Some(v) => known::source(bands, (entry.0, v)),
                None => Source::Outside,
            },
        },
    };
    PartSpec { graph: s.graph, params: s.params.iter().enumerate().map(&mut source).collect() }
}

/// The value of the entry that a parameter is in every instance, if it is one.
pub(super) fn shared(entry: &Graph, t: &Template, segment: usize, param: usize) -> Option<ValueId> {
    let mut values = t.segments[segment].calls.iter().map(|&c| entry.op(c).operands.get(param).copied());
    let first = values.next()??;
    values.all(|v| v == Some(first)).then_some(first)
}

/// The parameter of an earlier segment that has the same value in every instance, if there is one. It must be a
/// value from outside the template itself.
fn same_param(entry: &Graph, t: &Template, segment: usize, param: usize) -> Option<Source> {
    let value = |s: usize, p: usize, i: usize| -> Option<ValueId> {
        entry.op(*t.segments[s].calls.get(i)?).operands.get(p).copied()
    };
    let first = value(segment, param, 0)?;
    (0..segment).find_map(|part| {
        let operands = &entry.op(*t.segments[part].calls.first()?).operands;
        let candidates = operands.iter().enumerate().filter(|&(_, &v)| v == first).map(|(index, _)| index);
        candidates
            .filter(|&q| {
                !matches!(t.segments[part].params.get(q), Some(ParamSource::FromSegment { .. }) | None)
            })
            .find(|&q| (1..t.instances).all(|i| value(segment, param, i) == value(part, q, i)))
            .map(|index| Source::Param { part, index })
    })
}

/// For each segment the results that something uses other than a later segment of the same instance.
fn needed_outside(entry: &Graph, t: &Template) -> Keep {
    // For each call which segment and instance it is.
    let mut call_of: BTreeMap<OpId, (usize, usize)> = BTreeMap::new();
    for (s, segment) in t.segments.iter().enumerate() {
        for (i, &op) in segment.calls.iter().enumerate() {
            call_of.insert(op, (s, i));
        }
    }
    let given: BTreeSet<ValueId> = entry.results().iter().copied().collect();
    let mut keep: Keep = Vec::new();
    for (s, segment) in t.segments.iter().enumerate() {
        let results = segment.calls.first().map_or(0, |&op| entry.op(op).results.len());
        let mut mine = vec![false; results];
        for (i, &call) in segment.calls.iter().enumerate() {
            for (index, &v) in entry.op(call).results.iter().enumerate() {
                let inside = |u: &msc_ir::Use| {
                    call_of.get(&u.op).is_some_and(|&(other, instance)| {
                        other > s
                            && instance == i
                            && t.segments[other].params.get(u.index as usize)
                                == Some(&ParamSource::FromSegment { segment: s, result: index })
                    })
                };
                mine[index] = mine[index] || given.contains(&v) || !entry.value(v).uses.iter().all(inside);
            }
        }
        keep.push(mine);
    }
    keep
}

/// The segments with the sources of their new parameters.
fn segments(t: &Template, extraction: &Extraction) -> Result<Vec<Segment>> {
    let renumber = |segment: usize, result: usize| -> Result<usize> {
        let place = extraction.parts[segment].results.iter().position(|r| *r == Outcome::Old(result));
        place.ok_or_else(|| broken("a result that another instance takes is gone"))
    };
    let mut out = Vec::new();
    for (s, part) in extraction.parts.iter().enumerate() {
        let mut params = Vec::new();
        for p in &part.params {
            let old = |part: usize, index: usize| match t.segments[part].params.get(index) {
                Some(&ParamSource::Carry { segment, result, offset }) => {
                    Ok(ParamSource::Carry { segment, result: renumber(segment, result)?, offset })
                }
                Some(&ParamSource::FromSegment { segment, result }) => {
                    Ok(ParamSource::FromSegment { segment, result: renumber(segment, result)? })
                }
                Some(&other) => Ok(other),
                None => Err(broken("a parameter without a source")),
            };
            params.push(match *p {
                Param::Old(i) => old(s, i)?,
                Param::Outer { part, index } => old(part, index)?,
                Param::Result { part, index } => ParamSource::FromSegment { segment: part, result: index },
            });
        }
        let old = &t.segments[s];
        out.push(Segment { graph: old.graph, role: old.role, calls: old.calls.clone(), params });
    }
    Ok(out)
}

/// The entry with its calls of the template's segments changed to fit the new graphs; where each op went.
fn calls(
    module: &mut Module,
    entry: GraphId,
    t: &Template,
    extraction: &Extraction,
) -> Result<BTreeMap<OpId, OpId>> {
    let mut call_of: BTreeMap<OpId, (usize, usize)> = BTreeMap::new();
    for (s, segment) in t.segments.iter().enumerate() {
        for (i, &op) in segment.calls.iter().enumerate() {
            call_of.insert(op, (s, i));
        }
    }
    let old = module.take_graph(entry);
    let mut new = Graph::new(old.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; old.value_count()];
    for &p in old.params() {
        map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
    }
    let mut moved = BTreeMap::new();
    // For each segment and instance the new results of its call.
    let mut given: BTreeMap<(usize, usize), Vec<ValueId>> = BTreeMap::new();
    for (id, data) in old.ops() {
        let at = OpId(new.op_count() as u32);
        match call_of.get(&id) {
            None => new.copy_op(&old, id, &mut map)?,
            Some(&(s, i)) => {
                let part = &extraction.parts[s];
                let mut operands = Vec::new();
                for p in &part.params {
                    let outer = |part: usize, index: usize| {
                        let call = t.segments[part].calls.get(i)?;
                        map[old.op(*call).operands.get(index)?.0 as usize]
                    };
                    let v = match *p {
                        Param::Old(index) => outer(s, index),
                        Param::Outer { part, index } => outer(part, index),
                        Param::Result { part, index } => {
                            given.get(&(part, i)).and_then(|r| r.get(index)).copied()
                        }
                    };
                    operands.push(v.ok_or_else(|| broken("a call takes a value that is not there yet"))?);
                }
                let types = part.graph.result_types();
                let results = new.add_typed(data.op.clone(), &operands, types, data.loc);
                for (r, &v) in part.results.iter().zip(&results) {
                    if let Outcome::Old(k) = *r {
                        map[data.results[k].0 as usize] = Some(v);
                    }
                }
                given.insert((s, i), results.to_vec());
            }
        }
        moved.insert(id, at);
    }
    let results: Option<Vec<ValueId>> = old.results().iter().map(|r| map[r.0 as usize]).collect();
    new.set_results(results.ok_or_else(|| broken("a result of the entry is gone"))?);
    module.set_graph(entry, new);
    Ok(moved)
}

/// Lets loops follow their ops to where those of a graph went.
fn follow(templates: &mut Templates, graph: GraphId, moved: &BTreeMap<OpId, OpId>) -> Result<()> {
    let to = |op: OpId| moved.get(&op).copied().ok_or_else(|| broken("a call or loop is gone"));
    for l in templates.loops.iter_mut().filter(|l| l.graph == graph) {
        l.op = to(l.op)?;
    }
    Ok(())
}

/// The same for several graphs.
fn follow_all(templates: &mut Templates, entry: GraphId, moved: &Moved) -> Result<()> {
    for (graph, moved) in moved {
        match *graph == entry {
            true => follow_entry(templates, entry, moved)?,
            false => follow(templates, *graph, moved)?,
        }
    }
    Ok(())
}

/// The same for the entry, which also holds the calls of segments and the prologue.
fn follow_entry(templates: &mut Templates, entry: GraphId, moved: &BTreeMap<OpId, OpId>) -> Result<()> {
    let to = |op: OpId| moved.get(&op).copied().ok_or_else(|| broken("a call of the entry is gone"));
    for s in templates.templates.iter_mut().flat_map(|t| &mut t.segments) {
        for c in &mut s.calls {
            *c = to(*c)?;
        }
    }
    templates.prologue = templates.prologue.iter().filter_map(|op| moved.get(op).copied()).collect();
    follow(templates, entry, moved)
}
