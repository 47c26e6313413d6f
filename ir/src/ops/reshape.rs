//! `reshape`.

use super::expect_operands;
use crate::attr::{AttrMap, AttrReader, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
use crate::interp::EvalCx;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};

/// `reshape`: the same elements in row-major order under another shape (StableHLO specification, "reshape").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reshape {
    /// The result's shape.
    pub shape: Shape,
}

impl Reshape {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Reshape>> {
        if name != "reshape" {
            return Ok(None);
        }
        Ok(Some(Reshape { shape: a.indices("shape")? }))
    }
}

/// Splits two shapes of equal size into the coarsest list of common factors: for each factor its size, the
/// dimension of `a` and of `b` it belongs to. Dimensions of size 1 have no factor. `None` where the shapes have
/// no common refinement (as `[6,4]` and `[4,6]`).
pub fn common_factors(a: &[usize], b: &[usize]) -> Option<Vec<(usize, usize, usize)>> {
    let dims = |s: &[usize]| -> Vec<(usize, usize)> {
        s.iter().copied().enumerate().filter(|&(_, n)| n != 1).map(|(d, n)| (n, d)).collect()
    };
    let (mut a, mut b) = (dims(a), dims(b));
    if a.iter().chain(&b).any(|&(n, _)| n == 0) {
        return None;
    }
    let mut out = Vec::new();
    // From the innermost dimension outwards, so that `pop` takes the next.
    while let (Some((m, i)), Some((n, j))) = (a.pop(), b.pop()) {
        let f = m.min(n);
        if m % f != 0 || n % f != 0 {
            return None;
        }
        out.push((f, i, j));
        if m > f {
            a.push((m / f, i));
        }
        if n > f {
            b.push((n / f, j));
        }
    }
    out.reverse();
    (a.is_empty() && b.is_empty()).then_some(out)
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([("shape", ints(&self.shape))])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 1)?;
        let out = operands[0].with_shape(self.shape.iter().copied());
        if out.checked_bytes().is_none() || out.elements() != operands[0].elements() {
            return Err(IrError::ty(
                self.name(),
                format!("{} has not as many elements as {out}", operands[0]),
            ));
        }
        Ok(vec![out])
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone().reshaped(&self.shape)])
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let Some(common) = common_factors(&operands[0].shape, &results[0].shape) else {
            return FactorRule::whole(operands, results);
        };
        let mut r = FactorRule::empty(operands, results);
        for (n, i, j) in common {
            let f = r.factor(n, FactorKind::Pass);
            r.on_operand(0, i, f);
            r.on_result(0, j, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        Ok(Reshape { shape: results[0].shape.clone() }.into())
    }
}
