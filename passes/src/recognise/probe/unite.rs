//! Uniting what was found with the program's values, with reasons.

use super::found::{Found, Output};
use super::program::{Index, Program};
use crate::recognise::define;
use crate::recognise::engine::build::Builder;
use crate::recognise::engine::region::{ByClass, Region};
use crate::recognise::engine::rule::{MultiOutput, Tag, WhyNot};
use crate::recognise::engine::run::{CutValue, Reason, Run, introduce_by};
use crate::recognise::engine::term::Graph;
use egg::Id;
use msc_ir::Op;

fn class(graph: &Graph, region: &Region, p: &Program<'_>, i: Index) -> Result<Id, WhyNot> {
    let at = p.values[i].at;
    let class = region.class(graph, at.part, at.value);
    class.ok_or_else(|| WhyNot::Precondition("a value has no class".into()))
}

/// Adds a named op and unites its results with the values that they are. `forward` is the op whose results are
/// operands of a gradient. Returns the op's class.
///
/// # Errors
/// If the program's order forbids it, or operands do not fit.
pub(crate) fn unite(
    graph: &mut Graph,
    region: &Region,
    p: &Program<'_>,
    found: &Found,
    forward: Option<Id>,
    run: &mut Run,
) -> Result<Id, WhyNot> {
    let (op, unions) = added(graph, region, p, found, forward)?;
    let tuple = op.tuple;
    let reason = |graph: &Graph, op: &MultiOutput| {
        reason(graph, region, &region.values_by_class(graph), p, (found, forward), op)
    };
    introduce_by(graph, region, found.rule, (op, unions), reason, run)?;
    Ok(tuple)
}

/// The same for many ops that are each the program's own ops from their operands to their results, and of which none is
/// another's operand: there is no cycle to look for, and the e-graph is brought up to date once.
///
/// # Errors
/// If operands do not fit.
pub(crate) fn unite_all(
    graph: &mut Graph,
    region: &Region,
    p: &Program<'_>,
    all: &[Found],
    run: &mut Run,
) -> Result<(), WhyNot> {
    let made: Vec<(MultiOutput, Vec<(Id, Id)>)> =
        all.iter().map(|f| added(graph, region, p, f, None)).collect::<Result<_, _>>()?;
    graph.rebuild();
    let values = region.values_by_class(graph);
    for (found, (op, _)) in all.iter().zip(&made) {
        run.reasons.extend(reason(graph, region, &values, p, (found, None), op));
        *run.applied.entry(found.rule).or_insert(0) += 1;
    }
    for (a, b) in made.into_iter().flat_map(|(_, unions)| unions) {
        graph.union(a, b);
    }
    graph.rebuild();
    Ok(())
}

/// A named op as a term, with the classes that its results are to be united with.
fn added(
    graph: &mut Graph,
    region: &Region,
    p: &Program<'_>,
    found: &Found,
    forward: Option<Id>,
) -> Result<(MultiOutput, Vec<(Id, Id)>), WhyNot> {
    let mut inputs: Vec<(&'static str, Id)> = Vec::new();
    for o in &found.operands {
        let mut c = class(graph, region, p, o.value)?;
        for op in &o.ops {
            c = Builder::new(graph).add(op.clone(), &[c])?;
        }
        inputs.push((o.name, c));
    }
    for &(name, index) in &found.given {
        let tuple = forward.ok_or_else(|| WhyNot::Precondition("there is no forward op".into()))?;
        inputs.push((name, Builder::new(graph).project(tuple, index)));
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let tuple = Builder::new(graph)
        .fused(found.kind.clone(), &args, |module, types| define::build(module, &found.kind, types))?;
    let mut unions = Vec::new();
    let mut outputs = Vec::new();
    for o in &found.outputs {
        let mut c = Builder::new(graph).project(tuple, o.result);
        for op in &o.ops {
            c = Builder::new(graph).add(op.clone(), &[c])?;
        }
        let value = class(graph, region, p, o.value)?;
        unions.push((value, c));
        outputs.push((o.name, o.result, value));
    }
    Ok((MultiOutput { tuple, inputs, outputs }, unions))
}

fn reason(
    graph: &Graph,
    region: &Region,
    values: &ByClass,
    p: &Program<'_>,
    (found, forward): (&Found, Option<Id>),
    op: &MultiOutput,
) -> Option<Reason> {
    let of = |name, value: Index, result, layout: &[Op], ty| -> Option<CutValue> {
        let at = p.values[value].at;
        let class = region.class(graph, at.part, at.value)?;
        let values = values.get(&class).cloned().unwrap_or_default();
        let source = graph.analysis.module.locations.describe(p.values[value].loc);
        Some(CutValue::of((name, result), ty, values, layout, source))
    };
    let ty = |c: Id| graph[c].data.types.first().cloned();
    let mut inputs = Vec::new();
    for (o, &(_, c)) in found.operands.iter().zip(&op.inputs) {
        inputs.push(of(o.name, o.cut.0, 0, &o.cut.1, ty(c)?)?);
    }
    for (&(name, c), &(_, index)) in op.inputs[found.operands.len()..].iter().zip(&found.given) {
        let given_by = forward.map(|tuple| (graph.find(tuple), index));
        let source = "a result of the forward op".to_string();
        inputs.push(CutValue { given_by, ..CutValue::of((name, 0), ty(c)?, Vec::new(), &[], source) });
    }
    let output = |o: &Output| of(o.name, o.value, o.result, &o.ops, p.values[o.value].ty.clone());
    let outputs: Vec<CutValue> = found.outputs.iter().filter_map(output).collect();
    Reason::new(graph, (found.rule, Tag::Real), op.tuple, inputs, outputs)
}
