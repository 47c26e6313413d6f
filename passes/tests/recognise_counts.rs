//! How often norms are found in real training steps. The expected numbers follow from the architectures: two norms a
//! layer and one at the end, and those of heads, embeddings and prediction heads where there are some; copies that
//! the backward computes again count as norms.

use msc_frontends::npz;
use msc_ir::Tensor;
use msc_ir::interp::{Mode, run};
use msc_passes::recognise::{Fusions, Report, recognise, recognise_graph, replay};
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use std::path::{Path, PathBuf};

/// Places in the program, and executions.
type Count = (usize, u64);

struct Expected {
    fixture: &'static str,
    rms: [Count; 2],
    layer: [Count; 2],
}

const NONE: [Count; 2] = [(0, 0); 2];

const fn rms(fixture: &'static str, norm: Count, grad: Count) -> Expected {
    Expected { fixture, rms: [norm, grad], layer: NONE }
}

const fn layer(fixture: &'static str, norm: Count, grad: Count) -> Expected {
    Expected { fixture, rms: NONE, layer: [norm, grad] }
}

const EXPECTED: &[Expected] = &[
    layer("bert_flax_tiny", (4, 6), (4, 6)),
    layer("bert_padded_flax_tiny", (4, 6), (4, 6)),
    rms("complex_rope_jax", (3, 5), (3, 5)),
    // Of both embeddings, two in each encoder and three in each decoder.
    layer("encoder_decoder_jax", (7, 17), (7, 17)),
    // Four a layer.
    rms("gemma2_torchax_l4_tiny", (9, 17), (9, 17)),
    // Before an attention and two feed-forwards, of queries and keys: all without a scale.
    rms("gates_smoothed_jax", (6, 11), (6, 11)),
    layer("gpt2_dropout_flax_tiny", (3, 5), (3, 5)),
    layer("gpt2_flax_tiny", (3, 5), (3, 5)),
    layer("gpt2_l4_b8_flax_tiny", (3, 9), (3, 9)),
    layer("gpt2_torchax_tiny", (3, 5), (3, 5)),
    rms("llama_flax_dp2_tp4_tiny", (3, 5), (3, 5)),
    // Loops of 4 layers, inside a loop of 2 microbatches: 2·(1 + 2·4), and 2·2·4 again in the backward.
    rms("llama_flax_scan_gradaccum_tiny", (5, 34), (3, 18)),
    rms("llama_flax_scan_remat_tiny", (5, 17), (3, 9)),
    rms("llama_flax_tiny", (3, 5), (3, 5)),
    rms("llama_flax_tp8_tiny", (3, 5), (3, 5)),
    rms("llama_fp16_scaled", (3, 5), (3, 5)),
    // Two layers, whole in the entry; the first norm needs no gradient.
    rms("llama_lora", (5, 5), (4, 4)),
    rms("lora_jax_l6", (7, 13), (6, 12)),
    rms("llama_l4_b8_clipoff_flax_tiny", (3, 9), (3, 9)),
    rms("llama_l4_b8_flax_tiny", (3, 9), (3, 9)),
    rms("llama_maxtext_fsdp2_tp2_tiny", (5, 9), (3, 5)),
    rms("llama_torchax_remat_tiny", (6, 10), (3, 5)),
    rms("llama_torchax_tiny", (3, 5), (3, 5)),
    // Its literals, eps among them, are arguments.
    rms("llama_torchxla_tiny", (3, 5), (3, 5)),
    rms("llama_torchxla_tiny_const", (3, 5), (3, 5)),
    // The first layer apart; of latents, too.
    rms("mla_shared_jax", (7, 13), (7, 13)),
    rms("mixtral_aux_b8", (3, 5), (3, 5)),
    rms("mixtral_torchax_tiny", (3, 5), (3, 5)),
    // One a layer.
    rms("moe_capacity_jax", (2, 3), (2, 3)),
    rms("moe_ragged_jax", (2, 3), (2, 3)),
    // Of the embedding, two of one value, and the last.
    layer("parallel_sinks_jax", (4, 4), (4, 4)),
    rms("qwen2_torchax_bf16master_tiny", (3, 5), (3, 5)),
];

/// Places and executions of cross-entropies and of embeddings: tokens, positions and types are three embeddings, and
/// tables that are data, of sines and cosines, are none.
struct Lookups {
    fixture: &'static str,
    loss: Count,
    embedding: [Count; 2],
}

