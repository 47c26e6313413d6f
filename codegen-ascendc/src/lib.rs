//! Kernel IR and its back ends: LLVM (CPU), AscendNPU IR and Ascend C.
//!
//! - [`definition`]: from the definition of a fused op to a kernel family;
//! - [`llvm`]: LLVM, for the CPU;
//! - [`npuir`]: AscendNPU IR, for the vendor's MLIR compiler;
//! - [`tile`]: the kernel IR that all back ends read, its verifier and printer, and
//!   [`tile::build`], the kernel families that produce it.

pub mod definition;
pub mod llvm;
pub mod npuir;
pub mod tile;
