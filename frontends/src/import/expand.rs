//! Building several ops for one of the source.

use super::Importer;
use crate::error::Result;
use crate::raw::RawOp;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{DType, LocId, Op, TensorType, ValueId};

/// Builds ops in place of one of the source.
pub(super) struct Expand<'i, 'r, 'a> {
    importer: &'i mut Importer<'r, 'a>,
    op: &'i RawOp<'a>,
    loc: LocId,
}

impl<'r, 'a> Importer<'r, 'a> {
    /// A builder of ops in place of `op`.
    pub(super) fn expand<'i>(&'i mut self, op: &'i RawOp<'a>, loc: LocId) -> Expand<'i, 'r, 'a> {
        Expand { importer: self, op, loc }
    }
}

impl Expand<'_, '_, '_> {
    /// Any op with one result.
    pub(super) fn op(&mut self, what: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId> {
        self.importer.emit1(self.op, what, operands, self.loc)
    }

    /// The type of a value.
    pub(super) fn ty(&self, v: ValueId) -> TensorType {
        self.importer.graph.ty(v).clone()
    }

    /// A function of one value.
    pub(super) fn un(&mut self, kind: UnaryKind, x: ValueId) -> Result<ValueId> {
        self.op(kind, &[x])
    }

    /// A function of two values.
    pub(super) fn bin(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(kind, &[a, b])
    }

    /// `a` function of a value and a number.
    pub(super) fn with(&mut self, kind: BinaryKind, a: ValueId, number: f64) -> Result<ValueId> {
        let b = self.number(self.ty(a), number)?;
        self.bin(kind, a, b)
    }

    /// A constant of one number.
    pub(super) fn number(&mut self, ty: TensorType, number: f64) -> Result<ValueId> {
        let id = self.importer.module.constants.intern_splat(ty, number);
        self.op(ConstantOp { id }, &[])
    }

    /// A comparison.
    pub(super) fn compare(&mut self, direction: Direction, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Compare { direction, total_order: false }, &[a, b])
    }

    /// A comparison with a number.
    pub(super) fn compare_with(&mut self, direction: Direction, a: ValueId, number: f64) -> Result<ValueId> {
        let b = self.number(self.ty(a), number)?;
        self.compare(direction, a, b)
    }

    /// `then` where `pred` holds, else `otherwise`.
    pub(super) fn select(&mut self, pred: ValueId, then: ValueId, otherwise: ValueId) -> Result<ValueId> {
        self.op(Select::Select, &[pred, then, otherwise])
    }

    /// The value as another element type.
    pub(super) fn convert(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        if self.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.op(Convert::Value(dtype), &[x])
    }
}
