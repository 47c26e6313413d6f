//! `msc run`: executes a plan on this machine.
//!
//! Inputs come from files ([`inputs`]), from the data, from `--set`, and from `--init` for the rest; steps report
//! through [`lines`]; [`held`] takes them where nothing runs yet; [`finish`] saves and judges what they leave.
//!
//! Ranks are threads of this process, or processes ([`launch`]) that this one starts ([`parent`]) or a launcher has
//! started. Then each runs its [`rank`], by the same code with the same options: whatever decides what is done next is
//! the same in all of them, or rank 0's.

mod finish;
pub mod held;
pub mod inputs;
pub mod launch;
mod lines;
mod parent;
mod rank;
mod reference;

pub use rank::train;

use crate::error::{Error, Result};
use inputs::Inputs;
use lines::{Lines, Measured};
use msc_ir::{DType, TensorType};
use msc_runtime::comm::World;
use msc_runtime::comm::local::LocalWorld;
use msc_runtime::cpu::{TileKernels, default_cache};
use msc_runtime::data;
use msc_runtime::data::file::TensorFile;
use msc_runtime::exec::{self, Divergence, Session};
use msc_runtime::plan::Plan;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What to run, and what to do with the outcome.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The plan.
    pub plan: PathBuf,
    /// Files with inputs, by name or in order.
    pub inputs: Vec<PathBuf>,
    /// Files with parameters and state, whose names may be mapped.
    pub params: Vec<PathBuf>,
    /// The mapping from the names of `params` to the plan's.
    pub names: Option<PathBuf>,
    /// Whether floats in files are rounded to the step's type.
    pub convert: bool,
    /// Seed for what is not given otherwise.
    pub init: Option<u64>,
    /// Whether to show how each input was initialised.
    pub init_report: bool,
    /// Tokens.
    pub data: Option<PathBuf>,
    /// Element type of a flat file of tokens.
    pub data_dtype: Option<DType>,
    /// Name of the input that takes token ids, if not the one the compiler found.
    pub ids: Option<String>,
    /// The same for labels.
    pub labels: Option<String>,
    /// `name=value` or `name=@file.csv`, for run-time scalars.
    pub set: Vec<String>,
    /// `result=input`, or a file with a list of such pairs: what carries over where the plan does not say it.
    pub carry: Vec<String>,
    /// Where the outputs of the last step go.
    pub out: Option<PathBuf>,
    /// Reference for the outputs of the last step.
    pub check: Option<PathBuf>,
    /// Reference losses (JSON: `values[step][output]`), printed beside ours.
    pub losses: Option<PathBuf>,
    /// Steps to run.
    pub steps: usize,
    /// Where the state goes, at the end and when interrupted.
    pub save: Option<PathBuf>,
    /// Steps after which the state is saved again and again.
    pub save_every: Option<usize>,
    /// Peak of a device in TFLOP/s, for the utilisation.
    pub peak_tflops: Option<f64>,
    /// Whether to print JSON lines.
    pub json: bool,
    /// Whether to show a progress bar.
    pub progress: bool,
    /// How ranks come to be and meet; only [`train`] reads it.
    pub comm: launch::Comm,
    /// Seconds after which a collective that a rank does not join fails the run.
    pub comm_timeout: u64,
    /// The number of a signal that asks to stop, once there is one.
    pub interrupt: Arc<AtomicUsize>,
}

/// Names and types of a plan's inputs and outputs.
struct Signature {
    inputs: Vec<(String, TensorType)>,
    outputs: Vec<(String, TensorType)>,
}

impl Signature {
    fn of(session: &Session) -> Signature {
        let e = session.plan().entry();
        let inputs = e.params.iter().enumerate();
        let outputs = e.results.iter().enumerate();
        Signature {
            inputs: inputs.filter_map(|(n, p)| Some((p.name.clone(), session.input_type(n)?))).collect(),
            outputs: outputs.filter_map(|(n, r)| Some((r.name.clone(), session.output_type(n)?))).collect(),
        }
    }

    fn wanted(list: &[(String, TensorType)]) -> Vec<(&str, TensorType)> {
        list.iter().map(|(n, t)| (n.as_str(), t.clone())).collect()
    }
}

/// Runs a plan, all ranks as threads of this process; progress goes to `out`.
///
/// # Errors
/// Bad plans, options and data, a failed run, outputs that do not agree with the reference, and
/// [`Error::Interrupted`].
pub fn run(options: &RunOptions, out: &mut dyn Write) -> Result<()> {
    check_options(options)?;
    threads(options, Arc::new(Plan::open(&options.plan)?), out)
}

/// Runs all ranks as threads of this process.
fn threads(options: &RunOptions, plan: Arc<Plan>, out: &mut dyn Write) -> Result<()> {
    let world = LocalWorld::new(plan.mesh().ranks(), Duration::from_secs(options.comm_timeout));
    run_in(options, plan, Arc::new(world), out)
}

