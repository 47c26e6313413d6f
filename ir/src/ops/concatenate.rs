//! `concatenate`.

use super::expect_dims;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, common_divisor};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;

/// `concatenate`: `T[…] × n → T[…]` along `dim` (StableHLO specification, "concatenate").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Concatenate {
    /// The dimension along which operands follow each other.
    pub dim: usize,
}

impl Concatenate {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Concatenate>> {
        if name != "concatenate" {
            return Ok(None);
        }
        Ok(Some(Concatenate { dim: a.index("dim")? }))
    }
}

impl Operation for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("dim", AttrValue::Int(self.dim as i64))])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        let Some(first) = operands.first() else { return Err(IrError::ty(self.name(), "has no operand")) };
        expect_dims(self.name(), "dim", &[self.dim], first.rank())?;
        let mut total = 0usize;
        for t in operands {
            let fits = t.dtype == first.dtype
                && t.rank() == first.rank()
                && (0..t.rank()).all(|d| d == self.dim || t.shape[d] == first.shape[d]);
            if !fits {
                return Err(IrError::ty(self.name(), format!("{t} does not fit beside {first}")));
            }
            total = total
                .checked_add(t.shape[self.dim])
                .ok_or_else(|| IrError::ty(self.name(), "the result does not fit in memory"))?;
        }
        let mut out = (*first).clone();
        out.shape[self.dim] = total;
        Ok(vec![out])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let w = inputs[0].dtype().size_bytes();
        let inner: usize = results[0].shape[self.dim + 1..].iter().product();
        let outer: usize = results[0].shape[..self.dim].iter().product();
        let mut bytes = Vec::with_capacity(results[0].elements() * w);
        for o in 0..outer {
            for t in inputs {
                let row = t.shape[self.dim] * inner * w;
                bytes.extend_from_slice(&t.data.bytes()[o * row..(o + 1) * row]);
            }
        }
        let data = Storage::from_bytes(inputs[0].dtype(), &bytes);
        Ok(vec![Tensor::new(results[0].shape.iter().copied(), data)])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        for (d, &n) in results[0].shape.iter().enumerate() {
            if d != self.dim {
                let f = r.factor(n, FactorKind::Pass);
                r.on_result(0, d, f);
                (0..operands.len()).for_each(|o| r.on_operand(o, d, f));
                continue;
            }
            // Parts of like sizes, as those of queries, keys and values, are split each on its own.
            let piece = common_divisor(operands.iter().map(|t| t.shape[d]));
            if piece <= 1 {
                let f = r.factor(n, FactorKind::Whole);
                r.on_result(0, d, f);
                for (o, t) in operands.iter().enumerate() {
                    let g = r.factor(t.shape[d], FactorKind::Whole);
                    r.on_operand(o, d, g);
                }
                continue;
            }
            let f = r.factor(piece, FactorKind::Pass);
            r.results[0][d] = r.pieces(n, f);
            for (o, t) in operands.iter().enumerate() {
                r.operands[o][d] = r.pieces(t.shape[d], f);
            }
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}
