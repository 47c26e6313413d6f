//! Tokens to the slots of experts with a capacity and back (Lepikhin et al., "GShard").

use super::Definition;
use msc_ir::ops::binary::BinaryKind::Multiply;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::fused::Slots;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Graph, IrError, Module, Monoid, Result, Shape, TensorType, ValueId};

fn misfit(name: &str, types: &[TensorType]) -> IrError {
    IrError::ty(name, format!("{types:?} are no tokens and slots of experts"))
}

/// Sizes `[G, N, E]` of the slots, if tokens `[G,N,D]` and shares `[G,N,E]` fit them.
fn sizes(tokens: &TensorType, slot: &TensorType, share: Option<&TensorType>) -> Option<[usize; 3]> {
    let &[g, n, e] = slot.shape.as_slice() else { return None };
    let fits = slot.dtype.is_int()
        && tokens.dtype.is_float()
        && tokens.rank() == 3
        && tokens.shape[..2] == [g, n]
        && share.is_none_or(|s| s.shape == slot.shape && s.dtype == tokens.dtype);
    fits.then_some([g, n, e])
}

/// Whether `[G,E,C,D]` are what the slots of these tokens hold.
fn holds(inside: &TensorType, tokens: &TensorType, [g, _, e]: [usize; 3], slots: usize) -> bool {
    inside.dtype == tokens.dtype && inside.shape.as_slice() == [g, e, slots, tokens.shape[2]]
}

/// Whether `[G,E,C,D]` are what the slots `[G,N,E]` of some tokens hold.
fn fills(inside: &TensorType, slot: &TensorType, share: Option<&TensorType>, slots: usize) -> bool {
    let (&[g, _, _, d], &[_, n, _]) = (inside.shape.as_slice(), slot.shape.as_slice()) else { return false };
    let tokens = TensorType::new(inside.dtype, [g, n, d]);
    sizes(&tokens, slot, share).is_some_and(|s| holds(inside, &tokens, s, slots))
}

impl Definition<'_> {
    /// `[G,N,E,C]`: which slot each token has, as ones; where there are shares, of those that are not zero.
    fn slots(&mut self, op: &Slots, slot: ValueId, share: Option<ValueId>, dtype: DType) -> Result<ValueId> {
        let ty = self.ty(slot);
        let mut wide = ty.clone();
        wide.shape.push(op.slots + 1);
        let here = self.op(BroadcastInDim { shape: wide.shape.clone(), dims: (0..3).collect() }, &[slot])?;
        let there = self.op(Iota { ty: wide.clone(), dim: 3 }, &[])?;
        let is = self.op(Compare { direction: Direction::Eq, total_order: false }, &[here, there])?;
        let is = self.convert(is, dtype)?;
        // One number beside those of the slots stands for no slot.
        let first = op.first.min(1);
        let [g, n, e] = [ty.shape[0], ty.shape[1], ty.shape[2]];
        let part = Slice::Static {
            start: [0, 0, 0, first].into_iter().collect(),
            limit: [g, n, e, first + op.slots].into_iter().collect(),
            stride: [1; 4].into_iter().collect(),
        };
        let is = self.op(part, &[is])?;
        let Some(share) = share else { return Ok(is) };
        let zero = self.splat(self.ty(share), 0.0)?;
        let some = self.op(Compare { direction: Direction::Ne, total_order: false }, &[share, zero])?;
        let some = self.convert(some, dtype)?;
        let shape = self.ty(is).shape;
        let some = self.op(BroadcastInDim { shape, dims: (0..3).collect() }, &[some])?;
        self.op(Multiply, &[is, some])
    }

    /// Shares `[G,N,E]` in the slots, `[G,N,E,C]`.
    fn shared(&mut self, slots: ValueId, share: ValueId) -> Result<ValueId> {
        let shape = self.ty(slots).shape;
        let share = self.op(BroadcastInDim { shape, dims: (0..3).collect() }, &[share])?;
        self.op(Multiply, &[slots, share])
    }

    fn product(
        &mut self,
        (l, r): (ValueId, ValueId),
        batch: (&[usize], &[usize]),
        contract: (&[usize], &[usize]),
    ) -> Result<ValueId> {
        let dtype = self.ty(l).dtype;
        let of = Shape::from_slice;
        let op = DotGeneral {
            lhs_batch: of(batch.0),
            rhs_batch: of(batch.1),
            lhs_contract: of(contract.0),
            rhs_contract: of(contract.1),
            dtype,
        };
        self.op(op, &[l, r])
    }

    /// `[G,N,E,C], x[G,N,D] → [G,E,C,D]`.
    fn fill_slots(&mut self, mask: ValueId, x: ValueId) -> Result<ValueId> {
        self.product((mask, x), (&[0], &[0]), (&[1], &[1]))
    }

    /// `[G,N,E,C], y[G,E,C,D] → [G,N,D]`.
    fn read_slots(&mut self, mask: ValueId, y: ValueId) -> Result<ValueId> {
        self.product((mask, y), (&[0], &[0]), (&[2, 3], &[1, 2]))
    }
}

