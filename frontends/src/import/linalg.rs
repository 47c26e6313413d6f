//! Matrix products.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::{LocId, Shape};

impl<'r, 'a> Importer<'r, 'a> {
    /// `dot_general`, and `dot` as one: the last dimension of the left against the first of the right operand.
    pub(super) fn dot(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let operands = self.operands_n::<2>(op)?;
        let dtype = self.result_type(op, 0)?.dtype;
        let what = if name == "dot" {
            let rank = self.graph.ty(operands[0]).rank();
            let Some(last) = rank.checked_sub(1) else {
                return Err(self.error(op, Code::Invalid, "stablehlo.dot of a scalar"));
            };
            DotGeneral {
                lhs_batch: Shape::new(),
                rhs_batch: Shape::new(),
                lhs_contract: Shape::from_slice(&[last]),
                rhs_contract: Shape::from_slice(&[0]),
                dtype,
            }
        } else {
            let f = self.fields(op, "dot_dimension_numbers")?;
            DotGeneral {
                lhs_batch: self.field_dims(op, f, "lhs_batching_dimensions")?,
                rhs_batch: self.field_dims(op, f, "rhs_batching_dimensions")?,
                lhs_contract: self.field_dims(op, f, "lhs_contracting_dimensions")?,
                rhs_contract: self.field_dims(op, f, "rhs_contracting_dimensions")?,
                dtype,
            }
        };
        self.emit(op, what, &operands, loc)
    }
}
