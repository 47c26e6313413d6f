//! `template`: the repeated layer, found once, called once per instance.
//!
//! **Before:** simplified entries ([`crate::simplify`]): flat, without dead code, with no common subexpressions
//! merged across layers.
//! **After:** each instance of a repeated segment is a `call` of one shared graph: forward, backward and update
//! segment of a layer. What all instances share stands at the front of the entry (the prologue) and is computed
//! once. Every entry computes the same bits as before; segment graphs hold no common subexpressions.
//!
//! How layers are found:
//! 1. [`seed`]: ops that occur once per layer, by colour;
//! 2. [`grow`]: from one pair of them to the correspondence of one layer with the next;
//! 3. [`chains`]: its orbits, lined up so that each op knows its instance; [`links`]: what their operands are, so that
//!    what follows costs the same however many instances there are;
//! 4. [`relation`], [`segments`]: what each operand is over all instances; cutting at the loss, the global norm and
//!    barriers, by the direction of recurrences;
//! 5. [`cut`]: where a layer begins: the fewest values carried, the earliest among equals;
//! 6. [`order`], [`outline`]: the calls' order, the graphs, the new entry.
//!
//! Nothing depends on the order in which an exporter writes ops, except for choosing among ops that look the
//! same. All of it is linear in the number of ops, up to sorting and a bounded number of tries.
//!
//! Layers that differ in a scalar or a table get it as a parameter. Layers that alternate (window and full
//! attention, dense and MoE) are one template of several layers; a model with a few dense layers before its MoE
//! layers has two templates.

mod chains;
mod components;
mod cut;
mod explain;
mod grow;
mod links;
mod loops;
mod nodes;
mod order;
mod outline;
mod relation;
mod search;
mod seed;
mod segments;
mod types;

pub use types::{Loop, ParamSource, Role, Segment, SegmentReport, Template, TemplateReport, Templates};

use crate::error::Result;
use crate::simplify::values::equal_graphs;
use msc_ir::{Module, OpId};
use nodes::Nodes;
use rustc_hash::FxHashMap;

/// Most templates that are looked for in one entry.
pub const TEMPLATES: usize = 8;

/// Finds the templates of the default entry and outlines them.
///
/// # Errors
/// [`PassError::Broken`](crate::PassError::Broken) and the IR's own errors, all of them bugs here.
pub fn template(module: &mut Module) -> Result<Templates> {
    let _span = tracing::info_span!("template").entered();
    let id = module.entry()?.graph;
    let mut out = Templates::default();
    for at in 0..TEMPLATES {
        let graph = module.take_graph(id);
        let same = equal_graphs(module);
        let nodes = Nodes::new(&graph, &same);
        let outcome = search::search(&nodes);
        let Some(found) = outcome.found else {
            if at == 0 {
                out.notes.extend(outcome.missed.map(|m| explain::refusal(module, &nodes, &m)));
            }
            module.set_graph(id, graph);
            break;
        };
        let lost = explain::lost(module, &nodes, &found);
        // Forward would be hidden from a backward in the entry, and two layers are soon read twice.
        if lost.is_some() && found.range.instances() == 2 {
            out.notes.extend(lost);
            module.set_graph(id, graph);
            break;
        }
        out.notes.extend(explain::ends(module, &nodes, &found));
        out.notes.extend(lost);
        let name = if at == 0 { "layer".to_string() } else { format!("layer_{at}") };
        let outlined = outline::outline(module, &nodes, &same, &found, &name)?;
        follow(&mut out, &outlined.moved);
        out.prologue.extend(outlined.prologue);
        out.templates.push(outlined.template);
        module.set_graph(id, outlined.entry);
    }
    out.loops = loops::loops(module);
    if !out.loops.is_empty() && out.templates.is_empty() {
        // The layers are there, only not unrolled.
        out.notes.clear();
    }
    Ok(out)
}

/// Lets what was found before name the ops of the rebuilt entry.
fn follow(templates: &mut Templates, moved: &FxHashMap<OpId, OpId>) {
    let calls = templates.templates.iter_mut().flat_map(|t| &mut t.segments).flat_map(|s| &mut s.calls);
    for id in calls.chain(&mut templates.prologue) {
        if let Some(&new) = moved.get(id) {
            *id = new;
        }
    }
}
