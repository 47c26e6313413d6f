//! CHLO's binary ops with implicit broadcasting.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::{LocId, Op, Shape, ValueId};

impl<'r, 'a> Importer<'r, 'a> {
    /// `chlo.broadcast_add` and its like: the operands are broadcast as NumPy does (the operand of lower rank to the
    /// last dimensions, or to those that `broadcast_dimensions` names), then combined.
    pub(super) fn broadcast_binary(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let what: Op = match BinaryKind::ALL.iter().find(|k| k.name() == name) {
            Some(&kind) => kind.into(),
            None if name == "compare" => {
                let word = self.word(op, "comparison_direction")?;
                let direction = word.and_then(Direction::from_name).ok_or_else(|| {
                    self.bad_attr(op, "comparison_direction", "should be one of EQ NE GE GT LE LT")
                })?;
                let total_order = self.word(op, "compare_type")? == Some("TOTALORDER");
                Compare { direction, total_order }.into()
            }
            None => return Err(self.unknown(op)),
        };
        let [a, b] = self.operands_n(op)?;
        let shape = self.result_type(op, 0)?.shape;
        let given = match op.attr("broadcast_dimensions") {
            Some(_) => Some(self.dims(op, "broadcast_dimensions")?),
            None => None,
        };
        let (ra, rb) = (self.graph.ty(a).rank(), self.graph.ty(b).rank());
        let a = self.broadcast_to(op, a, &shape, given.as_ref().filter(|_| ra < rb), loc)?;
        let b = self.broadcast_to(op, b, &shape, given.as_ref().filter(|_| rb <= ra), loc)?;
        self.emit(op, what, &[a, b], loc)
    }

    /// The value broadcast to a shape.
    fn broadcast_to(
        &mut self,
        op: &RawOp<'a>,
        v: ValueId,
        shape: &Shape,
        dims: Option<&Shape>,
        loc: LocId,
    ) -> Result<ValueId> {
        let ty = self.graph.ty(v);
        if ty.shape == *shape {
            return Ok(v);
        }
        let dims = match dims {
            Some(d) => d.clone(),
            None => match shape.len().checked_sub(ty.rank()) {
                Some(lead) => (lead..shape.len()).collect(),
                None => {
                    let message = format!("{ty} cannot be broadcast to {shape:?}");
                    return Err(self.error(op, Code::Invalid, message));
                }
            },
        };
        self.emit1(op, BroadcastInDim { shape: shape.clone(), dims }, &[v], loc)
    }
}
