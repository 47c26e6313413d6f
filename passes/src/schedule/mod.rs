//! Schedule: from graphs at local shapes to one instruction list per rank class.
//!
//! Before: a partitioned, fused module. After: a [`Program`] whose instructions compute the default entry. Calls
//! are expanded, so every instance of a layer has its own instructions, and so are loops of known length that communicate or run
//! kernels; each op became an interpreted
//! instruction, kernels, or a collective; collectives are on a stream of their own, and a stream waits for
//! another one exactly where it reads (or overwrites) what the other works on. Buffers are not placed yet: all
//! are at offset 0 until [`crate::memory`] has run.
//!
//! Instructions are in program order. A wait stands as late as it can, directly before the first instruction
//! that needs it, so a collective overlaps with whatever independent work follows it in the program.

mod emit;
mod in_place;

use crate::error::Result;
use emit::Emitter;
use msc_ir::program::{KernelId, Program};
use msc_ir::{GraphId, Module, TensorType};
use std::collections::BTreeMap;

/// What a kernel's argument is to the fused op it implements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Argument {
    /// Operand of the fused op.
    Operand(usize),
    /// Result of the fused op.
    Result(usize),
    /// A temporary between the kernels of one fused op.
    Temporary(usize),
}

/// One launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCall {
    /// The kernel.
    pub kernel: KernelId,
    /// What it reads, in the order of the launch.
    pub reads: Vec<Argument>,
    /// What it writes, in the order of the launch.
    pub writes: Vec<Argument>,
}

/// How a fused op is executed: launches in order, with the temporaries between them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSpec {
    /// The launches.
    pub calls: Vec<KernelCall>,
    /// Types of the temporaries.
    pub temporaries: Vec<TensorType>,
}

/// The kernels of fused ops, by definition. A fused op that is not here is interpreted.
pub type Kernels = BTreeMap<GraphId, KernelSpec>;

/// Schedules a module's default entry for the one rank class that runs it.
///
/// # Errors
/// If the module has no entry.
pub fn schedule(module: &Module, kernels: &Kernels) -> Result<Program> {
    Emitter::new(module, kernels)?.run()
}
