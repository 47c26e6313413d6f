//! Steps: what a block does.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Affine, Bound, BufferId, LoopId, Num, ParamId, ScalarId, Span};

/// A region of a global tensor that a tile is loaded from or stored to.
///
/// `origin` has one entry per tensor dimension. Dimension `row_dim` runs along the tile's rows and
/// `col_dim` along its columns, with `origin` there being the span's start; along every other dimension
/// the region is the single index `origin[d]`. Without a `row_dim` (`col_dim`) the tile has one row
/// (column).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// The tensor.
    pub param: ParamId,
    /// Index along each dimension that is neither the rows' nor the columns'; ignored (zero) there.
    pub origin: Vec<Affine>,
    /// The tile's rows: the tensor dimension they run along and the indices they cover.
    pub rows: Option<(usize, Span)>,
    /// The tile's columns: the tensor dimension they run along and the indices they cover.
    pub cols: Option<(usize, Span)>,
}

impl View {
    /// Rows and columns of a 2-D tensor.
    pub fn matrix(param: ParamId, rows: Span, cols: Span) -> View {
        View { param, origin: vec![Affine::zero(); 2], rows: Some((0, rows)), cols: Some((1, cols)) }
    }

    /// A 1-D tensor as a tile of one row, `[1, cols]`.
    pub fn row(param: ParamId, cols: Span) -> View {
        View { param, origin: vec![Affine::zero()], rows: None, cols: Some((0, cols)) }
    }

    /// A 1-D tensor as a tile of one column, `[rows, 1]`.
    pub fn column(param: ParamId, rows: Span) -> View {
        View { param, origin: vec![Affine::zero()], rows: Some((0, rows)), cols: None }
    }

    /// Index of the region's first element, one function per tensor dimension.
    pub fn starts(&self) -> Vec<Affine> {
        let mut starts = self.origin.clone();
        for (dim, span) in self.rows.iter().chain(&self.cols) {
            if let Some(start) = starts.get_mut(*dim) {
                *start = span.start.clone();
            }
        }
        starts
    }
}

/// What an elementwise step reads.
///
/// A tile operand must have the destination's shape, or one row and/or one column, which is then
/// repeated (`[rows, 1]`, `[1, cols]`, `[1, 1]` against `[rows, cols]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operand {
    /// A tile.
    Tile(BufferId),
    /// An f32 literal.
    Num(Num),
    /// An i32 literal (compare steps on i32 tiles only).
    Int(i32),
    /// A run-time scalar, f32.
    Scalar(ScalarId),
}

impl From<BufferId> for Operand {
    fn from(id: BufferId) -> Operand {
        Operand::Tile(id)
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::Num(Num::new(value))
    }
}

