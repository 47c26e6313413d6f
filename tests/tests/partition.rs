//! A real step, split over ranks without annotations.

use msc_ir::interp::Mode;
use msc_ir::module::{Mesh, MeshAxis};
use msc_ir::program::check::check;
use msc_passes::memory;
use msc_passes::partition::{Options, Report, partition};
use msc_passes::schedule::{self, Kernels};
use msc_passes::simplify::simplify;
use msc_tests::{max_relative, run_split, step};

fn split(axes: &[(&str, usize)]) -> (f64, Report) {
    let mut s = step("llama_torchax_tiny");
    simplify(&mut s.module).expect("simplifies");
    let mesh = Mesh { axes: axes.iter().map(|&(n, size)| MeshAxis { name: n.into(), size }).collect() };
    let report = partition(&mut s.module, &Options { mesh, ..Options::default() }).expect("partitions");
    msc_ir::verify::verify(&s.module).expect("verifies");
    let mut program = schedule::schedule(&s.module, &Kernels::new()).expect("schedules");
    let planned = memory::plan(&mut program);
    check(&program).expect("the plan is sound");
    println!("{axes:?}: {} instructions, {planned:?}", program.instructions.len());
    // Reuse must get within a fifth of what is live at once.
    assert!(
        (planned.arena_bytes - planned.persistent_bytes) * 5 <= planned.peak_live_bytes * 6,
        "{planned:?}"
    );
    let rows = run_split(&s.module, &s.inputs, &s.outputs, Mode::Spec);
    let worst = rows.iter().flatten().map(|(_, got, want)| max_relative(got, want)).fold(0.0, f64::max);
    (worst, report)
}

#[test]
fn every_layout_gives_the_reference_outputs() {
    for axes in [&[][..], &[("tp", 2)], &[("dp", 2)], &[("dp", 2), ("tp", 2)]] {
        let (worst, report) = split(axes);
        println!("{axes:?}: {worst:e}, {} layouts compared", report.layouts_compared);
        for s in &report.splits {
            println!("  {} splits {}: {}", s.axis, s.size, s.parameters.join(" "));
        }
        // The reference's own distance from another compiler is 9e-7 for plain f32 outputs.
        assert!(worst < 5e-6, "{axes:?}: {worst:e}");
    }
}
