//! The `msc` command.

mod given;
mod inspect;
mod layout;

use clap::{Args, Parser, Subcommand};
use given::Given;
use inspect::{Explain, Verify};
use layout::Layout;
use msc::config::Config;
use msc::kernel_check;
use msc::pipeline::{self, Outcome};
use msc::reshard::{ReshardOptions, reshard};
use msc::run::launch::Comm;
use msc::run::{self, RunOptions};
use msc::stages::Stage;
use msc::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Passes make and drop many small values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compiles whole LLM training steps for Ascend NPUs and runs them.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compiles a training step into a plan.
    Compile(Compile),
    /// Runs a plan: every rank of it on this machine, or the rank that a launcher gave this process.
    Run(Box<Run>),
    /// Compares a step's kernels over all back ends, or shows them.
    Kernels(Kernels),
    /// Says what was recognised in a step, where and why; or why something was not.
    Explain(Explain),
    /// Maps saved state to the layout of another plan.
    Reshard(Reshard),
    /// Proves on fresh data that recognition changed nothing.
    Verify(Box<Verify>),
}

#[derive(Args)]
struct Compile {
    /// The step: StableHLO text or portable bytecode. May be left out where --config names it.
    model: Option<PathBuf>,
    /// Where the plan goes.
    #[arg(short, long, default_value = "plan.bin")]
    output: PathBuf,
    #[command(flatten)]
    layout: Layout,
    /// Prints the program after this stage and stops.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    emit: Option<Stage>,
    /// Writes what happened as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Leaves ops as the exporter wrote them.
    #[arg(long)]
    no_recognise: bool,
    /// Interprets named operations instead of generating kernels.
    #[arg(long)]
    no_fuse: bool,
}

#[derive(Args)]
struct Run {
    /// The plan.
    plan: PathBuf,
    /// Takes from section `training` of a YAML file what the command line does not give (docs/config.md).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
    /// Initialises what is not given otherwise.
    #[arg(long, value_name = "SEED")]
    init: Option<u64>,
    /// Shows how each input came by its value.
    #[arg(long)]
    init_report: bool,
    /// Carries a result over to an input of the next step: RESULT=INPUT, or a JSON file of pairs.
    #[arg(long, value_name = "RESULT=INPUT")]
    carry: Vec<String>,
    /// Where the outputs of the last step go: npz or safetensors.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Compares the outputs of the last step with a reference.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Prints reference losses (JSON, `values[step][output]`) beside ours.
    #[arg(long, value_name = "FILE")]
    losses: Option<PathBuf>,
    /// Steps to run; donated state carries over. 1 if not given.
    #[arg(long)]
    steps: Option<usize>,
    /// Saves parameters and state at the end, and when interrupted: npz or safetensors, or a folder of shards.
    #[arg(long, value_name = "FILE|DIR")]
    save: Option<PathBuf>,
    /// Saves a folder with a file of blocks for each rank, whatever its name; so does a name that ends in `/`.
    #[arg(long)]
    save_shards: bool,
    /// Saves them after every so many steps too.
    #[arg(long, value_name = "STEPS")]
    save_every: Option<usize>,
    /// Peak of one device, for the utilisation (MFU).
    #[arg(long, value_name = "TFLOPS")]
    peak_tflops: Option<f64>,
    /// Prints JSON lines.
    #[arg(long)]
    json: bool,
    /// Ranks as threads, as processes, or as processes that mpirun started: auto (what the launcher's environment says,
    /// else threads), threads, processes, mpi.
    #[arg(long, value_name = "BACK END", default_value = "auto")]
    comm: Comm,
    /// Seconds after which a collective that a rank does not join fails the run.
    #[arg(long, default_value_t = 60)]
    comm_timeout: u64,
}

#[derive(Args)]
struct Reshard {
    /// The state: npz, safetensors, or a folder of shards.
    state: PathBuf,
    /// The plan whose layout it gets.
    #[arg(long, value_name = "PLAN")]
    to: PathBuf,
    /// Where it goes: a folder of shards; or npz or safetensors, whole.
    #[arg(short, long, default_value = "resharded")]
    output: PathBuf,
}

