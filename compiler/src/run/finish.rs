//! What steps leave: outputs, a verdict, saved state.

use super::Signature;
use super::inputs::Inputs;
use crate::error::Result;
use msc_ir::Tensor;
use msc_runtime::check::{Report, check_outputs};
use msc_runtime::data::{self, DataError};
use msc_runtime::exec::Session;
use std::path::Path;

/// Saves parameters and state, as they are before the next step, with the number of steps: in the process
/// of rank 0, but all have to call it.
pub(super) fn save(session: &Session, inputs: &Inputs, path: &Path) -> Result<()> {
    let entry = session.plan().entry();
    let mut tensors = Vec::new();
    for n in inputs.kept() {
        if let Some(value) = session.input_at_root(n)? {
            tensors.push((entry.params[n].name.as_str(), value));
        }
    }
    if !session.is_root() {
        return Ok(());
    }
    let refs: Vec<(&str, &Tensor)> = tensors.iter().map(|(n, t)| (*n, t)).collect();
    data::shards::write_state(session.plan(), path, &refs, Some(inputs.start + session.steps() as u64))?;
    Ok(())
}

/// Judges the outputs by a file.
pub(super) fn check(
    path: &Path,
    session: &Session,
    signature: &Signature,
    initial: &[Tensor],
    outputs: &[Tensor],
) -> Result<Report> {
    let results = Signature::wanted(&signature.outputs);
    let mut slots: Vec<Option<Tensor>> = vec![None; results.len()];
    data::assign("output", &results, data::read(path)?, &mut slots)?;
    let missing = slots.iter().zip(&results).filter(|(s, _)| s.is_none());
    let names: Vec<String> = missing.map(|(_, r)| r.0.to_string()).collect();
    if !names.is_empty() {
        let help = format!("{} should hold every output of the step", path.display());
        return Err(DataError::Missing { what: "output", total: results.len(), names, help }.into());
    }
    let want: Vec<Tensor> = slots.into_iter().flatten().collect();
    let plan = session.plan();
    Ok(check_outputs(plan.entry(), session.carried(), initial, outputs, &want, plan.meta.compute))
}
