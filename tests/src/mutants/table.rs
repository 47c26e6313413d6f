//! What became of the mutants, counted and as a table.

use super::judge::{Verdict, judge};
use super::subject::Subject;
use super::{Mutant, mutants};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many mutants to make.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of each family.
    pub per_family: usize,
    /// Of the generic kinds together.
    pub generic: usize,
    /// Which of them.
    pub seed: u64,
    /// Threads to run them on.
    pub threads: usize,
}

/// One mutant and its verdict.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What kind of mistake.
    pub family: &'static str,
    /// Where.
    pub site: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// All outcomes of one fixture.
#[derive(Clone, Debug)]
pub struct Column {
    /// The fixture's name.
    pub name: String,
    /// Outputs of the unchanged program that the check does not accept, with their distance in units of what is
    /// allowed. They say nothing of mutants.
    pub unusable: Vec<(String, f64)>,
    /// The largest distance of an accepted output of the unchanged program, in units of what is allowed.
    pub unchanged: f64,
    /// One outcome per mutant.
    pub outcomes: Vec<Outcome>,
}

impl Column {
    /// The number of outcomes of a kind.
    pub fn count(&self, kind: impl Fn(&Verdict) -> bool) -> usize {
        self.outcomes.iter().filter(|o| kind(&o.verdict)).count()
    }

    /// The mutants that nobody noticed.
    pub fn missed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|o| matches!(o.verdict, Verdict::Missed(..)))
    }

    /// The smallest distance of a mutant that the check notices, in units of what is allowed.
    pub fn closest(&self) -> f64 {
        let units = self.outcomes.iter().filter_map(|o| match o.verdict {
            Verdict::Caught(_, units) => Some(units),
            _ => None,
        });
        units.fold(f64::INFINITY, f64::min)
    }

    /// The mutants that the check notices.
    pub fn caught(&self) -> usize {
        self.count(|v| matches!(v, Verdict::Caught(..)))
    }
}

/// Makes and judges the mutants of a fixture.
pub fn run(s: &Subject, b: &Budget) -> Column {
    let all: Vec<Mutant> = mutants(s, b.per_family, b.generic, b.seed);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; all.len()]));
    std::thread::scope(|scope| {
        for _ in 0..b.threads.max(1) {
            scope.spawn(|| {
                while let i = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(m) = all.get(i)
                {
                    let verdict = judge(s, m);
                    let o = Outcome { family: m.family, site: m.site.clone(), verdict };
                    done.lock().expect("no thread panics")[i] = Some(o);
                }
            });
        }
    });
    let outcomes = done.into_inner().expect("no thread panics").into_iter().flatten().collect();
    let unusable = s.baseline.rows.iter().filter(|r| !r.passed());
    let unusable = unusable.map(|r| (r.name.clone(), r.severity())).collect();
    let passed = s.baseline.rows.iter().filter(|r| r.passed() && r.measured > 0.0);
    let unchanged = passed.map(|r| r.severity()).fold(0.0, f64::max);
    Column { name: s.name.clone(), unusable, unchanged, outcomes }
}

/// The table in Markdown: families down, fixtures across.
pub fn markdown(columns: &[Column]) -> String {
    let mut families: Vec<&str> = Vec::new();
    for o in columns.iter().flat_map(|c| &c.outcomes) {
        if !families.contains(&o.family) {
            families.push(o.family);
        }
    }
    families.sort_by_key(|f| f.starts_with("any:"));
    let mut out = String::new();
    for (i, c) in columns.iter().enumerate() {
        let _ = writeln!(out, "{}. `{}`", i + 1, c.name);
    }
    let _ = write!(out, "\n| |");
    columns.iter().enumerate().for_each(|(i, _)| {
        let _ = write!(out, " {} |", i + 1);
    });
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(columns.len()));
    for family in families {
        let _ = write!(out, "| {family} |");
        for c in columns {
            let of = |kind: fn(&Verdict) -> bool| {
                c.outcomes.iter().filter(|o| o.family == family && kind(&o.verdict)).count()
            };
            let _ = write!(out, " {} |", cell(of));
        }
        out.push('\n');
    }
    let _ = write!(out, "| **caught** |");
    columns.iter().for_each(|c| {
        let _ = write!(out, " **{}** |", c.caught());
    });
    out.push('\n');
    for (name, kind) in [
        ("equivalent", (|v: &Verdict| matches!(v, Verdict::Equivalent(_))) as fn(&Verdict) -> bool),
        ("below rounding", |v| matches!(v, Verdict::BelowRounding(_))),
        ("below a split", |v| matches!(v, Verdict::BelowSplit(_))),
        ("do not fit", |v| matches!(v, Verdict::Inapplicable(_))),
        ("missed", |v| matches!(v, Verdict::Missed(..))),
    ] {
        let _ = write!(out, "| {name} |");
        columns.iter().for_each(|c| {
            let _ = write!(out, " {} |", c.count(kind));
        });
        out.push('\n');
    }
    let _ = write!(out, "| outputs not judged |");
    columns.iter().for_each(|c| {
        let _ = write!(out, " {} |", c.unusable.len());
    });
    out.push('\n');
    for (name, of) in
        [("closest catch", Column::closest as fn(&Column) -> f64), ("no mutation", |c: &Column| c.unchanged)]
    {
        let _ = write!(out, "| {name} |");
        columns.iter().for_each(|c| {
            let _ = write!(out, " {:.2} |", of(c));
        });
        out.push('\n');
    }
    out
}

/// Caught; then `e` equivalent, `r` below rounding, `s` below a split, `m` missed.
fn cell(of: impl Fn(fn(&Verdict) -> bool) -> usize) -> String {
    let caught = of(|v| matches!(v, Verdict::Caught(..)));
    let mut parts = Vec::new();
    if caught > 0 {
        parts.push(caught.to_string());
    }
    for (letter, n) in [
        ("e", of(|v| matches!(v, Verdict::Equivalent(_)))),
        ("r", of(|v| matches!(v, Verdict::BelowRounding(_)))),
        ("s", of(|v| matches!(v, Verdict::BelowSplit(_)))),
        ("m", of(|v| matches!(v, Verdict::Missed(..)))),
    ] {
        if n > 0 {
            parts.push(format!("{n}{letter}"));
        }
    }
    parts.join(" ")
}
