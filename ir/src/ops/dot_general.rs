//! `dot_general`.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, ints, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::tensor::{Storage, Tensor};
use crate::types::{Shape, TensorType, strides};

/// `dot_general`: result dimensions are batching, then free dimensions of the left, then of the right operand
/// (StableHLO specification, "dot_general"). Precision and algorithm hints are not kept: products are exact and
/// sums are accumulated at least in f32.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DotGeneral {
    /// Batching dimensions of the left operand.
    pub lhs_batch: Shape,
    /// Batching dimensions of the right operand, paired with `lhs_batch`.
    pub rhs_batch: Shape,
    /// Contracted dimensions of the left operand.
    pub lhs_contract: Shape,
    /// Contracted dimensions of the right operand, paired with `lhs_contract`.
    pub rhs_contract: Shape,
    /// Element type of the result.
    pub dtype: DType,
}

impl DotGeneral {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<DotGeneral>> {
        if name != "dot_general" {
            return Ok(None);
        }
        Ok(Some(DotGeneral {
            lhs_batch: a.indices("lhs_batch")?,
            rhs_batch: a.indices("rhs_batch")?,
            lhs_contract: a.indices("lhs_contract")?,
            rhs_contract: a.indices("rhs_contract")?,
            dtype: a.word_as("dtype", DType::from_name)?,
        }))
    }

    /// Dimensions of an operand that are neither batching nor contracted, ascending.
    pub fn free(rank: usize, batch: &[usize], contract: &[usize]) -> Shape {
        (0..rank).filter(|d| !batch.contains(d) && !contract.contains(d)).collect()
    }

    /// Sizes (batch, m, n, k) of the product as a batched matrix multiplication.
    pub fn matmul_sizes(&self, lhs: &TensorType, rhs: &TensorType) -> (usize, usize, usize, usize) {
        let size = |t: &TensorType, dims: &[usize]| dims.iter().map(|&d| t.shape[d]).product::<usize>();
        (
            size(lhs, &self.lhs_batch),
            size(lhs, &DotGeneral::free(lhs.rank(), &self.lhs_batch, &self.lhs_contract)),
            size(rhs, &DotGeneral::free(rhs.rank(), &self.rhs_batch, &self.rhs_contract)),
            size(lhs, &self.lhs_contract),
        )
    }
}

/// The elements of `t` as doubles with its dimensions in the order `dims`.
fn permuted(t: &Tensor, dims: impl Iterator<Item = usize>) -> Vec<f64> {
    let dims: Vec<usize> = dims.collect();
    let st = strides(&t.shape);
    let values = t.data.to_f64s();
    if dims.iter().copied().eq(0..dims.len()) {
        return values;
    }
    let shape: Vec<usize> = dims.iter().map(|&d| t.shape[d]).collect();
    crate::tensor::IndexSpace::new(&shape)
        .map(|ix| values[ix.iter().zip(&dims).map(|(i, &d)| i * st[d]).sum::<usize>()])
        .collect()
}

impl Operation for DotGeneral {
    fn name(&self) -> &'static str {
        "dot_general"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("lhs_batch", ints(&self.lhs_batch)),
            ("rhs_batch", ints(&self.rhs_batch)),
            ("lhs_contract", ints(&self.lhs_contract)),
            ("rhs_contract", ints(&self.rhs_contract)),
            ("dtype", word(self.dtype.name())),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        let (l, r) = (operands[0], operands[1]);
        for (attr, t, batch, contract) in [
            ("lhs_contract", l, &self.lhs_batch, &self.lhs_contract),
            ("rhs_contract", r, &self.rhs_batch, &self.rhs_contract),
        ] {
            let both: Vec<usize> = batch.iter().chain(contract.iter()).copied().collect();
            expect_dims(self.name(), attr, &both, t.rank())?;
        }
        for (attr, ld, rd) in [
            ("lhs_batch", &self.lhs_batch, &self.rhs_batch),
            ("lhs_contract", &self.lhs_contract, &self.rhs_contract),
        ] {
            let same = ld.len() == rd.len() && ld.iter().zip(rd).all(|(&a, &b)| l.shape[a] == r.shape[b]);
            if !same {
                return Err(IrError::attr(
                    self.name(),
                    attr,
                    format!("{ld:?} of {l} does not pair with {rd:?} of {r}"),
                ));
            }
        }
        let shape: Shape = self
            .lhs_batch
            .iter()
            .map(|&d| l.shape[d])
            .chain(
                DotGeneral::free(l.rank(), &self.lhs_batch, &self.lhs_contract).iter().map(|&d| l.shape[d]),
            )
            .chain(
                DotGeneral::free(r.rank(), &self.rhs_batch, &self.rhs_contract).iter().map(|&d| r.shape[d]),
            )
            .collect();
        let out = TensorType { dtype: self.dtype, shape };
        if out.checked_bytes().is_none() {
            return Err(IrError::ty(self.name(), format!("result {out} does not fit in memory")));
        }
        Ok(vec![out])
    }

    /// Sums are accumulated in f64 and rounded once, so the result does not depend on an order.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (lt, rt) = (inputs[0].ty(), inputs[1].ty());
        let (b, m, n, k) = self.matmul_sizes(&lt, &rt);
        let lfree = DotGeneral::free(lt.rank(), &self.lhs_batch, &self.lhs_contract);
        let rfree = DotGeneral::free(rt.rank(), &self.rhs_batch, &self.rhs_contract);
        let l = permuted(inputs[0], self.lhs_batch.iter().chain(&lfree).chain(&self.lhs_contract).copied());
        let r = permuted(inputs[1], self.rhs_batch.iter().chain(&self.rhs_contract).chain(&rfree).copied());
        let mut out = vec![0f64; b * m * n];
        for bi in 0..b {
            for mi in 0..m {
                let row = &mut out[(bi * m + mi) * n..][..n];
                for ki in 0..k {
                    let a = l[(bi * m + mi) * k + ki];
                    let rr = &r[(bi * k + ki) * n..][..n];
                    for (o, x) in row.iter_mut().zip(rr) {
                        *o += a * x;
                    }
                }
            }
        }
        Ok(vec![Tensor::new(results[0].shape.iter().copied(), Storage::from_f64s(results[0].dtype, &out))])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let (l, r) = (operands[0], operands[1]);
        let mut rule = FactorRule::empty(operands, results);
        let mut out = 0;
        for (&a, &b) in self.lhs_batch.iter().zip(&self.rhs_batch) {
            let f = rule.factor(l.shape[a], FactorKind::Pass);
            rule.on_operand(0, a, f);
            rule.on_operand(1, b, f);
            rule.on_result(0, out, f);
            out += 1;
        }
        for (o, t, batch, contract) in
            [(0, l, &self.lhs_batch, &self.lhs_contract), (1, r, &self.rhs_batch, &self.rhs_contract)]
        {
            for d in DotGeneral::free(t.rank(), batch, contract) {
                let f = rule.factor(t.shape[d], FactorKind::Pass);
                rule.on_operand(o, d, f);
                rule.on_result(0, out, f);
                out += 1;
            }
        }
        for (&a, &b) in self.lhs_contract.iter().zip(&self.rhs_contract) {
            let f = rule.factor(l.shape[a], FactorKind::Reduce(Monoid::Sum));
            rule.on_operand(0, a, f);
            rule.on_operand(1, b, f);
        }
        rule
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
