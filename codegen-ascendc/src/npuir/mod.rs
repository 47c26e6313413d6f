//! Back end 2: AscendNPU IR. Tile kernels as MLIR in the tile form that `bishengir-compile` takes.
//!
//! The form consists of upstream dialects only ([a closed list of operations](OPERATIONS)): regions of
//! global memory are strided memrefs, tiles are tensors, loops are `scf.for`. The compiler plans on-chip
//! memory and synchronises by itself.
//!
//! The compiler is built on MLIR 19 and this crate links MLIR 22, so the text is printed by this module
//! and not by MLIR. [`check`] verifies it with MLIR 22: the two spellings differ in one operation,
//! `bufferization.to_tensor`, and come from the same code.
//!
//! Launch signature: `(lock, workspace, tensors…, scalars…, grid sizes x y z, block number x y z)`; the
//! grid is launched one-dimensional, with the number of blocks as its x size.

mod check;
mod emit;
mod operand;
mod region;
mod text;

use thiserror::Error;

pub use text::Spelling;

use crate::tile::Kernel;

/// Operations that emitted modules consist of.
pub const OPERATIONS: &[&str] = &check::OPERATIONS;

/// Why no module could be emitted. None of these is the user's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NpuirError {
    /// The tile form has no way to say this.
    #[error("N001: AscendNPU IR has no form for {0}")]
    Unsupported(String),
    /// MLIR rejects the emitted text.
    #[error("N002: MLIR rejects the module: {0}")]
    Parse(String),
    /// The emitter made a mistake, or the kernel was not verified.
    #[error("N003: emission failed: {0}")]
    Internal(String),
}

/// A verified kernel as a module.
///
/// # Errors
/// See [`NpuirError`].
pub fn emit(kernel: &Kernel, spelling: Spelling) -> Result<String, NpuirError> {
    emit::module(kernel, spelling)
}

/// Verifies a kernel's module with MLIR 22.
///
/// # Errors
/// [`NpuirError::Parse`] with MLIR's messages.
pub fn check(kernel: &Kernel) -> Result<(), NpuirError> {
    check::check(&emit(kernel, Spelling::Mlir22)?)
}
