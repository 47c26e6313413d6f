//! Times of simplify, template and recognise on whole steps:
//! `cargo run --release -p msc-passes --example bench_recognise -- FILE… [--depth FILE…]`.
//!
//! Medians of five rounds, each from the imported module, of the processor's time, which other processes do not lengthen
//! (passes have one thread), and the peak of resident memory; each file has a process of its own. Files behind `--depth` are one step at several depths: a line of least squares through their medians gives
//! what a layer costs in each stage.

use msc_passes::recognise::recognise;
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The stages that are timed.
const STAGES: [&str; 3] = ["simplify", "template", "recognise"];

/// Rounds; an odd number.
const ROUNDS: usize = 5;

/// What a process tells of its file.
struct Measured {
    layers: f64,
    medians: [f64; 3],
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, path] = &args[..]
        && flag == "--one"
    {
        match measure(path) {
            Ok(line) => println!("{line}"),
            Err(e) => println!("{path}: {e}"),
        }
        return;
    }
    let at = args.iter().position(|a| a == "--depth").unwrap_or(args.len());
    for path in &args[..at] {
        in_process(path);
    }
    let series: Vec<Measured> = args.iter().skip(at + 1).filter_map(|path| in_process(path)).collect();
    if series.len() < 2 {
        return;
    }
    for (i, stage) in STAGES.iter().enumerate() {
        let points: Vec<(f64, f64)> = series.iter().map(|m| (m.layers, m.medians[i])).collect();
        println!("a layer costs {:.3} ms in {stage}", slope(&points));
    }
}

/// Measures a file in a process of its own and prints what it says.
fn in_process(path: &str) -> Option<Measured> {
    let this = std::env::current_exe().expect("this program has a path");
    let out = Command::new(this).args(["--one", path]).output().expect("this program runs");
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}");
    let numbers = text.trim().rsplit_once('#')?.1;
    let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match numbers[..] {
        [layers, a, b, c] => Some(Measured { layers, medians: [a, b, c] }),
        _ => None,
    }
}

fn measure(path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let imported = msc_frontends::read_file(std::path::Path::new(path))?.module;
    let mut times: [Vec<Duration>; 3] = Default::default();
    let (mut layers, mut told) = (0, String::new());
    for _ in 0..ROUNDS {
        let mut module = imported.clone();
        let start = now();
        simplify(&mut module)?;
        let simplified = now();
        let mut templates = template(&mut module)?;
        let outlined = now();
        let report = recognise(&mut module, &mut templates)?;
        let recognised = now();
        for (t, d) in times.iter_mut().zip([simplified - start, outlined - simplified, recognised - outlined])
        {
            t.push(d);
        }
        layers = templates.templates.first().map_or(0, |t| t.instances);
        told = format!("{} e-graphs, {} nodes", report.runs(), report.nodes());
    }
    let medians = times.map(|mut t| {
        t.sort();
        t[ROUNDS / 2].as_secs_f64() * 1e3
    });
    let [a, b, c] = medians;
    Ok(format!(
        "{path}: {layers} layers, {told}; simplify {a:.1} ms, template {b:.1} ms, recognise {c:.1} ms; peak {} \
         # {layers} {a} {b} {c}",
        peak_memory()
    ))
}

/// The processor's time of this thread so far; where the system does not tell it, the time that passed.
fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let own = text.split_whitespace().next().and_then(|n| n.parse().ok());
    own.map_or(passed, Duration::from_nanos)
}

/// The slope of the line of least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
    above / below
}

/// The peak of resident memory so far, where the system tells it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.map_or("unknown".into(), |l| l.trim().to_string())
}
