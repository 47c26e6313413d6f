//! The options that say how a step is spread, from the command line, from a file, and from the model itself.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{fixture, msc, stderr, stdout, write};

fn annotated() -> PathBuf {
    fixture("llama_flax_dp2_tp4_tiny").join("model.direct_mixed.mlirbc")
}

fn plain() -> PathBuf {
    fixture("llama_torchax_tiny").join("model.mlir")
}

fn compile(model: &Path, folder: &Path, options: &[&str]) -> Output {
    let mut c = msc();
    c.arg("compile").arg(model).arg("-o").arg(folder.join("plan.bin"));
    c.arg("--report").arg(folder.join("report.json")).args(options).output().expect("starts")
}

fn report(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("report.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

fn mesh(r: &Value) -> String {
    let axes = r["layout"]["mesh"].as_array().expect("axes");
    axes.iter().map(|a| format!("{}={}", a[0].as_str().unwrap(), a[1])).collect::<Vec<_>>().join(",")
}

#[test]
fn an_annotated_step_brings_its_layout() {
    let d = tempfile::tempdir().expect("a folder");
    stdout(&compile(&annotated(), d.path(), &[]));
    let r = report(d.path());
    assert_eq!(mesh(&r), "dp=2,tp=4");
    assert_eq!(
        (r["layout"]["given_parameters"].as_u64(), r["layout"]["given_results"].as_u64()),
        (Some(66), Some(65))
    );
    // One rank is one rank, by either way of saying it.
    for options in [&["--tp", "1"][..], &["--ignore-annotations"]] {
        stdout(&compile(&annotated(), d.path(), options));
        assert_eq!(mesh(&report(d.path())), "", "{options:?}");
    }
    // Other axes: the annotations are left out, and that is said.
    let text = stdout(&compile(&annotated(), d.path(), &["--dp", "2"]));
    assert!(text.contains("note: ") && text.contains("dp=2,tp=4"), "{text}");
    assert_eq!(report(d.path())["layout"]["given_parameters"], 0);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let d = tempfile::tempdir().expect("a folder");
    let bad = write(d.path(), "bad.json", "{\"version\": 1, \"name\": 3}");
    for (options, parts) in [
        (&["--mesh", "tp=2,tp=2"][..], &["MSC-X0002", "two axes `tp`"][..]),
        (&["--mesh", "tp"], &["MSC-X0002", "NAME=RANKS"]),
        (&["--tp", "2", "--shard", "lm_head=-"], &["MSC-C0001", "lm_head", "1 entries"]),
        (&["--tp", "2", "--shard", "wq=tp,-"], &["MSC-C0001", "no parameter's name matches"]),
        (&["--tp", "2", "--shard", "lm_head=dp,-"], &["MSC-C0001", "no axis `dp`", "tp (2 ranks)"]),
        (
            &["--tp", "16", "--topology", "910b-8"],
            &["MSC-C0001", "16 ranks", "nearest mesh that fits is tp=8"],
        ),
        (&["--topology", "910d"], &["MSC-X0002", "910b-8, 910b-64, 910c-384, host"]),
        (&["--topology", &bad], &["MSC-C0004", "$.name", "a name is expected"]),
    ] {
        let o = compile(&plain(), d.path(), options);
        let e = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{options:?}: {e}");
        assert!(parts.iter().all(|p| e.contains(p)), "{options:?}: {e}");
    }
}

#[test]
fn a_file_says_what_options_say_and_the_command_line_wins() {
    let d = tempfile::tempdir().expect("a folder");
    let text = format!(
        "model: {{file: '{}', fuse: false}}\nparallel: {{tp: 2, dp: 2, topology: host}}\n",
        plain().display()
    );
    let config = write(d.path(), "c.yaml", text);
    let plan = d.path().join("plan.bin");
    let run = |options: &[&str]| {
        let mut c = msc();
        c.args(["compile", "--config", &config, "-o"]).arg(&plan);
        c.arg("--report").arg(d.path().join("report.json")).args(options).output().expect("starts")
    };
    let header = || -> Vec<String> {
        let p = msc_runtime::plan::Plan::open(&plan).expect("a plan");
        p.meta.options.iter().map(|(k, v)| format!("{k}={v}")).collect()
    };
    stdout(&run(&[]));
    assert_eq!(mesh(&report(d.path())), "dp=2,tp=2");
    let h = header();
    for part in ["tp=2", "dp=2", "topology=host", "fuse=false", "annotations=true"] {
        assert!(h.contains(&part.to_string()), "{part}: {h:?}");
    }
    stdout(&run(&["--dp", "1", "--topology", "910b-8"]));
    assert_eq!(mesh(&report(d.path())), "tp=2");
    assert!(header().contains(&"topology=910b-8".to_string()));
    stdout(&run(&["--mesh", "tp=2"]));
    assert_eq!(mesh(&report(d.path())), "tp=2");
    assert!(header().contains(&"mesh=tp=2".to_string()));
    let wrong = write(d.path(), "w.yaml", "parallel:\n  tpp: 2\n");
    let o = msc().args(["compile", "--config", &wrong]).output().expect("starts");
    assert!(
        o.status.code() == Some(2)
            && stderr(&o).contains("w.yaml:2: there is no key `tpp`, do you mean `tp`?"),
        "{}",
        stderr(&o)
    );
    let o = msc().args(["compile"]).output().expect("starts");
    assert!(stderr(&o).contains("no model is given"), "{}", stderr(&o));
}

#[test]
fn a_run_takes_its_section_of_the_file() {
    let d = tempfile::tempdir().expect("a folder");
    let plan = d.path().join("plan.bin");
    support::compile(&plain(), &plan, &["--tp", "2"]);
    let inputs = fixture("llama_torchax_tiny").join("inputs.npz");
    let text = format!("training: {{steps: 2, params: ['{}'], save: out/}}\n", inputs.display());
    let config = write(d.path(), "c.yaml", text);
    let out = stdout(&support::run(&plan, &["--config", &config]));
    assert!(out.contains("step   2") || out.contains("step 2"), "{out}");
    assert!(d.path().join("out/index.json").is_file(), "{out}");
    let out = stdout(&support::run(&plan, &["--config", &config, "--steps", "1"]));
    assert!(!out.contains("step   2") && !out.contains("step 2"), "{out}");
}

#[test]
fn the_communication_of_a_layout() {
    let d = tempfile::tempdir().expect("a folder");
    let json = d.path().join("comm.json");
    let mut c = msc();
    c.arg("explain").arg(plain()).args([
        "--comm",
        "--tp",
        "2",
        "--dp",
        "2",
        "--topology",
        "910b-8",
        "--json",
    ]);
    let text = stdout(&c.arg(&json).output().expect("starts"));
    let v: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    let list = v["collectives"].as_array().expect("a list");
    let sum = |s: &Value, key: &str| {
        s.as_array().expect("sums").iter().map(|x| x[key].as_u64().unwrap()).sum::<u64>()
    };
    let all: u64 = list.iter().map(|c| c["bytes"].as_u64().unwrap() * c["executed"].as_u64().unwrap()).sum();
    assert!(all > 0);
    for sums in [&v["by_axis"], &v["by_direction"]] {
        assert_eq!(
            (sum(sums, "bytes"), sum(sums, "executed")),
            (all, v["total"]["executed"].as_u64().unwrap())
        );
    }
    // The layers' reductions are forward and backward, those of gradients over the batch come last.
    let of = |direction: &str, axis: &str| {
        let has =
            |c: &&Value| c["direction"] == direction && c["axes"].as_array().unwrap().contains(&axis.into());
        list.iter().filter(has).count()
    };
    assert!(of("forward", "tp") > 0 && of("backward", "tp") > 0 && of("update", "dp") > 0, "{text}");
    for part in
        ["mesh dp=2,tp=2", "way: full_mesh over HCCS within a server", "direction forward:", "axes tp:"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let o = msc().arg("explain").arg(plain()).args(["--tp", "2"]).output().expect("starts");
    assert!(o.status.code() == Some(2) && stderr(&o).contains("--comm"), "{}", stderr(&o));
}
