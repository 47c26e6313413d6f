//! Ranks as processes: the same bits as threads, launchers' variables, and one message whatever happens to a rank.
#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{compile, fixture, flat, losses, msc, run, stderr, stdout, tokens, write};

const STEP: &str = "llama_torchax_tiny";

/// Seconds for which ranks wait here. A busy machine with two cores runs a step of four processes in one.
const TIMEOUT: u64 = 4;

/// What a run takes beside a step and the timeout: start, messages, ends of processes on a busy machine.
const SLACK: Duration = Duration::from_secs(30);

fn plan(dir: &Path, layout: &[&str]) -> PathBuf {
    let plan = dir.join("plan.bin");
    compile(&fixture(STEP).join("model.mlir"), &plan, layout);
    plan
}

fn inputs() -> String {
    fixture(STEP).join("inputs.npz").display().to_string()
}

/// Starts a run of one rank as torchrun would.
fn torch_rank(plan: &Path, options: &[&str], rank: usize, ranks: usize, port: u16) -> Child {
    msc()
        .arg("run")
        .arg(plan)
        .args(options)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("MASTER_ADDR", "localhost")
        .env("MASTER_PORT", port.to_string())
        .env("TORCHELASTIC_RUN_ID", format!("{}", std::process::id()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Names of shared memory of this user's runs.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.starts_with("msc-")).collect()
}

#[test]
fn processes_train_with_the_bits_of_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2", "--dp", "2"]);
    let tokens = write(dir.path(), "tokens.bin", flat(&tokens(2000, 96)));
    let file = |name: &str| dir.path().join(name).display().to_string();
    let trained = |comm: &str| {
        let (out, state) = (file(&format!("{comm}.out.npz")), file(&format!("{comm}.safetensors")));
        let fed = ["--init", "5", "--data", &tokens, "--data-dtype", "u16", "--steps", "3", "--json"];
        let left = ["--out", &out, "--save", &state, "--save-every", "2", "--comm", comm];
        let text = stdout(&run(&plan, &[&fed[..], &left].concat()));
        (losses(&text), std::fs::read(out).expect("outputs"), std::fs::read(state).expect("state"))
    };
    let (threads, processes) = (trained("threads"), trained("processes"));
    assert_eq!(threads.0.len(), 3);
    assert!(threads == processes, "losses {:?} and {:?}, or other bytes", threads.0, processes.0);

    let reference = fixture(STEP).join("outputs.npz").display().to_string();
    let text = stdout(&run(&plan, &["--inputs", &inputs(), "--check", &reference, "--comm", "processes"]));
    assert!(text.contains("check passed"), "{text}");
}

#[test]
fn a_failed_check_is_the_run_s_one_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    let reference = fixture(STEP).join("outputs.npz").display().to_string();
    let o =
        run(&plan, &["--inputs", &inputs(), "--steps", "2", "--check", &reference, "--comm", "processes"]);
    let said = stderr(&o);
    assert_eq!(o.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
    assert!(said.starts_with("error: MSC-X0003"), "{said}");
    // What every rank finds is said once too.
    let o = run(&plan, &["--inputs", "nowhere.npz", "--comm", "processes"]);
    let said = stderr(&o);
    assert_eq!((o.status.code(), said.matches("error:").count()), (Some(2), 1), "{said}");
}

#[test]
fn a_launcher_s_processes_take_their_ranks() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    let inputs = inputs();
    let options = ["--inputs", &inputs, "--json"];
    let want = losses(&stdout(&run(&plan, &options)));
    let ranks: Vec<Child> = (0..2).map(|r| torch_rank(&plan, &options, r, 2, 29_500)).collect();
    let outputs: Vec<Output> = ranks.into_iter().map(|c| c.wait_with_output().expect("ends")).collect();
    assert_eq!(losses(&stdout(&outputs[0])), want);
    assert_eq!(stdout(&outputs[1]), "", "rank 0 speaks");
    // As many processes as ranks.
    let o = torch_rank(&plan, &options, 0, 3, 29_501).wait_with_output().expect("ends");
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("has 2 ranks, torchrun started 3 processes"), "{}", stderr(&o));
}

