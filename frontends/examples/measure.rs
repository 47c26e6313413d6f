//! Times of reading, importing and verifying programs, and the memory it takes:
//! `cargo run --release -p msc-frontends --example measure -- FILE…`.
//!
//! Each file has a process of its own, so that the peak of resident memory is the file's. It is read once from a
//! memory map for the memory, then twice more; times are the best of the three. Beside the time that passed stands
//! the processor's, which other processes do not lengthen.

use std::process::Command;
use std::time::{Duration, Instant};

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if let [path] = &paths[..] {
        if let Err(e) = measure(path) {
            println!("{path}: {e}");
        }
        return;
    }
    for path in paths {
        let this = std::env::current_exe().expect("this program has a path");
        Command::new(this).arg(path).status().expect("this program runs");
    }
}

fn measure(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::metadata(path)?.len();
    let mut best = [Duration::MAX; 3];
    let mut best_cpu = Duration::MAX;
    let mut line = String::new();
    for round in 0..3 {
        let (start, start_cpu) = (Instant::now(), cpu_time());
        let source = msc_frontends::Source::open(std::path::Path::new(path))?;
        let raw = source.parse()?;
        let read = start.elapsed();
        let imported = msc_frontends::import::import(&raw)?;
        let import = start.elapsed() - read;
        msc_ir::verify::verify(&imported.module)?;
        let verify = start.elapsed() - read - import;
        best_cpu = best_cpu.min(cpu_time() - start_cpu);
        for (b, t) in best.iter_mut().zip([read, import, verify]) {
            *b = t.min(*b);
        }
        if round == 0 {
            let m = &imported.module;
            let ops: usize = m.graphs().map(|(_, g)| g.order().len()).sum();
            let constants = m.constants.bytes() as f64 / 1e6;
            line = format!("{ops} ops, {constants:.1} MB of constants; peak {}", peak_memory());
        }
    }
    let [read, import, verify] = best;
    let total = read + import + verify;
    println!(
        "{path}: {:.1} MB, {line}; read {read:.1?} + import {import:.1?} + verify {verify:.1?} = {total:.1?}, {:.0} MB/s; \
         processor {best_cpu:.1?}, {:.0} MB/s",
        bytes as f64 / 1e6,
        bytes as f64 / 1e6 / total.as_secs_f64(),
        bytes as f64 / 1e6 / best_cpu.as_secs_f64(),
    );
    Ok(())
}

/// Processor time of this thread so far; zero where the system does not tell.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// The process's peak resident memory, where the system tells; pages of the mapped file count.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or("unknown".to_string(), |k| format!("{:.0} MB", k * 1024.0 / 1e6))
}
