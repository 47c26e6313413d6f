//! Norms of a sum: the residual stream and what a sublayer adds to it, as a probe over the norms that were found. Nothing is
//! tried on numbers, as the addition says all. Kernels give the sum beside the norm (`npu_add_rms_norm`).

use crate::recognise::define;
use crate::recognise::engine::region::Region;
use crate::recognise::engine::rule::{MultiOutput, WhyNot};
use crate::recognise::engine::run::{Reason, Run, introduce_by, reason};
use crate::recognise::engine::term::{Graph, Node};
use crate::recognise::engine::{At, Builder};
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{Op, OpData, ValueId};
use std::collections::BTreeSet;

/// Gives each norm whose rows are a sum the addition, too: the first of those that take one sum.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    // What another op gives is no sum that is left to add up: rows that a rotation gives are one by its spelling only.
    let values = run.reasons.iter().flat_map(|r| &r.outputs).filter_map(|o| o.values.first());
    let mut taken: BTreeSet<Id> =
        values.filter_map(|at| region.class(graph, at.part, at.value)).map(|c| graph.find(c)).collect();
    for r in run.reasons.clone() {
        let Some((kind, sum)) = of(graph, &r) else { continue };
        let sum = graph.find(sum);
        if taken.contains(&sum) {
            continue;
        }
        let at = region.values_by_class(graph).get(&sum).and_then(|all| all.first()).copied();
        let Some((at, terms)) = at.and_then(|at| Some((at, terms(region, at)?))) else { continue };
        match added(graph, region, run, &r, kind, (at, terms)) {
            Ok(()) => {
                taken.insert(sum);
            }
            Err(why) => run.refuse(r.rule, why.to_string(), Some(at)),
        }
    }
}

/// What a norm is with a residual, and its rows, if it has none yet.
fn of(graph: &Graph, r: &Reason) -> Option<(FusedKind, Id)> {
    let kind = match r.fused.kind.clone() {
        FusedKind::RmsNorm { eps, scale, late, residual: false } => {
            FusedKind::RmsNorm { eps, scale, late, residual: true }
        }
        FusedKind::LayerNorm { eps, scale, shift, residual: false } => {
            FusedKind::LayerNorm { eps, scale, shift, residual: true }
        }
        _ => return None,
    };
    Some((kind, *operands(graph, r)?.first()?))
}

/// The operands of a reason's op, as classes.
fn operands(graph: &Graph, r: &Reason) -> Option<Vec<Id>> {
    graph[graph.find(r.op)].nodes.iter().find_map(|n| match n {
        Node::Op { op, args } => match graph.analysis.op(*op) {
            Op::Fused(f) if **f == r.fused => Some(args.to_vec()),
            _ => None,
        },
        _ => None,
    })
}

/// The two terms of a value that is a sum of two tensors, the stream first. A term that is spread is a bias. Longer sums stay
/// whole: what is partial on ranks is then added up once for all their terms.
fn terms(region: &Region, at: At) -> Option<[ValueId; 2]> {
    let g = &region.parts[at.part].graph;
    let def = |v: ValueId| g.def(v).map(|(op, _)| g.op(op));
    let adds = |d: &OpData| matches!(&d.op, Op::Binary(b) if b.kind == BinaryKind::Add);
    let spread = |v: ValueId| def(v).is_some_and(|d| matches!(d.op, Op::Broadcast(_) | Op::Constant(_)));
    let sum = def(at.value).filter(|d| adds(d))?;
    let longer = |v: ValueId| {
        g.value(v).uses.len() == 1
            && def(v).is_some_and(|d| adds(d) && !d.operands.iter().any(|&o| spread(o)))
    };
    let &[a, b] = sum.operands.as_slice() else { return None };
    let position = |v: ValueId| region.at(at.part, v).position;
    let fits = a != b && ![a, b].into_iter().any(|v| spread(v) || longer(v));
    fits.then(|| if position(a) <= position(b) { [a, b] } else { [b, a] })
}

fn added(
    graph: &mut Graph,
    region: &Region,
    run: &mut Run,
    norm: &Reason,
    kind: FusedKind,
    (at, terms): (At, [ValueId; 2]),
) -> Result<(), WhyNot> {
    let refuse = |why: &str| WhyNot::Precondition(why.into());
    let first = norm.outputs.iter().find(|o| o.name == "y").and_then(|o| o.values.first());
    if first.is_none_or(|y| y.part != at.part) {
        return Err(refuse("the sum is another graph's than the norm"));
    }
    let class = |v: ValueId| region.class(graph, at.part, v).ok_or_else(|| refuse("a value has no class"));
    let [x, r] = [class(terms[0])?, class(terms[1])?];
    let mut args = operands(graph, norm).ok_or_else(|| refuse("the norm is gone"))?;
    let sum = args[0];
    if graph[sum].data.types.first() != graph[x].data.types.first() {
        return Err(refuse("the rows are the sum in another shape"));
    }
    let mut names: Vec<&'static str> = norm.inputs.iter().map(|i| i.name).collect();
    // Numbers stand behind all others.
    let end = args.iter().position(|&a| graph[a].data.types.first().is_some_and(|t| t.rank() == 0));
    let end = end.unwrap_or(args.len());
    args[0] = x;
    args.insert(end, r);
    names.insert(end, "r");
    let tuple = Builder::new(graph).fused(kind.clone(), &args, |module, types| match kind {
        FusedKind::RmsNorm { eps, scale, late, residual } => {
            define::rms_norm::forward(module, types, eps, scale, (late, residual))
        }
        FusedKind::LayerNorm { eps, scale, shift, residual } => {
            define::layer_norm::forward(module, types, eps, (scale, shift, residual))
        }
        ref kind => define::build(module, kind, types),
    })?;
    let inputs = names.into_iter().zip(args).collect();
    let mut b = Builder::new(graph);
    let given = [0, 1].map(|result| b.project(norm.op, result));
    // What the norm gives, in whichever layouts, this gives too.
    let same = norm.outputs.iter().map(|o| {
        let class = o.values.first().and_then(|at| region.class(graph, at.part, at.value));
        (o.name, o.result, class.unwrap_or(given[usize::from(o.result > 0)]))
    });
    let outputs = same.chain([("h", 2, sum)]).collect();
    let mut b = Builder::new(graph);
    let mut unions: Vec<(Id, Id)> = vec![(sum, b.project(tuple, 2))];
    unions.extend([0, 1].map(|i| (given[i], b.project(tuple, i as u32))));
    let op = MultiOutput { tuple, inputs, outputs };
    let by = (norm.rule, norm.tag);
    introduce_by(graph, region, by.0, (op, unions), |graph, op| reason(graph, region, by, op), run)
}
