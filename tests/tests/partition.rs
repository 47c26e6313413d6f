//! A real step, split over ranks without annotations.

use msc::options::Options as Compile;
use msc::pipeline::{self, Outcome};
use msc_ir::interp::Mode;
use msc_ir::module::{Mesh, MeshAxis};
use msc_ir::program::check::check;
use msc_passes::memory;
use msc_passes::partition::{Options, Report, partition};
use msc_passes::schedule::{self, Kernels};
use msc_passes::simplify::simplify;
use msc_tests::{fixture, max_relative, run_split, step};

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

/// Of an annotated fixture: what XLA's own partitioned program communicates in a step, loops counted by their trips.
struct Xla {
    fixture: &'static str,
    file: &'static str,
    collectives: usize,
    /// Bytes that a rank sends if rings are used, as [`sent`] counts them.
    sent: f64,
}

/// jax 0.10.2's CPU compiler; its program text is not here, it is half a megabyte each.
const XLA: [Xla; 2] = [
    Xla {
        fixture: "llama_flax_dp2_tp4_tiny",
        file: "model.direct_mixed.mlirbc",
        collectives: 14,
        sent: 352_183.0,
    },
    Xla { fixture: "llama_maxtext_fsdp2_tp2_tiny", file: "model.mlirbc", collectives: 97, sent: 690_762.0 },
];

/// Bytes that each of `n` ranks sends around a ring.
fn sent(kind: &str, bytes: u64, n: usize) -> f64 {
    let (bytes, n) = (bytes as f64, n as f64);
    match kind {
        "all_reduce" => 2.0 * (n - 1.0) / n * bytes,
        "all_gather" => (n - 1.0) * bytes,
        "reduce_scatter" | "all_to_all" => (n - 1.0) / n * bytes,
        _ => bytes,
    }
}

#[test]
fn annotated_steps_communicate_no_more_than_in_xla() {
    for x in XLA {
        let file = fixture(x.fixture).join(x.file);
        let done = pipeline::compile(&file, &Compile::default(), None).expect("compiles");
        let Outcome::Compiled(done) = done else { panic!("{}: nothing was compiled", x.fixture) };
        let size = |axis: &String| {
            let found = done.report.layout.mesh.iter().find(|(name, _)| name == axis);
            found.expect("an axis of the mesh").1
        };
        let (mut count, mut bytes) = (0, 0.0);
        for c in &done.report.collectives {
            count += c.executed;
            bytes += sent(&c.kind, c.bytes, c.axes.iter().map(size).product()) * c.executed as f64;
        }
        println!("{}: {count} collectives for {}, {bytes} bytes for {}", x.fixture, x.collectives, x.sent);
        assert!(count <= x.collectives && bytes <= x.sent, "{}: {count}, {bytes}", x.fixture);
    }
}
