//! What a run prints: a line for each step, as text or as JSON, and a progress bar on a terminal.

use super::RunOptions;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use msc_ir::TensorType;
use msc_runtime::check::Report;
use msc_runtime::exec::Session;
use msc_runtime::plan::Plan;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// A step as measured.
pub(super) struct Measured<'a> {
    /// Its number, from 1.
    pub step: u64,
    /// The values of the losses shown.
    pub losses: &'a [f64],
    /// How long it took.
    pub duration: Duration,
    /// Tokens of a step.
    pub tokens: Option<usize>,
    /// The reference's losses.
    pub wanted: Option<&'a Vec<f64>>,
}

/// The printer.
pub(super) struct Lines<'a> {
    out: &'a mut dyn Write,
    json: bool,
    bar: Option<ProgressBar>,
    names: Vec<String>,
    flops: u64,
    /// FLOP/s of all ranks together.
    peak: Option<f64>,
    worst: f64,
}

impl<'a> Lines<'a> {
    pub fn new(o: &RunOptions, out: &'a mut dyn Write, plan: &Plan, shown: &[usize]) -> Lines<'a> {
        let names = match shown {
            [_] => vec!["loss".to_string()],
            many => many.iter().map(|&n| plan.entry().results[n].name.clone()).collect(),
        };
        let bar = (o.progress && !o.json && o.steps > 1).then(|| {
            let bar = ProgressBar::with_draw_target(Some(o.steps as u64), ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {elapsed} of {duration}  {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        let ranks = plan.mesh().ranks() as f64;
        let peak = o.peak_tflops.map(|t| t * 1e12 * ranks);
        Lines { out, json: o.json, bar, names, flops: plan.meta.step.matmul_flops, peak, worst: 0.0 }
    }

    fn print(&mut self, text: &str) {
        let out = &mut *self.out;
        // A closed pipe ends the output, not the training.
        let mut write = || {
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn object(&mut self, value: Value) {
        self.print(&value.to_string());
    }

    /// A line of text.
    pub fn note(&mut self, text: &str) {
        match self.json {
            true => self.object(json!({ "note": text })),
            false => self.print(text),
        }
    }

    /// Several.
    pub fn notes(&mut self, texts: &[String]) {
        texts.iter().for_each(|t| self.note(t));
    }

    /// How inputs came by their values: name, kind, why.
    pub fn table(&mut self, rows: &[[String; 3]]) {
        let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
        let (name, kind) = (width(0), width(1));
        for [n, k, why] in rows {
            match self.json {
                true => self.object(json!({ "input": n, "value": k, "why": why })),
                false => self.print(&format!("  {n:name$}  {k:kind$}  {why}")),
            }
        }
    }

    /// A step has ended.
    pub fn step(&mut self, m: &Measured<'_>) {
        let seconds = m.duration.as_secs_f64().max(1e-9);
        let rate = m.tokens.map(|t| t as f64 / seconds);
        let mfu = self.peak.filter(|_| self.flops > 0).map(|p| self.flops as f64 / seconds / p);
        for (got, want) in m.losses.iter().zip(m.wanted.into_iter().flatten()) {
            let deviation = (got - want).abs() / want.abs().max(f64::MIN_POSITIVE);
            // A loss that is no number is as far away as can be.
            self.worst = self.worst.max(if deviation.is_nan() { f64::INFINITY } else { deviation });
        }
        if self.json {
            let losses: Map<String, Value> =
                self.names.iter().cloned().zip(m.losses.iter().map(|&l| json!(l))).collect();
            let mut line = json!({
                "step": m.step, "losses": losses, "ms": seconds * 1e3, "tokens_per_s": rate, "mfu": mfu,
            });
            if let Some(wanted) = m.wanted {
                line["reference"] = json!(wanted);
            }
            self.object(line);
            return;
        }
        let mut text = format!("step {:>3}", m.step);
        for (n, (name, value)) in self.names.iter().zip(m.losses).enumerate() {
            text += &format!("  {name} {value:.6}");
            if let Some(want) = m.wanted.and_then(|w| w.get(n)) {
                text += &format!("  reference {want:.6}");
            }
        }
        text += &format!("  {:.1} ms", seconds * 1e3);
        text += &rate.map_or("  tokens/s n/a".to_string(), |r| format!("  {r:.0} tokens/s"));
        text += &mfu.map_or("  mfu n/a".to_string(), |m| format!("  mfu {:.2}%", m * 100.0));
        if let (Some(bar), Some(loss)) = (&self.bar, m.losses.last()) {
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
        }
        self.print(&text);
    }

    /// The state after a step was saved.
    pub fn saved(&mut self, path: &Path, step: u64) {
        match self.json {
            true => self.object(json!({ "saved": path.display().to_string(), "step": step })),
            false => self.print(&format!("state after step {step} saved in {}", path.display())),
        }
    }

    /// No more steps.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// How far losses were from the reference, if there was one.
    pub fn deviation(&mut self, compared: bool) {
        match (compared, self.json) {
            (false, _) => {}
            (true, true) => self.object(json!({ "largest_deviation": self.worst })),
            (true, false) => self.print(&format!("largest deviation of a loss: {:.1e}", self.worst)),
        }
    }

    /// All outputs agree with the reference.
    pub fn verdict(&mut self, verdict: &Report) {
        if !self.json {
            return self.print(verdict.render(3).trim_end());
        }
        let row = |r: &&msc_runtime::check::Row| json!({ "name": r.name, "measured": r.measured, "allowed": r.allowed });
        let worst: Vec<Value> = verdict.worst(3).iter().map(row).collect();
        self.object(json!({ "check": {
            "passed": verdict.passed(), "outputs": verdict.rows.len(), "compute": verdict.compute.name(),
            "worst": worst,
        } }));
    }
}

/// The results worth showing each step: the last few scalar floats that are no state, of many those that are called
/// losses first. Exporters put losses last; per-parameter step counters come before them.
pub(super) fn losses(session: &Session, results: &[(String, TensorType)]) -> Vec<usize> {
    const SHOWN: usize = 4;
    let state = |i: usize| session.carried().iter().any(|&(r, _)| r == i);
    let scalar = |i: &usize| results[*i].1.rank() == 0 && results[*i].1.dtype.is_float() && !state(*i);
    let mut all: Vec<usize> = (0..results.len()).filter(scalar).collect();
    let called = |i: usize| results[i].0.to_lowercase().contains("loss");
    all.sort_by_key(|&i| (called(i), i));
    let mut shown = all[all.len().saturating_sub(SHOWN)..].to_vec();
    shown.sort_unstable();
    shown
}
