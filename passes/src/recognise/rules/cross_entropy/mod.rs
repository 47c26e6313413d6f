//! Cross-entropy against labels and its gradient, as a probe: an exponential of logits that is summed over the
//! vocabulary, what is computed of the same logits, and the whole numbers that pick one of them per row.
//!
//! The border is at the logits in the type in which the program makes them, the labels as they index, and numbers per
//! row: means, masks and weights of the loss stay outside, so that nothing else as large as the logits crosses it. The
//! gradient makes the softmax again from the logits and the normalizer that the forward op gives; where the forward is
//! computed again for the gradient's sake, the loss itself is not, and the op is there for its normalizer alone.

mod backward;
mod find;
mod forward;

use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::program::Program;
use crate::recognise::probe::unite::unite;
use std::collections::BTreeSet;

/// Name of the forward rule in reports.
const FORWARD: &str = "cross-entropy";
/// Name of the gradient's rule in reports.
const BACKWARD: &str = "cross-entropy-grad";

/// Looks for cross-entropies in a region, but for those at the exponentials `taken`, to which it adds its own, and
/// unites what is found.
pub fn probe(graph: &mut Graph, region: &Region, taken: &mut BTreeSet<At>, run: &mut Run) {
    let program = Program::new(graph, region);
    let (mut refused, mut refused_grad) = (Vec::new(), Vec::new());
    let mut pairs = Vec::new();
    for place in find::places(&program, taken) {
        let module = &graph.analysis.module;
        match forward::forward(&program, module, &place) {
            Err(why) => match backward::alone(&program, module, &place) {
                Some((forward, gradient)) => {
                    taken.insert(program.values[place.exp].at);
                    pairs.push((forward, Some(gradient)));
                }
                None => refused.push((why, Some(program.values[place.exp].at))),
            },
            Ok(site) => {
                taken.insert(program.values[place.exp].at);
                let gradient = match backward::backward(&program, module, &place, &site) {
                    Ok(found) => found,
                    Err(why) => {
                        refused_grad.push((why, Some(program.values[place.exp].at)));
                        None
                    }
                };
                pairs.push((site.found, gradient));
            }
        }
    }
    for (found, gradient) in pairs {
        match unite(graph, region, &program, &found, None, run) {
            Err(why) => refused.push((why.to_string(), None)),
            Ok(tuple) => {
                if let Some(g) = gradient
                    && let Err(why) = unite(graph, region, &program, &g, Some(tuple), run)
                {
                    refused_grad.push((why.to_string(), None));
                }
            }
        }
    }
    for (rule, all) in [(FORWARD, refused), (BACKWARD, refused_grad)] {
        for (why, at) in all {
            run.refuse(rule, why, at);
        }
    }
}
