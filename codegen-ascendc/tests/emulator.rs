//! Builds and runs the emulator's own C++ tests: every rejection has a kernel with one seeded fault that must
//! be rejected with the right code, and a twin without the fault that must run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn emulator() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("emu")
}

fn gxx(arguments: &[&str], source: &Path) -> Output {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    Command::new(&compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(emulator())
        .args(arguments)
        .arg(source)
        .output()
        .unwrap_or_else(|e| panic!("cannot start {compiler}: {e}"))
}

fn run(name: &str, at_least: usize) {
    let source = emulator().join("tests").join(format!("{name}.cpp"));
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    let built = gxx(&["-O0", "-o", program.to_str().unwrap()], &source);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).output().unwrap();
    let report = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{report}");
    let passed = report.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= at_least, "only {passed} cases ran:\n{report}");
}

#[test]
fn memory_faults_are_rejected() {
    run("memory", 20);
}

#[test]
fn synchronisation_faults_are_rejected() {
    run("sync", 21);
}

#[test]
fn numbers_are_right() {
    run("numbers", 40);
}

/// The device's headers accept bf16 arithmetic; the emulator must not compile it, and must say why.
#[test]
fn bf16_arithmetic_does_not_compile() {
    let source = emulator().join("tests/compile/bf16_arithmetic.cpp");
    let twin = gxx(&["-fsyntax-only"], &source);
    assert!(twin.status.success(), "{}", String::from_utf8_lossy(&twin.stderr));
    let faulty = gxx(&["-fsyntax-only", "-DFAULT"], &source);
    let message = String::from_utf8_lossy(&faulty.stderr);
    assert!(!faulty.status.success() && message.contains("EMU16") && message.contains("bf16"), "{message}");
}
