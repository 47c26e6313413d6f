//! `msc verify`: proof that recognition changed nothing. Every recorded reason is executed again on fresh data at its
//! cut ([`replay`]), and the recognised step runs beside the model as it was imported ([`compare`]).

pub mod compare;
pub mod inputs;
pub mod replay;

use crate::error::{Error, Result};
use crate::examine::{Examined, examine};
use crate::run::RunOptions;
use compare::Comparison;
use replay::KindRow;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Floating-point operations of a step's matrix products beyond which it is not interpreted: it would take hours.
const MOST_FLOPS: u64 = 1 << 40;

/// What to verify.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The model.
    pub model: PathBuf,
    /// Where inputs come from: of these only what says so is read. What is not given is random.
    pub inputs: RunOptions,
    /// Seed of all random data.
    pub seed: u64,
    /// Whether to leave out the run of the whole step.
    pub replay_only: bool,
    /// Where the verdict goes as JSON.
    pub json: Option<PathBuf>,
}

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verification {
    /// Seed of all random data.
    pub seed: u64,
    /// Whether nothing differs.
    pub verified: bool,
    /// By kind of operation.
    pub operations: Vec<KindRow>,
    /// The whole step, in f64 and in its own types; empty where it was left out.
    pub comparisons: Vec<Comparison>,
    /// How the inputs of the whole step came by their values.
    pub inputs: String,
}

/// Verifies a model; the verdict goes to `out`.
///
/// # Errors
/// Bad models, options and data; [`Error::Verify`] if something differs.
pub fn verify(o: &VerifyOptions, out: &mut dyn Write) -> Result<()> {
    let examined = examine(&o.model, &mut |_, _, _| {})?;
    let v = check(&examined, o)?;
    if let Some(path) = &o.json {
        let json = serde_json::to_string_pretty(&v).unwrap_or_default();
        std::fs::write(path, json + "\n").map_err(|error| Error::Io { path: path.clone(), error })?;
    }
    crate::show::print(out, &v.text())?;
    if v.verified { Ok(()) } else { Err(Error::Verify(v.faults(10))) }
}

/// Verifies what recognition made of a model.
///
/// # Errors
/// Bad options and data. What differs is in the verdict.
pub fn check(e: &Examined, o: &VerifyOptions) -> Result<Verification> {
    if !o.replay_only && e.step.matmul_flops > MOST_FLOPS {
        let message = format!(
            "a step of {:.0e} operations takes too long to be interpreted; --replay-only verifies the reasons alone",
            e.step.matmul_flops as f64
        );
        return Err(Error::Usage(message));
    }
    let operations = replay::all(e, o.seed);
    let (mut comparisons, mut how) = (Vec::new(), String::new());
    if !o.replay_only {
        let made = inputs::make(e, &o.inputs, o.seed)?;
        how = made.describe();
        comparisons = compare::both(e, &made.tensors)?;
    }
    let verified =
        operations.iter().all(|k| k.faults.is_empty()) && comparisons.iter().all(Comparison::agrees);
    Ok(Verification { seed: o.seed, verified, operations, comparisons, inputs: how })
}

impl Verification {
    /// For the terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let width = self.operations.iter().map(|k| k.operation.len()).max().unwrap_or(0);
        if self.operations.is_empty() {
            let _ = writeln!(out, "no named operations");
        }
        for k in &self.operations {
            let _ =
                write!(out, "{:width$}  {:>3} replayed, {} differ", k.operation, k.replayed, k.faults.len());
            let _ = write!(out, "; largest difference {:.1e} of {:.1e} allowed", k.largest, k.allowed);
            if let (Some(same), Some(rounding)) = (k.same_bits, k.rounding) {
                let _ = write!(out, "; {:.1} % the same bits, rounding {rounding:.1} times", same * 100.0);
            }
            if k.unused > 0 {
                let _ = write!(out, "; {} of them found and not used", k.unused);
            }
            out.push('\n');
        }
        if !self.comparisons.is_empty() {
            let _ = writeln!(out, "the recognised step beside the model as imported, on {}", self.inputs);
        }
        for c in &self.comparisons {
            out.push_str(&c.text(3));
        }
        if self.verified {
            out.push_str("verified\n");
        }
        out
    }

    /// What differs, in a few lines.
    pub fn faults(&self, limit: usize) -> String {
        let sites = self.operations.iter().flat_map(|k| {
            k.faults.iter().map(move |f| format!("  {} at {}: {}", k.operation, f.location, f.what))
        });
        let outputs = self.comparisons.iter().flat_map(|c| {
            c.outputs.iter().filter(|o| !o.agrees()).map(move |o| {
                format!("  output {} {}: {:.1e} of {:.1e} allowed", o.name, c.mode, o.measured, o.allowed)
            })
        });
        let mut lines: Vec<String> = sites.chain(outputs).collect();
        if lines.len() > limit {
            let more = lines.len() - limit;
            lines.truncate(limit);
            lines.push(format!("  and {more} more"));
        }
        lines.join("\n")
    }
}
