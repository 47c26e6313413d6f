//! Rotary position embedding and its transpose (Su et al., "RoFormer: Enhanced Transformer with Rotary Position
//! Embedding").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::{Add, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind::Negate;
use msc_ir::{Graph, IrError, Module, Result, Shape, TensorType, ValueId};

/// What a rope is, as in [`FusedKind::Rope`](msc_ir::ops::fused::FusedKind::Rope).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Neighbours are pairs.
    pub interleaved: bool,
    /// The gradient.
    pub transposed: bool,
    /// Elements that are rotated.
    pub rotated: usize,
}

impl Definition<'_> {
    /// Elements `start..limit` of the last dimension.
    fn last(&mut self, v: ValueId, start: usize, limit: usize, step: usize) -> Result<ValueId> {
        let ty = self.ty(v);
        let n = ty.rank() - 1;
        if (start, limit, step) == (0, ty.shape[n], 1) {
            return Ok(v);
        }
        let mut from: Shape = std::iter::repeat_n(0, ty.rank()).collect();
        let (mut to, mut stride) = (ty.shape.clone(), std::iter::repeat_n(1, ty.rank()).collect::<Shape>());
        (from[n], to[n], stride[n]) = (start, limit, step);
        self.op(Slice::Static { start: from, limit: to, stride }, &[v])
    }

    fn joined(&mut self, parts: &[ValueId]) -> Result<ValueId> {
        let dim = self.ty(parts[0]).rank() - 1;
        self.op(Concatenate { dim }, parts)
    }

    /// The first and second of each pair.
    fn halves(&mut self, v: ValueId, r: Rotation) -> Result<(ValueId, ValueId)> {
        let n = r.rotated;
        Ok(if r.interleaved {
            (self.last(v, 0, n, 2)?, self.last(v, 1, n, 2)?)
        } else {
            (self.last(v, 0, n / 2, 1)?, self.last(v, n / 2, n, 1)?)
        })
    }

    /// The inverse of [`Definition::halves`].
    fn paired(&mut self, a: ValueId, b: ValueId, r: Rotation) -> Result<ValueId> {
        if !r.interleaved {
            return self.joined(&[a, b]);
        }
        let ty = self.ty(a);
        let mut wide = ty.shape.clone();
        wide.push(1);
        let a = self.op(Reshape { shape: wide.clone() }, &[a])?;
        let b = self.op(Reshape { shape: wide }, &[b])?;
        let both = self.joined(&[a, b])?;
        let mut shape = ty.shape;
        let last = shape.len() - 1;
        shape[last] *= 2;
        self.op(Reshape { shape }, &[both])
    }

    /// `(a, b) → (−b, a)` on pairs.
    fn turned(&mut self, v: ValueId, r: Rotation) -> Result<ValueId> {
        let (a, b) = self.halves(v, r)?;
        let minus = self.op(Negate, &[b])?;
        self.paired(minus, a, r)
    }

    /// A table in the shape of what is rotated.
    fn table(&mut self, t: ValueId, like: &TensorType, r: Rotation) -> Result<ValueId> {
        let ty = self.ty(t);
        let last = ty.rank() - 1;
        let t = if ty.shape[last] == r.rotated { t } else { self.paired(t, t, r)? };
        let ty = self.ty(t);
        if ty.shape == like.shape {
            return Ok(t);
        }
        let dims: Shape = (0..ty.rank()).filter(|&d| ty.shape[d] == like.shape[d]).collect();
        let kept: Shape = dims.iter().map(|&d| ty.shape[d]).collect();
        let t = if kept == ty.shape { t } else { self.op(Reshape { shape: kept }, &[t])? };
        self.op(BroadcastInDim { shape: like.shape.clone(), dims }, &[t])
    }
}

/// `x[…,h], cos[…|1,t], sin[…|1,t] → y[…,h]`, see [`FusedKind::Rope`](msc_ir::ops::fused::FusedKind::Rope). Tables of a
/// wider type say that products are made in it: the sum is rounded once, its gradient's two products each.
///
/// # Errors
/// If the types do not fit.
pub fn rope(module: &mut Module, types: &[TensorType], r: Rotation) -> Result<Graph> {
    let op = if r.transposed { "rope_grad" } else { "rope" };
    let [x, cos, sin] = types else {
        return Err(IrError::ty(op, format!("takes 3 operands, has {}", types.len())));
    };
    let last = x.rank().saturating_sub(1);
    let fits = |t: &TensorType| {
        t.rank() == x.rank()
            && t.dtype.is_float()
            && t.dtype.size_bytes() >= x.dtype.size_bytes()
            && t.dtype == cos.dtype
            && t.shape[..last].iter().zip(&x.shape).all(|(&a, &b)| a == 1 || a == b)
            && (t.shape[last] == r.rotated || 2 * t.shape[last] == r.rotated)
    };
    let sizes = x.rank() > 0 && r.rotated >= 2 && r.rotated.is_multiple_of(2) && r.rotated <= x.shape[last];
    if !sizes || !x.dtype.is_float() || !fits(cos) || !fits(sin) {
        return Err(IrError::ty(op, format!("tables {cos} and {sin} do not fit {x}, {} rotated", r.rotated)));
    }
    let mut d = Definition::new(module, op);
    let (v, cos, sin) = (d.param(x), d.param(cos), d.param(sin));
    let h = x.shape[last];
    let part = d.last(v, 0, r.rotated, 1)?;
    let like = d.ty(part);
    let (cos, sin) = (d.table(cos, &like, r)?, d.table(sin, &like, r)?);
    let wide = d.ty(cos).dtype;
    let own = d.convert(part, wide)?;
    let straight = d.op(Multiply, &[own, cos])?;
    let y = if r.transposed {
        let z = d.op(Multiply, &[own, sin])?;
        let (straight, z) = (d.convert(straight, x.dtype)?, d.convert(z, x.dtype)?);
        let turned = d.turned(z, r)?;
        d.op(Subtract, &[straight, turned])?
    } else {
        let turned = d.turned(part, r)?;
        let turned = d.convert(turned, wide)?;
        let across = d.op(Multiply, &[turned, sin])?;
        let sum = d.op(Add, &[straight, across])?;
        d.convert(sum, x.dtype)?
    };
    let y = if r.rotated == h {
        y
    } else {
        let rest = d.last(v, r.rotated, h, 1)?;
        d.joined(&[y, rest])?
    };
    Ok(d.finish(vec![y]))
}
