//! What inputs are for, read off real steps without their names, and compared with what their exporters call them.

mod support;

use msc::roles::step_info;
use msc_ir::ops::fused::Scalar;
use msc_passes::simplify::simplify;
use msc_runtime::plan::{Role, StepInfo};
use support::fixture;

/// A step without any names, and the names that its exporter gave its inputs.
fn nameless(step: &str) -> (StepInfo, Vec<String>) {
    let dir = fixture(step);
    let mut m = msc_frontends::read_file(&dir.join("model.mlir")).expect("a fixture").module;
    for e in &mut m.entries {
        e.params.iter_mut().enumerate().for_each(|(i, p)| p.name = format!("p{i}"));
        e.results.iter_mut().enumerate().for_each(|(i, r)| r.name = format!("r{i}"));
    }
    simplify(&mut m).expect("simplifies");
    let meta = std::fs::read_to_string(dir.join("meta.json")).expect("a description");
    let meta: serde_json::Value = serde_json::from_str(&meta).expect("JSON");
    let inputs = meta["inputs"].as_array().expect("inputs");
    let names = inputs.iter().map(|i| i["name"].as_str().expect("a name").to_string()).collect();
    (step_info(&m).expect("an entry"), names)
}

fn filled(x: f64) -> Role {
    Role::Filled(Scalar::new(x))
}

/// What an exporter's name says. Names that say nothing are in `data`.
fn by_name(name: &str, data: &[(&str, Role)]) -> Role {
    let any = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if let Some((_, role)) = data.iter().find(|(n, _)| *n == name) {
        *role
    } else if any(&[".mu[", ".nu[", "['mu']", "['nu']", "exp_avg", "count", "step."])
        || name.ends_with("['step'].value")
    {
        filled(0.0)
    } else if name.contains("['rngs']") && name.contains("['key']") {
        Role::Key
    } else if any(&["inv_freq"]) {
        Role::Frequencies
    } else if name.starts_with("[0][1]['model") {
        Role::Copy(u32::MAX)
    } else if any(&["bias"]) {
        filled(0.0)
    } else if any(&["norm", "ln_", "LayerNorm"]) {
        filled(1.0)
    } else {
        Role::Weight
    }
}

fn check(step: &str, vocabulary: u64, data: &[(&str, Role)]) -> StepInfo {
    let (info, names) = nameless(step);
    assert_eq!(info.inputs.len(), names.len());
    for (n, name) in names.iter().enumerate() {
        let want = by_name(name, data);
        let got = info.inputs[n].role;
        let same = match (got, want) {
            // A copy is of the parameter with its own name.
            (Role::Copy(of), Role::Copy(_)) => names[of as usize].replace("[0][0]", "[0][1]") == *name,
            _ => got == want,
        };
        assert!(same, "{step}: {name} is {got:?} ({}), should be {want:?}", info.inputs[n].why);
    }
    assert_eq!(info.vocabulary, vocabulary, "{step}");
    assert!(info.matmul_flops > 1_000_000, "{step}");
    info
}

#[test]
fn jax_and_torchax_steps() {
    let tokens = [("[3]", Role::Ids), ("[4]", Role::Labels)];
    for step in ["llama_torchax_tiny", "mixtral_torchax_tiny", "llama_lora", "qwen2_torchax_bf16master_tiny"]
    {
        assert!(!check(step, 96, &tokens).shifts_labels, "{step}");
    }
    let tokens = [("[2]", Role::Ids), ("[3]", Role::Labels)];
    for step in ["llama_flax_scan_gradaccum_tiny", "llama_flax_scan_remat_tiny"] {
        check(step, 96, &tokens);
    }
    let dropout = [("[2]", Role::Key), ("[3]", Role::Ids), ("[4]", Role::Labels)];
    check("gpt2_dropout_flax_tiny", 96, &dropout);
}

/// PyTorch's own backward and optimizer, and a loss that shifts the labels itself.
#[test]
fn a_torch_xla_step() {
    let tokens = [("input_ids", Role::Ids), ("labels", Role::Labels)];
    assert!(check("llama_torchxla_tiny_const", 96, &tokens).shifts_labels);
}

/// Positions and segments are inputs, layers run in a loop, labels become one-hot rows.
#[test]
fn a_maxtext_step() {
    // Pairs that the step hands on as they are: nothing but its name tells a counter of a layer from a key.
    let count = |of: &str| {
        format!("[0][0]['model']['decoder']['layers']['self_attention']['rngs']['{of}']['count'].value")
    };
    let counts = ["aqt", "dropout", "params"].map(count);
    let mut tokens: Vec<(&str, Role)> = counts.iter().map(|n| (n.as_str(), Role::Key)).collect();
    tokens.extend([
        ("[0][1]['inputs']", Role::Ids),
        ("[0][1]['targets']", Role::Labels),
        ("[0][1]['inputs_position']", Role::Positions),
        ("[0][1]['inputs_segmentation']", Role::Mask),
        ("[0][1]['targets_segmentation']", Role::Mask),
        ("[0][1]['targets_position']", filled(0.0)),
    ]);
    check("llama_maxtext_fsdp2_tp2_tiny", 96, &tokens);
}
