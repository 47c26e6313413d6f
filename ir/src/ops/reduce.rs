//! `reduce` by a monoid.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::binary::{BinaryKind, combine};
use crate::tensor::{Storage, Tensor};
use crate::types::{Shape, TensorType};

/// `reduce`: `T[…] → T[…]` without `dims` (StableHLO specification, "reduce"). The initial value is the monoid's
/// identity; readers turn another one into an op of its own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reduce {
    /// Reduced dimensions, ascending.
    pub dims: Shape,
    /// What combines.
    pub monoid: Monoid,
}

impl Reduce {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Reduce>> {
        if name != "reduce" || a.has("body") {
            return Ok(None);
        }
        Ok(Some(Reduce { dims: a.indices("dims")?, monoid: a.word_as("monoid", Monoid::from_name)? }))
    }
}

/// The elementwise op that combines two elements by a monoid.
pub fn combiner(monoid: Monoid) -> BinaryKind {
    match monoid {
        Monoid::Sum => BinaryKind::Add,
        Monoid::Product => BinaryKind::Multiply,
        Monoid::Max => BinaryKind::Maximum,
        Monoid::Min => BinaryKind::Minimum,
        Monoid::And => BinaryKind::And,
        Monoid::Or => BinaryKind::Or,
    }
}

/// The monoid's neutral element as one stored element.
pub fn identity(monoid: Monoid, dtype: DType) -> Storage {
    match (monoid, dtype) {
        // All bits set; saturation would not reach it from a double for 64-bit types.
        (Monoid::And, DType::U64) => Storage::U64(vec![u64::MAX]),
        (Monoid::Min, DType::U64) => Storage::U64(vec![u64::MAX]),
        (Monoid::Min, DType::I64) => Storage::I64(vec![i64::MAX]),
        (Monoid::Max, DType::I1) => Storage::I1(vec![0]),
        _ => Storage::from_f64s(dtype, &[monoid.identity(dtype)]),
    }
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("dims", ints(&self.dims)), ("monoid", word(self.monoid.name()))])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let t = operands[0];
        expect_dims(self.name(), "dims", &self.dims, t.rank())?;
        if !self.dims.is_sorted() {
            return Err(IrError::attr(self.name(), "dims", "should be ascending"));
        }
        if !self.monoid.supports(t.dtype) {
            return Err(IrError::ty(self.name(), format!("{} is not defined on {t}", self.monoid)));
        }
        Ok(vec![t.with_shape((0..t.rank()).filter(|d| !self.dims.contains(d)).map(|d| t.shape[d]))])
    }

    /// Float sums are accumulated in f64 and rounded once, so the result does not depend on an order.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        let kept: Shape = (0..x.shape.len()).filter(|d| !self.dims.contains(d)).collect();
        let shape = &results[0].shape;
        let inner: usize = self.dims.iter().map(|&d| x.shape[d]).product();
        let dtype = x.dtype();
        let order = |first: &Shape, last: &Shape| x.in_order(&[&first[..], &last[..]].concat());
        let data = if dtype.is_float() {
            // Each result's elements side by side.
            let values = order(&kept, &self.dims).to_f64s();
            let n: usize = shape.iter().product();
            let rows = |step: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
                match inner {
                    0 => vec![self.monoid.identity(dtype); n],
                    _ => values.chunks_exact(inner).map(step).collect(),
                }
            };
            // Folded from the first element: a sum of one element is that element, −0 included.
            let fold =
                |row: &[f64], step: fn(f64, f64) -> f64| row[1..].iter().fold(row[0], |acc, &v| step(acc, v));
            let sums = match self.monoid {
                Monoid::Sum => rows(&|row| row[1..].iter().fold(row[0], |acc, v| acc + v)),
                Monoid::Product => rows(&|row| fold(row, |a, v| a * v)),
                Monoid::Max => {
                    rows(&|row| fold(row, |a, v| if a.is_nan() || v.is_nan() { f64::NAN } else { a.max(v) }))
                }
                _ => {
                    rows(&|row| fold(row, |a, v| if a.is_nan() || v.is_nan() { f64::NAN } else { a.min(v) }))
                }
            };
            Storage::from_f64s(dtype, &sums)
        } else {
            // One value of every result after the other.
            let values = order(&self.dims, &kept);
            let n: usize = shape.iter().product();
            let mut acc = identity(self.monoid, dtype).pick(std::iter::repeat_n(0, n));
            for o in 0..inner {
                let next = values.strided(o * n, &[n], &[1]);
                acc = combine(combiner(self.monoid), &acc, &next)
                    .ok_or_else(|| IrError::ty(self.name(), "operands of different element types"))?;
            }
            acc
        };
        Ok(vec![Tensor::new(shape.iter().copied(), data)])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let mut out = 0;
        for (d, &n) in operands[0].shape.iter().enumerate() {
            if self.dims.contains(&d) {
                let f = r.factor(n, FactorKind::Reduce(self.monoid));
                r.on_operand(0, d, f);
            } else {
                let f = r.factor(n, FactorKind::Pass);
                r.on_operand(0, d, f);
                r.on_result(0, out, f);
                out += 1;
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
