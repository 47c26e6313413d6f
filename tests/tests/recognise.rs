//! Named operations of real training steps.

use msc_ir::interp::{Mode, run};
use msc_ir::{Module, text};
use msc_passes::recognise::{Report, recognise_graph, replay};
use msc_passes::simplify::simplify;
use msc_tests::{fixture, max_relative, step};

fn sites(report: &Report) -> (usize, usize) {
    let n = |name: &str| report.fusions.get(name).map_or(0, |f| f.sites);
    (n("rms_norm"), n("rms_norm_grad"))
}

fn recognised(mut module: Module) -> (Module, Report, Module) {
    simplify(&mut module).expect("simplifies");
    let before = module.clone();
    let entry = module.entry().expect("an entry").graph;
    let report = recognise_graph(&mut module, entry).expect("recognises");
    msc_ir::verify::verify(&module).expect("verifies");
    (module, report, before)
}

/// Counts by the architecture: two norms a layer and one at the end.
#[test]
fn every_norm_of_every_exporter() {
    for (name, file, norms) in [
        // PyTorch through JAX; Flax; PyTorch through JAX in bf16 with f32 masters.
        ("llama_torchax_tiny", "model.mlir", 5),
        ("llama_torchax_tiny", "model.mlirbc", 5),
        ("llama_flax_dp2_tp4_tiny", "model.direct_mixed.mlirbc", 5),
        ("qwen2_torchax_bf16master_tiny", "model.export.mlir", 5),
    ] {
        let module = msc_frontends::read_file(&fixture(name).join(file)).expect("imports").module;
        let (after, report, before) = recognised(module);
        assert_eq!(sites(&report), (norms, norms), "{name} {file}");
        for r in &report.regions[0].reasons {
            let d = replay(&before, &after, &report.regions[0], r).expect("replays");
            assert!(d < 4e-6, "{name}: {} differs by {d} in wide mode", r.rule);
        }
    }
}

#[test]
fn the_step_computes_what_it_did() {
    let s = step("llama_torchax_tiny");
    let (after, _, before) = recognised(s.module);
    let graph = |m: &Module| m.entry().expect("an entry").graph;
    // Wide mode: what is left of a difference is that of literals rounded to f32, in the clipped gradients.
    let a = run(&before, graph(&before), &s.inputs, Mode::Wide).expect("runs");
    let b = run(&after, graph(&after), &s.inputs, Mode::Wide).expect("runs");
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        assert!(max_relative(y, x) < 1e-9, "output {i}: {:e}", max_relative(y, x));
    }
    // Working types: as far from the reference as two compilers are from each other.
    let c = run(&after, graph(&after), &s.inputs, Mode::Spec).expect("runs");
    for (i, (x, y)) in c.iter().zip(&s.outputs).enumerate() {
        assert!(max_relative(x, y) < 5e-6, "output {i}: {:e}", max_relative(x, y));
    }
}

#[test]
fn the_result_is_the_same_in_every_run() {
    let module = step("llama_torchax_tiny").module;
    let print = move || text::print(&recognised(module.clone()).0);
    let first = print();
    for _ in 0..3 {
        let print = print.clone();
        assert_eq!(std::thread::spawn(print).join().expect("runs"), first);
    }
}
