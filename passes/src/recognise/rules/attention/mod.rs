//! Attention and its gradient, as a probe: proposed by shape, decided by numbers.
//!
//! The gradient is proposed from the products that use the forward's weights or what comes of them: one that sums
//! over queries and uses the weights alone gives dv and shows dy; the others give dq and dk. Its weights are made
//! again from q and k, so that nothing of the shape of scores lies between forward and backward.

mod backward;
pub(crate) mod find;
mod forward;
mod roles;
mod sink;

use crate::recognise::engine::region::{At, Region};
use crate::recognise::engine::run::Run;
use crate::recognise::engine::term::Graph;
use crate::recognise::probe::program::Program;
use crate::recognise::probe::unite::unite;
use std::collections::BTreeSet;

/// Name of the forward rule in reports.
const FORWARD: &str = "attention";
/// Name of the gradient's rule in reports.
const BACKWARD: &str = "attention-grad";

/// Looks for attentions in a region and unites what is found. Returns the exponentials that belong to one.
pub fn probe(graph: &mut Graph, region: &Region, run: &mut Run) -> BTreeSet<At> {
    let mut pairs = Vec::new();
    let mut taken = BTreeSet::new();
    let program = Program::new(graph, region);
    let module = &graph.analysis.module;
    let (places, mut refused) = find::places(&program, module);
    let mut refused_grad = Vec::new();
    for place in &places {
        let at = program.values[place.exp].at;
        match forward::forward(&program, module, place) {
            Err(why) => refused.push((place.exp, why)),
            Ok(site) => {
                taken.insert(at);
                let gradient = match backward::backward(&program, module, place, &site) {
                    Ok(found) => found,
                    Err(why) => {
                        refused_grad.push((place.exp, why));
                        None
                    }
                };
                pairs.push((place.exp, site.found, gradient));
            }
        }
    }
    for (exp, found, gradient) in pairs {
        match unite(graph, region, &program, &found, None, run) {
            Err(why) => refused.push((exp, why.to_string())),
            Ok(tuple) => {
                if let Some(g) = gradient
                    && let Err(why) = unite(graph, region, &program, &g, Some(tuple), run)
                {
                    refused_grad.push((exp, why.to_string()));
                }
            }
        }
    }
    for (rule, all) in [(FORWARD, refused), (BACKWARD, refused_grad)] {
        for (exp, why) in all {
            run.refuse(rule, why, Some(program.values[exp].at));
        }
    }
    taken
}
