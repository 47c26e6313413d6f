//! Programs of other MLIR dialects: which one it is, and how to get StableHLO from where it came.

use crate::error::{Code, FrontendError};

/// The dialects of a StableHLO program.
const OURS: [&str; 5] = ["stablehlo", "chlo", "sdy", "func", "builtin"];

/// How to get StableHLO from the two frameworks.
const EXPORT: &str = "export StableHLO: in JAX `jax.jit(step).lower(*args).as_text()`; in PyTorch write \
    the step with torchax and lower it the same way, or take what torch_xla traced of it";

/// Dialects that sit below StableHLO: from them there is no way back.
const LOWERED: &str = "the program was lowered already, and cannot be raised again: take it from before that pass \
    (`jax.jit(step).lower(*args).as_text()`, or the input of the lowering pipeline)";

/// What a dialect is, and how to get StableHLO instead.
fn known(dialect: &str) -> Option<(&'static str, &'static str)> {
    Some(match dialect {
        "mhlo" | "lmhlo" | "xla_hlo" => (
            "XLA's internal form",
            "take the text without `dialect=\"mhlo\"` (`jax.jit(step).lower(*args).as_text()`), or convert it: \
             `mlir-hlo-opt --hlo-legalize-to-stablehlo`",
        ),
        "vhlo" => (
            "the versioned form of StableHLO in artifacts",
            "give the artifact (`.mlirbc`) itself, or convert the text: `stablehlo-opt --vhlo-legalize-to-stablehlo`",
        ),
        "torch" | "torch_c" => (
            "torch-mlir's",
            "let torch-mlir go on to StableHLO: `torch_mlir.fx.export_and_import(…, output_type=\"stablehlo\")`, or \
             `torch-mlir-opt --torch-backend-to-stablehlo-backend-pipeline`; a training step is exported by torchax \
             or torch_xla",
        ),
        "onnx" | "krnl" => (
            "onnx-mlir's",
            "an ONNX model holds no training step: export the step from the framework it was written in (JAX: \
             `jax.jit(step).lower(*args).as_text()`; PyTorch: torchax or torch_xla)",
        ),
        "tf" | "tf_executor" | "tf_device" | "tf_saved_model" | "tfl" | "tf_type" => (
            "TensorFlow's",
            "convert the SavedModel with TensorFlow's `tensorflow_to_stablehlo`, or compile the step with \
             `jit_compile=True` and export that",
        ),
        "tosa" | "linalg" | "tensor" | "arith" | "math" | "scf" | "cf" | "affine" | "memref"
        | "bufferization" | "vector" | "gpu" | "llvm" | "shape" | "ml_program" | "nvgpu" | "nvvm"
        | "rocdl" | "spirv" | "index" | "async" | "complex" => ("one that StableHLO is lowered to", LOWERED),
        "iree_input" | "util" | "flow" | "stream" | "hal" | "iree_linalg_ext" => ("IREE's", LOWERED),
        "tt" | "ttg" | "triton_gpu" | "hfusion" | "hivm" | "annotation" => ("one for kernels", LOWERED),
        "ttir" | "ttnn" | "ttcore" => ("tt-mlir's", LOWERED),
        "mpmd" => (
            "Shardy's for several programs",
            "export the step as one program (one `jax.jit`), with shardings if you like: msc divides it itself",
        ),
        _ => return None,
    })
}

/// The error for an op of another dialect, without a place; `None` if the dialect is one of StableHLO's.
pub(crate) fn refuse(op: &str) -> Option<FrontendError> {
    let (dialect, _) = op.split_once('.')?;
    if OURS.contains(&dialect) {
        return None;
    }
    let (what, help) = known(dialect).unwrap_or(("one that msc does not know", EXPORT));
    let message = format!("{op} is of the dialect `{dialect}` ({what}), not of StableHLO");
    Some(FrontendError::new(Code::UnknownOp, message).help(help))
}

/// How to get StableHLO in place of a program with this type (`!torch.vtensor<…>`, `memref<…>`).
pub(crate) fn type_help(spelling: &str) -> Option<&'static str> {
    match spelling.strip_prefix('!') {
        Some(s) => known(s.split_once('.')?.0).map(|(_, help)| help),
        None => ["memref<", "vector<"].iter().any(|p| spelling.starts_with(p)).then_some(LOWERED),
    }
}

/// How to get StableHLO in place of bytecode with ops of this dialect.
pub(crate) fn bytecode_help(dialect: &str) -> Option<&'static str> {
    known(dialect).map(|(_, help)| help)
}
