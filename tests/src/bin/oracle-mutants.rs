//! Mutates training steps and checks that the comparison with the reference notices.
//!
//! `oracle-mutants [--markdown FILE] [--per-family N] [--generic N] [--seed N] [--threads N] [--only NAME]
//! [--list] FOLDER…`:
//! every folder below FOLDER with `model.mlir`, `inputs.npz` and `outputs.npz` is a fixture. Fails if a mutant is
//! missed or a fixture has fewer than 30 that are caught.

use msc_tests::meta;
use msc_tests::mutants::judge::Verdict;
use msc_tests::mutants::subject::Subject;
use msc_tests::mutants::table::{Budget, Column, markdown, run};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The fewest mutants of a fixture that must be caught.
const ENOUGH: usize = 30;

struct Options {
    markdown: Option<PathBuf>,
    only: Option<String>,
    list: bool,
    budget: Budget,
    roots: Vec<PathBuf>,
}

fn options() -> Result<Options, String> {
    let budget = Budget { per_family: 2, generic: 24, seed: 1, threads: 2 };
    let mut o = Options { markdown: None, only: None, list: false, budget, roots: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let mut value = || args.next().ok_or(format!("{a} takes a value"));
        let number = |s: String| s.parse::<usize>().map_err(|e| format!("{s}: {e}"));
        match a.as_str() {
            "--markdown" => o.markdown = Some(value()?.into()),
            "--only" => o.only = Some(value()?),
            "--list" => o.list = true,
            "--per-family" => o.budget.per_family = number(value()?)?,
            "--generic" => o.budget.generic = number(value()?)?,
            "--seed" => o.budget.seed = number(value()?)? as u64,
            "--threads" => o.budget.threads = number(value()?)?,
            flag if flag.starts_with("--") => return Err(format!("there is no option {flag}")),
            root => o.roots.push(root.into()),
        }
    }
    Ok(o)
}

fn column(dir: &Path, o: &Options) -> Result<Column, String> {
    let start = Instant::now();
    let s = Subject::open(dir)?;
    let opened = start.elapsed();
    let c = run(&s, &o.budget);
    println!(
        "{}: {} caught, {} equivalent, {} below rounding, {} below a split, {} do not fit, {} MISSED; closest {:.2}, \
         unmutated {:.3} of what is allowed; {:.1} s ({:.1} s to open)",
        c.name,
        c.caught(),
        c.count(|v| matches!(v, Verdict::Equivalent(_))),
        c.count(|v| matches!(v, Verdict::BelowRounding(_))),
        c.count(|v| matches!(v, Verdict::BelowSplit(_))),
        c.count(|v| matches!(v, Verdict::Inapplicable(_))),
        c.missed().count(),
        c.closest(),
        c.unchanged,
        start.elapsed().as_secs_f64(),
        opened.as_secs_f64(),
    );
    for (name, units) in &c.unusable {
        println!("  not judged: {name}, {units:.2} of what is allowed without a mutation");
    }
    for x in c.outcomes.iter().filter(|x| o.list || matches!(x.verdict, Verdict::Missed(..))) {
        println!("  {}, {}: {:?}", x.family, x.site, x.verdict);
    }
    Ok(c)
}

fn main() -> ExitCode {
    let o = match options() {
        Ok(o) if !o.roots.is_empty() => o,
        Ok(_) => {
            eprintln!("name a folder of fixtures");
            return ExitCode::from(2);
        }
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let (mut columns, mut failed) = (Vec::new(), false);
    for root in &o.roots {
        let all = meta::folders(root, &["model.mlir", "inputs.npz", "outputs.npz"]).unwrap_or_else(|e| {
            eprintln!("{e}");
            Vec::new()
        });
        failed |= all.is_empty();
        for dir in all {
            if o.only.as_ref().is_some_and(|n| !dir.ends_with(n)) {
                continue;
            }
            match column(&dir, &o) {
                Ok(c) => {
                    failed |= c.missed().count() > 0 || c.caught() < ENOUGH;
                    columns.push(c);
                }
                Err(e) => {
                    eprintln!("{}: {e}", dir.display());
                    failed = true;
                }
            }
        }
    }
    failed |= columns.is_empty();
    if let Some(path) = o.markdown.as_ref().filter(|_| !failed)
        && let Err(e) = meta::write_between(path, "mutants", &markdown(&columns))
    {
        eprintln!("{}: {e}", path.display());
        failed = true;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
