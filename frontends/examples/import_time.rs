//! Times of reading, importing and verifying files: `cargo run --release -p msc-frontends --example import_time
//! -- FILE…`. Each step's best of five; the peak of resident memory is the process's, so give one file to see its.

use msc_frontends::{import, mlir_bytecode, stablehlo_text};
use std::time::{Duration, Instant};

/// Runs `f` five times; the fastest time and the last result.
fn best<T>(mut f: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let start = Instant::now();
        let out = f();
        (start.elapsed(), out)
    };
    let mut all = timed();
    for _ in 0..4 {
        let (time, out) = timed();
        all = (time.min(all.0), out);
    }
    all
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = match std::fs::read(&path) {
            Ok(b) => b,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let parse = || match mlir_bytecode::is_bytecode(&bytes) {
            true => mlir_bytecode::read(&path, &bytes),
            false => stablehlo_text::parse(&path, &bytes),
        };
        let (read, raw) = best(parse);
        let raw = match raw {
            Ok(raw) => raw,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let (imported, module) = best(|| import::import(&raw));
        let module = match module {
            Ok(i) => i.module,
            Err(e) => {
                println!("{path}: read {read:.1?}; {e}");
                continue;
            }
        };
        let (verified, verdict) = best(|| msc_ir::verify::verify(&module));
        let ops: usize = module.graphs().map(|(_, g)| g.ops().len()).sum();
        println!(
            "{path}: {} bytes, {ops} ops; read {read:.1?}, import {imported:.1?}, verify {verified:.1?}; peak {} MiB; {}",
            bytes.len(),
            peak_mib(),
            verdict.map_or_else(|e| e.to_string(), |()| "verified".to_string()),
        );
    }
}
