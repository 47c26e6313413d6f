//! Reads each file given and prints how long the stages took and how much memory was used at most.
//!
//! `cargo run --release -p msc-frontends --example measure -- model.mlir`

use std::time::Instant;

fn main() {
    for path in std::env::args().skip(1) {
        if let Err(e) = measure(&path) {
            println!("{path}: {e}");
        }
    }
}

fn measure(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::File::open(path)?.metadata()?.len();
    let start = Instant::now();
    let imported = msc_frontends::read_file(std::path::Path::new(path))?;
    let read = start.elapsed();
    let start = Instant::now();
    msc_ir::verify::verify(&imported.module)?;
    let ops: usize = imported.module.graphs().map(|(_, g)| g.order().len()).sum();
    println!(
        "{path}: {ops} ops, {} constants of {} bytes; read and imported in {read:.2?} ({:.0} MB/s), verified in \
         {:.2?}, peak memory {}",
        imported.module.constants.len(),
        imported.module.constants.bytes(),
        bytes as f64 / 1e6 / read.as_secs_f64(),
        start.elapsed(),
        peak_memory(),
    );
    Ok(())
}

/// The process's peak resident memory, where the system tells.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_string(), |l| l.trim().to_string())
}
