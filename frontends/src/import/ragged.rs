//! `chlo.ragged_dot`: a product in which one dimension is cut into groups of run-time sizes.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::binary::BinaryKind::{And, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::{LocId, Monoid, Shape, TensorType, ValueId};
use smallvec::{SmallVec, smallvec};

impl<'r, 'a> Importer<'r, 'a> {
    /// `chlo.ragged_dot` as a plain product over masked copies, one per group (CHLO, "ragged_dot"):
    ///
    /// * the left operand's free dimension is ragged: rows of group `g` meet the right operand's slice `g`, so the
    ///   group dimension is contracted;
    /// * a contracted dimension is ragged: each group is contracted alone, and groups come first in the result;
    /// * a batching dimension is ragged: the sizes change nothing.
    pub(super) fn ragged_dot(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let [lhs, rhs, sizes] = self.operands_n(op)?;
        let f = self.fields(op, "ragged_dot_dimension_numbers")?;
        let lhs_batch = self.field_dims(op, f, "lhs_batching_dimensions")?;
        let rhs_batch = self.field_dims(op, f, "rhs_batching_dimensions")?;
        let lhs_contract = self.field_dims(op, f, "lhs_contracting_dimensions")?;
        let rhs_contract = self.field_dims(op, f, "rhs_contracting_dimensions")?;
        let ragged = self.field_dims(op, f, "lhs_ragged_dimensions")?;
        let groups = self.field_dims(op, f, "rhs_group_dimensions")?;
        let dtype = self.result_type(op, 0)?.dtype;
        let plain = DotGeneral { lhs_batch, rhs_batch, lhs_contract, rhs_contract, dtype };
        let [ragged] = ragged[..] else {
            return Err(self.error(op, Code::UnsupportedForm, "chlo.ragged_dot has one ragged dimension"));
        };
        if plain.lhs_batch.contains(&ragged) {
            return self.emit(op, plain, &[lhs, rhs], loc);
        }
        if self.graph.ty(sizes).rank() != 1 || ragged >= self.graph.ty(lhs).rank() {
            let message = "chlo.ragged_dot is read with one list of group sizes, the same for every batch";
            return Err(self.error(op, Code::UnsupportedForm, message));
        }
        let masked = self.masked_per_group(op, lhs, sizes, ragged, loc)?;
        // The masked operand has the groups in front.
        let shifted = |d: &Shape| -> Shape { d.iter().map(|d| d + 1).collect() };
        let mut what = DotGeneral {
            lhs_batch: shifted(&plain.lhs_batch),
            lhs_contract: shifted(&plain.lhs_contract),
            ..plain.clone()
        };
        if plain.lhs_contract.contains(&ragged) {
            let out = self.emit1(op, what, &[masked, rhs], loc)?;
            return Ok(smallvec![self.groups_first(op, out, plain.lhs_batch.len(), loc)?]);
        }
        let [group] = groups[..] else {
            return Err(self.error(op, Code::UnsupportedForm, "chlo.ragged_dot has one group dimension"));
        };
        what.lhs_contract.push(0);
        what.rhs_contract.push(group);
        self.emit(op, what, &[masked, rhs], loc)
    }

    /// `x[…] → [G, …]`: for each group the elements whose index along `dim` is in the group, zeros elsewhere.
    fn masked_per_group(
        &mut self,
        op: &RawOp<'a>,
        x: ValueId,
        sizes: ValueId,
        dim: usize,
        loc: LocId,
    ) -> Result<ValueId> {
        let (ty, st) = (self.graph.ty(x).clone(), self.graph.ty(sizes).clone());
        let (n, index) = (st.shape[0], st.dtype);
        let mut e = self.expand(op, loc);
        // ends[g] = Σ sizes[j], j ≤ g.
        let square = TensorType::new(index, [n, n]);
        let row = e.op(Iota { ty: square.clone(), dim: 0 }, &[])?;
        let column = e.op(Iota { ty: square.clone(), dim: 1 }, &[])?;
        let upto = e.compare(Direction::Le, column, row)?;
        let along = BroadcastInDim { shape: square.shape.clone(), dims: smallvec![1] };
        let all = e.op(along, &[sizes])?;
        let zero = e.number(square, 0.0)?;
        let counted = e.select(upto, all, zero)?;
        let ends = e.op(Reduce { dims: smallvec![1], monoid: Monoid::Sum }, &[counted])?;
        let starts = e.bin(Subtract, ends, sizes)?;
        // Which positions are in which group.
        let grid = TensorType::new(index, [n, ty.shape[dim]]);
        let place = e.op(Iota { ty: grid.clone(), dim: 1 }, &[])?;
        let by_group = BroadcastInDim { shape: grid.shape.clone(), dims: smallvec![0] };
        let (from, to) = (e.op(by_group.clone(), &[starts])?, e.op(by_group, &[ends])?);
        let (after, before) = (e.compare(Direction::Ge, place, from)?, e.compare(Direction::Lt, place, to)?);
        let inside = e.bin(And, after, before)?;
        // Both over groups and the operand's dimensions.
        let mut shape: Shape = smallvec![n];
        shape.extend(ty.shape.iter().copied());
        let full = ty.with_shape(shape.iter().copied());
        let mask = e.op(BroadcastInDim { shape: shape.clone(), dims: smallvec![0, dim + 1] }, &[inside])?;
        let copies = e.op(BroadcastInDim { shape, dims: (1..=ty.rank()).collect() }, &[x])?;
        let nothing = e.number(full, 0.0)?;
        e.select(mask, copies, nothing)
    }

    /// Moves the dimension behind `batch` leading ones to the front.
    fn groups_first(&mut self, op: &RawOp<'a>, v: ValueId, batch: usize, loc: LocId) -> Result<ValueId> {
        if batch == 0 {
            return Ok(v);
        }
        let rank = self.graph.ty(v).rank();
        let mut order: SmallVec<[usize; 4]> = smallvec![batch];
        order.extend((0..rank).filter(|&d| d != batch));
        self.emit1(op, Permute::Transpose(order), &[v], loc)
    }
}
