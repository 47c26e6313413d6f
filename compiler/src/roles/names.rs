//! What only names tell.
//!
//! Biases that are no vectors (one for each head and feature) look like tables of positions; momenta of optimizers
//! that orthogonalise them enter matrix products like weights.

use super::filled;
use super::flow::Flow;
use msc_ir::Entry;
use msc_runtime::plan::{InputRole, Role};

/// Path components that name an optimizer's state: of Optax, of PyTorch, and of papers.
const STATE: [&str; 9] = [
    "mu",
    "nu",
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum",
    "momentum_buffer",
    "trace",
    "velocity",
];

/// The words of a path: `[1].mu['layers.0']['kernel']` has `1`, `mu`, `layers`, `0`, `kernel`.
fn words(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect()
}

/// Looks at the names of what is taken for weights.
pub(super) fn ask(flow: &Flow<'_>, entry: &Entry, roles: &mut [Option<InputRole>]) {
    let paths: Vec<Vec<&str>> = entry.params.iter().map(|p| words(&p.name)).collect();
    for n in 0..roles.len() {
        if roles[n].as_ref().map(|r| r.role) != Some(Role::Weight) {
            continue;
        }
        let ty = flow.types[flow.params[n] as usize];
        let state = paths[n].iter().position(|w| STATE.contains(w));
        // The parameter that it belongs to is called the same from there on.
        let owner = state.and_then(|at| {
            let rest = &paths[n][at + 1..];
            let owns = |&m: &usize| {
                m != n
                    && flow.types[flow.params[m] as usize].shape == ty.shape
                    && !rest.is_empty()
                    && paths[m].ends_with(rest)
                    && !paths[m].iter().any(|w| STATE.contains(w))
            };
            (0..paths.len()).find(owns)
        });
        let leaf = paths[n].iter().rev().find(|w| **w != "value").copied().unwrap_or_default();
        if let Some(owner) = owner {
            let why = format!("state of the optimizer for {}, by its name", entry.params[owner].name);
            roles[n] = Some(InputRole { role: filled(0.0), why });
        } else if leaf == "bias" {
            roles[n] = Some(InputRole { role: filled(0.0), why: "bias, by its name".into() });
        }
    }
}