#[test]
fn of_a_launcher_s_processes_one_says_what_happened() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    let (inputs, timeout) = (inputs(), TIMEOUT.to_string());
    let options = ["--inputs", &inputs, "--comm-timeout", &timeout];
    let begun = Instant::now();
    let lives = torch_rank(&plan, &[&options[..], &["--steps", "1000000"]].concat(), 0, 2, 29_502);
    let mut dies = torch_rank(&plan, &[&options[..], &["--steps", "1000000"]].concat(), 1, 2, 29_502);
    std::thread::sleep(Duration::from_secs(2));
    dies.kill().expect("is killed");
    dies.wait().expect("is dead");
    let o = lives.wait_with_output().expect("ends");
    let said = stderr(&o);
    assert_eq!(o.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: MSC-R0011: rank 1, ") && said.contains("is gone"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(2 + TIMEOUT) + SLACK);
}

#[test]
fn an_interrupted_run_of_processes_saves_its_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    let state = dir.path().join("state.npz");
    let mut child = msc()
        .arg("run")
        .arg(&plan)
        .args(["--inputs", &inputs(), "--steps", "1000000", "--comm", "processes", "--save"])
        .arg(&state)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    std::thread::sleep(Duration::from_secs(3));
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(sent.expect("sends").success());
    let status = child.wait().expect("ends");
    let said = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.starts_with("error: MSC-X0004") && said.matches("error:").count() == 1, "{said}");
    assert!(state.exists());
}

#[test]
fn ranks_do_not_outlive_who_started_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    let mut parent = msc()
        .arg("run")
        .arg(&plan)
        .args(["--inputs", &inputs(), "--steps", "1000000", "--comm", "processes"])
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    // Processes whose command line has the plan.
    let running = || -> usize {
        let has = |e: std::fs::DirEntry| {
            let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&plan.display().to_string())
        };
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| has(e).then_some(()))
            .count()
    };
    let becomes = |n: usize| {
        let since = Instant::now();
        while running() != n {
            assert!(since.elapsed() < SLACK, "{} processes, not {n}", running());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    becomes(3);
    parent.kill().expect("is killed");
    parent.wait().expect("is dead");
    becomes(0);
}

/// Runs with a fault; checks that the run ends in time with one message that names the culprit, the place, and a line.
fn struck(
    plan: &Path,
    comm: &str,
    (kind, rank, step, instruction): (&str, usize, usize, usize),
) -> (String, Duration) {
    let fault = format!("{kind}:{rank}:{step}:{instruction}");
    let begun = Instant::now();
    let child = msc()
        .arg("run")
        .arg(plan)
        .args(["--inputs", &inputs(), "--steps", "3", "--comm", comm])
        .args(["--comm-timeout", &TIMEOUT.to_string()])
        .env("MSC_TEST_FAULT", &fault)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let o = child.wait_with_output().expect("ends");
    let (said, took) = (stderr(&o), begun.elapsed());
    let what = format!("{fault}, {comm}, {took:?}: {said}");
    assert_eq!(o.status.code(), Some(1), "{what}");
    assert!(took < Duration::from_secs(TIMEOUT) + SLACK, "{what}");
    assert!(said.starts_with("error: MSC-R00") && said.lines().count() == 1, "{what}");
    let (_, after) =
        said.split_once(": ").and_then(|(_, s)| s.split_once(": ")).expect("a code and a message");
    let message = after.strip_prefix("internal: ").unwrap_or(after);
    assert!(message.starts_with(&format!("rank {rank}, step {step}, instruction ")), "{what}");
    assert!(message.contains("model.mlir:"), "{what}");
    let reason = match kind {
        "kill" => "was killed by signal 9 (SIGKILL)",
        "stop" => "is stopped by a signal",
        "panic" => "a panic on purpose",
        _ => "it does not get on",
    };
    assert!(said.contains(reason), "{what}");
    (said, took)
}

#[test]
fn a_rank_that_dies_stops_or_panics_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2", "--dp", "2"]);
    struck(&plan, "processes", ("kill", 2, 1, 100));
    struck(&plan, "processes", ("stop", 1, 1, 201));
    struck(&plan, "processes", ("panic", 3, 0, 57));
    struck(&plan, "threads", ("panic", 3, 0, 57));
    struck(&plan, "threads", ("stall", 0, 1, 150));
}

