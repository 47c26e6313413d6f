//! What is left between named operations in real training steps: nothing of the shape of scores, no second value of the
//! shape of logits, no function that belongs to a named operation; and how many plain ops a layer keeps.

use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{Graph, GraphId, Module, Op, OpId, Operation, ValueDef, ValueId};
use msc_passes::recognise::recognise;
use msc_passes::simplify::simplify;
use msc_passes::template::{Templates, template};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Fixtures in which something is left, with the reason.
const KNOWN: &[(&str, &str)] = &[
    ("bert_flax_tiny", "the head adds a bias to the logits, which is no part of the loss"),
    ("bert_padded_flax_tiny", "the head adds a bias to the logits, which is no part of the loss"),
    ("gemma2_torchax_l4_tiny", "the tanh that caps the logits is no part of the loss"),
];

/// Steps whose updates hold more than AdamW: they are skipped on overflow, keep copies in bf16, or correct each weight's
/// bias by a count of its own; or measure one gradient in a part of their own.
const UPDATES_WITH_MORE: &[&str] = &[
    "gpt_uneven_jax",
    "llama_fp16_scaled",
    "llama_torchxla_tiny",
    "llama_torchxla_tiny_const",
    "qwen2_torchax_bf16master_tiny",
];

/// The most plain ops that are left in forward and in backward, by family: what comes first in a fixture's name. Where it
/// is layout, a reshape of heads, which moves nothing; the residual add that ends a layer and the sums of gradients of one
/// value are ops that no named one has.
const LEFT: &[(&str, usize, usize)] = &[
    // Embeddings' and heads' biases, and a mask of its own.
    ("bert", 49, 35),
    ("complex", 5, 8),
    // Biases of every product, and two attentions in a decoder layer.
    ("encoder_decoder", 27, 23),
    // Operands of a gate that are neighbours.
    ("gates", 9, 14),
    // Bits of three dropouts.
    ("gpt2_dropout", 89, 10),
    // Biases, and queries, keys and values that are one product.
    ("gpt2_torchax", 24, 18),
    ("gpt2", 16, 10),
    ("gpt_uneven", 14, 11),
    // Two layers a template, and scales that one is added to.
    ("gemma2", 17, 16),
    // Branches of low rank.
    ("lora", 9, 11),
    // Sums of gradients of rows that are flat, and an optimizer that corrects each weight's bias by a count of its own.
    ("llama_torchxla", 7, 32),
    // Weights that are rounded to fp16, and gradients that are looked at for overflows.
    ("llama_fp16", 20, 63),
    ("llama", 5, 8),
    // Loops over experts, and the mask of their router.
    ("mixtral", 54, 41),
    ("moe_capacity", 21, 9),
    // Parts of heads, which are cut, turned and joined; the shares of experts, from a mask.
    ("mla", 28, 30),
    ("moe_ragged", 3, 6),
    // Biases of queries, keys and values; gradients that are widened.
    ("qwen2", 11, 22),
];

fn fixtures() -> Vec<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo");
    let root = std::env::var_os("MSC_FIXTURES").map_or(own, PathBuf::from);
    let mut out: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("a folder of fixtures")
        .map(|e| e.expect("an entry").path().join("model.mlir"))
        .filter(|f| f.is_file())
        .collect();
    out.sort();
    out
}

fn recognised(file: &Path) -> (Module, Templates) {
    let mut module = msc_frontends::read_file(file).expect("the fixture imports").module;
    simplify(&mut module).expect("simplifies");
    let mut templates = template(&mut module).expect("finds templates");
    recognise(&mut module, &mut templates).expect("recognises");
    (module, templates)
}

/// The graphs that the step runs, definitions of named operations aside.
fn graphs(module: &Module) -> Vec<GraphId> {
    let entry = module.entry().expect("an entry").graph;
    let (mut out, mut seen) = (vec![entry], BTreeSet::from([entry]));
    let mut at = 0;
    while let Some(&g) = out.get(at) {
        at += 1;
        for (_, d) in module.graph(g).ops().filter(|(_, d)| !matches!(d.op, Op::Fused(_))) {
            out.extend(d.op.callees().into_iter().filter(|&c| seen.insert(c)));
        }
    }
    out
}