/// `x[G,N,D], slot[G,N,E] (, share[G,N,E]) → inside[G,E,C,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn dispatch(module: &mut Module, types: &[TensorType], op: &Slots) -> Result<Graph> {
    let (x, slot, share) = match (types, op.weighted) {
        ([x, slot], false) => (x, slot, None),
        ([x, slot, share], true) => (x, slot, Some(share)),
        _ => return Err(misfit("moe_dispatch", types)),
    };
    sizes(x, slot, share).ok_or_else(|| misfit("moe_dispatch", types))?;
    let mut d = Definition::new(module, "moe_dispatch");
    let (x, slot, share) = (d.param(x), d.param(slot), share.map(|s| d.param(s)));
    let mask = d.slots(op, slot, share, types[0].dtype)?;
    let inside = d.fill_slots(mask, x)?;
    Ok(d.finish(vec![inside]))
}

/// `d_inside[G,E,C,D], slot[G,N,E] (, share[G,N,E]) → dx[G,N,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn dispatch_grad(module: &mut Module, types: &[TensorType], op: &Slots) -> Result<Graph> {
    let (inside, slot, share) = match (types, op.weighted) {
        ([i, slot], false) => (i, slot, None),
        ([i, slot, share], true) => (i, slot, Some(share)),
        _ => return Err(misfit("moe_dispatch_grad", types)),
    };
    if !fills(inside, slot, share, op.slots) {
        return Err(misfit("moe_dispatch_grad", types));
    }
    let mut d = Definition::new(module, "moe_dispatch_grad");
    let (inside, slot, share) = (d.param(inside), d.param(slot), share.map(|s| d.param(s)));
    let mask = d.slots(op, slot, share, types[0].dtype)?;
    let dx = d.read_slots(mask, inside)?;
    Ok(d.finish(vec![dx]))
}

/// `inside[G,E,C,D], slot[G,N,E], share[G,N,E] → y[G,N,D]`.
///
/// # Errors
/// If the types do not fit.
pub fn combine(module: &mut Module, types: &[TensorType], op: &Slots) -> Result<Graph> {
    let [inside, slot, share] = types else { return Err(misfit("moe_combine", types)) };
    if !fills(inside, slot, Some(share), op.slots) {
        return Err(misfit("moe_combine", types));
    }
    let mut d = Definition::new(module, "moe_combine");
    let (inside, slot, share) = (d.param(inside), d.param(slot), d.param(share));
    let mask = d.slots(op, slot, None, types[0].dtype)?;
    let mask = d.shared(mask, share)?;
    let y = d.read_slots(mask, inside)?;
    Ok(d.finish(vec![y]))
}

/// `dy[G,N,D], inside[G,E,C,D], slot[G,N,E], share[G,N,E] → d_inside[G,E,C,D], d_share[G,N,E]`.
///
/// # Errors
/// If the types do not fit.
pub fn combine_grad(module: &mut Module, types: &[TensorType], op: &Slots) -> Result<Graph> {
    let [dy, inside, slot, share] = types else { return Err(misfit("moe_combine_grad", types)) };
    let fits = sizes(dy, slot, Some(share)).is_some_and(|s| holds(inside, dy, s, op.slots));
    if !fits {
        return Err(misfit("moe_combine_grad", types));
    }
    let mut d = Definition::new(module, "moe_combine_grad");
    let (dy, inside, slot, share) = (d.param(dy), d.param(inside), d.param(slot), d.param(share));
    let mask = d.slots(op, slot, None, types[0].dtype)?;
    let all = d.shared(mask, share)?;
    let d_inside = d.fill_slots(all, dy)?;
    // [G,N,E,C]: what each slot's result is worth to the token.
    let worth = d.product((dy, inside), (&[0], &[0]), (&[2], &[3]))?;
    let worth = d.op(Multiply, &[worth, mask])?;
    let d_share = d.op(Reduce { dims: [3].into_iter().collect(), monoid: Monoid::Sum }, &[worth])?;
    Ok(d.finish(vec![d_inside, d_share]))
}
