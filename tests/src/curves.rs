//! Loss curves: a step compiled and trained for many steps, beside the losses that the reference computed.
//!
//! f32 rounding grows from step to step, in the reference as in msc. How much of a deviation is rounding shows the
//! same program in f64: msc may be as far from that as the reference is, within a small factor.

use crate::meta;
use msc::options::Options;
use msc::pipeline::{self, Outcome};
use msc_ir::interp::{Mode, run};
use msc_ir::{Module, Tensor};
use msc_runtime::check::Compute;
use msc_runtime::cpu::{TileKernels, default_cache};
use msc_runtime::exec;
use msc_runtime::plan::Plan;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The reference's losses: which outputs, and their values at each step.
pub struct Reference {
    /// Indices of results.
    pub outputs: Vec<usize>,
    /// `values[step][output]`.
    pub values: Vec<Vec<f64>>,
}

/// One fixture's losses over the steps.
#[derive(Debug)]
pub struct Curve {
    /// `values[step][output]`.
    pub values: Vec<Vec<f64>>,
    /// What the step computes in.
    pub compute: Compute,
}

/// The losses in a fixture's `losses.json`.
///
/// # Errors
/// If there are none, or they are malformed.
pub fn reference(dir: &Path) -> Result<Reference, String> {
    let path = dir.join("losses.json");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let index = |x: &serde_json::Value| usize::try_from(x.as_u64()?).ok();
    let outputs: Option<Vec<usize>> = json["output"].as_array().and_then(|a| a.iter().map(index).collect());
    let row =
        |r: &serde_json::Value| -> Option<Vec<f64>> { r.as_array()?.iter().map(|x| x.as_f64()).collect() };
    let values: Option<Vec<Vec<f64>>> = json["values"].as_array().and_then(|a| a.iter().map(row).collect());
    match (outputs, values) {
        (Some(outputs), Some(values))
            if !values.is_empty()
                && !outputs.is_empty()
                && values.iter().all(|row| row.len() == outputs.len()) =>
        {
            Ok(Reference { outputs, values })
        }
        _ => Err(format!(
            "{}: should have `output`, and `values` with one number for each of it",
            path.display()
        )),
    }
}

/// Compiles a fixture and trains it. `scratch` takes the plan.
///
/// # Errors
/// Whatever fails on the way, as text.
pub fn trained(
    dir: &Path,
    options: &Options,
    steps: usize,
    outputs: &[usize],
    scratch: &Path,
) -> Result<Curve, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let compiled = pipeline::compile(&dir.join("model.mlir"), options, None).map_err(|e| text(&e))?;
    let Outcome::Compiled(mut c) = compiled else { return Err("nothing was compiled".into()) };
    pipeline::write(&mut c, scratch).map_err(|e| text(&e))?;
    let plan = Arc::new(Plan::open(scratch).map_err(|e| text(&e))?);
    let kernels = TileKernels::compile(&plan.kernels, default_cache().as_deref()).map_err(|e| text(&e))?;
    let kernels: Arc<TileKernels> = Arc::new(kernels);
    let donated = plan.entry().params.iter().any(|p| p.alias.is_some());
    let carry = if donated { Vec::new() } else { meta::state_pairs(dir) };
    let settings =
        exec::Options { comm_timeout: Duration::from_secs(300), carry, ..exec::Options::default() };
    let probe = exec::Session::new(plan.clone(), kernels.clone(), &settings).map_err(|e| text(&e))?;
    let types = (0..plan.entry().params.len()).filter_map(|i| probe.input_type(i)).collect::<Vec<_>>();
    drop(probe);
    let inputs = meta::tensors(&dir.join("inputs.npz"), &types)?;
    let (mut values, mut failed) = (Vec::new(), None);
    let mut on_step = |s: &mut exec::Session, _: &exec::StepReport| {
        let row: Result<Vec<f64>, _> = outputs.iter().map(|&o| Ok(s.output(o)?.0.data.get_f64(0))).collect();
        match row {
            Ok(row) => {
                values.push(row);
                ControlFlow::Continue(())
            }
            Err(e) => {
                let e: exec::RunError = e;
                failed = Some(e.to_string());
                ControlFlow::Break(())
            }
        }
    };
    let compute = plan.meta.compute;
    exec::run(plan, kernels, inputs, steps, &settings, &mut on_step).map_err(|e| text(&e))?;
    failed.map_or(Ok(Curve { values, compute }), Err)
}

/// The same losses by the interpreter in f64, of the program as it was imported.
///
/// # Errors
/// Whatever fails on the way, as text.
pub fn exact(dir: &Path, steps: usize, outputs: &[usize]) -> Result<Vec<Vec<f64>>, String> {
    let mut module: Module =
        msc_frontends::read_file(&dir.join("model.mlir")).map_err(|e| e.to_string())?.module;
    msc_passes::simplify::simplify(&mut module).map_err(|e| e.to_string())?;
    let entry = module.entry().map_err(|e| e.to_string())?.clone();
    let mut inputs: Vec<Tensor> =
        meta::tensors(&dir.join("inputs.npz"), &module.graph(entry.graph).param_types())?;
    let carried = meta::carried(&entry, dir);
    let results = module.graph(entry.graph).results().len();
    if let Some(o) = outputs.iter().find(|&&o| o >= results) {
        return Err(format!("there is no result {o}"));
    }
    let mut values = Vec::new();
    for _ in 0..steps {
        let out = run(&module, entry.graph, &inputs, Mode::Wide).map_err(|e| e.to_string())?;
        values.push(outputs.iter().map(|&o| out[o].data.get_f64(0)).collect());
        for &(r, p) in &carried {
            inputs[p] = out[r].clone();
        }
    }
    Ok(values)
}

/// The largest `|a−b| / |b|` of two curves, as far as both go.
pub fn deviation(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0f64, |m, (x, y)| {
        let d = (x - y).abs() / y.abs().max(f64::MIN_POSITIVE);
        if d.is_nan() { f64::INFINITY } else { m.max(d) }
    })
}
