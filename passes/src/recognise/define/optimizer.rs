//! One parameter's step: AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization") in the order of ops of
//! optax (plain) or PyTorch (folded), gradient descent, Lion.
//!
//! Elementwise in the operands' own type.

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::fused::{AdamW, Clipping, Lion, PlainAdamW, Scalar, Sgd};
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind::{Sign, Sqrt};
use msc_ir::{DType, Graph, IrError, Module, Result, Shape, TensorType, ValueId};

/// `p, h, m, v, c, d (, numbers) → p', m', v'`; see [`AdamW`].
///
/// # Errors
/// If the types do not fit.
pub fn adamw(module: &mut Module, types: &[TensorType], op: &AdamW) -> Result<Graph> {
    let numbers = 2 + op.numbers().filter(|n| n.is_operand()).count();
    let clip = op.clip.operands();
    let scalars = numbers + clip.len();
    let fit = types.len() == 4 + scalars
        && types[0].dtype.is_float()
        && types[..4].iter().all(|t| *t == types[0])
        && types[4..4 + numbers].iter().all(|t| t.dtype == types[0].dtype && t.rank() == 0)
        && types[4 + numbers..].iter().zip(clip).all(|(t, &is_predicate)| {
            let dtype = if is_predicate { DType::I1 } else { types[0].dtype };
            t.dtype == dtype && t.rank() == 0
        });
    if !fit {
        return Err(IrError::ty("adamw", format!("takes four tensors and {scalars} scalars, not {types:?}")));
    }
    let full = &types[0];
    let mut d = Definition::new(module, "adamw");
    let params: Vec<ValueId> = types.iter().map(|t| d.param(t)).collect();
    let &[p, h, m, v, ..] = params.as_slice() else {
        return Err(IrError::ty("adamw", "takes four tensors"));
    };
    let g = d.clipped(h, op.clip, &params[4 + numbers..])?;
    let mut spread: Vec<ValueId> = Vec::new();
    for &s in &params[4..6] {
        spread.push(d.op(BroadcastInDim { shape: full.shape.clone(), dims: Shape::new() }, &[s])?);
    }
    let mut operands = params[6..4 + numbers].iter().copied();
    let mut number = |d: &mut Definition<'_>, n| d.number(n, full.clone(), &mut operands);
    let kept = op.plain.is_none() && op.first.0.value() == Some(1.0);
    let b1 = if kept { None } else { Some(number(&mut d, op.first.0)?) };
    let r1 = number(&mut d, op.first.1)?;
    let (b2, r2) = (number(&mut d, op.second.0)?, number(&mut d, op.second.1)?);
    let first = match op.plain {
        Some(_) => {
            let new = d.op(Multiply, &[r1, g])?;
            let old = match b1 {
                Some(b1) => d.op(Multiply, &[b1, m])?,
                None => m,
            };
            d.op(Add, &[new, old])?
        }
        None => {
            let change = d.op(Subtract, &[g, m])?;
            let change = d.op(Multiply, &[r1, change])?;
            d.op(Add, &[m, change])?
        }
    };
    let square = d.op(Multiply, &[g, g])?;
    let square = d.op(Multiply, &[r2, square])?;
    let old = d.op(Multiply, &[b2, v])?;
    let second = d.op(Add, &[square, old])?;
    let new = match op.plain {
        Some(PlainAdamW { eps, decay, step }) => {
            let eps = number(&mut d, eps)?;
            let decay = if decay.value() == Some(0.0) { None } else { Some(number(&mut d, decay)?) };
            let step = number(&mut d, step)?;
            let mean = d.op(Divide, &[first, spread[0]])?;
            let spread_of = d.op(Divide, &[second, spread[1]])?;
            let root = d.op(Sqrt, &[spread_of])?;
            let root = d.op(Add, &[root, eps])?;
            let mut update = d.op(Divide, &[mean, root])?;
            if let Some(decay) = decay {
                let decayed = d.op(Multiply, &[decay, p])?;
                update = d.op(Add, &[update, decayed])?;
            }
            let update = d.op(Multiply, &[step, update])?;
            d.op(Add, &[p, update])?
        }
        None => {
            let root = d.op(Sqrt, &[second])?;
            let root = d.op(Divide, &[root, spread[0]])?;
            let root = d.op(Add, &[root, spread[1]])?;
            let update = d.op(Divide, &[first, root])?;
            let kept = match b1 {
                Some(keep) => d.op(Multiply, &[keep, p])?,
                None => p,
            };
            d.op(Add, &[kept, update])?
        }
    };
    Ok(d.finish(vec![new, first, second]))
}

