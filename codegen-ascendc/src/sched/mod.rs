//! Kernel IR, level `sched`: which unit does what, on which pipe, in which copy of a tile, and what waits
//! for what.
//!
//! A [`Program`] holds one list of [`Item`]s per [`Unit`]. An item is an operation that the unit's scalar
//! processor issues to one of its pipes, a flag set or awaited, a barrier, or a loop. Pipes run on their
//! own: only flags and barriers order operations of different pipes, and of one pipe too, since a pipe
//! starts an operation before the one ahead of it has finished. On-chip tiles have *slots*, copies that
//! successive iterations of a loop use in turn, so that a transfer into one overlaps work on another.
//!
//! [`derive()`] makes a program from a [`crate::tile::Kernel`] in four passes, each a file:
//! `lower` (steps to operations of one pipe each, with scratch tiles), `slots` (which tiles get two),
//! `sync` (flags and barriers for every conflict, generously), `prune` (removal of what [`verify`] shows
//! to be unnecessary); where event ids do not suffice it tries again with loads moved together (`hoist`)
//! and then with one slot per tile. [`verify`] shares nothing with them: it executes the items for small
//! trip counts and checks for every pair of conflicting accesses that one is known to be complete before
//! the other.
//!
//! What holds for a program that passes [`verify`]:
//! - conflicting accesses to a slot of a tile, to a region of global memory or to a hand-over are ordered;
//! - every wait has its set, flags are clear at the end, and at most 8 event ids are used per pipe pair;
//! - no unit waits for ever; tiles and their slots fit the memories.
//!
//! # Cube and vector cores
//! Only vector kernels are derived today. A kernel that uses both, such as flash attention, fits like
//! this. It has two unit programs. The cube's runs `MTE2` loads into L1 tiles, `MTE1` loads into L0, `M`
//! matrix steps into an L0C tile, and `FIX` stores; the vector's is as today. What passes between them
//! (the scores S = QKᵀ one way, the probabilities P back, the partial PV) passes through global memory: a
//! [`Handover`] is a workspace of a few slots with a direction. The producer's store writes
//! [`Resource::Handover`], then [`Item::CrossSet`]; the consumer's [`Item::CrossWait`] precedes its load.
//! A second hand-over in the other direction says that a slot is free again. `lower` turns a tile `Copy`
//! between memory classes into that pair; the softmax loop is software-pipelined by the order of the
//! items (S of tile n+1 is issued before PV of tile n). [`verify`] already runs several units against each
//! other, blocks at waits across units and finds missing flags and deadlocks.

mod derive;
mod error;
mod hoist;
mod item;
mod lower;
mod op;
mod operand;
mod program;
mod prune;
mod slots;
mod steps;
mod sync;
mod trace;
mod verify;

pub use derive::derive;
pub use error::{SchedError, Violation};
pub use item::{FlagDecl, FlagId, Handover, HandoverId, Item, Loop, Pipe, Turn, Unit};
pub use op::{Access, Function, Op, Resource};
pub use operand::{Count, Lane, Region, Value};
pub use program::{Program, Tile, TileId, TileUse, UnitProgram};
pub use verify::verify;
