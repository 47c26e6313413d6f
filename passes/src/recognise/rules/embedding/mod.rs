//! Embeddings and their gradients: rows of a parameter by whole numbers.
//!
//! Both are read exactly, no trial is needed: a `gather` of whole rows is the op's own definition, and what stands for
//! rows outside the table is decided by the interval of indices for which a condition holds ([`find`]). A gather is an
//! embedding if its table is a parameter and its indices depend on no float (tokens that are sent to experts are neither),
//! and a `scatter` is the gradient of one if an embedding of the same indices has a table of its shape.

mod find;

use crate::recognise::define;
use crate::recognise::engine::build::Builder;
use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::rule::{MultiOutput, Tag, WhyNot};
use crate::recognise::engine::run::{CutValue, Reason, Run, introduce_by};
use crate::recognise::engine::term::Graph;
use egg::Id;
use msc_ir::Op;
use msc_ir::ops::fused::FusedKind;

/// Names of the rules in reports.
const FORWARD: &str = "embedding";
const BACKWARD: &str = "embedding-grad";

/// A value of the program as an operand, and the layout ops that bring it to the operand's layout.
struct Operand {
    name: &'static str,
    at: At,
    ops: Vec<Op>,
}

/// An embedding or a gradient of one.
struct Site {
    kind: FusedKind,
    operands: [Operand; 2],
    output: (&'static str, At),
}

/// Looks for embeddings and their gradients in a region and unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) {
    let (sites, refused) = find::sites(graph, region);
    for (rule, why) in refused {
        run.refuse(rule, why, None);
    }
    for site in sites {
        let rule = match site.kind {
            FusedKind::EmbeddingGrad { .. } => BACKWARD,
            _ => FORWARD,
        };
        if let Err(why) = unite(graph, region, rule, &site, run) {
            run.refuse(rule, why.to_string(), None);
        }
    }
}

fn unite(
    graph: &mut Graph,
    region: &Region,
    rule: &'static str,
    site: &Site,
    run: &mut Run,
) -> Result<(), WhyNot> {
    let class = |graph: &Graph, at: At| {
        region
            .class(graph, at.part, at.value)
            .ok_or_else(|| WhyNot::Precondition("a value has no class".into()))
    };
    let mut inputs: Vec<(&'static str, Id)> = Vec::new();
    for o in &site.operands {
        let mut c = class(graph, o.at)?;
        for op in &o.ops {
            c = Builder::new(graph).add(op.clone(), &[c])?;
        }
        inputs.push((o.name, c));
    }
    let args: Vec<Id> = inputs.iter().map(|i| i.1).collect();
    let tuple = Builder::new(graph)
        .fused(site.kind.clone(), &args, |module, types| define::build(module, &site.kind, types))?;
    let result = Builder::new(graph).project(tuple, 0);
    let value = class(graph, site.output.1)?;
    let op = MultiOutput { tuple, inputs, outputs: vec![(site.output.0, 0, value)] };
    let reason = |graph: &Graph, op: &MultiOutput| reason(graph, region, rule, site, op);
    introduce_by(graph, region, rule, (op, vec![(value, result)]), reason, run)
}

fn reason(
    graph: &Graph,
    region: &Region,
    rule: &'static str,
    site: &Site,
    op: &MultiOutput,
) -> Option<Reason> {
    let values = region.values_by_class(graph);
    let cut = |name, at: At, layout: &[Op], ty| -> Option<CutValue> {
        let class = region.class(graph, at.part, at.value)?;
        let loc = region.def(at).map(|op| region.parts[at.part].graph.op(op).loc);
        let values = values.get(&class).cloned().unwrap_or_default();
        let source = loc.map(|l| graph.analysis.module.locations.describe(l)).unwrap_or_default();
        Some(CutValue::of((name, 0), ty, values, layout, source))
    };
    let ty = |c: Id| graph[c].data.types.first().cloned();
    let mut inputs = Vec::new();
    for (o, &(_, c)) in site.operands.iter().zip(&op.inputs) {
        inputs.push(cut(o.name, o.at, &o.ops, ty(c)?)?);
    }
    let at = site.output.1;
    let outputs = vec![cut(site.output.0, at, &[], region.parts[at.part].graph.ty(at.value).clone())?];
    Reason::new(graph, (rule, Tag::Exact), op.tuple, inputs, outputs)
}
