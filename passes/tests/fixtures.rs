//! Real training steps keep every bit through `simplify` and `template`, and their layers are found.
//!
//! Reads the repository's fixtures, and the folder that `MSC_FIXTURES` names if it is set. Programs with ops that
//! are not held yet are skipped, by the reader's own error code; the fixtures named in `LAYERS` must be there.

mod graphs;

use graphs::{Random, assert_same, plain_tensor};
use msc_frontends::npz;
use msc_ir::verify::verify;
use msc_ir::{Module, Tensor};
use msc_passes::simplify::simplify;
use msc_passes::template::{ParamSource, Role, Templates, template};
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo");
    let roots = [Some(own), std::env::var_os("MSC_FIXTURES").map(PathBuf::from)];
    let mut out: Vec<PathBuf> = Vec::new();
    for root in roots.into_iter().flatten() {
        let entries = std::fs::read_dir(root).expect("a folder of fixtures");
        out.extend(entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()));
    }
    out.sort();
    out
}

/// The program of a folder in the first form that is there and that the reader holds.
fn program(folder: &Path) -> Option<Module> {
    ["model.mlir", "model.mlirbc", "model.export.mlir"]
        .iter()
        .map(|f| folder.join(f))
        .filter(|p| p.exists())
        .find_map(|p| match msc_frontends::read_file(&p) {
            Ok(i) => Some(i.module),
            Err(e) => {
                eprintln!("{}: {e}", p.display());
                None
            }
        })
}

fn inputs(folder: &Path, module: &Module) -> Vec<Tensor> {
    let file = folder.join("inputs.npz");
    let types = module.graph(module.entry().expect("entry").graph).param_types();
    if file.exists() {
        let held = npz::read(&file).expect("inputs");
        let named = |i: usize| held.get(&format!("in{i:04}")).expect("an input");
        return types.iter().enumerate().map(|(i, t)| npz::fit(named(i), t).expect("fits")).collect();
    }
    let mut random = Random::new(7);
    types.iter().map(|t| plain_tensor(t, &mut random)).collect()
}

/// Checks a program before and after both passes, and returns what was found.
fn check(folder: &Path, before: &Module) -> Templates {
    let name = folder.file_name().expect("a name").to_string_lossy();
    let x = inputs(folder, before);
    let mut simple = before.clone();
    simplify(&mut simple).expect("simplifies");
    verify(&simple).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut after = simple.clone();
    let found = template(&mut after).expect("templates");
    verify(&after).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_same(before, &simple, &x);
    assert_same(&simple, &after, &x);
    consistent(&after, &found);
    found
}

/// Every call is what its segment says: the graph, and each parameter's source.
fn consistent(module: &Module, found: &Templates) {
    let entry = module.graph(module.entry().expect("entry").graph);
    for t in &found.templates {
        for s in &t.segments {
            assert_eq!(s.calls.len(), t.instances);
            assert_eq!(s.params.len(), module.graph(s.graph).params().len());
            for (i, &call) in s.calls.iter().enumerate() {
                let data = entry.op(call);
                assert!(matches!(data.op, msc_ir::Op::Call(c) if c.graph == s.graph));
                for (p, (&v, source)) in data.operands.iter().zip(&s.params).enumerate() {
                    let from = |segment: usize, result: usize, instance: usize| {
                        entry.op(t.segments[segment].calls[instance]).results[result]
                    };
                    match *source {
                        ParamSource::FromSegment { segment, result } => {
                            assert_eq!(v, from(segment, result, i))
                        }
                        ParamSource::Carry { segment, result, offset } => {
                            let at = i as i64 + i64::from(offset);
                            if (0..t.instances as i64).contains(&at) {
                                assert_eq!(v, from(segment, result, at as usize));
                            }
                        }
                        ParamSource::Shared => {
                            assert!(s.calls.iter().all(|&c| entry.op(c).operands[p] == v));
                        }
                        ParamSource::Instance => {}
                    }
                }
            }
        }
    }
}

fn found(name: &str) -> Templates {
    let folder = folders().into_iter().find(|f| f.ends_with(name)).expect("the fixture");
    let module = program(&folder).expect("the program");
    check(&folder, &module)
}

#[test]
fn two_layers_are_one_template() {
    let t = found("llama_torchax_tiny");
    let [layer] = &t.templates[..] else { panic!("{:?}", t.notes) };
    assert_eq!(layer.instances, 2);
    let roles: Vec<Role> = layer.segments.iter().map(|s| s.role).collect();
    assert_eq!(roles, [Role::Forward, Role::Backward, Role::Update]);
    let carried = |s: usize| {
        layer.segments[s]
            .params
            .iter()
            .filter_map(|p| match p {
                ParamSource::Carry { segment, offset, .. } if *segment == s => Some(*offset),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    // Only the residual stream crosses, up in forward and down in backward.
    assert_eq!(carried(0), [-1]);
    assert_eq!(carried(1), [1]);
    assert!(carried(2).is_empty());
    // The nine weights of a layer.
    let own = layer.segments[0].params.iter().filter(|p| **p == ParamSource::Instance).count();
    assert_eq!(own, 9);
    assert!(!t.prologue.is_empty() && t.notes.is_empty(), "{:?}", t.notes);
}

#[test]
fn every_fixture_keeps_every_bit() {
    let mut seen = 0;
    for folder in folders() {
        let Some(module) = program(&folder) else { continue };
        // The rest of the versions' folder are single ops without an entry of layers.
        if module.graph(module.entry().expect("entry").graph).order().len() < 300 {
            continue;
        }
        let t = check(&folder, &module);
        seen += 1;
        println!("{}: {} templates", folder.display(), t.templates.len());
        // Of two layers with one that needs no gradient below it, only the forward repeats.
        let adapters = folder.ends_with("llama_lora");
        if adapters {
            assert!(
                t.notes.iter().any(|n| n.starts_with("part of the layers is no template")),
                "{:?}",
                t.notes
            );
        }
        // One layer.
        let one = folder.ends_with("parallel_sinks_jax");
        assert!(
            one || adapters || !t.templates.is_empty() || !t.loops.is_empty(),
            "{}: {:?}",
            folder.display(),
            t.notes
        );
    }
    assert!(seen > 0);
}