/// Fifty random places each of killing, stopping and panicking a rank, and of a thread that stalls.
#[test]
#[ignore = "takes half an hour: most runs wait for the timeout"]
fn faults_anywhere_end_with_one_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2", "--dp", "2"]);
    let read = msc_runtime::plan::Plan::open(&plan).expect("a plan");
    let instructions = read.programs[0].instructions.len();
    let mut x = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 33) as usize % below
    };
    let before = names().len();
    let mut worst: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    for n in 0..50 {
        for (kind, comm) in [
            ("kill", "processes"),
            ("stop", "processes"),
            ("panic", "processes"),
            ("panic", "threads"),
            ("stall", "threads"),
            ("stall", "processes"),
        ] {
            let at = (kind, random(4), random(3), random(instructions));
            let (said, took) = struck(&plan, comm, at);
            println!("{n}: {kind} of {comm} after {took:.1?}: {}", said.trim_end());
            let longest = worst.entry((kind, comm)).or_insert(took);
            *longest = took.max(*longest);
        }
    }
    println!("the longest run of each: {worst:.1?}");
    assert!(names().len() <= before, "shared memory is left: {:?}", names());
}

#[test]
fn sixteen_ranks_on_few_cores_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "8", "--dp", "2"]);
    let (inputs, options) = (inputs(), ["--steps", "2", "--json"]);
    let ended = |comm: &str| {
        losses(&stdout(&run(&plan, &[&["--inputs", &inputs, "--comm", comm][..], &options].concat())))
    };
    let threads = ended("threads");
    assert_eq!(threads.len(), 2);
    assert_eq!(ended("processes"), threads);
}

/// `mpirun` with what containers and machines of few cores need.
fn mpirun(ranks: usize) -> Command {
    let mut c = Command::new("mpirun");
    c.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()])
        .arg(env!("CARGO_BIN_EXE_msc"));
    c.env_remove("RUST_LOG");
    c
}

#[test]
fn mpirun_trains_with_the_bits_of_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2", "--dp", "2"]);
    let reference = fixture(STEP).join("outputs.npz").display().to_string();
    let inputs = inputs();
    let options = ["--inputs", &inputs, "--steps", "3", "--json"];
    let want = losses(&stdout(&run(&plan, &options)));
    let o = mpirun(4).arg("run").arg(&plan).args(options).output().expect("mpirun is installed: make setup");
    assert_eq!(losses(&stdout(&o)), want);
    let check = ["--inputs", &inputs, "--check", &reference];
    let o = mpirun(4).arg("run").arg(&plan).args(check).output().expect("starts");
    assert!(stdout(&o).contains("check passed"), "{}", stdout(&o));
    // As many processes as ranks.
    let o = mpirun(3).arg("run").arg(&plan).args(check).output().expect("starts");
    assert!(stderr(&o).contains("has 4 ranks, mpirun started 3 processes"), "{}", stderr(&o));
    assert!(!o.status.success());
}

#[test]
fn under_mpirun_a_rank_that_fails_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path(), &["--tp", "2"]);
    for (kind, reason) in
        [("panic", "a panic on purpose"), ("stop", "is stopped by a signal"), ("kill", "is gone")]
    {
        let begun = Instant::now();
        let o = mpirun(2)
            .arg("run")
            .arg(&plan)
            .args(["--inputs", &inputs(), "--steps", "3", "--comm-timeout", &TIMEOUT.to_string()])
            .env("MSC_TEST_FAULT", format!("{kind}:1:1:100"))
            .output()
            .expect("starts");
        let said = stderr(&o);
        assert!(!o.status.success(), "{said}");
        assert_eq!(said.matches("error: MSC").count(), 1, "{said}");
        assert!(said.contains("rank 1, step 1, instruction ") && said.contains(reason), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(TIMEOUT) + SLACK, "{said}");
    }
}
