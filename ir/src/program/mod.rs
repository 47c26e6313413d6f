//! Programs: what a rank class executes, a list of instructions over buffers and streams.
//!
//! A [`Program`] is made by the schedule and memory stages, written to `plan.bin`, and walked by the executor.
//! Nothing in it depends on a number of ranks beyond its [`RankClass`]: ranks that run the same instructions at
//! the same buffer offsets share one program, and learn their own position from the mesh at start.
//!
//! What holds (checked by [`check`], [`types`] and [`agree`]):
//! - instructions of one stream run in list order; between streams only [`Action::Wait`] orders;
//! - a buffer is written before it is read, by an instruction that happens before the reader;
//! - two buffers whose bytes overlap are never live at once under that happens-before relation;
//! - ops fit the types of their buffers; collectives run on communication streams, all else on others;
//! - every communicator sees its operations in one order, because they are all on one stream, and in the same
//!   order on all its ranks;
//! - each rank of the mesh is in one rank class, and no wait-for cycle runs through ranks and streams.

pub mod agree;
pub mod check;
pub mod types;

use crate::constant::ConstId;
use crate::location::LocId;
use crate::module::{AxisId, Entry, Mesh};
use crate::op::Op;
use crate::ops::collective::Axes;
use crate::types::TensorType;
use smallvec::SmallVec;
use std::sync::Arc;

/// Index of a buffer in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BufferId(pub u32);

/// Index of a stream in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u32);

/// Index of an instruction in its program's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InstructionId(pub u32);

/// Index of a kernel in its plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KernelId(pub u32);

/// Index of a communicator in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CommunicatorId(pub u32);

/// What a stream's instructions run on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum StreamKind {
    /// Compute: cube and vector cores (on the CPU back end, the rank's compute thread).
    Compute,
    /// Collectives and point-to-point messages.
    Communication,
    /// Copies between device and host memory.
    Swap,
}

impl StreamKind {
    /// Every kind.
    pub const ALL: [StreamKind; 3] = [StreamKind::Compute, StreamKind::Communication, StreamKind::Swap];

    /// Name in plans and reports.
    pub fn name(self) -> &'static str {
        match self {
            StreamKind::Compute => "compute",
            StreamKind::Communication => "communication",
            StreamKind::Swap => "swap",
        }
    }
}

/// Where a buffer's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Placement {
    /// At a byte offset of the rank's arena; offsets are multiples of [`ALIGNMENT`].
    Arena(u64),
    /// In the plan's constant section, read only.
    Constant(ConstId),
}

/// Alignment of arena offsets, in bytes: the size of an HBM access on Ascend 910B for full bandwidth.
pub const ALIGNMENT: u64 = 512;

/// A piece of memory that holds one tensor at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Type of the tensor in it.
    pub ty: TensorType,
    /// Where it is.
    pub placement: Placement,
    /// The user's name for the value, or empty.
    pub name: Arc<str>,
}

/// Buffers of an instruction, in order.
pub type Buffers = SmallVec<[BufferId; 4]>;

/// What an instruction does with its reads and writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Evaluates an op (of the plan's module, for ops that call graphs) as the interpreter does. An op of a graph
    /// that runs several times is one, shared by all the instructions that it becomes.
    Interpret(Arc<Op>),
    /// Runs a compiled kernel over its grid. Arguments are the reads (tensors that it may load, then run-time
    /// scalars), then the writes (tensors that it may store). A tensor that it updates in place is in both.
    Kernel(KernelId),
    /// Calls a library (`gemm`, an aclnn op) by name; the op says with which attributes.
    LibraryCall {
        /// Name in the capability table.
        library: String,
        /// The op that the call computes.
        op: Op,
    },
    /// A collective of the communicator's group, in place or not.
    Collective {
        /// The communicator.
        communicator: CommunicatorId,
        /// The collective.
        op: Op,
    },
    /// Sends the read to the peer at an offset in the communicator's group; offsets wrap around.
    Send {
        /// The communicator.
        communicator: CommunicatorId,
        /// Peer, relative to this rank's position in the group.
        offset: i32,
    },
    /// Receives the write from the peer at an offset in the communicator's group; offsets wrap around.
    Receive {
        /// The communicator.
        communicator: CommunicatorId,
        /// Peer, relative to this rank's position in the group.
        offset: i32,
    },
    /// Copies the read to the write.
    Copy,
    /// The stream goes on only after that instruction (of another stream, earlier in the list) is complete.
    Wait(InstructionId),
}

impl Action {
    /// The op that it evaluates, calls a library for, or communicates by.
    pub fn op(&self) -> Option<&Op> {
        match self {
            Action::Interpret(op) => Some(op),
            Action::LibraryCall { op, .. } | Action::Collective { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Name in plans, traces and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Interpret(_) => "interpret",
            Action::Kernel(_) => "kernel",
            Action::LibraryCall { .. } => "library_call",
            Action::Collective { .. } => "collective",
            Action::Send { .. } => "send",
            Action::Receive { .. } => "receive",
            Action::Copy => "copy",
            Action::Wait(_) => "wait",
        }
    }
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// The stream it is in.
    pub stream: StreamId,
    /// What it does.
    pub action: Action,
    /// Buffers it reads, in operand order.
    pub reads: Buffers,
    /// Buffers it writes, in result order.
    pub writes: Buffers,
    /// Where it comes from.
    pub loc: LocId,
}

/// A group of ranks that communicate: those that differ along these mesh axes only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Communicator {
    /// The axes.
    pub axes: Axes,
}

/// The ranks that run one program: all coordinates along `free`, the fixed coordinates along the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RankClass {
    /// Fixed coordinates; an axis that is absent is free.
    pub fixed: Vec<(AxisId, usize)>,
}

impl RankClass {
    /// Whether a rank of the mesh belongs to the class.
    pub fn contains(&self, mesh: &Mesh, rank: usize) -> bool {
        self.fixed.iter().all(|&(a, c)| mesh.coordinate(rank, a) == c)
    }
}

/// What one rank class executes in one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Who runs it.
    pub class: RankClass,
    /// The mesh that ranks are numbered in.
    pub mesh: Mesh,
    /// What the outside knows of inputs and outputs; shardings say which block a rank holds.
    pub entry: Entry,
    /// Streams.
    pub streams: Vec<StreamKind>,
    /// Communicators.
    pub communicators: Vec<Communicator>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// One buffer per parameter of the entry. Inputs stay valid for the whole step, donated ones until their
    /// last read.
    pub inputs: Vec<BufferId>,
    /// One buffer per result of the entry, valid at the end of the step.
    pub outputs: Vec<BufferId>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
}

impl Program {
    /// A buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Byte range of a buffer in the arena, if it is there.
    pub fn arena_range(&self, id: BufferId) -> Option<std::ops::Range<u64>> {
        let b = self.buffers.get(id.0 as usize)?;
        match b.placement {
            Placement::Arena(at) => Some(at..at + b.ty.bytes() as u64),
            Placement::Constant(_) => None,
        }
    }
}