const fn lookups(fixture: &'static str, loss: Count, embedding: Count, grad: Count) -> Lookups {
    Lookups { fixture, loss, embedding: [embedding, grad] }
}

const LOOKUPS: &[Lookups] = &[
    lookups("bert_flax_tiny", (1, 1), (3, 3), (3, 3)),
    lookups("bert_padded_flax_tiny", (1, 1), (3, 3), (3, 3)),
    lookups("complex_rope_jax", (1, 1), (1, 1), (1, 1)),
    // Of source and target.
    lookups("encoder_decoder_jax", (1, 1), (2, 2), (2, 2)),
    lookups("gates_smoothed_jax", (1, 1), (1, 1), (1, 1)),
    lookups("gemma2_torchax_l4_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("gpt2_dropout_flax_tiny", (1, 1), (2, 2), (2, 2)),
    lookups("gpt2_flax_tiny", (1, 1), (2, 2), (2, 2)),
    lookups("gpt2_l4_b8_flax_tiny", (1, 1), (2, 2), (2, 2)),
    lookups("gpt2_torchax_tiny", (1, 1), (2, 2), (2, 2)),
    lookups("llama_flax_dp2_tp4_tiny", (1, 1), (1, 1), (1, 1)),
    // In the loop of two microbatches.
    lookups("llama_flax_scan_gradaccum_tiny", (1, 2), (1, 2), (1, 2)),
    lookups("llama_flax_scan_remat_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_flax_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_flax_tp8_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_fp16_scaled", (1, 1), (1, 1), (1, 1)),
    lookups("llama_l4_b8_clipoff_flax_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_l4_b8_flax_tiny", (1, 1), (1, 1), (1, 1)),
    // The base is frozen.
    lookups("llama_lora", (1, 1), (1, 1), (0, 0)),
    lookups("llama_maxtext_fsdp2_tp2_tiny", (1, 1), (1, 1), (1, 1)),
    // The backward looks tokens up again.
    lookups("llama_torchax_remat_tiny", (1, 1), (2, 2), (1, 1)),
    lookups("llama_torchax_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_torchxla_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("llama_torchxla_tiny_const", (1, 1), (1, 1), (1, 1)),
    lookups("mla_shared_jax", (1, 1), (1, 1), (1, 1)),
    lookups("mixtral_aux_b8", (1, 1), (1, 1), (1, 1)),
    lookups("mixtral_torchax_tiny", (1, 1), (1, 1), (1, 1)),
    lookups("moe_capacity_jax", (1, 1), (1, 1), (1, 1)),
    lookups("moe_ragged_jax", (1, 1), (1, 1), (1, 1)),
    lookups("parallel_sinks_jax", (1, 1), (1, 1), (1, 1)),
    lookups("qwen2_torchax_bf16master_tiny", (1, 1), (1, 1), (1, 1)),
];

/// What updates weights, and routers with their gradients.
struct Step {
    fixture: &'static str,
    adamw: Count,
    clip: Count,
    route: Count,
}

/// One AdamW for each tensor, one clipping for each step, whatever other norms it reports; one router for each layer of
/// experts.
const STEPS: &[Step] = &[
    Step { fixture: "bert_flax_tiny", adamw: (26, 42), clip: (1, 1), route: (0, 0) },
    Step { fixture: "bert_padded_flax_tiny", adamw: (26, 42), clip: (1, 1), route: (0, 0) },
    Step { fixture: "complex_rope_jax", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "encoder_decoder_jax", adamw: (45, 123), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gates_smoothed_jax", adamw: (10, 18), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gemma2_torchax_l4_tiny", adamw: (24, 46), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gpt2_dropout_flax_tiny", adamw: (16, 28), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gpt2_flax_tiny", adamw: (16, 28), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gpt2_l4_b8_flax_tiny", adamw: (16, 52), clip: (1, 1), route: (0, 0) },
    Step { fixture: "gpt2_torchax_tiny", adamw: (16, 28), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_flax_dp2_tp4_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_flax_scan_gradaccum_tiny", adamw: (12, 12), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_flax_scan_remat_tiny", adamw: (12, 12), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_flax_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_flax_tp8_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_fp16_scaled", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_l4_b8_clipoff_flax_tiny", adamw: (12, 39), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_l4_b8_flax_tiny", adamw: (12, 39), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_lora", adamw: (8, 8), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_maxtext_fsdp2_tp2_tiny", adamw: (12, 12), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_torchax_remat_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_torchax_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    // Its literals are arguments.
    Step { fixture: "llama_torchxla_tiny", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "llama_torchxla_tiny_const", adamw: (12, 21), clip: (1, 1), route: (0, 0) },
    Step { fixture: "mla_shared_jax", adamw: (27, 55), clip: (0, 0), route: (1, 3) },
    Step { fixture: "mixtral_aux_b8", adamw: (22, 41), clip: (1, 1), route: (1, 2) },
    Step { fixture: "mixtral_torchax_tiny", adamw: (22, 41), clip: (1, 1), route: (1, 2) },
    Step { fixture: "moe_capacity_jax", adamw: (8, 13), clip: (1, 1), route: (1, 2) },
    Step { fixture: "moe_ragged_jax", adamw: (8, 13), clip: (1, 1), route: (1, 2) },
    Step { fixture: "parallel_sinks_jax", adamw: (13, 13), clip: (1, 1), route: (0, 0) },
    Step { fixture: "qwen2_torchax_bf16master_tiny", adamw: (14, 26), clip: (1, 1), route: (0, 0) },
];

/// Executions of everything else, with gradients: copies that the backward computes again count.
struct Rest {
    fixture: &'static str,
    attention: [u64; 2],
    rope: [u64; 2],
    activation: (&'static str, [u64; 2]),
    softmax: [u64; 2],
}

const fn rest(fixture: &'static str, n: u64, again: u64, activation: &'static str, rotates: u64) -> Rest {
    Rest {
        fixture,
        attention: [n + again, n],
        rope: [rotates * (n + again), rotates * n],
        activation: (activation, [n + again, n]),
        softmax: [0, 0],
    }
}

/// Rotations turn queries and keys: two an attention.
const REST: &[Rest] = &[
    // One activation more in the head.
    Rest { activation: ("gelu", [3, 3]), ..rest("bert_flax_tiny", 2, 0, "gelu", 0) },
    Rest { activation: ("gelu", [3, 3]), ..rest("bert_padded_flax_tiny", 2, 0, "gelu", 0) },
    rest("complex_rope_jax", 2, 0, "swiglu", 2),
    // Decoders look at the encoders' result, too.
    Rest { activation: ("gelu", [6, 6]), ..rest("encoder_decoder_jax", 9, 0, "gelu", 0) },
    rest("gates_smoothed_jax", 2, 0, "swiglu", 0),
    rest("gemma2_torchax_l4_tiny", 4, 0, "geglu", 2),
    rest("gpt2_dropout_flax_tiny", 2, 0, "gelu", 0),
    rest("gpt2_flax_tiny", 2, 0, "gelu", 0),
    rest("gpt2_l4_b8_flax_tiny", 4, 0, "gelu", 0),
    rest("gpt2_torchax_tiny", 2, 0, "gelu", 0),
    rest("llama_flax_dp2_tp4_tiny", 2, 0, "swiglu", 2),
    rest("llama_flax_scan_gradaccum_tiny", 8, 8, "swiglu", 2),
    rest("llama_flax_scan_remat_tiny", 4, 4, "swiglu", 2),
    rest("llama_flax_tiny", 2, 0, "swiglu", 2),
    rest("llama_flax_tp8_tiny", 2, 0, "swiglu", 2),
    rest("llama_fp16_scaled", 2, 0, "swiglu", 2),
    rest("llama_l4_b8_clipoff_flax_tiny", 4, 0, "swiglu", 2),
    rest("llama_l4_b8_flax_tiny", 4, 0, "swiglu", 2),
    // Nothing below the first layer's keys is trained.
    Rest { rope: [4, 3], ..rest("llama_lora", 2, 0, "swiglu", 2) },
    Rest { rope: [12, 11], ..rest("lora_jax_l6", 6, 0, "swiglu", 2) },
    rest("llama_maxtext_fsdp2_tp2_tiny", 2, 2, "swiglu", 2),
    rest("llama_torchax_remat_tiny", 2, 2, "swiglu", 2),
    rest("llama_torchax_tiny", 2, 0, "swiglu", 2),
    rest("llama_torchxla_tiny", 2, 0, "swiglu", 2),
    rest("llama_torchxla_tiny_const", 2, 0, "swiglu", 2),
    // Four experts, each on all tokens; a router is a softmax.
    // The auxiliary loss takes the softmax of all routers' scores again.
    Rest { activation: ("swiglu", [8, 8]), softmax: [3, 3], ..rest("mixtral_aux_b8", 2, 0, "swiglu", 2) },
    Rest {
        activation: ("swiglu", [8, 8]),
        softmax: [2, 2],
        ..rest("mixtral_torchax_tiny", 2, 0, "swiglu", 2)
    },
    // Three layers of experts beside a dense one, and a dense layer.
    Rest { activation: ("swiglu", [7, 7]), softmax: [3, 3], ..rest("mla_shared_jax", 4, 0, "swiglu", 2) },
    Rest { attention: [0, 0], rope: [0, 0], softmax: [2, 2], ..rest("moe_capacity_jax", 2, 0, "swiglu", 2) },
    Rest { attention: [0, 0], rope: [0, 0], softmax: [2, 2], ..rest("moe_ragged_jax", 2, 0, "swiglu", 2) },
    rest("parallel_sinks_jax", 1, 0, "gelu", 2),
    rest("qwen2_torchax_bf16master_tiny", 2, 0, "swiglu", 2),
];

/// Attentions, rotations, activations and softmaxes; of activations no other than the architecture's.
#[test]
fn every_attention_rotation_and_activation_is_found() {
    let root = fixtures();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for e in REST {
        let file = root.join(e.fixture).join("model.mlir");
        if !file.is_file() {
            continue;
        }
        seen += 1;
        let report = report(&file);
        let count = |name: &str| report.fusions.get(name).map_or(0, |f| f.executed);
        let pair = |name: &str| [count(name), count(&format!("{name}_grad"))];
        let mut expected = vec![("attention", e.attention), ("rope", e.rope), ("softmax", e.softmax)];
        for name in ["silu", "swish", "swiglu", "gelu", "geglu", "relu", "reglu", "squared_relu"] {
            // A second feed-forward in each layer.
            let beside = name == "squared_relu" && e.fixture == "gates_smoothed_jax";
            let mine = if name == e.activation.0 || beside { e.activation.1 } else { [0, 0] };
            expected.push((name, mine));
        }
        for (name, expected) in expected {
            if pair(name) != expected {
                wrong.push(format!("{} {name}: {:?} of {expected:?}", e.fixture, pair(name)));
            }
        }
    }
    assert!(seen >= 8, "fixtures are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fixtures() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo");
    std::env::var_os("MSC_FIXTURES").map_or(own, PathBuf::from)
}

fn report(file: &Path) -> Report {
    let mut module = msc_frontends::read_file(file).expect("the fixture imports").module;
    simplify(&mut module).expect("simplifies");
    let mut templates = template(&mut module).expect("finds templates");
    let report = recognise(&mut module, &mut templates).expect("recognises");
    msc_ir::verify::verify(&module).expect("verifies");
    report
}

/// Every loss is found with its gradient, every embedding too.
#[test]
fn every_loss_and_embedding_is_found() {
    let root = fixtures();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for e in LOOKUPS {
        let file = root.join(e.fixture).join("model.mlir");
        if !file.is_file() {
            continue;
        }
        seen += 1;
        let report = report(&file);
        for (name, expected) in [
            ("cross_entropy", e.loss),
            ("cross_entropy_grad", e.loss),
            ("embedding", e.embedding[0]),
            ("embedding_grad", e.embedding[1]),
        ] {
            let f = report.fusions.get(name).copied().unwrap_or(Fusions::default());
            if (f.sites, f.executed) != expected {
                wrong.push(format!("{} {name}: {:?} of {expected:?}", e.fixture, (f.sites, f.executed)));
            }
        }
    }
    assert!(seen >= 8, "fixtures are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every fixture of the repository that the table lists; `MSC_FIXTURES` names another folder instead.
#[test]
fn every_norm_is_found() {
    let root = fixtures();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for e in EXPECTED {
        let file = root.join(e.fixture).join("model.mlir");
        if !file.is_file() {
            continue;
        }
        seen += 1;
        let report = report(&file);
        let count = |name: &str| {
            let f = report.fusions.get(name).copied().unwrap_or(Fusions::default());
            (f.sites, f.executed)
        };
        for (name, expected) in [
            ("rms_norm", e.rms[0]),
            ("rms_norm_grad", e.rms[1]),
            ("layer_norm", e.layer[0]),
            ("layer_norm_grad", e.layer[1]),
        ] {
            if count(name) != expected {
                wrong.push(format!("{} {name}: {:?} of {expected:?}", e.fixture, count(name)));
            }
        }
    }
    assert!(seen >= 8, "fixtures are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_update_is_found() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for e in STEPS {
        let file = fixtures().join(e.fixture).join("model.mlir");
        if !file.is_file() {
            continue;
        }
        seen += 1;
        let report = report(&file);
        let expected =
            [("adamw", e.adamw), ("clip", e.clip), ("moe_route", e.route), ("moe_route_grad", e.route)];
        // The auxiliary loss of all layers' routers together, or one of each.
        let balance = match e.fixture {
            "mixtral_aux_b8" => (1, 1),
            "moe_capacity_jax" => (1, 2),
            _ => (0, 0),
        };
        // Of tokens in slots and of sorted ones, gate, up and down of two layers.
        let slots = if e.fixture == "moe_capacity_jax" { (1, 2) } else { (0, 0) };
        let sorted = if e.fixture == "moe_ragged_jax" { (1, 2) } else { (0, 0) };
        // Where all experts see all tokens, only the product back has a matrix for each.
        let back = if e.fixture == "mla_shared_jax" { (1, 3) } else { (0, 0) };
        let products = (3 * (slots.0 + sorted.0) + back.0, 3 * (slots.1 + sorted.1) + back.1);
        let accumulates = usize::from(e.fixture == "llama_flax_scan_gradaccum_tiny");
        for (name, expected) in expected.into_iter().chain([
            ("sgd", (0, 0)),
            ("moe_load", balance),
            ("moe_balance", balance),
            ("moe_balance_grad", balance),
            ("moe_dispatch", slots),
            ("moe_dispatch_grad", slots),
            ("moe_combine", slots),
            ("moe_combine_grad", slots),
            ("moe_sort", sorted),
            ("moe_permute", sorted),
            ("moe_permute_grad", sorted),
            ("moe_unpermute", sorted),
            ("moe_unpermute_grad", sorted),
            ("moe_z_loss", sorted),
            ("moe_z_loss_grad", sorted),
            ("grouped_matmul", products),
            ("grouped_matmul_grad", products),
            ("gradient_accumulation", (accumulates, accumulates as u64)),
            ("lion", (0, 0)),
            // After the embedding, an attention and a feed-forward; forward and backward.
            ("dropout", if e.fixture == "gpt2_dropout_flax_tiny" { (6, 10) } else { (0, 0) }),
        ]) {
            let f = report.fusions.get(name).copied().unwrap_or_default();
            if (f.sites, f.executed) != expected {
                wrong.push(format!("{} {name}: {f:?} of {expected:?}", e.fixture));
            }
        }
    }
    assert!(seen >= 8, "fixtures are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A step with LayerNorms computes what it did, and every reason can be executed again.
#[test]
fn layer_norms_change_no_number() {
    let dir = fixtures().join("gpt2_dropout_flax_tiny");
    let mut before = msc_frontends::read_file(&dir.join("model.mlir")).expect("imports").module;
    simplify(&mut before).expect("simplifies");
    let entry = before.entry().expect("an entry").graph;
    let mut after = before.clone();
    let report = recognise_graph(&mut after, entry).expect("recognises");
    assert_eq!(report.fusions["layer_norm_grad"].sites, 5);
    for r in report.regions.iter().flat_map(|r| &r.reasons) {
        let d = replay(&after, &report.regions[0], r).expect("replays");
        assert!(d < 4e-6, "{} differs by {d} in wide mode", r.rule);
    }
    let data = npz::read(&dir.join("inputs.npz")).expect("the inputs");
    let types = before.graph(entry).param_types();
    let inputs: Vec<Tensor> =
        data.values().zip(types).map(|(t, ty)| npz::fit(t, &ty).expect("of its type")).collect();
    let a = run(&before, entry, &inputs, Mode::Wide).expect("runs");
    let b = run(&after, entry, &inputs, Mode::Wide).expect("runs");
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        // Literals rounded to f32, 1/64 and eps among them.
        let d = msc_passes::recognise::check::difference(x, y);
        assert!(d < 1e-7, "output {i} differs by {d}");
    }
}
