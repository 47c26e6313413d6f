//! Prints the template table of the given files: `cargo run --example templates -- FILE…`, with the seconds each
//! stage takes.

use std::time::Instant;

fn main() {
    for path in std::env::args().skip(1).filter(|a| !a.starts_with("--")) {
        if let Err(e) = table(&path) {
            println!("{path}: {e}");
        }
    }
}

fn table(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let t0 = Instant::now();
    let mut module = msc_frontends::read_file(std::path::Path::new(path))?.module;
    let t1 = Instant::now();
    let done = msc_passes::simplify::simplify(&mut module)?;
    let t2 = Instant::now();
    let ops = module.graph(module.entry()?.graph).order().len();
    let templates = msc_passes::template::template(&mut module)?;
    let t3 = Instant::now();
    msc_ir::verify::verify(&module)?;
    let left = module.graph(module.entry()?.graph).order().len();
    println!(
        "{path}\n  read {:.3} s, simplify {:.3} s ({} -> {} ops), template {:.3} s ({ops} -> {left} in the entry)",
        (t1 - t0).as_secs_f64(),
        (t2 - t1).as_secs_f64(),
        done.ops_before,
        done.ops_after,
        (t3 - t2).as_secs_f64(),
    );
    println!("  prologue {} ops", templates.prologue.len());
    for t in templates.report(&module) {
        println!("  {} x{}", t.name, t.instances);
        for s in t.segments {
            println!("    {s:?}");
        }
    }
    for l in &templates.loops {
        println!("  loop {l:?}");
    }
    for n in &templates.notes {
        println!("  note: {n}");
    }
    Ok(())
}
