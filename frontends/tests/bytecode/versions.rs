//! The same module written at every VHLO version at which the container or one of its ops changed.

use crate::artifact::Artifact;
use crate::fixture;
use crate::render::render;
use msc_frontends::{Code, mlir_bytecode};

const VERSIONS: [&str; 15] = [
    "0.9.0", "0.11.0", "0.12.0", "0.14.0", "0.15.0", "0.20.0", "1.1.0", "1.5.0", "1.6.0", "1.9.0", "1.10.0",
    "1.12.0", "1.14.0", "1.17.0", "1.18.0",
];

/// Attributes are given in stored order, which is alphabetical in every version, so the rendered forms are equal
/// to the letter.
#[test]
fn every_version_gives_the_same_raw_form() {
    let newest = fixture("versions/ops.1.22.0.mlirbc");
    let newest = render(&mlir_bytecode::read("newest", &newest).unwrap());
    for expected in [
        "stablehlo.triangular_solve",
        "dense [77, 3] : Tensor { dims: [Some(10)], elem: Int(1) }",
        "dense [255] : Tensor { dims: [Some(3)], elem: Int(1) }",
        "dense [1, 14, 7] : Tensor { dims: [Some(3)], elem: Int(4) }",
        "precision_config = [Word(\"HIGHEST\"), Word(\"DEFAULT\")]",
        "dot{lhs_contracting_dimensions = Ints([1]), rhs_contracting_dimensions = Ints([0])}",
        "channel_handle = channel_handle{handle = 3 : Scalar(Int(64)), type = 0 : Scalar(Int(64))}",
        "use_global_device_ids = Unit",
        "window_reversal = Ints([0, 1])",
        "api_version = 2 : Scalar(Int(32))",
        "callee = Symbol(\"helper\")",
        "epsilon = 0.0010000000474974513 : Scalar(F32)",
        "mhlo.frontend_attributes = {a = Str(\"b\")}",
    ] {
        assert!(newest.contains(expected), "{expected}");
    }
    for version in VERSIONS {
        let bytes = fixture(&format!("versions/ops.{version}.mlirbc"));
        let text = render(&mlir_bytecode::read(version, &bytes).unwrap());
        for (old, new) in text.lines().zip(newest.lines()) {
            assert_eq!(old, new, "{version}");
        }
        assert_eq!(text.lines().count(), newest.lines().count(), "{version}");
    }
}

/// What `jax.export` serialises, and the artifact cut out of it.
#[test]
fn jax_export_container() {
    let bytes = fixture("versions/export.bin");
    assert!(mlir_bytecode::is_bytecode(&bytes));
    let whole = mlir_bytecode::read("export.bin", &bytes).unwrap();
    let start = mlir_bytecode::export::locate(&bytes).unwrap();
    let bare = mlir_bytecode::read("bare", &bytes[start.clone()]).unwrap();
    assert_eq!(render(&whole), render(&bare));
    assert!(render(&whole).contains("stablehlo.tanh"));
    // Places are offsets in the file that the user has.
    assert_eq!(whole.body[0].at, bare.body[0].at + start.start);
    let at = whole.body[0].at;
    let mut damaged = bytes.clone();
    damaged[at] = 0xFF;
    let error = mlir_bytecode::read("export.bin", &damaged).unwrap_err().to_string();
    assert!(error.contains(&format!("export.bin, byte {at}")), "{error}");
}

#[test]
fn the_dialect_itself_is_refused_with_advice() {
    let bytes = fixture("versions/plain_dialect.mlirbc");
    let error = mlir_bytecode::read("model.mlirbc", &bytes).unwrap_err();
    assert_eq!(error.code(), Code::UnsupportedForm);
    let text = error.to_string();
    assert!(text.contains("not a StableHLO portable artifact"), "{text}");
    assert!(text.contains("export a portable artifact"), "{text}");
}

/// Bytecode of another dialect is told apart from bytecode of StableHLO that cannot be carried about.
#[test]
fn other_dialects_are_refused_with_how_to_leave_them() {
    for (dialect, advice) in [("torch", "torch_mlir.fx.export_and_import"), ("linalg", "lowered already")] {
        let a = Artifact { dialects: vec!["builtin", dialect], ..Artifact::identity() };
        let error = mlir_bytecode::read("model.mlirbc", &a.build()).unwrap_err();
        assert_eq!(error.code(), Code::UnsupportedForm, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("`{dialect}`")) && text.contains(advice), "{text}");
    }
}

/// Forms of the later versions, and attributes that are kept as text in the file.
#[test]
fn later_forms() {
    let bytes = fixture("versions/mixed.1.22.0.mlirbc");
    let text = render(&mlir_bytecode::read("mixed", &bytes).unwrap());
    for expected in [
        "result_accuracy = Other(\"#stablehlo.result_accuracy<atol = 0e0, rtol = 0e0, ulps = 10, ",
        "algorithm = dot_algorithm{lhs_precision_type = Scalar(Other(\"tf32\")), ",
        "replica_groups = replica_group_mesh_axes{mesh = Str(\"mesh\"), axes = [axis_ref{name = Str(\"x\")}]}",
        "[10: Tensor { dims: [Some(4), Some(8)], elem: F32 }, 11: Tensor { dims: [Some(4), Some(8)], elem: F32 }] \
         = stablehlo.all_reduce [8, 7]",
        "composite_attributes = {n = 1 : Scalar(Int(32))}, decomposition = Symbol(\"dec\"), name = Str(\"my.op\")",
        "chlo.top_k [15] {k = 2 : Scalar(Int(64))}",
        "axes: [AxisRef { name: \"y\", sub: Some((1, 2)) }], open: false, priority: 0",
        "axes: [AxisRef { name: \"x\", sub: None }], open: true, priority: 1",
        "precision_config = [Word(\"DEFAULT\"), Word(\"HIGH\")]",
        "ragged_dot{lhs_contracting_dimensions = Ints([1]), rhs_contracting_dimensions = Ints([1]), ",
        "Tensor { dims: [None, Some(4)], elem: F32 }",
        "Tensor { dims: [Some(3)], elem: Other(\"f8E4M3FN\") }",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

/// Mixed files: casts between the dialects' types vanish, Shardy's and CHLO's ops stay.
#[test]
fn mixed_dialects() {
    for (path, expected) in [
        ("llama_flax_dp2_tp4_tiny/model.direct_mixed.mlirbc", ["chlo.square", "sdy.mesh"]),
        ("llama_maxtext_fsdp2_tp2_tiny/model.mlirbc", ["sdy.sharding_constraint", "sdy.mesh"]),
    ] {
        let bytes = fixture(path);
        let text = render(&mlir_bytecode::read(path, &bytes).unwrap());
        assert!(!text.contains("unrealized_conversion_cast"), "{path}");
        assert!(!text.contains("Other(") && !text.contains("vhlo."), "{path}");
        for e in expected {
            assert!(text.contains(e), "{path}: {e}");
        }
    }
}
