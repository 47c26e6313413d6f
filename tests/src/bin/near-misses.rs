//! Makes near misses of named operations, takes them through recognition, and prints the table.
//!
//! `near-misses [--per-family N] [--generic N] [--seed N] [--only NAME] [--markdown FILE] FOLDER…`: every folder below
//! FOLDER with `model.mlir`, `inputs.npz` and `outputs.npz` is a step. Fails if one has a wrong meaning.

use msc_tests::meta;
use msc_tests::mutants::subject::Subject;
use msc_tests::near::table::{Budget, judged, made, markdown, wrong};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut b = Budget { per_family: 1, generic: 6, seed: 5, every: 1, own: true, threads: 2 };
    let (mut only, mut page, mut roots) = (None, None, Vec::<PathBuf>::new());
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let mut number = |slot: &mut usize| match args.next().and_then(|v| v.parse().ok()) {
            Some(n) => *slot = n,
            None => eprintln!("{a} takes a number"),
        };
        match a.as_str() {
            "--per-family" => number(&mut b.per_family),
            "--generic" => number(&mut b.generic),
            "--seed" => {
                let mut seed = 0;
                number(&mut seed);
                b.seed = seed as u64;
            }
            "--only" => only = args.next(),
            "--markdown" => page = args.next().map(PathBuf::from),
            root => roots.push(root.into()),
        }
    }
    let (mut rows, mut failed) = (Vec::new(), roots.is_empty());
    for root in &roots {
        let all = meta::folders(root, &["model.mlir", "inputs.npz", "outputs.npz"]).unwrap_or_else(|e| {
            eprintln!("{e}");
            Vec::new()
        });
        failed |= all.is_empty();
        for dir in all.iter().filter(|d| only.as_ref().is_none_or(|n| d.ends_with(n))) {
            match Subject::open(dir).and_then(|s| judged(&s, &b)) {
                Ok(mut of) => {
                    println!("{}: {} near misses, {} wrong", dir.display(), made(&of), wrong(&of).len());
                    rows.append(&mut of);
                }
                Err(e) => {
                    eprintln!("{}: {e}", dir.display());
                    failed = true;
                }
            }
        }
    }
    println!("\n{}", markdown(&rows));
    for w in wrong(&rows) {
        failed = true;
        println!("WRONG {w}");
    }
    if let Some(path) = page.filter(|_| !failed)
        && let Err(e) = meta::write_between(&path, "near misses", &markdown(&rows))
    {
        eprintln!("{}: {e}", path.display());
        failed = true;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
