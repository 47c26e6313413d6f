//! Replays are evidence only as long as nothing of what they judge takes part in them, and as long as they see whatever
//! an output depends on.

use msc_ir::{Module, text};
use msc_passes::recognise::{Replayer, Report, recognise_graph};

/// A norm and a value beside it that its result is computed from: `%12` is `%2` times zero.
const BESIDE: &str = r#"module @step

graph @main(%0: f32[2,3,8], %1: f32[8], %2: f32[2,3,8]) {
  %3 = multiply %0, %0 : f32[2,3,8]
  %4 = reduce %3 {dims = [2], monoid = sum} : f32[2,3]
  %5 = constant {value = splat f32[2,3] 0.125} : f32[2,3]
  %6 = multiply %4, %5 : f32[2,3]
  %7 = constant {value = splat f32[2,3] 1e-5} : f32[2,3]
  %8 = add %6, %7 : f32[2,3]
  %9 = rsqrt %8 : f32[2,3]
  %10 = broadcast_in_dim %9 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %11 = constant {value = splat f32[2,3,8] 0.0} : f32[2,3,8]
  %12 = multiply %2, %11 : f32[2,3,8]
  %13 = broadcast_in_dim %1 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %14 = multiply %0, %10 : f32[2,3,8]
  %15 = multiply %14, %13 : f32[2,3,8]
  %16 = add %15, %12 : f32[2,3,8]
  %17 = add %15, %2 : f32[2,3,8]
  return %15, %16, %17
}
"#;

fn recognised(rows: &str) -> (Module, Report) {
    let mut module =
        text::parse(&BESIDE.replace("2,3", rows).replace("2, 3", &rows.replace(',', ", "))).expect("parses");
    let main = module.graph_by_name("main").expect("main");
    let report = recognise_graph(&mut module, main).expect("recognises");
    (module, report)
}

/// What is claimed of an output is tried for every value that it is computed from, an operand of the op or not.
#[test]
fn what_an_output_is_computed_from_beside_the_inputs_is_random() {
    // As they are, and with more rows than a replay runs.
    for rows in ["2,3", "40,300"] {
        random(rows);
    }
}

fn random(rows: &str) {
    let (module, report) = recognised(rows);
    let region = &report.regions[0];
    let norm = region.reasons.iter().find(|r| r.rule == "rms-norm").expect("a norm");
    // The claim that y is another value: one that hangs on %2 and is the same, one that is not.
    for (value, same) in [(15, true), (16, true), (17, false)] {
        let mut claim = norm.clone();
        let y = claim.outputs.iter_mut().find(|o| o.name == "y").expect("y");
        y.values[0].value = msc_ir::ValueId(value);
        let compared = Replayer::new(&module, region).fresh(&claim, 1).expect("executes");
        let y = compared.iter().find(|c| c.name == "y").expect("y");
        assert_eq!(y.agrees(), same, "%{value}: {y:?}");
        if same {
            assert!(y.difference < 1e-9, "{rows}: {y:?}");
        } else {
            assert!(y.difference > 0.1, "{rows}: {y:?}");
        }
    }
}

/// What cuts, runs and compares in a replay uses records of the engine, and none of its machinery.
#[test]
fn replays_share_nothing_with_the_engine() {
    let files = [
        include_str!("../src/recognise/replay/mod.rs"),
        include_str!("../src/recognise/replay/slice.rs"),
        include_str!("../src/recognise/replay/program.rs"),
        include_str!("../src/recognise/replay/data.rs"),
        include_str!("../src/recognise/replay/small.rs"),
    ];
    // Of the engine: the record of a reason, and where parameters of its graphs come from.
    let records =
        ["engine::run::{CutValue, Made, Reason}", "engine::run::Reason", "engine::region::{At, Source}"];
    for file in files {
        for line in file.lines().filter(|l| l.starts_with("use ")) {
            let machinery = ["engine", "extract", "define", "rules", "trial", "unite"];
            let used = machinery.iter().any(|m| line.contains(&format!("{m}::")));
            assert!(!used || records.iter().any(|r| line.contains(r)), "{line}");
        }
        assert!(!file.contains("Region::build"), "a replay builds no e-graph");
    }
}