/// Elementwise functions of one f32 operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `a`: repeats a row, a column or a scalar over the destination.
    Copy,
    /// `-a`.
    Neg,
    /// `|a|`.
    Abs,
    /// `e^a`.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root, correctly rounded.
    Sqrt,
    /// `1 / sqrt(a)` with both operations correctly rounded; not a device's approximate instruction.
    Rsqrt,
    /// `1 / a`, correctly rounded.
    Recip,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-a)`.
    Logistic,
}

/// Elementwise functions of two f32 operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
    /// `a / b`, correctly rounded.
    Div,
    /// The greater; NaN if either is NaN.
    Max,
    /// The lesser; NaN if either is NaN.
    Min,
}

/// Ordered comparisons: false if an operand is NaN, except `Ne`, which is true then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CompareOp {
    /// `a = b`.
    Eq,
    /// `a ≠ b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a ≤ b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a ≥ b`.
    Ge,
}

/// Monoids of reduction steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum; neutral 0.
    Sum,
    /// Maximum; neutral -∞; NaN if any element is NaN.
    Max,
    /// Minimum; neutral +∞; NaN if any element is NaN.
    Min,
}

impl ReduceOp {
    /// The neutral element.
    pub fn neutral(self) -> Num {
        Num::new(match self {
            ReduceOp::Sum => 0.0,
            ReduceOp::Max => f32::NEG_INFINITY,
            ReduceOp::Min => f32::INFINITY,
        })
    }

    /// The elementwise operation that combines two partial results.
    pub fn combine(self) -> BinaryOp {
        match self {
            ReduceOp::Sum => BinaryOp::Add,
            ReduceOp::Max => BinaryOp::Max,
            ReduceOp::Min => BinaryOp::Min,
        }
    }
}

/// Which direction of a tile a reduction runs over (and removes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Over {
    /// Over the rows: `[rows, cols] -> [1, cols]`, one result per column.
    Rows,
    /// Over the columns: `[rows, cols] -> [rows, 1]`, one result per row.
    Cols,
}

/// A counted loop. The variable takes `start, start + step, …` while it is less than `end`; there may be
/// no iteration at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loop {
    /// The loop's number, unique within the kernel; names its variable.
    pub id: LoopId,
    /// What the loop runs over ("rows", "columns", "keys"): for reading only.
    pub name: String,
    /// First value.
    pub start: Affine,
    /// Exclusive end.
    pub end: Bound,
    /// Increment, at least 1.
    pub step: i64,
    /// Buffers whose value passes from one iteration to the next and to the steps behind the loop. They
    /// hold a value before the loop. Every other buffer that the body writes is new in each iteration
    /// and has no value behind the loop.
    pub carries: Vec<BufferId>,
    /// The steps of one iteration.
    pub body: Vec<Step>,
}

/// One step of a block. A step reads and writes whole tiles; f32 unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Reads a region into a tile of the same element type. Elements of the tile beyond the region's
    /// valid rows or columns become `fill` (rounded to the element type).
    Load {
        /// Destination tile (`Vector` or `Operand`).
        dst: BufferId,
        /// Region read.
        from: View,
        /// Value beyond the valid rows and columns.
        fill: Num,
    },
    /// Writes the valid rows and columns of a tile to a region of the same element type. From an
    /// `Accumulator` the region may also be f16 or bf16; the values are rounded to nearest even.
    Store {
        /// Source tile (`Vector` or `Accumulator`).
        src: BufferId,
        /// Region written.
        to: View,
    },
    /// Sets every element (f32 tile).
    Fill {
        /// Destination.
        dst: BufferId,
        /// The value.
        value: Num,
    },
    /// `dst[r, c] = start + r` or `start + c` (i32 tile): positions, for masks and one-hot selection.
    Index {
        /// Destination.
        dst: BufferId,
        /// Whether the position counts along the rows or the columns.
        along: Over,
        /// Position of the first row or column.
        start: Affine,
    },
    /// `dst = op(src)`, elementwise.
    Unary {
        /// The function.
        op: UnaryOp,
        /// Destination; may be the operand itself.
        dst: BufferId,
        /// Operand.
        src: Operand,
    },
    /// `dst = op(a, b)`, elementwise.
    Binary {
        /// The function.
        op: BinaryOp,
        /// Destination; may be an operand itself.
        dst: BufferId,
        /// First operand.
        a: Operand,
        /// Second operand.
        b: Operand,
    },
    /// `dst = (a op b) ? on_true : on_false`, elementwise; `a` and `b` are both f32 or both i32.
    Select {
        /// The comparison.
        op: CompareOp,
        /// Destination; may be an f32 operand itself.
        dst: BufferId,
        /// Left side of the comparison.
        a: Operand,
        /// Right side of the comparison.
        b: Operand,
        /// Value where the comparison holds.
        on_true: Operand,
        /// Value elsewhere.
        on_false: Operand,
    },
    /// Converts between element types, rounding to nearest even; same shape, different type. Between
    /// f32 and any other type only. f32 to i32 truncates towards zero and requires values in range.
    Convert {
        /// Destination (`Vector`).
        dst: BufferId,
        /// Source (`Vector`).
        src: BufferId,
    },
    /// Copies a tile of the same shape and type from one memory class to another.
    Copy {
        /// Destination, of another class than the source.
        dst: BufferId,
        /// Source.
        src: BufferId,
    },
    /// `dst = reduce(src)`, or `dst = dst ∘ reduce(src)` with `accumulate`.
    Reduce {
        /// The monoid.
        op: ReduceOp,
        /// The direction that is reduced.
        over: Over,
        /// Destination: `[1, cols]` over rows, `[rows, 1]` over columns.
        dst: BufferId,
        /// Source.
        src: BufferId,
        /// If given, only the span's valid indices along the reduced direction take part; else all.
        valid: Option<Span>,
        /// Whether the destination's old value takes part.
        accumulate: bool,
    },
    /// `dst = A · B`, or `dst = dst + A · B` with `accumulate`. Operands are both f16, both bf16 or
    /// both f32; products and sums are f32.
    Matmul {
        /// Result `[m, n]` (`Accumulator`, f32).
        dst: BufferId,
        /// `[m, k]`, or `[k, m]` if transposed (`Operand`).
        a: BufferId,
        /// `[k, n]`, or `[n, k]` if transposed (`Operand`).
        b: BufferId,
        /// Whether `a` holds the transpose of the left operand.
        transpose_a: bool,
        /// Whether `b` holds the transpose of the right operand.
        transpose_b: bool,
        /// Whether the result is added to `dst`.
        accumulate: bool,
    },
    /// A counted loop.
    For(Loop),
}

impl Step {
    /// The buffer the step writes; `None` for stores and loops.
    pub fn writes(&self) -> Option<BufferId> {
        match self {
            Step::Load { dst, .. }
            | Step::Fill { dst, .. }
            | Step::Index { dst, .. }
            | Step::Unary { dst, .. }
            | Step::Binary { dst, .. }
            | Step::Select { dst, .. }
            | Step::Convert { dst, .. }
            | Step::Copy { dst, .. }
            | Step::Reduce { dst, .. }
            | Step::Matmul { dst, .. } => Some(*dst),
            Step::Store { .. } | Step::For(_) => None,
        }
    }

    /// The buffers the step reads, in operand order; an accumulated destination is among them. Empty for
    /// loops: ask the steps of their bodies.
    pub fn reads(&self) -> Vec<BufferId> {
        let tiles = |operands: &[Operand]| -> Vec<BufferId> {
            let tile = |o: &Operand| if let Operand::Tile(id) = o { Some(*id) } else { None };
            operands.iter().filter_map(tile).collect()
        };
        match self {
            Step::Load { .. } | Step::Fill { .. } | Step::Index { .. } | Step::For(_) => Vec::new(),
            Step::Store { src, .. } | Step::Convert { src, .. } | Step::Copy { src, .. } => vec![*src],
            Step::Unary { src, .. } => tiles(&[*src]),
            Step::Binary { a, b, .. } => tiles(&[*a, *b]),
            Step::Select { a, b, on_true, on_false, .. } => tiles(&[*a, *b, *on_true, *on_false]),
            Step::Reduce { dst, src, accumulate, .. } => {
                if *accumulate {
                    vec![*src, *dst]
                } else {
                    vec![*src]
                }
            }
            Step::Matmul { dst, a, b, accumulate, .. } => {
                if *accumulate {
                    vec![*a, *b, *dst]
                } else {
                    vec![*a, *b]
                }
            }
        }
    }
}

macro_rules! display_names {
    ($type:ty, $($variant:ident => $name:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(<$type>::$variant => $name),+ })
            }
        }
    };
}

display_names!(UnaryOp, Copy => "copy", Neg => "neg", Abs => "abs", Exp => "exp", Log => "log", Sqrt => "sqrt",
    Rsqrt => "rsqrt", Recip => "recip", Tanh => "tanh", Logistic => "logistic");
display_names!(BinaryOp, Add => "add", Sub => "sub", Mul => "mul", Div => "div", Max => "max", Min => "min");
display_names!(CompareOp, Eq => "eq", Ne => "ne", Lt => "lt", Le => "le", Gt => "gt", Ge => "ge");
display_names!(ReduceOp, Sum => "sum", Max => "max", Min => "min");
display_names!(Over, Rows => "rows", Cols => "cols");
