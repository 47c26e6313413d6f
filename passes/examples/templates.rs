//! Prints the template table of the given files as Markdown: `cargo run --example templates -- FILE…`.
//!
//! Columns: ops as exported (calls count one), after simplification, constant tables that became expressions, ops
//! that all layers share, templates (instances × ops of the forward, backward and update segments; parameters that
//! differ from instance to instance), ops left in the entry, seconds to read, seconds to simplify and find templates.

use std::time::Instant;

fn main() {
    println!("| step | ops | simplified | tables | prologue | templates | entry | read s | s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1).filter(|a| !a.starts_with("--")) {
        if let Err(e) = table(&path) {
            println!("{path}: {e}");
        }
    }
}

/// The folder of a step in a folder, else the file.
fn name(path: &str) -> String {
    let path = std::path::Path::new(path);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match path.parent().and_then(|p| p.file_name()) {
        Some(folder) if stem.starts_with("model") => folder.to_string_lossy().into_owned(),
        _ => stem.into_owned(),
    }
}

fn described(module: &msc_ir::Module, t: &msc_passes::template::Templates) -> String {
    let mut parts = Vec::new();
    for t in t.report(module) {
        let ops: Vec<String> = t.segments.iter().map(|s| s.ops.to_string()).collect();
        let own: usize = t.segments.iter().map(|s| s.instance).sum();
        parts.push(format!("{} × ({}), {own} parameters", t.instances, ops.join(" + ")));
    }
    for l in &t.loops {
        let body = module.graph(l.body);
        let ops = body.ops().filter(|(_, d)| !matches!(d.op, msc_ir::Op::Constant(_))).count();
        parts.push(format!("loop of {} × {ops}", l.trips));
    }
    if parts.is_empty() { "none".into() } else { parts.join("; ") }
}

fn table(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let t0 = Instant::now();
    let mut module = msc_frontends::read_file(std::path::Path::new(path))?.module;
    let t1 = Instant::now();
    let done = msc_passes::simplify::simplify(&mut module)?;
    let ops = module.graph(module.entry()?.graph).order().len();
    let templates = msc_passes::template::template(&mut module)?;
    let t3 = Instant::now();
    msc_ir::verify::verify(&module)?;
    let left = module.graph(module.entry()?.graph).order().len();
    let s = |d: std::time::Duration| d.as_secs_f64();
    println!(
        "| {} | {} | {ops} | {} | {} | {} | {left} | {:.2} | {:.2} |",
        name(path),
        done.ops_before,
        done.tables,
        templates.prologue.len(),
        described(&module, &templates),
        s(t1 - t0),
        s(t3 - t1),
    );
    for n in &templates.notes {
        println!("| | | | | | note: {n} | | | |");
    }
    Ok(())
}
