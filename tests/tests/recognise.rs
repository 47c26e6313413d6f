//! Named operations of real training steps.

use msc_ir::interp::{Mode, run};
use msc_ir::{Module, Operation, text};
use msc_passes::recognise::{Report, recognise, recognise_graph, replay};
use msc_passes::simplify::simplify;
use msc_passes::template::{ParamSource, Role, Templates, template};
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
        let (after, report, _) = recognised(module);
        assert_eq!(sites(&report), (norms, norms), "{name} {file}");
        for r in &report.regions[0].reasons {
            let d = replay(&after, &report.regions[0], r).expect("replays");
            assert!(d < 4e-6, "{name}: {} differs by {d} in wide mode", r.rule);
        }
    }
}

/// Activations of one step as one region: op, sites. One a layer; eight for two layers of four experts.
#[test]
fn every_activation_of_every_exporter() {
    for (name, op, sites) in [
        ("llama_torchax_tiny", "swiglu", 2),
        ("llama_flax_dp2_tp4_tiny", "swiglu", 2),
        // σ as `logistic`, the slope in PyTorch's form.
        ("llama_torchxla_tiny_const", "swiglu", 2),
        // Everything in bf16.
        ("qwen2_torchax_bf16master_tiny", "swiglu", 2),
        ("mixtral_torchax_tiny", "swiglu", 8),
        ("gpt2_dropout_flax_tiny", "gelu", 2),
    ] {
        let all = ["model.mlir", "model.direct_mixed.mlirbc"].map(|f| fixture(name).join(f));
        let file = all.iter().find(|p| p.exists()).expect("a model");
        let module = msc_frontends::read_file(file).expect("imports").module;
        let (after, report, _) = recognised(module);
        let n = |op: &str| report.fusions.get(op).map_or(0, |f| f.sites);
        assert_eq!((n(op), n(&format!("{op}_grad"))), (sites, sites), "{name}");
        for r in &report.regions[0].reasons {
            let d = replay(&after, &report.regions[0], r).expect("replays");
            assert!(d < 4e-6, "{name}: {} differs by {d} in wide mode", r.rule);
        }
    }
}

/// Counts by the architecture: an attention a layer, a rotation each of its queries and keys, a softmax for each router.
#[test]
fn attention_rope_and_softmax_of_every_exporter() {
    for (name, file, attention, rope, softmax) in [
        ("llama_torchax_tiny", "model.mlir", 2, 4, 0),
        ("llama_flax_dp2_tp4_tiny", "model.direct_mixed.mlirbc", 2, 4, 0),
        ("qwen2_torchax_bf16master_tiny", "model.export.mlir", 2, 4, 0),
        ("gpt2_dropout_flax_tiny", "model.export.mlir", 2, 0, 0),
        ("mixtral_torchax_tiny", "model.export.mlir", 2, 4, 2),
    ] {
        let module = msc_frontends::read_file(&fixture(name).join(file)).expect("imports").module;
        let (after, report, _) = recognised(module);
        let refused = &report.regions[0].refused;
        for (op, want) in [("attention", attention), ("rope", rope), ("softmax", softmax)] {
            let found = report.fusions.get(op).map_or(0, |f| f.sites);
            let grad = report.fusions.get(&format!("{op}_grad")).map_or(0, |f| f.sites);
            assert_eq!((found, grad), (want, want), "{name}: {op}: {refused:?}");
        }
        for r in &report.regions[0].reasons {
            let d = replay(&after, &report.regions[0], r).expect("replays");
            assert!(d < 4e-6, "{name}: {} differs by {d} in wide mode", r.rule);
        }
    }
}

