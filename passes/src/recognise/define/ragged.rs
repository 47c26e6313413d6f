//! Matrix products of runs of rows of run-time lengths, each run with a matrix of its own, and their gradient (Gale et al.,
//! "MegaBlocks").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{And, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::select::Select;
use msc_ir::{DType, Graph, IrError, Module, Monoid, Result, Shape, TensorType, ValueId};

/// Whether `x[M,D]`, `w[E,D,F]` and `sizes[E]` fit.
fn fits(x: &TensorType, w: &TensorType, sizes: &TensorType) -> bool {
    x.rank() == 2
        && w.rank() == 3
        && x.dtype.is_float()
        && x.dtype == w.dtype
        && x.shape[1] == w.shape[1]
        && sizes.dtype.is_int()
        && sizes.shape.as_slice() == [w.shape[0]]
}

impl Definition<'_> {
    /// `sizes[E] → [E,M]`: which of `rows` rows are in which run.
    fn runs(&mut self, sizes: ValueId, rows: usize) -> Result<ValueId> {
        let TensorType { dtype, shape } = self.ty(sizes);
        let n = shape[0];
        let compare = |direction| Compare { direction, total_order: false };
        let spread =
            |shape: &Shape, dim| BroadcastInDim { shape: shape.clone(), dims: Shape::from_slice(&[dim]) };
        // ends[e] = Σ sizes[f], f ≤ e.
        let square = TensorType::new(dtype, [n, n]);
        let to = self.op(Iota { ty: square.clone(), dim: 0 }, &[])?;
        let of = self.op(Iota { ty: square.clone(), dim: 1 }, &[])?;
        let counts = self.op(compare(Direction::Le), &[of, to])?;
        let all = self.op(spread(&square.shape, 1), &[sizes])?;
        let none = self.splat(square, 0.0)?;
        let counted = self.op(Select::Select, &[counts, all, none])?;
        let ends = self.op(Reduce { dims: Shape::from_slice(&[1]), monoid: Monoid::Sum }, &[counted])?;
        let starts = self.op(Subtract, &[ends, sizes])?;
        let grid = TensorType::new(dtype, [n, rows]);
        let row = self.op(Iota { ty: grid.clone(), dim: 1 }, &[])?;
        let (starts, ends) =
            (self.op(spread(&grid.shape, 0), &[starts])?, self.op(spread(&grid.shape, 0), &[ends])?);
        let after = self.op(compare(Direction::Le), &[starts, row])?;
        let before = self.op(compare(Direction::Lt), &[row, ends])?;
        self.op(And, &[after, before])
    }

    /// `x[M,D], [E,M] → [E,M,D]`: the rows of each run, zeros elsewhere.
    fn in_runs(&mut self, x: ValueId, runs: ValueId) -> Result<ValueId> {
        let (ty, n) = (self.ty(x), self.ty(runs).shape[0]);
        let shape = Shape::from_slice(&[n, ty.shape[0], ty.shape[1]]);
        let spread = |dims: &[usize]| BroadcastInDim { shape: shape.clone(), dims: Shape::from_slice(dims) };
        let (rows, is) = (self.op(spread(&[1, 2]), &[x])?, self.op(spread(&[0, 1]), &[runs])?);
        let zero = self.splat(TensorType { dtype: ty.dtype, shape: shape.clone() }, 0.0)?;
        self.op(Select::Select, &[is, rows, zero])
    }

    /// `[E,M,C]` times `w` over runs and its dimension `along`.
    fn times_own(&mut self, rows: ValueId, w: ValueId, along: usize, dtype: DType) -> Result<ValueId> {
        let op = DotGeneral {
            lhs_batch: Shape::new(),
            rhs_batch: Shape::new(),
            lhs_contract: Shape::from_slice(&[2, 0]),
            rhs_contract: Shape::from_slice(&[along, 0]),
            dtype,
        };
        self.op(op, &[rows, w])
    }
}

/// `x[M,D], w[E,D,F], sizes[E] → y[M,F]`.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [x, w, sizes] = types else {
        return Err(IrError::ty("grouped_matmul", format!("takes 3 operands, has {}", types.len())));
    };
    if !fits(x, w, sizes) {
        return Err(IrError::ty("grouped_matmul", format!("{x}, {w} and {sizes} do not fit")));
    }
    let (dtype, m) = (x.dtype, x.shape[0]);
    let mut d = Definition::new(module, "grouped_matmul");
    let (x, w, sizes) = (d.param(x), d.param(w), d.param(sizes));
    let runs = d.runs(sizes, m)?;
    let rows = d.in_runs(x, runs)?;
    let y = d.times_own(rows, w, 1, dtype)?;
    Ok(d.finish(vec![y]))
}

/// `dy[M,F], x[M,D], w[E,D,F], sizes[E] → dx[M,D], dw[E,D,F]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [dy, x, w, sizes] = types else {
        return Err(IrError::ty("grouped_matmul_grad", format!("takes 4 operands, has {}", types.len())));
    };
    let alike = fits(x, w, sizes) && dy.dtype == x.dtype && dy.shape.as_slice() == [x.shape[0], w.shape[2]];
    if !alike {
        return Err(IrError::ty("grouped_matmul_grad", format!("{dy}, {x}, {w} and {sizes} do not fit")));
    }
    let (dtype, m) = (x.dtype, x.shape[0]);
    let mut d = Definition::new(module, "grouped_matmul_grad");
    let (dy, x, w, sizes) = (d.param(dy), d.param(x), d.param(w), d.param(sizes));
    let runs = d.runs(sizes, m)?;
    let (dy, x) = (d.in_runs(dy, runs)?, d.in_runs(x, runs)?);
    let dx = d.times_own(dy, w, 2, dtype)?;
    let (run, row) = (Shape::from_slice(&[0]), Shape::from_slice(&[1]));
    let op = DotGeneral {
        lhs_batch: run.clone(),
        rhs_batch: run,
        lhs_contract: row.clone(),
        rhs_contract: row,
        dtype,
    };
    let dw = d.op(op, &[x, dy])?;
    Ok(d.finish(vec![dx, dw]))
}