/// Values that nothing but indices and constants go into: tables of positions.
fn tables(g: &Graph) -> BTreeSet<ValueId> {
    let mut out: BTreeSet<ValueId> =
        g.params().iter().copied().filter(|&p| !g.ty(p).dtype.is_float()).collect();
    for (_, d) in g.ops() {
        let calls = !d.op.callees().is_empty();
        if !calls && d.operands.iter().all(|o| out.contains(o)) {
            out.extend(&d.results);
        }
    }
    out
}

/// Where a value comes from, for messages.
fn named(module: &Module, g: &Graph, v: ValueId) -> String {
    match g.value(v).def {
        ValueDef::Param(i) => format!("parameter {i} of @{}: {}", g.name, g.ty(v)),
        ValueDef::Result(op, _) => {
            let d = g.op(op);
            format!("{} at {}: {}", d.op.name(), module.locations.describe(d.loc), g.ty(v))
        }
    }
}

/// Values with as many elements as an attention has scores, and its two lengths last; masks are no floats.
fn scores(module: &Module, graphs: &[GraphId]) -> Vec<String> {
    let mut sizes = BTreeSet::new();
    for &g in graphs {
        let g = module.graph(g);
        for (_, d) in g.ops() {
            if let Op::Fused(f) = &d.op
                && matches!(f.kind, FusedKind::Attention(_))
            {
                let (q, k) = (&g.ty(d.operands[0]).shape, &g.ty(d.operands[1]).shape);
                sizes.insert((q[0] * q[1] * q[2] * k[2], q[2], k[2], q[3]));
            }
        }
    }
    let mut out = Vec::new();
    for &g in graphs {
        let g = module.graph(g);
        for v in g.ops().flat_map(|(_, d)| d.results.iter().copied()) {
            let ty = g.ty(v);
            let n = ty.rank();
            // Where a head is as wide as the sequence is long, queries have the shape of scores.
            let is = |&(all, s, t, h): &(usize, usize, usize, usize)| {
                n >= 2 && ty.elements() >= all && ty.shape[n - 2..] == [s, t] && h != s && h != t
            };
            if ty.dtype.is_float() && sizes.iter().any(is) {
                out.push(named(module, g, v));
            }
        }
    }
    out
}

/// Whether a value is used as a table of rotations alone, in its graph or in those that it calls.
fn is_table_of_rotations(g: &Graph, v: ValueId) -> bool {
    let mut todo = vec![v];
    while let Some(v) = todo.pop() {
        for u in &g.value(v).uses {
            let d = g.op(u.op);
            match &d.op {
                Op::Fused(f) if matches!(f.kind, FusedKind::Rope { .. }) && u.index > 0 => {}
                Op::Call(_) | Op::While(_) => {}
                Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Convert(_) | Op::Concatenate(_) => {
                    todo.extend(&d.results);
                }
                // Scaled tables.
                Op::Binary(b) if b.kind == BinaryKind::Multiply => todo.extend(&d.results),
                _ => return false,
            }
        }
    }
    true
}

