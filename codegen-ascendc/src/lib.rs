//! Kernel IR and its back ends: LLVM (CPU), AscendNPU IR and Ascend C.
//!
//! - [`ascendc`]: Ascend C source, and its execution on the host by the emulator;
//! - [`definition`]: from the definition of a fused op to a kernel family;
//! - [`llvm`]: LLVM, for the CPU;
//! - [`npuir`]: AscendNPU IR, for the vendor's MLIR compiler;
//! - [`sched`]: units, pipes, slots and flags, derived from `tile`, which Ascend C alone reads;
//! - [`tile`]: the kernel IR that all back ends read, its verifier and printer, and
//!   [`tile::build`], the kernel families that produce it.

pub mod ascendc;
pub mod definition;
pub mod llvm;
pub mod npuir;
pub mod sched;
pub mod tile;
