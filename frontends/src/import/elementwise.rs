//! Elementwise ops, comparison, selection, conversion.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::LocId;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::convert::Convert;
use msc_ir::ops::precision::ReducePrecision;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;

impl<'r, 'a> Importer<'r, 'a> {
    /// The op, if it is of one of these families.
    pub(super) fn elementwise(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Option<Results>> {
        // CHLO's functions have names here too, but StableHLO does not have them.
        let foreign = matches!(name, "erf" | "erfc");
        if let Some(&kind) = BinaryKind::ALL.iter().find(|k| k.name() == name) {
            let v = self.operands_n::<2>(op)?;
            return self.emit(op, kind, &v, loc).map(Some);
        }
        if let Some(&kind) = UnaryKind::ALL.iter().find(|k| k.name() == name && !foreign) {
            let v = self.operands_n::<1>(op)?;
            return self.emit(op, kind, &v, loc).map(Some);
        }
        Ok(Some(match name {
            "compare" => {
                let v = self.operands_n::<2>(op)?;
                let word = self.word(op, "comparison_direction")?;
                let direction = word.and_then(Direction::from_name).ok_or_else(|| {
                    self.bad_attr(op, "comparison_direction", "should be one of EQ NE GE GT LE LT")
                })?;
                let total_order = self.word(op, "compare_type")? == Some("TOTALORDER");
                self.emit(op, Compare { direction, total_order }, &v, loc)?
            }
            "select" => {
                let v = self.operands_n::<3>(op)?;
                self.emit(op, Select::Select, &v, loc)?
            }
            "clamp" => {
                let v = self.operands_n::<3>(op)?;
                self.emit(op, Select::Clamp, &v, loc)?
            }
            "convert" => {
                let v = self.operands_n::<1>(op)?;
                let to = self.result_type(op, 0)?.dtype;
                self.emit(op, Convert::Value(to), &v, loc)?
            }
            "bitcast_convert" => {
                let v = self.operands_n::<1>(op)?;
                let to = self.result_type(op, 0)?.dtype;
                self.emit(op, Convert::Bits(to), &v, loc)?
            }
            "reduce_precision" => {
                let v = self.operands_n::<1>(op)?;
                let bits = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                let exponent_bits = bits(self.index(op, "exponent_bits")?);
                let mantissa_bits = bits(self.index(op, "mantissa_bits")?);
                self.emit(op, ReducePrecision { exponent_bits, mantissa_bits }, &v, loc)?
            }
            // Of floats: complex numbers do not come here.
            "real" => Results::from_buf(self.operands_n::<1>(op)?),
            "imag" => {
                let [x] = self.operands_n(op)?;
                let mut e = self.expand(op, loc);
                Results::from_buf([e.number(e.ty(x), 0.0)?])
            }
            "complex" => {
                self.operands_n::<2>(op)?;
                return Err(self.error(op, Code::Invalid, "stablehlo.complex gives complex numbers"));
            }
            _ => return Ok(None),
        }))
    }
}
