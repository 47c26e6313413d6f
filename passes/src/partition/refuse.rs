//! Why an axis cannot be split.

use super::data::atoms_of;
use super::facts::Draft;
use super::problem::Problem;
use super::{base, isolate, pad};
use crate::error::{PassError, Result};
use msc_ir::module::AxisId;
use std::collections::BTreeSet;

/// The refusal of an axis of `n` ranks that finds nothing to split: what there is, and what needs it whole.
///
/// # Errors
/// Bugs of factor rules.
pub(super) fn nothing_to_split(draft: &Draft, name: &str, axis: AxisId, n: usize) -> Result<PassError> {
    let problem = Problem::new(&draft.module)?;
    let of_batch = pad::OF_BATCH.contains(&base(name));
    let help = if base(name) == "tp" {
        let g = draft.module.graph(problem.entry);
        let all = problem.candidates(g, g.params().iter().copied(), axis, 1);
        let sizes: BTreeSet<usize> = all.iter().map(|&a| problem.atoms.size(a)).collect();
        format!("dimensions that may be split have the sizes {sizes:?}; choose a divisor of one of them")
    } else {
        let has = of_data(&problem, draft);
        let has = if has.is_empty() { "nothing that could be split".into() } else { has.join(", ") };
        format!(
            "each rank's data has {has}; choose a divisor of what no op needs whole, or leave the axis out"
        )
    };
    let unpadded = of_batch.then(|| pad::why_no_batch(&problem, &draft.module, n)).flatten();
    let unpadded = unpadded.map_or(String::new(), |why| format!("; {why}"));
    Ok(PassError::Layout {
        message: format!("--{name} {n}: no dimension of the model divides by {n} and may be split"),
        help: format!("{help}{unpadded}"),
    })
}

/// The dimensions of the data, in words.
fn of_data(problem: &Problem, draft: &Draft) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (dim, word) in ["batch", "sequence"].into_iter().enumerate() {
        for anchor in atoms_of(problem, &draft.module, dim) {
            let whole = anchor.atom(problem).filter(|&a| problem.atoms.is_whole(a));
            let because = whole.and_then(|a| isolate::reason(problem, &draft.module, a));
            let because = because.map_or(String::new(), |why| format!(" ({why})"));
            let text = format!("a {word} of {}{because}", anchor.size());
            if !out.contains(&text) {
                out.push(text);
            }
        }
    }
    out
}
