//! AdamW, one parameter's step (Loshchilov & Hutter, "Decoupled Weight Decay Regularization").
//!
//! Elementwise in the operands' own type, in the order of ops of optax (plain) or PyTorch (folded).

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::fused::AdamW;
use msc_ir::ops::unary::UnaryKind::Sqrt;
use msc_ir::{Graph, IrError, Module, Result, Shape, TensorType, ValueId};

/// `p, g, m, v, c, d (, s) → p', m', v'`; see [`AdamW`].
///
/// # Errors
/// If the types do not fit.
pub fn adamw(module: &mut Module, types: &[TensorType], op: &AdamW) -> Result<Graph> {
    let scalars = 2 + usize::from(op.plain.is_some() && op.step.is_none());
    let fit = types.len() == 4 + scalars
        && types[0].dtype.is_float()
        && types[..4].iter().all(|t| *t == types[0])
        && types[4..].iter().all(|t| t.dtype == types[0].dtype && t.rank() == 0);
    if !fit {
        return Err(IrError::ty("adamw", format!("takes four tensors and {scalars} scalars, not {types:?}")));
    }
    let full = &types[0];
    let mut d = Definition::new(module, "adamw");
    let params: Vec<ValueId> = types.iter().map(|t| d.param(t)).collect();
    let &[p, g, m, v, ..] = params.as_slice() else {
        return Err(IrError::ty("adamw", "takes four tensors"));
    };
    let mut spread: Vec<ValueId> = Vec::new();
    for &s in &params[4..] {
        spread.push(d.op(BroadcastInDim { shape: full.shape.clone(), dims: Shape::new() }, &[s])?);
    }
    let first = match op.plain {
        Some(_) => {
            let new = d.of(op.first.1.get(), g)?;
            let old = d.of(op.first.0.get(), m)?;
            d.op(Add, &[new, old])?
        }
        None => {
            let change = d.op(Subtract, &[g, m])?;
            let change = d.of(op.first.1.get(), change)?;
            d.op(Add, &[m, change])?
        }
    };
    let square = d.op(Multiply, &[g, g])?;
    let square = d.of(op.second.1.get(), square)?;
    let old = d.of(op.second.0.get(), v)?;
    let second = d.op(Add, &[square, old])?;
    let new = match op.plain {
        Some((eps, decay)) => {
            let mean = d.op(Divide, &[first, spread[0]])?;
            let spread_of = d.op(Divide, &[second, spread[1]])?;
            let root = d.op(Sqrt, &[spread_of])?;
            let eps = d.splat(full.clone(), eps.get())?;
            let root = d.op(Add, &[root, eps])?;
            let mut update = d.op(Divide, &[mean, root])?;
            if decay.get() != 0.0 {
                let decayed = d.of(decay.get(), p)?;
                update = d.op(Add, &[update, decayed])?;
            }
            let step = match op.step {
                Some(s) => d.splat(full.clone(), s.get())?,
                None => spread[2],
            };
            let update = d.op(Multiply, &[step, update])?;
            d.op(Add, &[p, update])?
        }
        None => {
            let root = d.op(Sqrt, &[second])?;
            let root = d.op(Divide, &[root, spread[0]])?;
            let root = d.op(Add, &[root, spread[1]])?;
            let update = d.op(Divide, &[first, root])?;
            let kept = if op.first.0.get() == 1.0 { p } else { d.of(op.first.0.get(), p)? };
            d.op(Add, &[kept, update])?
        }
    };
    Ok(d.finish(vec![new, first, second]))
}

impl Definition<'_> {
    /// `c·v`.
    fn of(&mut self, c: f64, v: ValueId) -> Result<ValueId> {
        let c = self.splat(self.ty(v), c)?;
        self.op(Multiply, &[c, v])
    }
}
