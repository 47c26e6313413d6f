//! Matrix products over groups of rows, each group with a matrix of its own, and their gradient (Gale et al.,
//! "MegaBlocks").

use super::Definition;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::{DType, Graph, IrError, Module, Result, Shape, TensorType, ValueId};

/// Whether `x[E,…,D]` and `w[E,D,F]` are of one float type and fit.
fn fits(x: &TensorType, w: &TensorType) -> bool {
    let n = x.rank();
    n >= 3
        && w.rank() == 3
        && x.dtype.is_float()
        && x.dtype == w.dtype
        && x.shape[0] == w.shape[0]
        && x.shape[n - 1] == w.shape[1]
}

fn dot(
    d: &mut Definition<'_>,
    dtype: DType,
    (l, r): (ValueId, ValueId),
    contract: (&[usize], &[usize]),
) -> Result<ValueId> {
    let group = Shape::from_slice(&[0]);
    let op = DotGeneral {
        lhs_batch: group.clone(),
        rhs_batch: group,
        lhs_contract: contract.0.iter().copied().collect(),
        rhs_contract: contract.1.iter().copied().collect(),
        dtype,
    };
    d.op(op, &[l, r])
}

/// `x[E,…,D], w[E,D,F] → y[E,…,F]`: `y[e] = x[e]·w[e]`.
///
/// # Errors
/// If the types do not fit.
pub fn forward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [x, w] = types else {
        return Err(IrError::ty("grouped_matmul", format!("takes 2 operands, has {}", types.len())));
    };
    if !fits(x, w) {
        return Err(IrError::ty("grouped_matmul", format!("{x} and {w} do not fit")));
    }
    let mut d = Definition::new(module, "grouped_matmul");
    let operands = (d.param(x), d.param(w));
    let y = dot(&mut d, x.dtype, operands, (&[x.rank() - 1], &[1]))?;
    Ok(d.finish(vec![y]))
}

/// `dy[E,…,F], x[E,…,D], w[E,D,F] → dx[E,…,D], dw[E,D,F]`: `dx[e] = dy[e]·w[e]ᵀ`, `dw[e] = x[e]ᵀ·dy[e]`.
///
/// # Errors
/// If the types do not fit.
pub fn backward(module: &mut Module, types: &[TensorType]) -> Result<Graph> {
    let [dy, x, w] = types else {
        return Err(IrError::ty("grouped_matmul_grad", format!("takes 3 operands, has {}", types.len())));
    };
    let n = x.rank();
    let alike = fits(x, w)
        && dy.dtype == x.dtype
        && dy.rank() == n
        && dy.shape[..n - 1] == x.shape[..n - 1]
        && dy.shape[n - 1] == w.shape[2];
    if !alike {
        return Err(IrError::ty("grouped_matmul_grad", format!("{dy}, {x} and {w} do not fit")));
    }
    let mut d = Definition::new(module, "grouped_matmul_grad");
    let (g, rows, matrices) = (d.param(dy), d.param(x), d.param(w));
    let dx = dot(&mut d, x.dtype, (g, matrices), (&[n - 1], &[2]))?;
    let all: Vec<usize> = (1..n - 1).collect();
    let dw = dot(&mut d, x.dtype, (rows, g), (&all, &all))?;
    Ok(d.finish(vec![dx, dw]))
}
