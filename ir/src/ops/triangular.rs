//! `cholesky` and `triangular_solve`: batches of small dense factorisations, as second-order optimizers use them.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Which matrix a solve uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Transpose {
    /// `a` itself.
    NoTranspose,
    /// `aᵀ`. For real numbers the adjoint is the same.
    Transpose,
}

impl Transpose {
    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Transpose::NoTranspose => "no_transpose",
            Transpose::Transpose => "transpose",
        }
    }

    /// The inverse of [`Transpose::name`].
    pub fn from_name(name: &str) -> Option<Transpose> {
        [Transpose::NoTranspose, Transpose::Transpose].into_iter().find(|t| t.name() == name)
    }
}

/// Factorisation by, and solution of, triangular matrices (StableHLO specification, ops of the same names).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Triangular {
    /// `cholesky`: `a[…,n,n] → l[…,n,n]` with `l·lᵀ = a` (`uᵀ·u = a` unless `lower`), zero in the other triangle.
    /// Only the named triangle of `a` is read; where `a` is not positive definite the result has NaNs.
    Cholesky {
        /// Whether the lower triangle is read and written.
        lower: bool,
    },
    /// `triangular_solve`: `a[…,n,n], b[…,n,m] → x[…,n,m]` with `op(a)·x = b`, or on the right side
    /// `b[…,m,n] → x[…,m,n]` with `x·op(a) = b`. Only the named triangle of `a` is read.
    Solve {
        /// Whether `a` stands left of `x`.
        left_side: bool,
        /// Whether the lower triangle of `a` is read.
        lower: bool,
        /// Whether the diagonal of `a` counts as ones and is not read.
        unit_diagonal: bool,
        /// What `op` is.
        transpose_a: Transpose,
    },
}

impl Triangular {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Triangular>> {
        Ok(match name {
            "cholesky" => Some(Triangular::Cholesky { lower: a.bool("lower")? }),
            "triangular_solve" => Some(Triangular::Solve {
                left_side: a.bool("left_side")?,
                lower: a.bool("lower")?,
                unit_diagonal: a.bool("unit_diagonal")?,
                transpose_a: a.word_as("transpose_a", Transpose::from_name)?,
            }),
            _ => None,
        })
    }

    fn expect_matrix(&self, t: &TensorType) -> Result<usize> {
        match (t.dtype.is_float(), &t.shape[..]) {
            (true, [.., m, n]) if m == n => Ok(*n),
            _ => Err(IrError::ty(self.name(), format!("takes square float matrices, not {t}"))),
        }
    }
}

impl Operation for Triangular {
    fn name(&self) -> &'static str {
        match self {
            Triangular::Cholesky { .. } => "cholesky",
            Triangular::Solve { .. } => "triangular_solve",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        match *self {
            Triangular::Cholesky { lower } => AttrMap::from([("lower", AttrValue::Bool(lower))]),
            Triangular::Solve { left_side, lower, unit_diagonal, transpose_a } => AttrMap::from([
                ("left_side", AttrValue::Bool(left_side)),
                ("lower", AttrValue::Bool(lower)),
                ("unit_diagonal", AttrValue::Bool(unit_diagonal)),
                ("transpose_a", word(transpose_a.name())),
            ]),
        }
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        match self {
            Triangular::Cholesky { .. } => {
                expect_operands(self.name(), operands, 1)?;
                self.expect_matrix(operands[0])?;
                Ok(vec![operands[0].clone()])
            }
            Triangular::Solve { left_side, .. } => {
                expect_operands(self.name(), operands, 2)?;
                let (a, b) = (operands[0], operands[1]);
                let n = self.expect_matrix(a)?;
                let rank = a.rank();
                let side = if *left_side { rank - 2 } else { rank - 1 };
                let fits = a.dtype == b.dtype
                    && b.rank() == rank
                    && a.shape[..rank - 2] == b.shape[..rank - 2]
                    && b.shape[side] == n;
                match fits {
                    true => Ok(vec![b.clone()]),
                    false => Err(IrError::ty(self.name(), format!("{a} does not fit {b}"))),
                }
            }
        }
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let a = inputs[0].data.to_f64s();
        let n = *inputs[0].shape.last().unwrap_or(&0);
        let size = n * n;
        let mut out: Vec<f64> = Vec::with_capacity(results[0].elements());
        match *self {
            Triangular::Cholesky { lower } => {
                for a in a.chunks_exact(size.max(1)) {
                    out.extend(cholesky(a, n, lower));
                }
            }
            Triangular::Solve { left_side, lower, unit_diagonal, transpose_a } => {
                let b = inputs[1].data.to_f64s();
                let rank = inputs[1].shape.len();
                let m = inputs[1].shape[if left_side { rank - 1 } else { rank - 2 }];
                for (a, b) in a.chunks_exact(size.max(1)).zip(b.chunks_exact((n * m).max(1))) {
                    // x·op(a) = b is op(a)ᵀ·xᵀ = bᵀ.
                    let transposed = (transpose_a == Transpose::Transpose) == left_side;
                    let at = |i: usize, j: usize| if transposed { a[j * n + i] } else { a[i * n + j] };
                    let place = |i: usize, k: usize| if left_side { i * m + k } else { k * n + i };
                    let mut x = b.to_vec();
                    for k in 0..m {
                        for step in 0..n {
                            let i = if lower != transposed { step } else { n - 1 - step };
                            let known = if lower != transposed { 0..i } else { i + 1..n };
                            let sum = known.fold(x[place(i, k)], |s, j| s - at(i, j) * x[place(j, k)]);
                            x[place(i, k)] = if unit_diagonal { sum } else { sum / at(i, i) };
                        }
                    }
                    out.extend(x);
                }
            }
        }
        Ok(vec![Tensor::from_f64s(&results[0], &out)])
    }

    /// Matrices are independent of each other, and so are the right-hand sides of one matrix.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let (a, rank) = (operands[0], operands[0].rank());
        for d in 0..rank - 2 {
            let f = r.factor(a.shape[d], FactorKind::Pass);
            (0..operands.len()).for_each(|o| r.on_operand(o, d, f));
            r.on_result(0, d, f);
        }
        for d in rank - 2..rank {
            let f = r.factor(a.shape[d], FactorKind::Whole);
            r.on_operand(0, d, f);
        }
        let free = match self {
            Triangular::Cholesky { .. } => None,
            Triangular::Solve { left_side, .. } => Some(if *left_side { rank - 1 } else { rank - 2 }),
        };
        for d in rank - 2..rank {
            let kind = if free == Some(d) { FactorKind::Pass } else { FactorKind::Whole };
            let f = r.factor(results[0].shape[d], kind);
            if operands.len() == 2 {
                r.on_operand(1, d, f);
            }
            r.on_result(0, d, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }
}

/// Row by row (Golub & Van Loan, Matrix Computations, 4.2).
fn cholesky(a: &[f64], n: usize, lower: bool) -> Vec<f64> {
    let at = |i: usize, j: usize| if lower { a[i * n + j] } else { a[j * n + i] };
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let sum = (0..j).fold(at(i, j), |s, k| s - l[i * n + k] * l[j * n + k]);
            l[i * n + j] = if i == j { sum.sqrt() } else { sum / l[j * n + j] };
        }
    }
    if lower {
        return l;
    }
    (0..n * n).map(|e| l[e % n * n + e / n]).collect()
}
