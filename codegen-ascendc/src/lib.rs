//! Kernel IR and its back ends: LLVM (CPU), AscendNPU IR and Ascend C.
//!
//! - [`tile`]: the kernel IR that all back ends read.

pub mod tile;
