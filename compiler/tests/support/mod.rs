//! The msc binary on fixtures.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The binary.
pub fn msc() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_msc"));
    c.env_remove("RUST_LOG");
    c
}

/// A fixture's folder.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo").join(name)
}

/// Standard output as text, after a success.
pub fn stdout(o: &Output) -> String {
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout.clone()).expect("text")
}

/// Standard error as text.
pub fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Compiles a model.
pub fn compile(model: &Path, plan: &Path, options: &[&str]) {
    let o = msc().arg("compile").arg(model).arg("-o").arg(plan).args(options).output().expect("starts");
    stdout(&o);
}

/// Runs a plan.
pub fn run(plan: &Path, options: &[&str]) -> Output {
    msc().arg("run").arg(plan).args(options).output().expect("starts")
}

/// The losses of a run with `--json`.
pub fn losses(output: &str) -> Vec<f64> {
    let lines = output.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON"));
    lines.filter_map(|v| v.get("losses")?.as_object()?.values().next()?.as_f64()).collect()
}

/// Pseudo-random tokens below `vocabulary`.
pub fn tokens(n: usize, vocabulary: u64) -> Vec<u16> {
    let mut x = 1u64;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((x >> 33) % vocabulary) as u16
    };
    (0..n).map(|_| next()).collect()
}

/// As a flat file of 16-bit tokens.
pub fn flat(tokens: &[u16]) -> Vec<u8> {
    tokens.iter().flat_map(|t| t.to_le_bytes()).collect()
}

/// Writes a file; gives its path as text.
pub fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("writes");
    path.display().to_string()
}
