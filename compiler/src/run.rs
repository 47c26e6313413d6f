//! `msc run`: executes a plan on this machine.

use crate::error::{Error, Result};
use msc_ir::{Tensor, TensorType};
use msc_runtime::check::check_outputs;
use msc_runtime::cpu::{TileKernels, default_cache};
use msc_runtime::data;
use msc_runtime::exec::{self, Session, StepReport};
use msc_runtime::plan::Plan;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to run, and what to do with the outcome.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The plan.
    pub plan: PathBuf,
    /// Files with the inputs, by name or in order.
    pub inputs: Vec<PathBuf>,
    /// Where the outputs of the last step go.
    pub out: Option<PathBuf>,
    /// Reference for the outputs of the last step.
    pub check: Option<PathBuf>,
    /// Reference losses (JSON: `values[step][output]`), printed beside ours.
    pub losses: Option<PathBuf>,
    /// Steps to run.
    pub steps: usize,
    /// Seconds after which a collective that a rank does not join fails the run.
    pub comm_timeout: u64,
}

/// Runs a plan; progress goes to `out`.
///
/// # Errors
/// Bad plans and data, a failed run, and outputs that do not agree with the reference.
pub fn run(options: &RunOptions, out: &mut dyn Write) -> Result<()> {
    let plan = Arc::new(Plan::open(&options.plan)?);
    let kernels =
        Arc::new(TileKernels::compile(&plan.kernels, default_cache().as_deref()).map_err(Error::Kernel)?);
    let settings =
        exec::Options { comm_timeout: Duration::from_secs(options.comm_timeout), ..Default::default() };
    let probe = Session::new(plan.clone(), kernels.clone(), &settings)?;
    let entry = plan.entry().clone();
    let wanted: Vec<(&str, TensorType)> = entry
        .params
        .iter()
        .enumerate()
        .filter_map(|(i, p)| Some((p.name.as_str(), probe.input_type(i)?)))
        .collect();
    let results: Vec<(&str, TensorType)> = entry
        .results
        .iter()
        .enumerate()
        .filter_map(|(i, r)| Some((r.name.as_str(), probe.output_type(i)?)))
        .collect();
    drop(probe);
    let mut slots: Vec<Option<Tensor>> = vec![None; wanted.len()];
    for path in &options.inputs {
        data::assign("input", &wanted, data::read(path)?, &mut slots)?;
    }
    let missing: Vec<&str> =
        slots.iter().zip(&wanted).filter(|(s, _)| s.is_none()).map(|(_, w)| w.0).collect();
    if !missing.is_empty() {
        let shown = missing.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!(
            "{} of {} inputs are not given: {shown}{}; pass a file with --inputs",
            missing.len(),
            wanted.len(),
            if missing.len() > 5 { ", …" } else { "" }
        )));
    }
    let inputs: Vec<Tensor> = slots.into_iter().flatten().collect();

    let shown = losses(&entry, &results);
    let reference = options.losses.as_ref().map(reference_losses).transpose()?;
    let mut worst = 0f64;
    let mut line = |s: &mut Session, r: &StepReport| -> Result<()> {
        let mut text = format!("step {:>3}", r.step + 1);
        for (n, &i) in shown.iter().enumerate() {
            let value = s.output(i)?.0.data.get_f64(0);
            text +=
                &format!("  {} {value:.6}", if shown.len() == 1 { "loss" } else { &entry.results[i].name });
            if let Some(want) = reference.as_ref().and_then(|v| v.get(r.step)?.get(n)) {
                text += &format!("  reference {want:.6}");
                worst = worst.max((value - want).abs() / want.abs().max(f64::MIN_POSITIVE));
            }
        }
        let _ = writeln!(out, "{text}  {:.1} ms", r.duration.as_secs_f64() * 1e3);
        Ok(())
    };
    let mut failed = None;
    let outcome =
        exec::run(plan.clone(), kernels, inputs.clone(), options.steps, &settings, &mut |s, r| match line(
            s, r,
        ) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        })?;
    if let Some(e) = failed {
        return Err(e);
    }
    for d in &outcome.divergences {
        let _ = writeln!(out, "warning: {d}");
    }
    if reference.is_some() {
        let _ = writeln!(out, "largest deviation of a loss: {worst:.1e}");
    }
    if let Some(path) = &options.out {
        let tensors: Vec<(&str, &Tensor)> =
            entry.results.iter().map(|r| r.name.as_str()).zip(&outcome.outputs).collect();
        data::write(path, &tensors)?;
    }
    if let Some(path) = &options.check {
        let mut slots: Vec<Option<Tensor>> = vec![None; results.len()];
        data::assign("output", &results, data::read(path)?, &mut slots)?;
        if let Some(n) = slots.iter().position(Option::is_none) {
            return Err(Error::Usage(format!(
                "{}: output {n} ({}) is not in it",
                path.display(),
                results[n].0
            )));
        }
        let want: Vec<Tensor> = slots.into_iter().flatten().collect();
        let verdict = check_outputs(&entry, &[], &inputs, &outcome.outputs, &want, plan.meta.compute);
        if !verdict.passed() {
            return Err(Error::Check(verdict.render(10)));
        }
        let _ = write!(out, "{}", verdict.render(3));
    }
    Ok(())
}

/// The results worth showing each step: the last few scalar floats that are no state. Exporters put losses last;
/// per-parameter step counters come before them.
fn losses(entry: &msc_ir::Entry, results: &[(&str, TensorType)]) -> Vec<usize> {
    const SHOWN: usize = 4;
    let state: Vec<u32> = entry.params.iter().filter_map(|p| p.alias).collect();
    let all: Vec<usize> = (0..results.len())
        .filter(|&i| {
            results[i].1.rank() == 0 && results[i].1.dtype.is_float() && !state.contains(&(i as u32))
        })
        .collect();
    all[all.len().saturating_sub(SHOWN)..].to_vec()
}

fn reference_losses(path: &PathBuf) -> Result<Vec<Vec<f64>>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::Io { path: path.clone(), error })?;
    let malformed = |e: String| Error::Usage(format!("{}: {e}", path.display()));
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    let rows =
        json.get("values").and_then(|v| v.as_array()).ok_or_else(|| malformed("no array `values`".into()))?;
    let row =
        |r: &serde_json::Value| -> Option<Vec<f64>> { r.as_array()?.iter().map(|x| x.as_f64()).collect() };
    rows.iter()
        .map(|r| row(r).ok_or_else(|| malformed("`values` is not a list of lists of numbers".into())))
        .collect()
}