/// Values as large as the logits of a loss beside the logits themselves, and beside their gradient: what elementwise ops
/// outside make of either. Layout is no value of its own, and a wide copy of narrow logits is told.
fn second_logits(module: &Module, graphs: &[GraphId]) -> Vec<String> {
    let mut out = Vec::new();
    for &g in graphs {
        let g = module.graph(g);
        for (_, d) in g.ops() {
            let start = match &d.op {
                Op::Fused(f) => match f.kind {
                    FusedKind::CrossEntropy { .. } => d.operands[0],
                    FusedKind::CrossEntropyGrad { .. } => d.results[0],
                    _ => continue,
                },
                _ => continue,
            };
            let size = g.ty(start).elements();
            let (mut todo, mut seen) = (vec![start], BTreeSet::from([start]));
            while let Some(v) = todo.pop() {
                let makers = g.def(v).map(|(op, _)| op).into_iter();
                for op in makers.chain(g.value(v).uses.iter().map(|u| u.op)) {
                    let d = g.op(op);
                    let layout = matches!(d.op, Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_));
                    let elementwise =
                        matches!(d.op, Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::Convert(_));
                    if !layout && !elementwise {
                        continue;
                    }
                    for &next in d.operands.iter().chain(&d.results) {
                        let large = g.ty(next).dtype.is_float() && g.ty(next).elements() == size;
                        if large && seen.insert(next) {
                            todo.push(next);
                            if !layout {
                                out.push(named(module, g, next));
                            }
                        }
                    }
                }
            }
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Functions of floats that are outside named operations and no tables.
fn functions(module: &Module, graphs: &[GraphId]) -> Vec<String> {
    use UnaryKind::*;
    let mut out = Vec::new();
    for &g in graphs {
        let g = module.graph(g);
        let tables = tables(g);
        for (_, d) in g.ops() {
            if let Op::Unary(u) = &d.op
                && matches!(u.kind, Exponential | Rsqrt | Erf | Tanh | Sine | Cosine)
                && !d.results.iter().any(|r| tables.contains(r))
                && !(matches!(u.kind, Sine | Cosine) && is_table_of_rotations(g, d.results[0]))
                // Numbers of an optimizer's schedule.
                && g.ty(d.results[0]).elements() > 1
            {
                out.push(named(module, g, d.results[0]));
            }
        }
    }
    out
}

/// Plain ops of a template's forward and backward that are neither products nor constants, by name.
fn left_over(module: &Module, t: &Templates) -> Vec<(String, BTreeMap<&'static str, usize>)> {
    let segments = t.templates.iter().flat_map(|t| &t.segments);
    segments
        .map(|s| {
            let g = module.graph(s.graph);
            let mut by_name: BTreeMap<&'static str, usize> = BTreeMap::new();
            let plain = |d: &&(OpId, &msc_ir::OpData)| {
                !matches!(d.1.op, Op::Fused(_) | Op::DotGeneral(_) | Op::Constant(_) | Op::Barrier(_))
            };
            let all: Vec<(OpId, &msc_ir::OpData)> = g.ops().collect();
            for (_, d) in all.iter().filter(plain) {
                *by_name.entry(d.op.name()).or_default() += 1;
            }
            (g.name.clone(), by_name)
        })
        .collect()
}

#[test]
fn nothing_of_a_named_operation_is_left_outside() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in fixtures() {
        let name = file.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned();
        let (module, templates) = recognised(&file);
        seen += 1;
        let graphs = graphs(&module);
        let mut here = scores(&module, &graphs);
        here.extend(functions(&module, &graphs));
        here.extend(second_logits(&module, &graphs));
        match (KNOWN.iter().find(|k| k.0 == name), here.is_empty()) {
            (None, false) => wrong.push(format!("{name}:\n    {}", here.join("\n    "))),
            (Some((_, why)), true) => wrong.push(format!("{name} has nothing left any more: {why}")),
            _ => {}
        }
        for (segment, ops) in left_over(&module, &templates) {
            let layout = ["broadcast_in_dim", "reshape", "slice", "transpose"];
            let of_layout: usize = layout.iter().filter_map(|n| ops.get(n)).sum();
            let all = ops.values().sum::<usize>();
            println!("{name} @{segment}: {all} plain ops, {of_layout} of them layout {ops:?}");
            let most = LEFT.iter().find(|l| name.starts_with(l.0));
            let most = most.and_then(|l| match () {
                () if segment.ends_with("_forward") => Some(l.1),
                () if segment.ends_with("_backward") => Some(l.2),
                () => None,
            });
            if let Some(most) = most.filter(|&most| all > most) {
                wrong.push(format!("{name} @{segment}: {all} plain ops, not more than {most} {ops:?}"));
            }
            // A step of the optimizer that neither scales losses nor counts steps for each weight is its named op.
            if segment.contains("update") && !UPDATES_WITH_MORE.contains(&name.as_str()) && all > 0 {
                wrong.push(format!("{name} @{segment}: {all} plain ops in the update {ops:?}"));
            }
        }
    }
    assert!(seen >= 8, "fixtures are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
