//! All near misses of a step, counted by family.

use super::covers::Covers;
use super::judge::{Outcome, Unchanged, judge, recognised};
use super::near_misses;
use crate::mutants::subject::Subject;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many near misses to make, and how to look at them.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of each family.
    pub per_family: usize,
    /// At any place.
    pub generic: usize,
    /// Which of them.
    pub seed: u64,
    /// Every how many of them is judged.
    pub every: usize,
    /// Whether they run in the step's own types too.
    pub own: bool,
    /// Threads to judge them on.
    pub threads: usize,
}

/// One near miss.
#[derive(Clone, Debug)]
pub struct Row {
    /// What kind of edit.
    pub family: &'static str,
    /// The step.
    pub step: String,
    /// Where.
    pub site: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// Makes and judges the near misses of a step.
///
/// # Errors
/// If the step itself does not pass.
pub fn judged(s: &Subject, b: &Budget) -> Result<Vec<Row>, String> {
    let itself = recognised(s.module.clone())?;
    itself.replay(b.seed)?;
    itself.compare(s, b.own).map_err(|e| format!("{}, unchanged: {e}", s.name))?;
    let unchanged = Unchanged { found: itself.found(), covers: Covers::new(s)? };
    let all: Vec<_> = near_misses(s, b.per_family, b.generic, b.seed).into_iter().step_by(b.every).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; all.len()]));
    std::thread::scope(|scope| {
        for _ in 0..b.threads.max(1) {
            scope.spawn(|| {
                while let i = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(n) = all.get(i)
                {
                    let outcome = judge(s, n, &unchanged, b.own);
                    let (family, site) = (n.mutant.family, n.mutant.site.clone());
                    let row = Row { family, step: s.name.clone(), site, outcome };
                    done.lock().expect("no thread panics")[i] = Some(row);
                }
            });
        }
    });
    Ok(done.into_inner().expect("no thread panics").into_iter().flatten().collect())
}

/// Those with a wrong meaning.
pub fn wrong(rows: &[Row]) -> Vec<String> {
    let told = |r: &Row| match &r.outcome {
        Outcome::Wrong(why) => Some(format!("{}, {}, {}: {why}", r.step, r.family, r.site)),
        _ => None,
    };
    rows.iter().filter_map(told).collect()
}

/// How many were made: that fit, and do something.
pub fn made(rows: &[Row]) -> usize {
    rows.iter().filter(|r| !matches!(r.outcome, Outcome::Inapplicable(_))).count()
}

/// The table in Markdown: families down.
pub fn markdown(rows: &[Row]) -> String {
    let mut families: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
    let mut total = [0; 6];
    for r in rows {
        let column = match r.outcome {
            Outcome::Inapplicable(_) => continue,
            Outcome::Fewer => 1,
            Outcome::Attribute => 2,
            Outcome::Operands => 3,
            Outcome::Equivalent => 4,
            Outcome::Wrong(_) => 5,
        };
        for line in [families.entry(r.family).or_default(), &mut total] {
            line[0] += 1;
            line[column] += 1;
        }
    }
    let mut out = String::from(
        "| near miss | made | not recognised | other attributes | other operands | the same numbers | wrong |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    let lines = families.into_iter().chain([("**all**", total)]);
    for (family, n) in lines {
        let cells: Vec<String> = n
            .iter()
            .enumerate()
            .map(|(i, n)| if *n == 0 && i < 5 { String::new() } else { n.to_string() })
            .collect();
        let family = family.replace('|', "\\|");
        let _ = writeln!(out, "| {family} | {} |", cells.join(" | "));
    }
    out
}
