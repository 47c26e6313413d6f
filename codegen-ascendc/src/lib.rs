//! Kernel IR and its back ends: LLVM (CPU), AscendNPU IR and Ascend C.
//!
//! - [`llvm`]: LLVM, for the CPU;
//! - [`tile`]: the kernel IR that all back ends read, its verifier and printer, and
//!   [`tile::build`], the kernel families that produce it.

pub mod llvm;
pub mod tile;