/// Runs those ranks of a plan that are this process's in a world; the options are checked.
fn run_in(options: &RunOptions, plan: Arc<Plan>, world: Arc<dyn World>, out: &mut dyn Write) -> Result<()> {
    let reference = options.losses.as_deref().map(reference::losses).transpose()?;
    let carry = inputs::carry_pairs(plan.entry(), &options.carry)?;
    let kernels =
        Arc::new(TileKernels::compile(&plan.kernels, default_cache().as_deref()).map_err(Error::Kernel)?);
    let comm_timeout = Duration::from_secs(options.comm_timeout);
    let fault =
        std::env::var(exec::fault::VARIABLE).ok().map(|f| f.parse()).transpose().map_err(Error::Usage)?;
    let settings = exec::Options { comm_timeout, carry, fault };
    let mut session = Session::in_world(plan.clone(), kernels, &settings, world)?;
    let signature = Signature::of(&session);
    let shown = lines::losses(&session, &signature.outputs);
    let mut lines = Lines::new(options, out, &plan, &shown);

    let mut inputs = Inputs::gather(options, &mut session, &signature)?;
    lines.notes(&inputs.notes);
    if options.init_report {
        lines.table(&inputs.report(&plan));
    }
    let tokens = inputs.ids.map(|n| signature.inputs[n].1.elements());

    let mut initial = Vec::new();
    let mut divergences: Vec<Divergence> = Vec::new();
    let mut stopped = None;
    for _ in 0..options.steps {
        let step = match inputs.before(&mut session, &mut lines) {
            Ok(step) => step,
            Err(e) => {
                // What is wrong further on in the data costs nothing of what was trained.
                if let Some(path) = options.save.as_ref().filter(|_| session.steps() > 0) {
                    finish::save(&session, &inputs, path)?;
                    lines.saved(path, inputs.start + session.steps() as u64);
                }
                return Err(e);
            }
        };
        if options.check.is_some() && session.steps() == 0 {
            for n in 0..signature.inputs.len() {
                // Only rank 0 compares.
                initial.extend(session.input_at_root(n)?);
            }
        }
        let report = session.step()?;
        let mut losses = Vec::new();
        for &n in &shown {
            let (value, divergence) = session.output(n)?;
            losses.push(value.data.get_f64(0));
            keep_new(&mut divergences, divergence);
        }
        let wanted = reference.as_ref().and_then(|r| r.get(step as usize - 1));
        lines.step(&Measured { step, losses: &losses, duration: report.duration, tokens, wanted });
        let signal = session.agree(options.interrupt.load(Ordering::Relaxed))?;
        if signal != 0 {
            stopped = Some(signal);
            break;
        }
        let due = options.save_every.is_some_and(|n| session.steps() % n == 0);
        if let Some(path) = options.save.as_ref().filter(|_| due && session.steps() < options.steps) {
            finish::save(&session, &inputs, path)?;
            lines.saved(path, step);
        }
    }
    lines.end();
    let (outputs, found) = session.outputs()?;
    keep_new(&mut divergences, found);
    for d in &divergences {
        lines.note(&format!("warning: {d}"));
    }
    if let Some(signal) = stopped {
        return interrupted(signal, options, &session, &inputs);
    }
    if let Some(path) = &options.save {
        finish::save(&session, &inputs, path)?;
        lines.saved(path, inputs.start + session.steps() as u64);
    }
    if !session.is_root() {
        return Ok(());
    }
    lines.deviation(reference.is_some());
    if let Some(path) = &options.out {
        let tensors: Vec<_> = signature.outputs.iter().map(|(n, _)| n.as_str()).zip(&outputs).collect();
        data::write(path, &tensors, None)?;
    }
    if let Some(path) = &options.check {
        let verdict = finish::check(path, &session, &signature, &initial, &outputs)?;
        if !verdict.passed() {
            return Err(Error::Check(verdict.render(10)));
        }
        lines.verdict(&verdict);
    }
    Ok(())
}

/// Adds the divergences that are not there yet: each is said once.
fn keep_new(all: &mut Vec<Divergence>, found: impl IntoIterator<Item = Divergence>) {
    for d in found {
        if !all.contains(&d) {
            all.push(d);
        }
    }
}

/// Refuses what would only fail after the work is done.
fn check_options(o: &RunOptions) -> Result<()> {
    let usage = |message: &str| Err(Error::Usage(message.to_string()));
    for path in [&o.save, &o.out].into_iter().flatten() {
        data::check_writable(path)?;
    }
    o.check.as_deref().map(TensorFile::open).transpose()?;
    if o.steps == 0 {
        return usage("--steps 0: at least one step is run");
    }
    if o.save_every == Some(0) {
        return usage("--save-every 0: save after at least one step");
    }
    if o.save_every.is_some() && o.save.is_none() {
        return usage("--save-every needs --save FILE");
    }
    if o.names.is_some() && o.params.is_empty() {
        return usage("--names maps the names of --params files, and none is given");
    }
    if o.data.is_none() && o.data_dtype.is_some() {
        return usage("--data-dtype describes a --data file, and none is given");
    }
    if o.init_report && o.init.is_none() {
        return usage("--init-report shows what --init did; give --init SEED");
    }
    if o.peak_tflops.is_some_and(|p| !p.is_finite() || p <= 0.0) {
        return usage("--peak-tflops should be above zero");
    }
    Ok(())
}

/// Saves the state after a signal: where the user says, or else beside the plan. The process of rank 0 says so.
fn interrupted(signal: usize, o: &RunOptions, session: &Session, inputs: &Inputs) -> Result<()> {
    let path = o.save.clone().unwrap_or_else(|| o.plan.with_extension("state.safetensors"));
    let step = inputs.start + session.steps() as u64;
    finish::save(session, inputs, &path)?;
    if session.is_root() { Err(Error::Interrupted { signal, step, path }) } else { Ok(()) }
}