#[derive(Args)]
struct Kernels {
    /// The step: StableHLO text or portable bytecode.
    model: PathBuf,
    #[command(flatten)]
    layout: Layout,
    /// Shows the kernels in this form instead: tile, ascendc, npuir.
    #[arg(long, value_name = "FORM")]
    emit: Option<String>,
}

fn stage(name: &str) -> std::result::Result<Stage, String> {
    Stage::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Stage::ALL.iter().map(|s| s.name()).collect();
        format!("stages are: {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match Cli::parse().command {
        Command::Compile(c) => compile(&c),
        Command::Kernels(k) => kernels(&k),
        Command::Run(r) => train(*r),
        Command::Reshard(r) => {
            let options = ReshardOptions { state: r.state, to: r.to, out: r.output };
            reshard(&options, &mut std::io::stdout())
        }
        Command::Explain(e) => e.run(),
        Command::Verify(v) => v.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e @ msc::Error::Told { .. }) => ExitCode::from(e.exit_code()),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "error: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

fn train(r: Run) -> Result<()> {
    let file = r.config.as_deref().map(Config::open).transpose()?.unwrap_or_default().training;
    let given = r.given.options();
    let options = RunOptions {
        plan: r.plan,
        init: r.init.or(file.init),
        init_report: r.init_report,
        carry: r.carry,
        out: r.out,
        check: r.check,
        losses: r.losses,
        steps: r.steps.or(file.steps).unwrap_or(1),
        save: r.save.or(file.save).map(|p| if r.save_shards { p.join("") } else { p }),
        save_every: r.save_every.or(file.save_every),
        data: given.data.or(file.data),
        params: if given.params.is_empty() { file.params } else { given.params },
        peak_tflops: r.peak_tflops,
        json: r.json,
        progress: std::io::stderr().is_terminal(),
        comm: r.comm,
        comm_timeout: r.comm_timeout,
        interrupt: interrupt()?,
        ..given
    };
    run::train(&options, &mut std::io::stdout())
}

/// The number of the first signal that asks to stop: the run ends after the step. A second one ends it at once.
fn interrupt() -> Result<Arc<AtomicUsize>> {
    let (number, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let refused = |error| Error::Io { path: "signal handler".into(), error };
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, asked.clone()).map_err(refused)?;
        flag::register(signal, asked.clone()).map_err(refused)?;
        flag::register_usize(signal, number.clone(), signal as usize).map_err(refused)?;
    }
    Ok(number)
}

/// Prints.
fn show(text: &str) -> Result<()> {
    msc::show::print(&mut std::io::stdout(), text)
}

fn compile(c: &Compile) -> Result<()> {
    let (mut options, config) = c.layout.options()?;
    options.recognise &= !c.no_recognise;
    options.fuse &= !c.no_fuse;
    let Some(model) = c.model.as_ref().or(config.model.file.as_ref()) else {
        return Err(Error::Usage(
            "no model is given: name its file, or set `file` in section `model` of --config".into(),
        ));
    };
    let mut compiled = match pipeline::compile(model, &options, c.emit)? {
        Outcome::Emitted(text) => {
            return show(&text);
        }
        Outcome::Compiled(c) => c,
    };
    pipeline::write(&mut compiled, &c.output)?;
    let r = &compiled.report;
    show(&format!("{}plan: {}\n", r.summary(), c.output.display()))?;
    if let Some(path) = &c.report {
        let json = serde_json::to_string_pretty(r).unwrap_or_default();
        std::fs::write(path, json + "\n").map_err(|error| Error::Io { path: path.clone(), error })?;
    }
    // The process ends here: taking a deep model apart piece by piece would be time lost.
    std::mem::forget(compiled);
    Ok(())
}

fn kernels(k: &Kernels) -> Result<()> {
    let (options, _) = k.layout.options()?;
    let Outcome::Compiled(c) = pipeline::compile(&k.model, &options, None)? else { return Ok(()) };
    match &k.emit {
        None => kernel_check::compare(&c.module, &c.kernels, &mut std::io::stdout()),
        Some(form) => show(&kernel_check::emit(&c.kernels, form)?),
    }
}
