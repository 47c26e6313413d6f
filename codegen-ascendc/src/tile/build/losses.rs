//! Row groups of losses.

use super::{RowDef, RowGroup, RowShape};
use crate::tile::{BinaryOp, CompareOp, DType, Over, ReduceOp, UnaryOp};

/// Cross-entropy of logits against labels, per row.
///
/// Inputs `logits` of `dtype`, `[rows, classes]`, and `labels` (i32), `[rows]`. Outputs
/// `loss = log Σ_c e^(x_c - max) - (x_label - max)` (f32), `[rows]`, and the softmax `p` of `dtype`,
/// `[rows, classes]`. A label outside the classes selects nothing: the loss is then the logarithm alone.
pub fn cross_entropy(rows: i64, classes: i64, dtype: DType) -> RowGroup {
    let mut g = RowGroup::new("cross_entropy", rows, classes);
    let logits = g.input("logits", RowShape::Full, dtype);
    let labels = g.input("labels", RowShape::Column, DType::I32);
    let x = g.convert(logits, DType::F32);
    let max = g.reduce(ReduceOp::Max, x);
    let shifted = g.binary(BinaryOp::Sub, x, max);
    let e = g.unary(UnaryOp::Exp, shifted);
    let sum = g.reduce(ReduceOp::Sum, e);
    let position = g.push(RowDef::Position(Over::Cols));
    let zero = g.num(0.0);
    let op = CompareOp::Eq;
    let picked = g.push(RowDef::Select { op, a: position, b: labels, on_true: shifted, on_false: zero });
    let picked = g.reduce(ReduceOp::Sum, picked);
    let log = g.unary(UnaryOp::Log, sum);
    let loss = g.binary(BinaryOp::Sub, log, picked);
    g.store("loss", loss, DType::F32);
    let p = g.binary(BinaryOp::Div, e, sum);
    let p = g.convert(p, dtype);
    g.store("p", p, dtype);
    g
}
