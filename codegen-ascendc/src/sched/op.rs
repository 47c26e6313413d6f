//! Operations: what one pipe is asked to do.

use super::{Count, HandoverId, Lane, Pipe, Region, TileId, Value};
use crate::tile::{BinaryOp, DType, Num, ParamId, ReduceOp, View};

/// One operation. Every operation belongs to one pipe. Tiles are the current slots.
///
/// A printer may turn an operation into several instructions; those are independent of each other, or it
/// orders them itself ([`Op::FoldRows`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Global memory to a tile (`MTE2`). Each run is padded with `fill` to the end of its last block.
    Load {
        /// Destination.
        dst: TileId,
        /// Source.
        from: Box<Region>,
        /// Padding.
        fill: Num,
    },
    /// Sets what a [`Load`](Op::Load) of `rows` by `lanes` left unset in the tile (`V`): later rows, and
    /// blocks behind a shortened run. Touches no byte that the load wrote.
    Pad {
        /// Destination of the load.
        dst: TileId,
        /// Runs that the load transferred.
        rows: Count,
        /// Elements of each run.
        lanes: Count,
        /// The value.
        fill: Num,
    },
    /// A tile to global memory (`MTE3`).
    Store {
        /// Source.
        src: TileId,
        /// Destination.
        to: Box<Region>,
    },
    /// Sets every lane, the padding of rows included (`V`).
    Duplicate {
        /// Destination.
        dst: TileId,
        /// The value.
        value: Value,
    },
    /// Zeroes all slots of a tile whose tail nothing else writes but a [`Spread`](Op::Spread) reads (`V`).
    Clear {
        /// Destination.
        dst: TileId,
    },
    /// Block `r` of the destination becomes 8 copies of lane `r` of the source (`V`).
    Spread {
        /// Destination: 8 lanes per lane of the source.
        dst: TileId,
        /// Source: a column or a single value.
        src: TileId,
    },
    /// Element-wise function of a tile of the same shape (`V`).
    Unary {
        /// The function.
        op: Function,
        /// Destination; may be the source.
        dst: TileId,
        /// Source.
        src: TileId,
    },
    /// `dst = src op value` (`V`). `Mul` by 1 copies, repeating rows and columns.
    WithScalar {
        /// `Add`, `Mul`, `Max` or `Min`.
        op: BinaryOp,
        /// Destination; may be the source.
        dst: TileId,
        /// Source.
        src: Lane,
        /// The scalar.
        value: Value,
    },
    /// `dst = a op b`, element-wise (`V`).
    Binary {
        /// The function.
        op: BinaryOp,
        /// Destination; may be a full operand.
        dst: TileId,
        /// First operand.
        a: Lane,
        /// Second operand.
        b: Lane,
    },
    /// Conversion between element types (`V`): to f32 exactly or to nearest, to 16 bits to nearest even,
    /// to i32 towards zero.
    Cast {
        /// Destination.
        dst: TileId,
        /// Source, of the same shape.
        src: TileId,
    },
    /// One level of a reduction over the lanes of each row (`V`): runs of 64 lanes become one.
    ///
    /// The source has `ceil(lanes / 64^level)` lanes a row, the destination `ceil` of a 64th of that. If
    /// that is one, the destination is a column with one lane per row.
    ReduceLanes {
        /// The monoid.
        op: ReduceOp,
        /// Destination.
        dst: TileId,
        /// Source.
        src: TileId,
        /// Lanes of a row at level 0.
        lanes: Count,
        /// The level.
        level: u32,
    },
    /// `dst = dst ∘ row 0 ∘ row 1 ∘ …`, in that order (`V`).
    FoldRows {
        /// The monoid.
        op: ReduceOp,
        /// Destination, one row.
        dst: TileId,
        /// Source.
        src: TileId,
        /// Rows that take part.
        rows: Count,
    },
    /// Use of a resource by a pipe that no printer knows yet: cube-core operations and hand-overs.
    Opaque {
        /// What it is, for messages.
        name: String,
        /// Where it runs.
        pipe: Pipe,
        /// What it touches.
        accesses: Vec<Access>,
    },
}

/// Element-wise functions that one instruction computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// `e^a`.
    Exp,
    /// Natural logarithm.
    Ln,
    /// Square root.
    Sqrt,
    /// Absolute value.
    Abs,
}

/// Something that operations of different pipes may both touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The current slot of a tile.
    Tile(TileId),
    /// All slots of a tile.
    AllSlots(TileId),
    /// A region of a global tensor: the view, and the rows and columns it covers.
    Global(ParamId, View, [i64; 2]),
    /// One slot of a hand-over's workspace.
    Handover(HandoverId, super::Turn),
}

/// A use of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    /// The resource.
    pub resource: Resource,
    /// Whether it is written.
    pub write: bool,
}

impl Op {
    /// The pipe that executes the operation.
    pub fn pipe(&self) -> Pipe {
        match self {
            Op::Load { .. } => Pipe::Mte2,
            Op::Store { .. } => Pipe::Mte3,
            Op::Opaque { pipe, .. } => *pipe,
            _ => Pipe::V,
        }
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        match self {
            Op::Load { .. } => "load",
            Op::Pad { .. } => "pad",
            Op::Store { .. } => "store",
            Op::Duplicate { .. } => "duplicate",
            Op::Clear { .. } => "clear",
            Op::Spread { .. } => "spread",
            Op::Unary { .. } => "unary",
            Op::WithScalar { .. } => "with_scalar",
            Op::Binary { .. } => "binary",
            Op::Cast { .. } => "cast",
            Op::ReduceLanes { .. } => "reduce_lanes",
            Op::FoldRows { .. } => "fold_rows",
            Op::Opaque { name, .. } => name,
        }
    }

    /// What the operation touches.
    pub fn accesses(&self) -> Vec<Access> {
        let read = |tile: &TileId| Access { resource: Resource::Tile(*tile), write: false };
        let write = |tile: &TileId| Access { resource: Resource::Tile(*tile), write: true };
        let global = |r: &Region, write| Access {
            resource: Resource::Global(r.param, r.view.clone(), r.shape),
            write,
        };
        match self {
            Op::Load { dst, from, .. } => vec![global(from, false), write(dst)],
            Op::Store { src, to } => vec![read(src), global(to, true)],
            Op::Pad { dst, .. } | Op::Duplicate { dst, .. } => vec![write(dst)],
            Op::Clear { dst } => vec![Access { resource: Resource::AllSlots(*dst), write: true }],
            Op::Spread { dst, src }
            | Op::Unary { dst, src, .. }
            | Op::Cast { dst, src }
            | Op::ReduceLanes { dst, src, .. } => vec![read(src), write(dst)],
            Op::WithScalar { dst, src, .. } => vec![read(&src.tile()), write(dst)],
            Op::Binary { dst, a, b, .. } => vec![read(&a.tile()), read(&b.tile()), write(dst)],
            Op::FoldRows { dst, src, .. } => vec![read(src), read(dst), write(dst)],
            Op::Opaque { accesses, .. } => accesses.clone(),
        }
    }
}

/// Lanes of a block of 32 bytes.
pub(crate) const fn lanes_per_block(dtype: DType) -> i64 {
    32 / dtype.bytes()
}
