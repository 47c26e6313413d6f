//! What one layer of each family is after recognition, and how large its e-graph was.
//!
//! A changed snapshot is accepted with `INSTA_UPDATE=always`; sizes change with every rule.

use msc_passes::recognise::{Report, recognise};
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use msc_tests::fixture;
use std::fmt::Write;

/// The e-graphs of a step and the segments of its first template, as text.
fn shown(name: &str) -> String {
    let mut module = msc_frontends::read_file(&fixture(name).join("model.mlir")).expect("imports").module;
    simplify(&mut module).expect("simplifies");
    let mut templates = template(&mut module).expect("finds templates");
    let report: Report = recognise(&mut module, &mut templates).expect("recognises");
    let mut out = String::new();
    for r in &report.regions {
        let names = r.graphs.join(", ");
        let _ = writeln!(
            out,
            "e-graph of {names}: {} nodes in {} classes after {} rounds, {}",
            r.nodes,
            r.classes,
            r.iterations,
            r.stop.name()
        );
        assert_eq!(r.stop.name(), "saturated", "{name}: {names}");
    }
    for s in templates.templates.first().map(|t| t.segments.as_slice()).unwrap_or_default() {
        let text = msc_ir::text::print_graph(&module, module.graph(s.graph), Default::default());
        let _ = write!(out, "\n{text}");
    }
    out
}

#[test]
fn a_layer_of_each_family() {
    for name in [
        "llama_torchax_tiny",
        "gpt2_dropout_flax_tiny",
        "qwen2_torchax_bf16master_tiny",
        "mixtral_torchax_tiny",
        "llama_torchxla_tiny",
    ] {
        insta::assert_snapshot!(name, shown(name));
    }
}
