//! Row groups of RMSNorm: `y = x · rstd · gamma` with `rstd = 1 / sqrt(mean(x²) + eps)` per row.
//!
//! All are over `[rows, hidden]`, computed in f32 from and to `dtype`.

use super::{RowGroup, RowShape, RowValueId};
use crate::tile::{BinaryOp, DType, ReduceOp, UnaryOp};

/// Forward: inputs `x`, `gamma`; outputs `y`, `rstd` (f32, for the backward).
pub fn rms_norm(rows: i64, hidden: i64, dtype: DType, eps: f32) -> RowGroup {
    let mut g = RowGroup::new("rms_norm", rows, hidden);
    let x = g.input("x", RowShape::Full, dtype);
    normalise(&mut g, x, dtype, eps);
    g
}

/// Forward behind a residual addition: inputs `a`, `b`, `gamma`; outputs `sum = a + b` (rounded to
/// `dtype`), `y` (the norm of the rounded sum) and `rstd`.
pub fn add_rms_norm(rows: i64, hidden: i64, dtype: DType, eps: f32) -> RowGroup {
    let mut g = RowGroup::new("add_rms_norm", rows, hidden);
    let a = g.input("a", RowShape::Full, dtype);
    let b = g.input("b", RowShape::Full, dtype);
    let sum = g.binary(BinaryOp::Add, a, b);
    g.store("sum", sum, dtype);
    normalise(&mut g, sum, dtype, eps);
    g
}

fn normalise(g: &mut RowGroup, x: RowValueId, dtype: DType, eps: f32) {
    let gamma = g.input("gamma", RowShape::Row, dtype);
    let x = g.convert(x, DType::F32);
    let gamma = g.convert(gamma, DType::F32);
    let square = g.binary(BinaryOp::Mul, x, x);
    let mean = row_mean(g, square);
    let eps = g.num(eps);
    let mean = g.binary(BinaryOp::Add, mean, eps);
    let rstd = g.unary(UnaryOp::Rsqrt, mean);
    let scaled = g.binary(BinaryOp::Mul, x, rstd);
    let y = g.binary(BinaryOp::Mul, scaled, gamma);
    let y = g.convert(y, dtype);
    g.store("y", y, dtype);
    g.store("rstd", rstd, DType::F32);
}

/// Backward: inputs `dy`, `x`, `rstd`, `gamma` and, if `residual`, the gradient `r` that joins dx;
/// outputs `dx` (plus `r`) and `dgamma`.
///
/// With `w = dy · gamma`: `dx = rstd · (w - x · rstd² · mean(w · x))`, `dgamma = Σ_rows dy · x · rstd`.
pub fn rms_norm_grad(rows: i64, hidden: i64, dtype: DType, residual: bool) -> RowGroup {
    let mut g = RowGroup::new("rms_norm_grad", rows, hidden);
    let dy = g.input("dy", RowShape::Full, dtype);
    let x = g.input("x", RowShape::Full, dtype);
    let rstd = g.input("rstd", RowShape::Column, DType::F32);
    let gamma = g.input("gamma", RowShape::Row, dtype);
    let gamma = g.convert(gamma, DType::F32);
    let dy = g.convert(dy, DType::F32);
    let x = g.convert(x, DType::F32);
    let normed = g.binary(BinaryOp::Mul, x, rstd);
    let dgamma = g.binary(BinaryOp::Mul, dy, normed);
    g.reduce_rows("dgamma", ReduceOp::Sum, dgamma, dtype);
    let w = g.binary(BinaryOp::Mul, dy, gamma);
    let product = g.binary(BinaryOp::Mul, w, normed);
    let mean = row_mean(&mut g, product);
    let along = g.binary(BinaryOp::Mul, normed, mean);
    let across = g.binary(BinaryOp::Sub, w, along);
    let mut dx = g.binary(BinaryOp::Mul, across, rstd);
    if residual {
        let r = g.input("r", RowShape::Full, dtype);
        let r = g.convert(r, DType::F32);
        dx = g.binary(BinaryOp::Add, dx, r);
    }
    let dx = g.convert(dx, dtype);
    g.store("dx", dx, dtype);
    g
}

fn row_mean(g: &mut RowGroup, value: RowValueId) -> RowValueId {
    let sum = g.reduce(ReduceOp::Sum, value);
    let count = g.num(g.cols as f32);
    g.binary(BinaryOp::Div, sum, count)
}