/// What a loop carries unchanged is known in its body: the mask is read, not taken as an input.
#[test]
fn attention_in_loops() {
    let s = step("llama_flax_scan_remat_tiny");
    let mut module = s.module;
    simplify(&mut module).expect("simplifies");
    let before = module.clone();
    let mut templates = template(&mut module).expect("finds templates");
    let report = recognise(&mut module, &mut templates).expect("recognises");
    msc_ir::verify::verify(&module).expect("verifies");
    // Forward once in each loop, the backward's copy recomputed, four trips.
    let f = |name: &str| report.fusions.get(name).map_or((0, 0), |f| (f.sites, f.executed));
    assert_eq!((f("attention"), f("attention_grad")), ((2, 8), (1, 4)));
    assert_eq!((f("rope"), f("rope_grad")), ((4, 16), (2, 8)));
    for r in report.regions.iter().flat_map(|r| &r.reasons) {
        if let msc_ir::ops::fused::FusedKind::Attention(form) = &r.fused.kind {
            assert_eq!(form.operands(), 0, "{form}");
            assert!(form.to_string().contains("band 0.."), "{form}");
        }
    }
    let entry = |m: &Module| m.entry().expect("an entry").graph;
    let a = run(&before, entry(&before), &s.inputs, Mode::Wide).expect("runs");
    let b = run(&module, entry(&module), &s.inputs, Mode::Wide).expect("runs");
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        assert!(max_relative(y, x) < 1e-6, "output {i}: {:e}", max_relative(y, x));
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

/// With templates: one e-graph for the layer, one for the rest, and the same numbers.
#[test]
fn once_per_template() {
    let s = step("llama_torchax_tiny");
    let mut after = s.module;
    simplify(&mut after).expect("simplifies");
    let before = after.clone();
    let mut templates = template(&mut after).expect("finds templates");
    let report = recognise(&mut after, &mut templates).expect("recognises");
    msc_ir::verify::verify(&after).expect("verifies");
    assert_eq!(report.runs(), 1 + templates.templates.len());
    for name in ["rms_norm", "rms_norm_grad"] {
        // Two in the layer and the one at the end; the layer is executed twice.
        let f = report.fusions[name];
        assert_eq!((f.sites, f.executed), (3, 5), "{name}");
    }
    describes(&after, &templates);
    for region in &report.regions {
        for r in &region.reasons {
            let d = replay(&after, region, r).expect("replays");
            assert!(d < 4e-6, "{} differs by {d} in wide mode", r.rule);
        }
    }
    let graph = |m: &Module| m.entry().expect("an entry").graph;
    let a = run(&before, graph(&before), &s.inputs, Mode::Wide).expect("runs");
    let b = run(&after, graph(&after), &s.inputs, Mode::Wide).expect("runs");
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        assert!(max_relative(y, x) < 1e-9, "output {i}: {:e}", max_relative(y, x));
    }
    // What the backward keeps of a norm is its statistic: no squares, no powers, and x itself.
    let layer = &templates.templates[0];
    let backward = layer.segments.iter().find(|s| s.role == Role::Backward).expect("a backward");
    let kept = backward.params.iter().filter(|p| matches!(p, ParamSource::FromSegment { .. })).count();
    let first = templates_of(&outlined_templates()).segments;
    let kept_before = first
        .iter()
        .find(|s| s.role == Role::Backward)
        .expect("a backward")
        .params
        .iter()
        .filter(|p| matches!(p, ParamSource::FromSegment { .. }))
        .count();
    assert!(kept < kept_before, "{kept} values kept, {kept_before} before");
}

fn outlined_templates() -> Templates {
    let mut module = step("llama_torchax_tiny").module;
    simplify(&mut module).expect("simplifies");
    template(&mut module).expect("finds templates")
}

fn templates_of(t: &Templates) -> msc_passes::template::Template {
    t.templates[0].clone()
}

/// Templates describe the module: calls are calls of the segment's graph, and parameters come from where they say.
fn describes(module: &Module, templates: &Templates) {
    let entry = module.graph(module.entry().expect("an entry").graph);
    for t in &templates.templates {
        for (at, s) in t.segments.iter().enumerate() {
            assert_eq!(s.params.len(), module.graph(s.graph).params().len());
            for (i, &call) in s.calls.iter().enumerate() {
                let data = entry.op(call);
                assert_eq!(data.op.callees().as_slice(), [s.graph], "segment {at} instance {i}");
                for (p, &v) in s.params.iter().zip(&data.operands) {
                    let from = |segment: usize, result: usize, instance: usize| {
                        let call = t.segments[segment].calls[instance];
                        assert_eq!(entry.op(call).results[result], v, "{p:?}");
                    };
                    match *p {
                        ParamSource::FromSegment { segment, result } => from(segment, result, i),
                        ParamSource::Carry { segment, result, offset } => {
                            let other = i as i64 + i64::from(offset);
                            if (0..t.instances as i64).contains(&other) {
                                from(segment, result, other as usize);
                            }
                        }
                        ParamSource::Instance | ParamSource::Shared => {}
                    }
                }
            }
        }
    }
}
