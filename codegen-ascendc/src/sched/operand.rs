//! Operands of operations: lanes of tiles, scalars, counts and regions of global memory.

use super::TileId;
use crate::tile::{Affine, Num, ParamId, ScalarId, Span, View};

/// How an element-wise operation reads a tile, against a destination of `R` rows and `C` lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The same shape as the destination.
    Full(TileId),
    /// One row, repeated over the rows.
    Row(TileId),
    /// One block of 8 equal lanes per row, made from a column by [`Op::Spread`](super::Op::Spread).
    Column(TileId),
    /// One block of 8 equal lanes.
    Single(TileId),
}

impl Lane {
    /// The tile.
    pub const fn tile(self) -> TileId {
        match self {
            Lane::Full(id) | Lane::Row(id) | Lane::Column(id) | Lane::Single(id) => id,
        }
    }
}

/// A scalar operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A literal.
    Num(Num),
    /// A run-time scalar, negated if the flag is set.
    Scalar(ScalarId, bool),
}

impl Value {
    /// The negative, exactly.
    #[must_use]
    pub fn negated(self) -> Value {
        match self {
            Value::Num(v) => Value::Num(Num::new(-v.get())),
            Value::Scalar(id, negative) => Value::Scalar(id, !negative),
        }
    }
}

/// A number of rows or lanes: all of an extent, or those that a span holds at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Count {
    /// Greatest value.
    pub extent: i64,
    /// If given, the value is the number of the span's valid indices, which is less for some iteration.
    pub span: Option<Span>,
}

impl Count {
    /// Always `extent`.
    pub const fn all(extent: i64) -> Count {
        Count { extent, span: None }
    }
}

/// What a load or store transfers: `rows` runs of `lanes` consecutive elements of a global tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// The tensor.
    pub param: ParamId,
    /// Index of the first element, in elements from the tensor's start.
    pub base: Affine,
    /// Number of runs.
    pub rows: Count,
    /// Elements from the start of one run to the start of the next.
    pub stride: i64,
    /// Elements of a run.
    pub lanes: Count,
    /// The region as the tile kernel states it, for the check of conflicts in global memory.
    pub view: View,
    /// Rows and columns of the tile as the tile kernel states them.
    pub shape: [i64; 2],
}
