//! Signals to a running `msc run`, and going on from what it saved.
#![cfg(unix)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use support::{compile, fixture, flat, losses, msc, run, stdout, tokens, write};

/// Starts a run, waits for its second step, sends a signal; gives the exit status and what it said.
fn interrupted(plan: &std::path::Path, options: &[&str], signal: &str) -> (Option<i32>, String) {
    let mut child = msc()
        .arg("run")
        .arg(plan)
        .args(options)
        .args(["--steps", "1000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let second = |l: &std::io::Result<String>| l.as_ref().is_ok_and(|l| l.starts_with("step   2"));
    assert!(lines.any(|l| second(&l)), "no second step");
    // Nobody else reads: let the rest drain, so that a full pipe does not stop the run.
    let drain = std::thread::spawn(move || lines.count());
    let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
    assert!(kill.expect("sends").success());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    let status = child.wait().expect("ends").code();
    drain.join().expect("drained");
    (status, said)
}

#[test]
fn a_signal_leaves_the_state_saved_and_a_run_goes_on_from_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = write(dir.path(), "tokens.bin", flat(&tokens(1000, 96)));
    let model = fixture("llama_torchax_tiny").join("model.mlir");
    for (layout, signal, code) in [(&[][..], "INT", 130), (&["--tp", "2"], "TERM", 143)] {
        let plan = dir.path().join("plan.bin");
        compile(&model, &plan, layout);
        let fed = ["--data", &data, "--data-dtype", "u16"];
        let state = dir.path().join(format!("{signal}.safetensors")).display().to_string();
        let begin = [&["--init", "5", "--save", &state][..], &fed].concat();
        let (status, said) = interrupted(&plan, &begin, signal);
        assert_eq!(status, Some(code), "{said}");
        let done = said
            .strip_prefix("error: MSC-X0004: stopped by a signal after step ")
            .and_then(|s| s.split(';').next()?.parse::<usize>().ok())
            .unwrap_or_else(|| panic!("{said}"));
        assert!(done >= 2 && said.contains(&state), "{said}");

        let on = [&["--params", &state, "--steps", "2"][..], &fed].concat();
        let text = stdout(&run(&plan, &on));
        assert!(text.contains(&format!("state after step {done}: going on")), "{text}");
        assert!(text.contains(&format!("step {:>3}  ", done + 1)), "{text}");
        let resumed = losses(&stdout(&run(&plan, &[&on[..], &["--json"]].concat())));
        let steps = (done + 2).to_string();
        let straight = [&["--init", "5", "--steps", &steps, "--json"][..], &fed].concat();
        let straight = losses(&stdout(&run(&plan, &straight)));
        // The same bits as if nothing had happened.
        assert_eq!(resumed, straight[done..], "stopped after step {done}");
    }
}

#[test]
fn without_a_place_to_save_the_state_goes_beside_the_plan() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = dir.path().join("plan.bin");
    let step = fixture("llama_torchax_tiny");
    compile(&step.join("model.mlir"), &plan, &[]);
    let inputs = step.join("inputs.npz").display().to_string();
    let (status, said) = interrupted(&plan, &["--inputs", &inputs], "INT");
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("plan.state.safetensors"), "{said}");
    assert!(dir.path().join("plan.state.safetensors").exists());
}

#[test]
fn the_state_is_saved_every_few_steps() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = dir.path().join("plan.bin");
    let step = fixture("llama_torchax_tiny");
    compile(&step.join("model.mlir"), &plan, &[]);
    let inputs = step.join("inputs.npz").display().to_string();
    let state = dir.path().join("state.npz").display().to_string();
    let options = ["--inputs", &inputs, "--steps", "5", "--save", &state, "--save-every", "2"];
    let text = stdout(&run(&plan, &options));
    let saved: Vec<&str> = text.lines().filter(|l| l.contains("saved in")).collect();
    let after = |n: usize| format!("state after step {n} saved in {state}");
    assert_eq!(saved, [after(2), after(4), after(5)]);
}
