//! MLIR bytecode: versions, fixtures, hostile files, mutated files.

#[path = "bytecode/artifact.rs"]
mod artifact;
#[path = "bytecode/containers.rs"]
mod containers;
#[path = "bytecode/hostile.rs"]
mod hostile;
#[path = "bytecode/memory.rs"]
mod memory;
#[path = "bytecode/mutation.rs"]
mod mutation;
#[path = "bytecode/render.rs"]
mod render;
#[path = "bytecode/versions.rs"]
mod versions;

/// A file below `fixtures/stablehlo`.
fn fixture(path: &str) -> Vec<u8> {
    let path = format!("{}/../fixtures/stablehlo/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}
