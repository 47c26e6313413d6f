//! Replays are evidence only as long as nothing of what they judge takes part in them.

/// What cuts, runs and compares in a replay uses records of the engine, and none of its machinery.
#[test]
fn replays_share_nothing_with_the_engine() {
    let files = [
        include_str!("../src/recognise/replay/mod.rs"),
        include_str!("../src/recognise/replay/slice.rs"),
        include_str!("../src/recognise/replay/program.rs"),
        include_str!("../src/recognise/replay/data.rs"),
    ];
    // Of the engine: the record of a reason, and where parameters of its graphs come from.
    let records = ["engine::run::{CutValue, Reason}", "engine::run::Reason", "engine::region::{At, Source}"];
    for file in files {
        for line in file.lines().filter(|l| l.starts_with("use ")) {
            let machinery = ["engine", "extract", "define", "rules", "trial", "unite"];
            let used = machinery.iter().any(|m| line.contains(&format!("{m}::")));
            assert!(!used || records.iter().any(|r| line.contains(r)), "{line}");
        }
        assert!(!file.contains("Region::build"), "a replay builds no e-graph");
    }
}
