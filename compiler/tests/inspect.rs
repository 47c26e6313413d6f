//! `msc explain` and `msc verify`: as processes on real steps, and on recognition that was tampered with.

mod support;

use msc::examine::{Examined, examine};
use msc::verify::{VerifyOptions, check};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{Graph, Op, Operation, ValueId};
use msc_passes::recognise::engine::run::Reason;
use support::{fixture, msc, stderr, stdout};

fn model(name: &str) -> String {
    fixture(name).join("model.mlir").display().to_string()
}

#[test]
fn a_real_step_is_verified() {
    let dir = tempfile::tempdir().expect("a folder");
    let json = dir.path().join("verdict.json");
    let o = msc().args(["verify", &model("llama_torchax_tiny"), "--seed", "3", "--json"]).arg(&json).output();
    let text = stdout(&o.expect("starts"));
    assert!(text.ends_with("verified\n"), "{text}");
    let v: serde_json::Value =
        serde_json::from_slice(&std::fs::read(json).expect("written")).expect("is JSON");
    assert_eq!((v["verified"].as_bool(), v["seed"].as_u64()), (Some(true), Some(3)));
    for op in ["adamw", "attention", "attention_grad", "rms_norm", "rms_norm_grad", "rope", "swiglu"] {
        assert!(text.contains(op), "{op}: {text}");
    }
    assert_eq!(v["comparisons"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_step_is_verified_on_its_own_inputs() {
    let folder = fixture("llama_lora").display().to_string();
    let o = msc().args(["verify", &model("llama_lora"), "--fixture-inputs", &folder]).output();
    let text = stdout(&o.expect("starts"));
    assert!(text.contains("given inputs\n") && text.ends_with("verified\n"), "{text}");
}

fn examined() -> Examined {
    examine(model("llama_torchax_tiny").as_ref(), &mut |_, _, _| {}).expect("recognises")
}

fn options() -> VerifyOptions {
    VerifyOptions { seed: 1, ..VerifyOptions::default() }
}

/// Another epsilon in the definitions: both the replays and the whole step show it.
#[test]
fn a_changed_definition_is_noticed() {
    let mut e = examined();
    let definitions: Vec<_> = e.report.regions.iter().flat_map(|r| &r.reasons).collect();
    let definitions = definitions.into_iter().filter(|r| r.fused.name() == "rms_norm");
    let definitions: Vec<_> = definitions.map(|r| r.fused.definition).collect();
    let mut changed = 0;
    for id in definitions {
        let old = e.recognised.graph(id).clone();
        let mut new = Graph::new(old.name.clone());
        let mut map: Vec<Option<ValueId>> = vec![None; old.value_count()];
        for &p in old.params() {
            map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
        }
        for (op, d) in old.ops() {
            let m = &mut e.recognised;
            match &d.op {
                Op::Constant(ConstantOp { id })
                    if m.constants.splat_value(*id).is_some_and(|v| v > 0.0 && v < 1e-4) =>
                {
                    let id = m.constants.intern_splat(old.ty(d.results[0]).clone(), 1.1e-6);
                    let v = new.add1(m, ConstantOp { id }, &[], d.loc).expect("a constant");
                    map[d.results[0].0 as usize] = Some(v);
                    changed += 1;
                }
                _ => new.copy_op(&old, op, &mut map).expect("copies"),
            }
        }
        new.set_results(old.results().iter().map(|r| map[r.0 as usize].expect("made")).collect());
        e.recognised.set_graph(id, new);
    }
    assert!(changed > 0);
    let v = check(&e, &options()).expect("runs");
    assert!(!v.verified);
    let norm = v.operations.iter().find(|k| k.operation == "rms_norm").expect("norms");
    assert!(!norm.faults.is_empty() && norm.faults[0].location.contains("model.mlir:"), "{norm:?}");
    assert!(!v.comparisons[0].agrees(), "{}", v.text());
    assert!(v.faults(20).contains("rms_norm at "), "{}", v.faults(20));
}

/// Two gradients of weights exchanged between the reasons of two norms.
#[test]
fn a_changed_reason_is_noticed() {
    let mut e = examined();
    let gradients = |r: &Reason| r.fused.name() == "rms_norm_grad";
    let region = e.report.regions.iter_mut().find(|r| r.reasons.iter().filter(|r| gradients(r)).count() > 1);
    let region = region.expect("a layer");
    let mut both = region.reasons.iter_mut().filter(|r| gradients(r));
    let (a, b) = (both.next().expect("one"), both.next().expect("two"));
    let place =
        |r: &Reason| r.outputs.iter().position(|o| o.name == "dgamma").expect("a gradient of the weight");
    let (i, j) = (place(a), place(b));
    std::mem::swap(&mut a.outputs[i].values, &mut b.outputs[j].values);
    let v = check(&e, &VerifyOptions { replay_only: true, ..options() }).expect("runs");
    let faults: Vec<_> = v.operations.iter().filter(|k| !k.faults.is_empty()).collect();
    assert!(!v.verified && faults.len() == 1 && faults[0].operation == "rms_norm_grad", "{}", v.text());
    assert_eq!(faults[0].faults.len(), 2, "{}", v.text());
}

#[test]
fn sites_are_explained_in_the_users_words() {
    let model = model("llama_torchax_tiny");
    let o = msc().args(["explain", &model, "--pattern", "rms-norm"]).output().expect("starts");
    let text = stdout(&o);
    assert!(text.contains("rms_norm at ") && text.contains("model.mlir:"), "{text}");
    assert!(text.contains("gamma") && text.contains("layers.{0,1}.input_layernorm.weight"), "{text}");
    assert!(text.contains("3 sites, executed 5 times a step"), "{text}");
    // A weight of one layer finds what stands for all of them.
    let name = "layers.1.post_attention_layernorm.weight";
    let o = msc().args(["explain", &model, "--op", name]).output().expect("starts");
    let text = stdout(&o);
    assert!(text.contains("rms_norm at ") && text.contains("adamw at "), "{text}");
    assert!(!text.contains("input_layernorm.weight"), "{text}");
}

#[test]
fn what_was_not_found_is_explained() {
    let model = model("gpt2_dropout_flax_tiny");
    let o = msc().args(["explain", &model, "--why-not", "rms_norm"]).output().expect("starts");
    let text = stdout(&o);
    assert!(text.starts_with("rms_norm was not found"), "{text}");
    assert!(text.contains("not at ") && text.contains("model.mlir:"), "{text}");
    let o = msc().args(["explain", &model, "--why-not", "conv"]).output().expect("starts");
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("MSC-X0002") && stderr(&o).contains("rms_norm, "), "{}", stderr(&o));
}
