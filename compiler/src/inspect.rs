//! `msc explain` and `msc verify` on the command line.

use crate::given::Given;
use crate::layout::Layout;
use clap::Args;
use msc::explain::comm::GATHERED;
use msc::explain::{CommOptions, ExplainOptions, explain};
use msc::verify::{VerifyOptions, verify};
use msc::{Error, Result};
use std::path::PathBuf;

#[derive(Args)]
pub struct Explain {
    /// The step: StableHLO text or portable bytecode.
    model: PathBuf,
    /// Only operations of this kind: rms_norm, attention, adamw, ….
    #[arg(long, value_name = "KIND")]
    pattern: Option<String>,
    /// Only operations that mention this: a parameter, a value, a file and line, or part of one.
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Says instead what comes near an operation of this kind, and what is missing.
    #[arg(long, value_name = "KIND", conflicts_with = "pattern")]
    why_not: Option<String>,
    /// Says instead why the step communicates under a layout: every collective, its reasons, bytes and time.
    #[arg(long, conflicts_with_all = ["pattern", "op", "why_not"])]
    comm: bool,
    /// With --comm: reports tensors that are gathered whole from this size on.
    #[arg(long, value_name = "MIB", requires = "comm", default_value_t = GATHERED >> 20)]
    gathered_above: u64,
    #[command(flatten)]
    layout: Layout,
    /// Writes the same as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes a page about all that was recognised, and what came near.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["why_not", "comm"])]
    html: Option<PathBuf>,
}

impl Explain {
    /// Explains.
    pub fn run(self) -> Result<()> {
        let Explain { model, pattern, op, why_not, comm, gathered_above, layout, json, html } = self;
        if layout.is_given() && !comm {
            return Err(Error::Usage("options of the layout say something with --comm only".into()));
        }
        let (layout, _) = layout.options()?;
        let gathered_above = gathered_above.saturating_mul(1 << 20);
        let comm = comm.then_some(CommOptions { layout, gathered_above });
        explain(&ExplainOptions { model, pattern, op, why_not, comm, json, html }, &mut std::io::stdout())
    }
}

#[derive(Args)]
pub struct Verify {
    /// The step: StableHLO text or portable bytecode.
    model: PathBuf,
    #[command(flatten)]
    given: Given,
    /// A folder with `inputs.npz`.
    #[arg(long, value_name = "DIR", conflicts_with = "inputs")]
    fixture_inputs: Option<PathBuf>,
    /// Seed of the data for replays, and of the inputs that are not given.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Replays the reasons only, without a run of the whole step.
    #[arg(long)]
    replay_only: bool,
    /// Writes the verdict as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Verify {
    /// Verifies.
    pub fn run(self) -> Result<()> {
        let mut inputs = self.given.options();
        inputs.inputs.extend(self.fixture_inputs.map(|d| d.join("inputs.npz")));
        let Verify { model, seed, replay_only, json, .. } = self;
        verify(&VerifyOptions { model, inputs, seed, replay_only, json }, &mut std::io::stdout())
    }
}
