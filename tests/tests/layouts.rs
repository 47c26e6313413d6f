//! Fixtures in layouts of many ranks: see `tests/layouts.toml`.

use msc_tests::curves::{deviation, reference, trained};
use msc_tests::layouts::{Case, Layouts};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const STEPS: usize = 20;

/// Largest deviation of a loss over the steps. The reference sums in another order and rounds to f32 after every op;
/// over twenty steps on one rank fixtures deviate by 1e-7 to 4e-7.
const DRIFT: f64 = 2e-6;

/// Parts of the covering set, so that they run side by side.
const PARTS: usize = 4;

fn judged(layouts: &Layouts, cases: &[Case]) {
    let folders: BTreeMap<String, PathBuf> = layouts.folders().into_iter().collect();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut wrong = Vec::new();
    for (n, (name, layout)) in cases.iter().enumerate() {
        let found = layouts.judge(name, &folders[name], layout, scratch);
        let verdict = found.as_ref().map_or("wrong", |()| "as it should be");
        println!("{}/{}: {name} {layout}: {verdict}", n + 1, cases.len());
        wrong.extend(found.err().map(|e| format!("{name} {layout}: {e}")));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn part(n: usize) {
    let layouts = Layouts::load().expect("layouts");
    let names: Vec<String> = layouts.folders().into_iter().map(|f| f.0).collect();
    assert!(names.len() >= 6, "fixtures are missing: {names:?}");
    let pairs = layouts.pairs(&names);
    let cases: Vec<Case> = pairs.into_iter().skip(n).step_by(PARTS).collect();
    judged(&layouts, &cases);
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

#[test]
#[ignore = "long: make sweep"]
fn every_layout() {
    let layouts = Layouts::load().expect("layouts");
    let all = layouts.all();
    let names: Vec<String> = layouts.folders().into_iter().map(|f| f.0).collect();
    let cases: Vec<Case> = names.iter().flat_map(|n| all.iter().map(|&l| (n.clone(), l))).collect();
    let refused = cases.iter().filter(|(n, l)| layouts.refusal(n, l).is_some());
    assert!(refused.count() * 10 <= cases.len(), "too many layouts are refused");
    judged(&layouts, &cases);
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
