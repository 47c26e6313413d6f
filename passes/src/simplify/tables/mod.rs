//! Constant tables that are expressions over their indices: positions, masks, repeated rows.
//!
//! Exporters that trace through the host bake such tables into the program, often once per layer. Written as
//! `iota` and comparisons they cost no bytes, can be split over ranks like any other op, and a rule can see what
//! they are. Only what the expression gives back *bit for bit* counts. Tables of sines, cosines and exponentials
//! therefore stay data: their bits are one mathematical library's.
//!
//! A dimension of `n` elements is seen as `repeats × kept × run`: the table repeats itself along the first and is
//! constant along the last. The *core* is the table over the kept dimensions; it is
//! - whole numbers, linear in the indices, or
//! - one of two elements, chosen by whether `i` or `i ± j` lies in an interval (triangles, windows, diagonals), or
//! - data, if it is smaller than the table.

mod core;
pub(super) mod emit;

use self::core::View;
use msc_ir::TensorType;
use msc_ir::constant::{ConstData, Constant};
use msc_ir::factor::common_divisor;

/// Tables with fewer elements stay as they are: an expression would not be smaller.
const LEAST_ELEMENTS: usize = 4;

/// A core that is data is worth a broadcast only in tables above this size. Folding leaves those alone
/// ([`super::fold::FOLD_GROWTH`]).
const LEAST_SPREAD: usize = super::fold::FOLD_GROWTH + 1;

/// How a table is made.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Table {
    /// Per dimension of the table.
    pub dims: Vec<Split>,
    /// What the core is.
    pub core: Core,
}

/// A dimension as `repeats × kept × run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Split {
    /// Times the kept part occurs.
    pub repeats: usize,
    /// Size in the core; 1 where the table does not depend on this dimension.
    pub kept: usize,
    /// Equal neighbours.
    pub run: usize,
}

/// The table over the kept dimensions of more than one element.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Core {
    /// `offset + Σ scale[d]·index[d]`, a whole number.
    Linear {
        /// Per dimension of the core.
        scale: Vec<i64>,
        /// At index 0.
        offset: i64,
    },
    /// `inside` where `low ≤ form(index) ≤ high`, else `outside`.
    Interval {
        /// What is compared.
        form: Form,
        /// Lower bound, if some index lies below it.
        low: Option<i64>,
        /// Upper bound, if some index lies above it.
        high: Option<i64>,
        /// Little-endian element.
        inside: Vec<u8>,
        /// Little-endian element.
        outside: Vec<u8>,
    },
    /// Row-major elements.
    Data(Vec<u8>),
}

/// A whole number made from the indices of a core of one or two dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `i`
    Index,
    /// `i − j`
    Difference,
    /// `i + j`
    Sum,
}

/// The expression for a constant, if there is one.
pub(super) fn expression(c: &Constant) -> Option<Table> {
    let ConstData::Dense(bytes) = &c.data else { return None };
    let n = c.ty.elements();
    let width = c.ty.dtype.size_bytes();
    if n < LEAST_ELEMENTS || width == 0 || bytes.len() != n * width {
        return None;
    }
    let elements = Elements { bytes, width };
    let dims: Vec<Split> = (0..c.ty.rank()).map(|d| elements.split(&c.ty, d)).collect();
    if let Some(core) = core::recognise(c.ty.dtype, &elements.core(&c.ty, &dims)) {
        return Some(Table { dims, core });
    }
    // Data is taken apart along whole dimensions only: a broadcast, no reshape.
    let whole = |s: &Split, n: usize| match s.kept {
        1 => Split { repeats: 1, kept: 1, run: n },
        _ => Split { repeats: 1, kept: n, run: 1 },
    };
    let dims: Vec<Split> = dims.iter().zip(&c.ty.shape).map(|(s, &n)| whole(s, n)).collect();
    let spread = dims.iter().any(|s| s.run > 1);
    (spread && n >= LEAST_SPREAD)
        .then(|| Table { core: Core::Data(elements.core(&c.ty, &dims).bytes()), dims })
}

struct Elements<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl Elements<'_> {
    /// How the table depends on dimension `d`.
    fn split(&self, ty: &TensorType, d: usize) -> Split {
        let n = ty.shape[d];
        let row = ty.shape[d + 1..].iter().product::<usize>() * self.width;
        // Whether the slices `i` and `j` of the dimension are the same everywhere.
        let same = |i: usize, j: usize| {
            self.bytes.chunks_exact(n * row).all(|b| b[i * row..][..row] == b[j * row..][..row])
        };
        let mut run = n;
        for i in 1..n {
            // Where neighbours differ a run ends: its length divides the index.
            if !i.is_multiple_of(run) && !same(i - 1, i) {
                run = common_divisor([run, i]);
            }
        }
        let m = n / run;
        let period = |p: usize| m.is_multiple_of(p) && (p..m).all(|i| same(i * run, (i - p) * run));
        let kept = (1..=m / 2).find(|&p| period(p)).unwrap_or(m);
        Split { repeats: m / kept, kept, run }
    }

    /// The elements over the kept dimensions.
    fn core<'a>(&'a self, ty: &TensorType, dims: &[Split]) -> View<'a> {
        let strides = msc_ir::types::strides(&ty.shape);
        let kept = dims.iter().zip(strides).filter(|(s, _)| s.kept > 1);
        let dims = kept.map(|(s, stride)| (s.kept, stride * s.run * self.width)).collect();
        View { bytes: self.bytes, width: self.width, dims }
    }
}
