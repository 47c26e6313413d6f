//! CHLO's ops, in StableHLO's.

use super::{Importer, Results};
use crate::error::Result;
use crate::raw::RawOp;
use msc_ir::LocId;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::unary::UnaryKind;

impl<'r, 'a> Importer<'r, 'a> {
    /// An op of the CHLO dialect.
    pub(super) fn chlo(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        match name {
            "square" => {
                let [x] = self.operands_n(op)?;
                self.emit(op, BinaryKind::Multiply, &[x, x], loc)
            }
            "erf" | "erfc" => {
                let [x] = self.operands_n(op)?;
                let kind = if name == "erf" { UnaryKind::Erf } else { UnaryKind::Erfc };
                self.emit(op, kind, &[x], loc)
            }
            "tan" => {
                let [x] = self.operands_n(op)?;
                self.emit(op, UnaryKind::Tan, &[x], loc)
            }
            "top_k" => {
                let [x] = self.operands_n(op)?;
                let k = self.index(op, "k")?;
                self.top_k(op, x, k, loc)
            }
            _ => Err(self.unknown(op)),
        }
    }
}