/// The operands of a step: tensors of one type, then a scalar of their elements where `scheduled`.
fn operands(
    d: &mut Definition<'_>,
    name: &str,
    types: &[TensorType],
    (tensors, scheduled): (usize, bool),
) -> Result<(Vec<ValueId>, Option<ValueId>)> {
    let fit = types.len() == tensors + usize::from(scheduled)
        && types[0].dtype.is_float()
        && types[..tensors].iter().all(|t| *t == types[0])
        && types[tensors..].iter().all(|t| t.dtype == types[0].dtype && t.rank() == 0);
    if !fit {
        let what = format!("takes {tensors} tensors and {} scalars, not {types:?}", usize::from(scheduled));
        return Err(IrError::ty(name, what));
    }
    let mut params: Vec<ValueId> = types.iter().map(|t| d.param(t)).collect();
    let scalar = if scheduled { params.pop() } else { None };
    Ok((params, scalar))
}

/// `p, g (, t) (, s) → p' (, t')`; see [`Sgd`].
///
/// # Errors
/// If the types do not fit.
pub fn sgd(module: &mut Module, types: &[TensorType], op: &Sgd) -> Result<Graph> {
    let mut d = Definition::new(module, "sgd");
    let tensors = 2 + usize::from(op.momentum.is_some());
    let (tensors, scalar) = operands(&mut d, "sgd", types, (tensors, op.scheduled))?;
    let (p, mut g) = (tensors[0], tensors[1]);
    if op.decay.get() != 0.0 && !op.decoupled {
        let decay = d.of(op.decay.get(), p)?;
        g = d.op(Add, &[g, decay])?;
    }
    let mut results = Vec::new();
    let mut update = g;
    if let (Some((keep, damp)), Some(&t)) = (op.momentum, tensors.get(2)) {
        let new = if damp.get() == 1.0 { g } else { d.of(damp.get(), g)? };
        let old = d.of(keep.get(), t)?;
        let trace = d.op(Add, &[new, old])?;
        update = trace;
        if op.nesterov {
            let ahead = d.of(keep.get(), trace)?;
            update = d.op(Add, &[g, ahead])?;
        }
        results.push(trace);
    }
    let decay = if op.decoupled { op.decay.get() } else { 0.0 };
    let new = d.step(p, update, decay, (op.rate, scalar))?;
    results.insert(0, new);
    Ok(d.finish(results))
}

/// `p, g, m (, s) → p', m'`; see [`Lion`].
///
/// # Errors
/// If the types do not fit.
pub fn lion(module: &mut Module, types: &[TensorType], op: &Lion) -> Result<Graph> {
    let mut d = Definition::new(module, "lion");
    let (tensors, scalar) = operands(&mut d, "lion", types, (3, op.scheduled))?;
    let (p, g, m) = (tensors[0], tensors[1], tensors[2]);
    let mix = |d: &mut Definition<'_>, (keep, take): (Scalar, Scalar)| -> Result<ValueId> {
        let old = d.of(keep.get(), m)?;
        let new = d.of(take.get(), g)?;
        d.op(Add, &[old, new])
    };
    let mixed = mix(&mut d, op.first)?;
    let update = d.op(Sign, &[mixed])?;
    let trace = mix(&mut d, op.second)?;
    let new = d.step(p, update, op.decay.get(), (op.rate, scalar))?;
    Ok(d.finish(vec![new, trace]))
}

impl Definition<'_> {
    /// The gradient that an optimizer's step works on.
    fn clipped(&mut self, h: ValueId, clip: Clipping, operands: &[ValueId]) -> Result<ValueId> {
        let full = self.ty(h);
        let spread = BroadcastInDim { shape: full.shape.clone(), dims: Shape::new() };
        match (clip, operands) {
            (Clipping::Factor, &[f]) => {
                let f = self.op(spread, &[f])?;
                self.op(Multiply, &[h, f])
            }
            (Clipping::Within(max), &[within, norm, ..]) => {
                let norm = self.op(spread, &[norm])?;
                let mut less = self.op(Divide, &[h, norm])?;
                if max.value() != Some(1.0) {
                    let max = self.number(max, full, &mut operands[2..].iter().copied())?;
                    less = self.op(Multiply, &[less, max])?;
                }
                self.op(Select::Select, &[within, h, less])
            }
            _ => Ok(h),
        }
    }

    /// `p + rate·s·(u + decay·p)`.
    fn step(
        &mut self,
        p: ValueId,
        mut update: ValueId,
        decay: f64,
        (rate, scalar): (Scalar, Option<ValueId>),
    ) -> Result<ValueId> {
        let full = self.ty(p);
        if decay != 0.0 {
            let decay = self.of(decay, p)?;
            update = self.op(Add, &[update, decay])?;
        }
        if let Some(s) = scalar {
            let s = self.op(BroadcastInDim { shape: full.shape.clone(), dims: Shape::new() }, &[s])?;
            update = self.op(Multiply, &[s, update])?;
        }
        if scalar.is_none() || rate.get() != 1.0 {
            update = self.of(rate.get(), update)?;
        }
        self.op(Add, &[p, update])
    }

    /// `c·v`.
    fn of(&mut self, c: f64, v: ValueId) -> Result<ValueId> {
        let c = self.splat(self.ty(v), c)?;
        self.op(Multiply, &[c, v])
    }
}
