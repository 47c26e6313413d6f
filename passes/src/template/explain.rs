//! What to tell the user: why there is no template, or why a first or last layer is not part of one.

use super::grow::Shift;
use super::nodes::{NONE, Nodes};
use super::relation::Candidate;
use super::search::{Found, NearMiss};
use super::segments::Refusal;
use msc_ir::Module;
use msc_ir::op::Operation;

/// A layer next to the range is mentioned if at least this share of the template's ops (in percent) exists there.
const PARTIAL_LAYER: usize = 50;

fn describe(module: &Module, nodes: &Nodes<'_>, node: u32) -> String {
    match nodes.op(node) {
        Some(d) => format!("`{}` at {}", d.op.name(), module.locations.describe(d.loc)),
        None => {
            let at = node as usize - nodes.graph.op_count();
            let name = module.entries.iter().find(|e| module.graph(e.graph).name == nodes.graph.name);
            match name.and_then(|e| e.params.get(at)) {
                Some(p) if !p.name.is_empty() => format!("argument {} ({})", at, p.name),
                _ => format!("argument {at}"),
            }
        }
    }
}

/// Why the layers just before and after a template's instances are not instances.
pub(super) fn ends(module: &Module, nodes: &Nodes<'_>, found: &Found) -> Vec<String> {
    let candidate = Candidate::new(nodes, &found.chains, found.range).restricted(&found.rank);
    let mut out = Vec::new();
    for (inside, beyond) in [(found.range.low, found.range.low - 1), (found.range.high, found.range.high + 1)]
    {
        let reaching = candidate.chosen().filter(|&c| found.chains.range(c).holds(beyond)).count();
        if reaching * 100 < found.ops() * PARTIAL_LAYER {
            continue;
        }
        let which = if beyond < inside { "before the first" } else { "after the last" };
        // The first stop whose counterpart inside belongs to the template.
        let differs = found.shift.stops.iter().find_map(|s| {
            let pair =
                if beyond < inside { (s.producers.0, s.producers.1) } else { (s.producers.1, s.producers.0) };
            let user = if beyond < inside { s.users.1 } else { s.users.0 };
            let at = |n| candidate.slot(n).map(|s| s.instance);
            (at(user) == Some(inside) && at(pair.1) == Some(inside)).then_some(pair)
        });
        out.push(match differs {
            Some((there, here)) => format!(
                "the layer {which} instance is not one: it has {} where the instances have {}",
                describe(module, nodes, there),
                describe(module, nodes, here),
            ),
            None if reaching == found.ops() => format!(
                "the layer {which} instance is not one: its {reaching} ops have counterparts, and use others' results than these",
            ),
            None => format!(
                "the layer {which} instance is not one: {} of its {} ops have no counterpart",
                found.ops() - reaching,
                found.ops(),
            ),
        });
    }
    out
}

/// Why one of the recurrences of a template's layers is not part of it.
pub(super) fn lost(module: &Module, nodes: &Nodes<'_>, found: &Found) -> Option<String> {
    let why = refused(module, nodes, &found.shift, found.lost?);
    Some(format!("part of the layers is no template: {why}"))
}

/// Why the most promising candidate was refused.
pub(super) fn refusal(module: &Module, nodes: &Nodes<'_>, missed: &NearMiss) -> String {
    refused(module, nodes, &missed.shift, missed.refusal)
}

fn refused(module: &Module, nodes: &Nodes<'_>, shift: &Shift, refusal: Refusal) -> String {
    let what = |n| describe(module, nodes, n);
    // Where growth stopped at this op, its would-be counterpart says what differs.
    let versus = |node: u32| {
        shift.stops.iter().find_map(|s| match s.producers {
            (a, b) if a == node => Some(b),
            (a, b) if b == node => Some(a),
            _ => None,
        })
    };
    match refusal {
        Refusal::Between(node) => {
            let other = versus(node).filter(|&o| o != NONE);
            match other {
                Some(o) => format!(
                    "layers look alike but differ: one has {} where another has {}",
                    what(node),
                    what(o)
                ),
                None => {
                    format!("layers look alike, but {} lies between them and has no counterpart", what(node))
                }
            }
        }
        Refusal::BothWays(node) => {
            format!(
                "layers look alike, but what {} computes runs through them in both directions",
                what(node)
            )
        }
        Refusal::NoRecurrence => "parts repeat, but nothing is handed from one to the next".to_string(),
        Refusal::Cyclic => "layers look alike, but calls of them would wait for each other".to_string(),
    }
}
