//! The recognised step beside the model as it was imported, in the interpreter.
//!
//! In f64 the two may differ by what recognition does to literals, which it takes from exporters' decimals to 1e-6:
//! what a check of an f32 step allows is more than that ever becomes. In the step's own types sums in another order
//! round differently: two outcomes may be as far apart as those of two compilers
//! ([`msc_runtime::check::Tolerance`]), or twice as far as the model itself is from its values in f64.

use crate::error::Result;
use crate::examine::Examined;
use msc_ir::interp::{self, Mode};
use msc_ir::{DType, Entry, Module, Tensor};
use msc_runtime::check::{Compute, Report, check_outputs};
use serde::Serialize;
use std::fmt::Write;

/// How often the rounding of the model itself excuses a difference.
const OWN_ROUNDING: f64 = 2.0;

/// One output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Output {
    /// The user's name.
    pub name: String,
    /// Distance: of state, relative to its update; of others, relative to the largest element.
    pub measured: f64,
    /// The largest distance that passes.
    pub allowed: f64,
    /// What else is to be said.
    pub note: String,
}

impl Output {
    /// Whether it passes.
    pub fn agrees(&self) -> bool {
        self.measured <= self.allowed
    }

    fn severity(&self) -> f64 {
        if self.measured == 0.0 { 0.0 } else { self.measured / self.allowed }
    }
}

/// All outputs in one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What the step was computed in, in words.
    pub mode: String,
    /// In the model's order.
    pub outputs: Vec<Output>,
}

impl Comparison {
    /// Whether every output passes.
    pub fn agrees(&self) -> bool {
        self.outputs.iter().all(Output::agrees)
    }

    /// A line for the whole, and for the worst outputs.
    pub fn text(&self, worst: usize) -> String {
        let mut out = String::new();
        let differ = self.outputs.iter().filter(|o| !o.agrees()).count();
        let _ = writeln!(out, "  {}: {} outputs, {differ} differ", self.mode, self.outputs.len());
        let mut rows: Vec<&Output> = self.outputs.iter().collect();
        rows.sort_by(|a, b| b.severity().total_cmp(&a.severity()));
        rows.truncate(worst.max(differ.min(10)));
        let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        for r in rows {
            let verdict = if r.agrees() { "ok  " } else { "FAIL" };
            let _ = write!(
                out,
                "    {verdict} {:width$}  {:9.3e} of {:9.3e} allowed",
                r.name, r.measured, r.allowed
            );
            let note =
                if r.note.is_empty() || r.agrees() { String::new() } else { format!("  ({})", r.note) };
            let _ = writeln!(out, "{note}");
        }
        out
    }
}

fn run(m: &Module, inputs: &[Tensor], mode: Mode) -> Result<Vec<Tensor>> {
    Ok(interp::run(m, m.entry()?.graph, inputs, mode)?)
}

fn rows(r: Report, more: impl Fn(usize) -> f64) -> Vec<Output> {
    let row = |(i, r): (usize, msc_runtime::check::Row)| Output {
        name: r.name,
        measured: r.measured,
        allowed: r.allowed.max(more(i)),
        note: r.note,
    };
    r.rows.into_iter().enumerate().map(row).collect()
}

/// Runs both sides in f64 and in the step's own types.
///
/// # Errors
/// Those of the interpreter.
pub fn both(e: &Examined, inputs: &[Tensor]) -> Result<Vec<Comparison>> {
    let entry: &Entry = e.imported.entry()?;
    let exact = run(&e.imported, inputs, Mode::Wide)?;
    let named = run(&e.recognised, inputs, Mode::Wide)?;
    // In wide mode floats are f64, and so are those that they are compared with.
    let held: Vec<Tensor> = inputs
        .iter()
        .map(|t| if t.dtype().is_float() { t.converted(DType::F64) } else { t.clone() })
        .collect();
    let wide = check_outputs(entry, &[], &held, &named, &exact, Compute::F32);
    let wide = Comparison { mode: "in f64".into(), outputs: rows(wide, |_| 0.0) };

    let own = run(&e.imported, inputs, Mode::Spec)?;
    let named = run(&e.recognised, inputs, Mode::Spec)?;
    let rounded: Vec<Tensor> = exact.iter().zip(&own).map(|(t, like)| t.converted(like.dtype())).collect();
    let noise = check_outputs(entry, &[], inputs, &own, &rounded, e.compute);
    let excused = |i: usize| {
        let own = noise.rows.get(i).map_or(0.0, |r| r.measured);
        if own.is_finite() { OWN_ROUNDING * own } else { 0.0 }
    };
    let spec = rows(check_outputs(entry, &[], inputs, &named, &own, e.compute), excused);
    let spec = Comparison { mode: format!("in its own types ({})", e.compute.name()), outputs: spec };
    Ok(vec![wide, spec])
}
