//! Programs of other MLIR dialects: the message names the dialect, the op's place, and the way to StableHLO.

use msc_frontends::{Code, FrontendError, read_stablehlo_text};

fn refused(text: &str) -> FrontendError {
    read_stablehlo_text("step.mlir", text.as_bytes()).expect_err("it is of another dialect")
}

/// One op in pretty or generic form, with what the advice must contain.
const OPS: &[(&str, &str, &str)] = &[
    ("mhlo", "%0 = mhlo.add %a, %a : tensor<2xf32>", "dialect=\"mhlo\""),
    (
        "mhlo",
        "%0 = \"mhlo.add\"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "legalize-to-stablehlo",
    ),
    (
        "vhlo",
        "%0 = \"vhlo.add_v1\"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "vhlo-legalize",
    ),
    (
        "torch",
        "%0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int -> \
         !torch.vtensor<[2],f32>",
        "output_type=\"stablehlo\"",
    ),
    (
        "onnx",
        "%0 = \"onnx.Add\"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "from the framework",
    ),
    (
        "tf",
        "%0 = \"tf.AddV2\"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "tensorflow_to_stablehlo",
    ),
    ("tosa", "%0 = tosa.add %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>", "lowered already"),
    (
        "linalg",
        "%0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [\"parallel\"]} ins(%a : \
         tensor<2xf32>) outs(%a : tensor<2xf32>) { ^bb0(%x: f32, %y: f32): linalg.yield %x : f32 } -> tensor<2xf32>",
        "lowered already",
    ),
    ("arith", "%0 = arith.constant 0 : index", "lowered already"),
    ("hal", "hal.interface.binding.subspan layout(x) : memref<2xf32>", "lowered already"),
    ("my_own", "%0 = my_own.op %a { anything ? } :: tensor<2xf32>", "export StableHLO: in JAX"),
];

#[test]
fn an_op_of_another_dialect_is_named_with_the_way_out() {
    for (dialect, op, advice) in OPS {
        let e = refused(&format!(
            "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{\n  {op}\n  return %a : tensor<2xf32>\n}}"
        ));
        assert_eq!(e.code(), Code::UnknownOp, "{op}\n{e}");
        let text = e.to_string();
        assert!(text.contains(&format!("of the dialect `{dialect}`")), "{text}");
        assert!(text.contains("step.mlir:2:"), "{text}");
        assert!(text.split("help: ").nth(1).is_some_and(|h| h.contains(advice)), "{text}");
    }
}

#[test]
fn so_is_one_outside_a_function() {
    let e = refused("module { \"ml_program.global\"() {sym_name = \"x\"} : () -> () }");
    assert!(e.to_string().contains("dialect `ml_program`"), "{e}");
}

/// The types of a signature come before any op.
#[test]
fn types_of_other_dialects_give_the_same_advice() {
    for (ty, advice) in [("!torch.vtensor<[2,3],f32>", "torch_mlir"), ("memref<2xf32>", "lowered already")] {
        let e = refused(&format!("func.func @main(%a: {ty}) -> {ty} {{ return %a : {ty} }}"));
        assert_eq!(e.code(), Code::UnsupportedType, "{e}");
        assert!(e.diagnostic().help.as_ref().is_some_and(|h| h.contains(advice)), "{e}");
    }
}

/// An op that StableHLO itself has, or had, is not another dialect's.
#[test]
fn our_own_dialects_are_not_called_foreign() {
    for op in ["stablehlo.fft", "chlo.zeta", "sdy.anything", "func.constant"] {
        let e = refused(&format!(
            "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{ %0 = \"{op}\"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32> }}"
        ));
        assert_eq!(e.code(), Code::UnknownOp, "{e}");
        assert!(e.to_string().contains(&format!("{op} is not supported")), "{e}");
    }
}
