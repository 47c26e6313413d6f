//! Verification by the MLIR that this crate links.

use std::collections::BTreeSet;

use melior::Context;
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::ir::operation::{OperationLike, WalkOrder, WalkResult};
use melior::utility::register_all_dialects;

use super::NpuirError;

/// Every operation that emitted modules consist of. The AscendNPU IR compiler was observed to take each.
pub(super) const OPERATIONS: [&str; 50] = [
    "arith.addf",
    "arith.addi",
    "arith.cmpf",
    "arith.cmpi",
    "arith.constant",
    "arith.divf",
    "arith.divsi",
    "arith.extf",
    "arith.fptosi",
    "arith.index_cast",
    "arith.maximumf",
    "arith.minimumf",
    "arith.minsi",
    "arith.mulf",
    "arith.muli",
    "arith.negf",
    "arith.remsi",
    "arith.select",
    "arith.sitofp",
    "arith.subf",
    "arith.subi",
    "arith.truncf",
    "bufferization.materialize_in_destination",
    "bufferization.to_tensor",
    "builtin.module",
    "func.func",
    "func.return",
    "linalg.broadcast",
    "linalg.fill",
    "linalg.generic",
    "linalg.index",
    "linalg.matmul",
    "linalg.reduce",
    "linalg.transpose",
    "linalg.yield",
    "math.absf",
    "math.exp",
    "math.log",
    "math.sqrt",
    "math.tanh",
    "memref.alloc",
    "memref.copy",
    "memref.reinterpret_cast",
    "memref.subview",
    "scf.for",
    "scf.yield",
    "tensor.collapse_shape",
    "tensor.empty",
    "tensor.expand_shape",
    "tensor.extract_slice",
];

/// Parses and verifies a module in MLIR 22 spelling, and checks that it stays within [`OPERATIONS`].
pub(super) fn check(text: &str) -> Result<(), NpuirError> {
    let context = Context::new();
    let registry = DialectRegistry::new();
    register_all_dialects(&registry);
    context.append_dialect_registry(&registry);
    context.load_all_available_dialects();
    let messages = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = std::sync::Arc::clone(&messages);
    context.attach_diagnostic_handler(move |d| {
        if let Ok(mut messages) = sink.lock() {
            messages.push(d.to_string());
        }
        true
    });
    let Some(module) = Module::parse(&context, text) else {
        let messages = messages.lock().map(|m| m.join("; ")).unwrap_or_default();
        return Err(NpuirError::Parse(messages));
    };
    if !module.as_operation().verify() {
        let messages = messages.lock().map(|m| m.join("; ")).unwrap_or_default();
        return Err(NpuirError::Parse(messages));
    }
    let mut unknown = BTreeSet::new();
    module.as_operation().walk(WalkOrder::PreOrder, |op| {
        if let Ok(name) = op.name().as_string_ref().as_str()
            && !OPERATIONS.contains(&name)
        {
            unknown.insert(name.to_owned());
        }
        WalkResult::Advance
    });
    match unknown.into_iter().next() {
        Some(name) => Err(NpuirError::Internal(format!("{name} is not in the table of operations"))),
        None => Ok(()),
    }
}
