//! Fixtures in layouts of many ranks: see `tests/layouts.toml`.

use msc::pipeline::{Outcome, compile};
use msc_tests::curves::{deviation, reference, trained};
use msc_tests::layouts::{Also, Case, Layouts};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const STEPS: usize = 20;

/// Largest deviation of a loss over the steps. The reference sums in another order and rounds to f32 after every op;
/// over twenty steps on one rank fixtures deviate by 1e-7 to 4e-7.
const DRIFT: f64 = 2e-6;

/// Parts of the covering set, so that they run side by side.
const PARTS: usize = 4;

/// Judges cases on so many threads, reports each as it is done, and all that are wrong at the end.
fn judged(layouts: &Layouts, cases: &[Case], threads: usize) {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    let began = Instant::now();
    let work = || {
        while let Some((name, layout)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A panic in one case is what is wrong with it.
            let found = catch_unwind(AssertUnwindSafe(|| {
                let dir = layouts.folder(name).ok_or("the fixture is missing")?;
                layouts.judge(name, &dir, layout, scratch)
            }));
            let found = found.unwrap_or_else(|_| Err("panicked".into()));
            let verdict = found.as_ref().map_or("wrong", |()| "as it should be");
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            println!("{n}/{} after {} s: {name} {layout}: {verdict}", cases.len(), began.elapsed().as_secs());
            if let Err(e) = found {
                println!("    {e}");
                wrong.lock().expect("no thread panics here").push(format!("{name} {layout}: {e}"));
            }
        }
    };
    std::thread::scope(|s| (0..threads).for_each(|_| drop(s.spawn(work))));
    let wrong = wrong.into_inner().expect("no thread panics here");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn part(n: usize) {
    let layouts = Layouts::load().expect("layouts");
    let names: Vec<String> = layouts.folders().into_iter().map(|f| f.0).collect();
    assert!(names.len() >= 6, "fixtures are missing: {names:?}");
    let pairs = layouts.pairs(&names);
    let cases: Vec<Case> = pairs.into_iter().skip(n).step_by(PARTS).collect();
    judged(&layouts, &cases, 1);
}

#[test]
fn pairs_of_choices_first_part() {
    part(0);
}

#[test]
fn pairs_of_choices_second_part() {
    part(1);
}

#[test]
fn pairs_of_choices_third_part() {
    part(2);
}

#[test]
fn pairs_of_choices_fourth_part() {
    part(3);
}

/// Batches that do not divide are padded, and the sequence is split between products.
#[test]
fn layouts_of_other_sizes_and_choices() {
    let layouts = Layouts::load().expect("layouts");
    let there = |a: &&Also| layouts.folder(&a.fixture).is_some();
    let all: Vec<&Also> = layouts.also.iter().filter(there).collect();
    assert!(all.len() >= 8, "fixtures are missing");
    for a in &all {
        let step = layouts.folder(&a.fixture).expect("a fixture").join("model.mlir");
        let Outcome::Compiled(c) = compile(&step, &a.layout.options(), None).expect("compiles") else {
            panic!("nothing was compiled")
        };
        let (padded, sequence) = (&c.report.padded, &c.report.sequence_parallel);
        assert_eq!(padded.len(), a.padded, "{} {}: {padded:?}", a.fixture, a.layout);
        let taken = sequence.as_ref().is_some_and(|s| s.taken);
        assert_eq!(taken, a.layout.sp, "{} {}: {sequence:?}", a.fixture, a.layout);
    }
    let cases: Vec<Case> = all.iter().map(|a| (a.fixture.clone(), a.layout)).collect();
    judged(&layouts, &cases, 1);
}

#[test]
#[ignore = "long: make sweep"]
fn every_layout() {
    let layouts = Layouts::load().expect("layouts");
    let all = layouts.all();
    let names: Vec<String> = layouts.folders().into_iter().map(|f| f.0).collect();
    let cases: Vec<Case> = names.iter().flat_map(|n| all.iter().map(|&l| (n.clone(), l))).collect();
    let refused = cases.iter().filter(|(n, l)| layouts.refusal(n, l).is_some());
    assert!(refused.count() * 10 <= cases.len(), "too many layouts are refused");
    // MSC_SWEEP_FROM: so many cases are done already.
    let from = std::env::var("MSC_SWEEP_FROM").map_or(0, |n| n.parse().expect("a number of cases"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    judged(&layouts, cases.get(from..).expect("fewer cases are done than there are"), threads);
}

#[test]
fn losses_are_followed_in_layouts() {
    let layouts = Layouts::load().expect("layouts");
    assert!(layouts.curves.len() >= 5);
    for c in &layouts.curves {
        let dir = &layouts.folder(&c.fixture).expect("a fixture");
        let want = reference(dir).expect("losses");
        let plan = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.curve.bin", c.fixture));
        let got = trained(dir, &c.layout.options(), STEPS, &want.outputs, &plan).expect("trains");
        assert_eq!(got.values.len(), STEPS);
        let d = deviation(&got.values, &want.values);
        println!("{} {}: {d:e}", c.fixture, c.layout);
        assert!(d < DRIFT, "{} {}: {d:e}", c.fixture, c.layout);
    }
}
