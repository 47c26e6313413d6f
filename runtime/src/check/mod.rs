//! Comparison of a step's outputs with a reference.
//!
//! Plain outputs are judged by `max|a−b| / max|b|`. State is judged by its *update*: with `x₀` before the
//! step, `‖a−b‖ ≤ t·‖b−x₀‖ + s`, where `s` allows for the rounding of the stored values. An optimizer that does
//! nothing would pass any relative check of the values themselves, since one step changes them little; of its
//! update it misses all. Integers are compared exactly.

mod measure;
mod tolerance;

pub use tolerance::{Compute, Tolerance};

use measure::{max_ratio, update};
use msc_ir::Tensor;
use msc_ir::module::Entry;
use std::fmt::Write;

/// One output and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The user's name.
    pub name: &'a str,
    /// What was computed.
    pub actual: &'a Tensor,
    /// What it should be.
    pub reference: &'a Tensor,
    /// For state: its value before the first step.
    pub initial: Option<&'a Tensor>,
}

/// How an output was judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// By its largest difference, relative to the largest reference value.
    Plain,
    /// By its update.
    State,
    /// Exactly.
    Exact,
}

impl Judged {
    fn name(self) -> &'static str {
        match self {
            Judged::Plain => "plain",
            Judged::State => "state",
            Judged::Exact => "exact",
        }
    }
}

/// The verdict on one output. It passes if `measured <= allowed`.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The user's name.
    pub name: String,
    /// How it was judged.
    pub judged: Judged,
    /// Plain: `max|a−b| / max|b|`. State: `‖a−b‖ / ‖b−x₀‖`. Exact: the number of differing elements.
    /// Infinite where the comparison is impossible.
    pub measured: f64,
    /// The same for the largest difference that passes.
    pub allowed: f64,
    /// What else is to be said: types that differ, the element of the largest difference.
    pub note: String,
}

impl Row {
    /// Whether the output passes.
    pub fn passed(&self) -> bool {
        self.measured <= self.allowed
    }

    /// How far from passing: 1 is just allowed.
    pub fn severity(&self) -> f64 {
        match self.measured {
            0.0 => 0.0,
            m => m / self.allowed,
        }
    }
}

/// The verdict on all outputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The type the step computes in.
    pub compute: Compute,
    /// One row for each output, in order.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether every output passes.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(Row::passed)
    }

    /// The rows with the largest differences in relation to what is allowed, worst first.
    pub fn worst(&self, n: usize) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by(|a, b| b.severity().total_cmp(&a.severity()));
        rows.truncate(n);
        rows
    }

    /// The verdict as text: a summary line, then all failures but at most `limit`, or the worst that pass.
    pub fn render(&self, limit: usize) -> String {
        let failed = self.rows.iter().filter(|r| !r.passed()).count();
        let mut out = match failed {
            0 => format!("check passed: {} outputs", self.rows.len()),
            n => format!("MSC-R0101: check failed: {n} of {} outputs", self.rows.len()),
        };
        let _ = writeln!(out, ", computed in {}", self.compute.name());
        let shown = self.worst(if failed == 0 { limit.min(3) } else { limit.min(failed) });
        let width = shown.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        for r in shown {
            let verdict = if r.passed() { "ok  " } else { "FAIL" };
            let _ = write!(
                out,
                "  {verdict} {:width$}  {:5}  {:9.3e} of {:9.3e} allowed",
                r.name,
                r.judged.name(),
                r.measured,
                r.allowed
            );
            if !r.note.is_empty() {
                let _ = write!(out, "  ({})", r.note);
            }
            out.push('\n');
        }
        out
    }
}

/// Compares outputs with their reference. `compute` says how exact they can be.
pub fn check<'a>(items: impl IntoIterator<Item = Item<'a>>, compute: Compute) -> Report {
    let tolerance = Tolerance::of(compute);
    Report { compute, rows: items.into_iter().map(|i| row(&i, &tolerance)).collect() }
}

/// Compares the outputs of an entry, all of them and in order, with a reference. `inputs` are those of the
/// first step; results that replace a donated parameter, and those that `carried` says are carried over to
/// a parameter (result, parameter), are state.
pub fn check_outputs(
    entry: &Entry,
    carried: &[(usize, usize)],
    inputs: &[Tensor],
    outputs: &[Tensor],
    reference: &[Tensor],
    compute: Compute,
) -> Report {
    let mut initial: Vec<Option<&Tensor>> = vec![None; entry.results.len()];
    let donated = entry.params.iter().enumerate().filter_map(|(p, i)| Some((i.alias? as usize, p)));
    for (r, p) in donated.chain(carried.iter().copied()) {
        if let Some(slot) = initial.get_mut(r) {
            *slot = inputs.get(p);
        }
    }
    let tolerance = Tolerance::of(compute);
    let judged = |(n, initial): (usize, Option<&Tensor>)| {
        let name = &*entry.results[n].name;
        let absent = |note: &str| Row {
            name: name.to_string(),
            judged: if initial.is_some() { Judged::State } else { Judged::Plain },
            measured: f64::INFINITY,
            allowed: 0.0,
            note: note.to_string(),
        };
        match (outputs.get(n), reference.get(n)) {
            (Some(actual), Some(reference)) => row(&Item { name, actual, reference, initial }, &tolerance),
            (None, _) => absent("was not computed"),
            (_, None) => absent("is not in the reference"),
        }
    };
    Report { compute, rows: initial.into_iter().enumerate().map(judged).collect() }
}

fn row(i: &Item<'_>, t: &Tolerance) -> Row {
    let row =
        |judged, measured, allowed, note| Row { name: i.name.to_string(), judged, measured, allowed, note };
    let (got, want) = (i.actual.ty(), i.reference.ty());
    if got != want {
        return row(Judged::Plain, f64::INFINITY, 0.0, format!("is {got}, the reference is {want}"));
    }
    if let Some(x) = i.initial
        && x.ty() != want
    {
        return row(Judged::State, f64::INFINITY, 0.0, format!("was {} before the step", x.ty()));
    }
    if !want.dtype.is_float() {
        // By their bits: not every 64-bit integer is a double, or an `i64`.
        let size = want.dtype.size_bytes();
        let pairs = i.actual.data.bytes().chunks(size).zip(i.reference.data.bytes().chunks(size));
        let differ: Vec<usize> = pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(e, _)| e).collect();
        let note = differ.first().map(|&e| {
            let (a, b) = (i.actual.data.get_i64(e), i.reference.data.get_i64(e));
            format!("element {e} is {a}, should be {b}")
        });
        return row(Judged::Exact, differ.len() as f64, 0.0, note.unwrap_or_default());
    }
    let Some(x) = i.initial else {
        let (measured, note) = max_ratio(i.actual, i.reference);
        return row(Judged::Plain, measured, t.plain, note);
    };
    let (measured, allowed, note) = update(i.actual, i.reference, x, t);
    row(Judged::State, measured, allowed, note)
}
