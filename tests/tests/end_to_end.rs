//! A real training step through the whole pipeline: file, plan, ranks, numbers.

use msc::options::Options;
use msc::pipeline::{self, Compiled, Outcome};
use msc::run::{RunOptions, run};
use msc::stages::Stage;
use msc_tests::fixture;
use std::path::PathBuf;

const STEP: &str = "llama_torchax_tiny";

fn compiled(options: &Options) -> Box<Compiled> {
    match pipeline::compile(&fixture(STEP).join("model.mlir"), options, None).expect("compiles") {
        Outcome::Compiled(c) => c,
        Outcome::Emitted(_) => unreachable!("nothing was to be emitted"),
    }
}

fn plan(options: &Options, name: &str) -> (PathBuf, Box<Compiled>) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bin"));
    let mut c = compiled(options);
    pipeline::write(&mut c, &path).expect("writes");
    (path, c)
}

/// Runs a plan; the output ends with the verdict or the largest deviation.
fn trained(options: &Options, name: &str, steps: usize) -> String {
    let dir = fixture(STEP);
    let (path, _) = plan(options, name);
    let mut out = Vec::new();
    let base = RunOptions {
        plan: path,
        inputs: vec![dir.join("inputs.npz")],
        comm_timeout: 60,
        ..Default::default()
    };
    let once = RunOptions { check: Some(dir.join("outputs.npz")), steps: 1, ..base.clone() };
    run(&once, &mut out).expect("the outputs agree with the reference");
    let many = RunOptions { losses: Some(dir.join("losses.json")), steps, ..base };
    run(&many, &mut out).expect("trains");
    String::from_utf8(out).expect("text")
}

fn deviation(out: &str) -> f64 {
    let line =
        out.lines().find_map(|l| l.strip_prefix("largest deviation of a loss: ")).expect("a deviation");
    line.parse().expect("a number")
}

/// f32: two compilers' losses drift apart by rounding only; twenty steps stay below 2e-6 of the loss.
const DRIFT: f64 = 2e-6;

#[test]
fn one_rank_trains_like_the_reference() {
    assert!(deviation(&trained(&Options::default(), "one", 20)) < DRIFT);
}

#[test]
fn two_tensor_parallel_ranks_train_like_the_reference() {
    assert!(deviation(&trained(&Options { tp: 2, ..Options::default() }, "tp2", 20)) < DRIFT);
}

#[test]
fn four_ranks_on_two_axes_train_like_the_reference() {
    assert!(deviation(&trained(&Options { tp: 2, dp: 2, ..Options::default() }, "tp2dp2", 20)) < DRIFT);
}

#[test]
fn the_plain_ops_alone_train_like_the_reference() {
    let o = Options { recognise: false, fuse: false, ..Options::default() };
    assert!(deviation(&trained(&o, "plain", 5)) < DRIFT);
}

#[test]
fn a_plan_is_a_function_of_source_and_options() {
    let o = Options { tp: 2, ..Options::default() };
    let bytes = |name: &str| std::fs::read(plan(&o, name).0).expect("readable");
    assert_eq!(bytes("same_a"), bytes("same_b"));
}

#[test]
fn the_report_says_what_happened() {
    let (_, c) = plan(&Options { tp: 2, ..Options::default() }, "report");
    let r = &c.report;
    let stages: Vec<&str> = r.stages.iter().map(|s| s.name).collect();
    for s in Stage::ALL {
        assert!(stages.contains(&s.name()), "{s} is missing in {stages:?}");
    }
    assert!(r.ops > 1000 && r.peak_rss_bytes > 0 && r.egraph.runs > 0 && r.egraph.nodes > 0);
    assert_eq!(r.templates.count, 1);
    let sites = |kind: &str| r.fusions.iter().find(|f| f.kind == kind).map(|f| f.executed);
    assert_eq!((sites("rms_norm"), sites("rms_norm_grad")), (Some(5), Some(5)));
    // Between collectives of gradients nothing is left that a norm's kernel could do too.
    let whole = plan(&Options::default(), "report_whole").1.report.groups;
    assert!(!whole.is_empty() && whole.iter().chain(&r.groups).all(|g| g.fused_us < g.separate_us));
    assert!(!r.interpreted.iter().any(|i| i.contains("norm")), "norms have kernels: {:?}", r.interpreted);
    // Megatron's split: two a layer forward and two backward; embedding, in the cross-entropy the maximum and both sums
    // as one, the head's input gradient, the global norm.
    let executed: usize = r.collectives.iter().map(|c| c.executed).sum();
    assert_eq!(executed, 2 * 4 + 5);
    assert!(
        r.collectives.iter().all(|c| c.partial_because.contains("model.mlir") && !c.whole_because.is_empty())
    );
}

#[test]
fn every_stage_can_be_shown() {
    for s in Stage::ALL {
        if s == Stage::Write {
            continue;
        }
        match pipeline::compile(&fixture(STEP).join("model.mlir"), &Options::default(), Some(s))
            .expect("compiles")
        {
            Outcome::Emitted(text) => assert!(text.len() > 1000, "{s}"),
            Outcome::Compiled(_) => panic!("--emit {s} did not stop"),
        }
    }
}

#[test]
fn bad_input_is_the_users_to_mend() {
    let missing =
        pipeline::compile(&fixture(STEP).join("none.mlir"), &Options::default(), None).expect_err("no file");
    assert!(missing.to_string().contains("none.mlir") && missing.exit_code() == 2, "{missing}");
    let odd =
        pipeline::compile(&fixture(STEP).join("model.mlir"), &Options { tp: 41, ..Options::default() }, None);
    let odd = odd.expect_err("41 divides nothing, and would be a third of padding");
    assert!(odd.to_string().contains("MSC-C0001") && odd.exit_code() == 2, "{odd}");
    let (path, _) = plan(&Options::default(), "inputs");
    let none =
        run(&RunOptions { plan: path, steps: 1, comm_timeout: 5, ..Default::default() }, &mut Vec::new());
    let none = none.expect_err("no inputs").to_string();
    assert!(none.contains("67 of 67 inputs"), "{none}");
}
