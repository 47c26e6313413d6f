//! Prints how often each named operation is found in files: `cargo run -p msc-passes --example counts FILE…`.

use msc_passes::recognise::recognise;
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use std::time::Instant;

fn main() {
    for file in std::env::args().skip(1) {
        let mut module = match msc_frontends::read_file(file.as_ref()) {
            Ok(m) => m.module,
            Err(e) => {
                println!("{file}: {e}");
                continue;
            }
        };
        let start = Instant::now();
        let found = simplify(&mut module).and_then(|_| {
            let mut templates = template(&mut module)?;
            let simplified = start.elapsed();
            let report = recognise(&mut module, &mut templates)?;
            Ok((report, simplified))
        });
        match found {
            Ok((report, simplified)) => {
                let (time, before) = (start.elapsed() - simplified, simplified.as_millis());
                println!("{file}: {} e-graphs, {} ms after {before} ms", report.runs(), time.as_millis());
                for (name, f) in &report.fusions {
                    println!("  {name}: {} sites, {} executed", f.sites, f.executed);
                }
                if std::env::var_os("MSC_WHY").is_some() {
                    for r in &report.regions {
                        println!("  {:?} x{} {} nodes, {:?}", r.graphs, r.executed, r.nodes, r.stop);
                        println!("    applied {:?}", r.applied);
                        r.refused.iter().for_each(|(n, w)| println!("    {n}: {w:?}"));
                    }
                }
            }
            Err(e) => println!("{file}: {e}"),
        }
    }
}
