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
use crate::types::{Shape, TensorType};

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

/// An operand as a batch of matrices, row-major or column-major.
struct Matrices {
    data: Storage,
    row_step: isize,
    column_step: isize,
}

/// The dimensions `batch`, then rows, then columns, in the order in which they lie if that is one of the two.
fn matrices(t: &Tensor, batch: &[usize], rows: &[usize], columns: &[usize]) -> Matrices {
    let size = |dims: &[usize]| dims.iter().map(|&d| t.shape[d]).product::<usize>() as isize;
    let (by_rows, by_columns) = ([batch, rows, columns].concat(), [batch, columns, rows].concat());
    if by_columns.is_sorted() && !by_rows.is_sorted() {
        return Matrices { data: t.data.clone(), row_step: 1, column_step: size(rows) };
    }
    let data = if by_rows.is_sorted() { t.data.clone() } else { t.in_order(&by_rows) };
    Matrices { data, row_step: size(columns), column_step: 1 }
}

/// Products of (batch, m, n, k) float matrices in f64.
fn float_products(l: &Matrices, r: &Matrices, (b, m, n, k): (usize, usize, usize, usize)) -> Vec<f64> {
    let (x, y) = (l.data.to_f64s(), r.data.to_f64s());
    let mut out = vec![0f64; b * m * n];
    if m * n == 0 {
        return out;
    }
    for (i, c) in out.chunks_exact_mut(m * n).enumerate() {
        let (x, y) = (&x[i * m * k..][..m * k], &y[i * k * n..][..k * n]);
        // SAFETY: `x` holds m·k elements, `y` k·n and `c` m·n, and the steps are those of dense matrices, so every
        // element addressed lies in them; `c` is borrowed mutably and overlaps neither.
        unsafe {
            matrixmultiply::dgemm(
                m,
                k,
                n,
                1.0,
                x.as_ptr(),
                l.row_step,
                l.column_step,
                y.as_ptr(),
                r.row_step,
                r.column_step,
                0.0,
                c.as_mut_ptr(),
                n as isize,
                1,
            );
        }
    }
    out
}

/// Products of (batch, m, n, k) integer matrices modulo 2⁶⁴.
fn integer_products(
    l: &Matrices,
    r: &Matrices,
    (b, m, n, k): (usize, usize, usize, usize),
) -> Result<Vec<i64>> {
    let wide = |s: &Storage| match Tensor::new([s.len()], s.clone()).converted(DType::I64).data {
        Storage::I64(v) => Ok(v),
        other => Err(IrError::ty("dot_general", format!("{} is no integer type", other.dtype()))),
    };
    let (x, y) = (wide(&l.data)?, wide(&r.data)?);
    let mut out = vec![0i64; b * m * n];
    for bi in 0..b {
        for mi in 0..m {
            let row = &mut out[(bi * m + mi) * n..][..n];
            for ki in 0..k {
                let a = x[bi * m * k + mi * l.row_step as usize + ki * l.column_step as usize];
                let first = bi * k * n + ki * r.row_step as usize;
                for (ni, o) in row.iter_mut().enumerate() {
                    *o = o.wrapping_add(a.wrapping_mul(y[first + ni * r.column_step as usize]));
                }
            }
        }
    }
    Ok(out)
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

    /// Float sums are accumulated in f64, in an order that depends on the sizes only, and rounded once; integers
    /// wrap in the result's width.
    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (lt, rt) = (inputs[0].ty(), inputs[1].ty());
        let sizes = self.matmul_sizes(&lt, &rt);
        let lfree = DotGeneral::free(lt.rank(), &self.lhs_batch, &self.lhs_contract);
        let rfree = DotGeneral::free(rt.rank(), &self.rhs_batch, &self.rhs_contract);
        let l = matrices(inputs[0], &self.lhs_batch, &lfree, &self.lhs_contract);
        let r = matrices(inputs[1], &self.rhs_batch, &self.rhs_contract, &rfree);
        let (shape, dtype) = (results[0].shape.iter().copied(), results[0].dtype);
        if lt.dtype.is_float() || rt.dtype.is_float() {
            let out = float_products(&l, &r, sizes);
            return Ok(vec![Tensor::new(shape, Storage::from_f64s(dtype, &out))]);
        }
        let out = Storage::I64(integer_products(&l, &r, sizes)?);
        Ok(vec![Tensor::new(shape, out).converted(dtype)])
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
