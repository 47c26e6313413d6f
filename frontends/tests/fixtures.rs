//! Real training steps: every text form imports, and the interpreter gives the outputs that XLA gives.
//!
//! The fixtures are those in the repository, and those of the folder that `MSC_FIXTURES` names.
//! Tolerances are those between two independent compilers on these files, as `fixtures/README.md` gives them.

mod common;

use common::{Fixture, fixtures};
use msc_frontends::Site;
use msc_frontends::layout::Layout;
use msc_ir::interp::{Mode, run};

#[test]
fn pretty_and_generic_text_are_one_module() {
    for f in fixtures() {
        let (Some(a), Some(b)) = (f.import("model.mlir"), f.import("model.generic.mlir")) else { continue };
        let (a, b) = (msc_ir::text::print(&a.module), msc_ir::text::print(&b.module));
        if a != b {
            let at = a.lines().zip(b.lines()).position(|(x, y)| x != y).unwrap_or(0);
            let line = |s: &str| s.lines().nth(at).unwrap_or("").to_string();
            panic!("{}: line {at} differs\n  pretty:  {}\n  generic: {}", f.name, line(&a), line(&b));
        }
    }
}

/// Bytecode against the text of the same stage: the export's, and for files that were written without legalising
/// CHLO the program's own. The bytecode has debug locations, and so names of arguments, that the text was printed
/// without.
#[test]
fn bytecode_and_its_text_are_one_module() {
    let mut compared = 0;
    for f in fixtures() {
        let has_export = f.has("model.export.mlir");
        for (bytecode, text) in [
            ("model.mlirbc", if has_export { "model.export.mlir" } else { "model.mlir" }),
            ("model.direct_mixed.mlirbc", "model.mlir"),
        ] {
            // Shardy files are exported with CHLO legalised, and have no text of that stage.
            if bytecode == "model.mlirbc" && f.has("model.direct_mixed.mlirbc") {
                continue;
            }
            let (Some(mut a), Some(mut b)) = (f.import(bytecode), f.import(text)) else { continue };
            for m in [&mut a.module, &mut b.module] {
                m.entries.iter_mut().flat_map(|e| &mut e.params).for_each(|p| p.name.clear());
            }
            let (x, y) = (msc_ir::text::print(&a.module), msc_ir::text::print(&b.module));
            assert!(x == y, "{} {bytecode}: {:?}", f.name, x.lines().zip(y.lines()).find(|(x, y)| x != y));
            assert_eq!(a.annotations, b.annotations, "{} {bytecode}", f.name);
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn every_form_verifies() {
    for f in fixtures() {
        for form in [
            "model.mlir",
            "model.generic.mlir",
            "model.export.mlir",
            "model.mlirbc",
            "model.direct_mixed.mlirbc",
        ] {
            let Some(i) = f.import(form) else { continue };
            if let Err(e) = msc_ir::verify::verify(&i.module) {
                panic!("{} {form}: {e}", f.name);
            }
            let entry = i.module.entry().unwrap();
            assert!(!entry.params.is_empty(), "{}: no parameters", f.name);
        }
    }
}

#[test]
fn annotations_are_a_layout() {
    for f in fixtures() {
        for form in ["model.mlir", "model.mlirbc", "model.direct_mixed.mlirbc"] {
            let Some(i) = f.import(form) else { continue };
            let l = Layout::of(&i).unwrap_or_else(|e| panic!("{} {form}: {e}", f.name));
            let annotated = i.annotations.shardings.iter().any(|(s, _)| !matches!(s, Site::Value(..)));
            assert_eq!(l.is_some(), annotated, "{} {form}", f.name);
            let given = l.params.iter().flatten().count();
            println!("{} {form}: {:?}, {given} parameters, {} inner, {:?}", f.name, l.mesh, l.inner, l.notes);
        }
    }
}

#[test]
fn the_interpreter_gives_the_reference_outputs() {
    for f in fixtures() {
        check_outputs(&f, "model.mlir");
    }
}

#[test]
fn the_exported_form_gives_the_reference_outputs() {
    for f in fixtures() {
        check_outputs(&f, "model.export.mlir");
    }
}

fn check_outputs(f: &Fixture, form: &str) {
    let Some(imported) = f.import(form) else { return };
    let entry = imported.module.entry().unwrap().clone();
    let types = imported.module.graph(entry.graph).param_types();
    let Some((inputs, want)) = f.tensors(&types) else { return };
    let got = run(&imported.module, entry.graph, &inputs, Mode::Spec)
        .unwrap_or_else(|e| panic!("{} {form}: {e}", f.name));
    let worst = f.expect(&imported.module, &entry, &inputs, &got, &want);
    println!("{} {form}: {worst}", f.name);
}
