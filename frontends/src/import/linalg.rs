//! Matrix products, factorisations and solves.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::triangular::{Transpose, Triangular};
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

    /// `cholesky` and `triangular_solve`.
    pub(super) fn triangular(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        if name == "cholesky" {
            let lower = self.flag(op, "lower")?;
            let operand = self.operands_n::<1>(op)?;
            return self.emit(op, Triangular::Cholesky { lower }, &operand, loc);
        }
        let transpose_a = match self.word(op, "transpose_a")? {
            Some("NO_TRANSPOSE") => Transpose::NoTranspose,
            // Complex matrices, whose adjoint is another matrix, are refused by their type.
            Some("TRANSPOSE" | "ADJOINT") => Transpose::Transpose,
            _ => {
                let want = "should be one of NO_TRANSPOSE TRANSPOSE ADJOINT";
                return Err(self.bad_attr(op, "transpose_a", want));
            }
        };
        let what = Triangular::Solve {
            left_side: self.flag(op, "left_side")?,
            lower: self.flag(op, "lower")?,
            unit_diagonal: self.flag(op, "unit_diagonal")?,
            transpose_a,
        };
        let operands = self.operands_n::<2>(op)?;
        self.emit(op, what, &operands, loc)
    }
}
