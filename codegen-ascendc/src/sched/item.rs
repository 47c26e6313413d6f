//! Units, pipes, flags, hand-overs, and the items of a unit's program.

use std::fmt;

use super::Op;
use crate::tile::{Affine, Bound, DType, LoopId};

/// A kind of core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Vector core.
    Aiv,
    /// Cube core.
    Aic,
}

/// A pipe: operations issued to it start in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pipe {
    /// The scalar processor itself.
    S,
    /// Vector arithmetic (vector core).
    V,
    /// Matrix steps (cube core).
    M,
    /// L1 to L0A and L0B (cube core).
    Mte1,
    /// Global memory to the unified buffer or to L1.
    Mte2,
    /// Unified buffer to global memory (vector core).
    Mte3,
    /// L0C to global memory (cube core).
    Fix,
}

impl Pipe {
    /// All pipes, in declaration order.
    pub const ALL: [Pipe; 7] = [Pipe::S, Pipe::V, Pipe::M, Pipe::Mte1, Pipe::Mte2, Pipe::Mte3, Pipe::Fix];

    /// Whether cores of the kind have the pipe.
    pub const fn is_of(self, unit: Unit) -> bool {
        match unit {
            Unit::Aiv => matches!(self, Pipe::S | Pipe::V | Pipe::Mte2 | Pipe::Mte3),
            Unit::Aic => matches!(self, Pipe::S | Pipe::M | Pipe::Mte1 | Pipe::Mte2 | Pipe::Fix),
        }
    }
}

/// Prints the name as Ascend C spells it behind `PIPE_`.
impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pipe::S => "S",
            Pipe::V => "V",
            Pipe::M => "M",
            Pipe::Mte1 => "MTE1",
            Pipe::Mte2 => "MTE2",
            Pipe::Mte3 => "MTE3",
            Pipe::Fix => "FIX",
        })
    }
}

/// Index into [`Program::flags`](super::Program::flags).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlagId(pub u32);

/// A flag from one pipe of a unit to another: `slots` event ids of that pipe pair, used in turn.
///
/// Setting it happens when everything issued to `src` before has finished; waiting stops `dst`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlagDecl {
    /// Unit whose pipes it orders.
    pub unit: Unit,
    /// Pipe that sets it.
    pub src: Pipe,
    /// Pipe that waits for it.
    pub dst: Pipe,
    /// Number of event ids, at least 1.
    pub slots: u32,
    /// First event id: the flag has `id .. id + slots`, all below 8.
    pub id: u32,
}

/// Which of several slots an item means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// This one.
    Fixed(u32),
    /// The number of the loop's current iteration (from 0), modulo the number of slots.
    Of(LoopId),
}

/// Index into [`Program::handovers`](super::Program::handovers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandoverId(pub u32);

/// Data or permission that passes from one unit to another through global memory.
///
/// The counter behind a cross-core flag has 4 bits: at most 15 sets may be ahead of the waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handover {
    /// What passes, for reading.
    pub name: String,
    /// Unit that sets.
    pub from: Unit,
    /// Unit that waits.
    pub to: Unit,
    /// Cross-core flag id, below 16.
    pub id: u32,
    /// Element type of the workspace.
    pub dtype: DType,
    /// Rows and columns of one slot of the workspace; `[0, 0]` if only permission passes.
    pub shape: [i64; 2],
    /// Slots of the workspace, used in turn; at least 1.
    pub slots: u32,
}

/// A counted loop over items. The variable takes `start, start + step, …` while it is less than `end`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Loop {
    /// The loop's number in the tile kernel.
    pub id: LoopId,
    /// What the loop runs over, for reading.
    pub name: String,
    /// First value.
    pub start: Affine,
    /// Exclusive end.
    pub end: Bound,
    /// Increment, at least 1.
    pub step: i64,
    /// The items of one iteration.
    pub body: Vec<Item>,
}

/// One item of a unit's program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Item {
    /// An operation, issued to its pipe.
    Op(Op),
    /// Sets a flag when its source pipe has finished what was issued so far.
    Set(FlagId, Turn),
    /// Stops the flag's destination pipe until the flag is set, and clears it.
    Wait(FlagId, Turn),
    /// The pipe's next operation starts when all its earlier ones have finished.
    Barrier(Pipe),
    /// Signals the other unit when the pipe has finished what was issued so far.
    CrossSet(HandoverId, Pipe),
    /// Stops the pipe until the other unit's next signal.
    CrossWait(HandoverId, Pipe),
    /// A loop.
    For(Loop),
}
