//! The `msc` command.

use clap::{Args, Parser, Subcommand};
use msc::kernel_check;
use msc::options::Options;
use msc::pipeline::{self, Outcome};
use msc::run::{RunOptions, run};
use msc::stages::Stage;
use msc::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Runs a plan on this machine, every rank of it.
    Run(Run),
    /// Compares a step's kernels over all back ends, or shows them.
    Kernels(Kernels),
}

#[derive(Args)]
struct Compile {
    /// The step: StableHLO text or portable bytecode.
    model: PathBuf,
    /// Where the plan goes.
    #[arg(short, long, default_value = "plan.bin")]
    output: PathBuf,
    /// Ranks that split the model's state (tensor parallelism).
    #[arg(long, default_value_t = 1)]
    tp: usize,
    /// Ranks that split the batch (data parallelism).
    #[arg(long, default_value_t = 1)]
    dp: usize,
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
    /// Inputs: npz or safetensors, by name or in order. May be given several times.
    #[arg(long, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Where the outputs of the last step go: npz or safetensors.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Compares the outputs of the last step with a reference.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Prints reference losses (JSON, `values[step][output]`) beside ours.
    #[arg(long, value_name = "FILE")]
    losses: Option<PathBuf>,
    /// Steps to run; donated state carries over.
    #[arg(long, default_value_t = 1)]
    steps: usize,
    /// Seconds after which a collective that a rank does not join fails the run.
    #[arg(long, default_value_t = 60)]
    comm_timeout: u64,
}

#[derive(Args)]
struct Kernels {
    /// The step: StableHLO text or portable bytecode.
    model: PathBuf,
    /// Ranks that split the model's state (tensor parallelism).
    #[arg(long, default_value_t = 1)]
    tp: usize,
    /// Ranks that split the batch (data parallelism).
    #[arg(long, default_value_t = 1)]
    dp: usize,
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
        Command::Run(r) => run(
            &RunOptions {
                plan: r.plan,
                inputs: r.inputs,
                out: r.out,
                check: r.check,
                losses: r.losses,
                steps: r.steps,
                comm_timeout: r.comm_timeout,
            },
            &mut std::io::stdout(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

fn compile(c: &Compile) -> Result<()> {
    let options = Options { tp: c.tp, dp: c.dp, recognise: !c.no_recognise, fuse: !c.no_fuse };
    let mut compiled = match pipeline::compile(&c.model, &options, c.emit)? {
        Outcome::Emitted(text) => {
            print!("{text}");
            return Ok(());
        }
        Outcome::Compiled(c) => c,
    };
    pipeline::write(&mut compiled, &c.output)?;
    let r = &compiled.report;
    print!("{}", r.summary());
    println!("plan: {}", c.output.display());
    if let Some(path) = &c.report {
        let json = serde_json::to_string_pretty(r).unwrap_or_default();
        std::fs::write(path, json + "\n").map_err(|error| Error::Io { path: path.clone(), error })?;
    }
    Ok(())
}

fn kernels(k: &Kernels) -> Result<()> {
    let options = Options { tp: k.tp, dp: k.dp, ..Options::default() };
    let Outcome::Compiled(c) = pipeline::compile(&k.model, &options, None)? else { return Ok(()) };
    match &k.emit {
        None => kernel_check::compare(&c.module, &c.kernels, &mut std::io::stdout()),
        Some(form) => {
            print!("{}", kernel_check::emit(&c.kernels, form)?);
            Ok(())
        }
    }
}
