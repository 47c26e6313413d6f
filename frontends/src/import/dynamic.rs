//! Ops whose shapes are operands, where the result's shape is static: shape refinement leaves these behind.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::pad::Pad;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, LocId, Op, Shape, TensorType, ValueId};

impl<'r, 'a> Importer<'r, 'a> {
    /// One of the ops of this file. A shape operand says what the result's type says already; an operand that says
    /// more (paddings, limits) must be a constant.
    pub(super) fn dynamic_op(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let Some(&x) = operands.first() else {
            return Err(self.error(op, Code::Invalid, format!("{} has no operand", op.name)));
        };
        let ty = self.result_type(op, 0)?;
        let (what, operands): (Op, Vec<ValueId>) = match name {
            "dynamic_iota" => (Iota { ty, dim: self.index(op, "iota_dimension")? }.into(), vec![]),
            "dynamic_reshape" => (Reshape { shape: ty.shape }.into(), vec![x]),
            "dynamic_broadcast_in_dim" => {
                let dims = self.dims(op, "broadcast_dimensions")?;
                (BroadcastInDim { shape: ty.shape, dims }.into(), vec![x])
            }
            "real_dynamic_slice" => {
                let what = Slice::Static {
                    start: self.constant_dims(op, &operands, 1)?,
                    limit: self.constant_dims(op, &operands, 2)?,
                    stride: self.constant_dims(op, &operands, 3)?,
                };
                (what.into(), vec![x])
            }
            "dynamic_pad" => {
                let what = Pad {
                    low: self.constant_ints(op, &operands, 2)?.into(),
                    high: self.constant_ints(op, &operands, 3)?.into(),
                    interior: self.constant_dims(op, &operands, 4)?,
                };
                (what.into(), operands[..2].to_vec())
            }
            "dynamic_gather" => {
                let f = self.fields(op, "dimension_numbers")?;
                let what = Gather {
                    slice_sizes: self.constant_dims(op, &operands, 2)?,
                    ..self.gather_numbers(op, f)?
                };
                (what.into(), operands[..2].to_vec())
            }
            "get_dimension_size" => {
                let dim = self.index(op, "dimension")?;
                let Some(&size) = self.graph.ty(x).shape.get(dim) else {
                    return Err(self.bad_attr(op, "dimension", "is not one of the operand's"));
                };
                let one = TensorType::scalar(DType::I32);
                let id = self.module.constants.intern_splat(one, size as f64);
                (ConstantOp { id }.into(), vec![])
            }
            _ => return Err(self.unknown(op)),
        };
        self.emit(op, what, &operands, loc)
    }

    /// The elements of operand `i`, which must be a constant.
    fn constant_ints(&self, op: &RawOp<'a>, operands: &[ValueId], i: usize) -> Result<Vec<i64>> {
        let def = operands.get(i).and_then(|&v| self.graph.def(v));
        let constant = def.and_then(|(def, _)| match &self.graph.op(def).op {
            Op::Constant(c) => Some(self.module.constants.get(c.id)),
            _ => None,
        });
        match constant {
            // As many as an operand has dimensions; a splat of a hostile size is not expanded.
            Some(c) if c.ty.rank() == 1 && c.ty.elements() <= 64 && !c.ty.dtype.is_float() => {
                let t = c.tensor();
                Ok((0..t.len()).map(|i| t.data.get_i64(i)).collect())
            }
            _ => Err(self
                .error(
                    op,
                    Code::UnsupportedForm,
                    format!("operand {i} of {} is not a constant list", op.name),
                )
                .help("export the step at fixed shapes (no shape polymorphism)")),
        }
    }

    fn constant_dims(&self, op: &RawOp<'a>, operands: &[ValueId], i: usize) -> Result<Shape> {
        let v = self.constant_ints(op, operands, i)?;
        v.into_iter()
            .map(|n| {
                usize::try_from(n).map_err(|_| {
                    self.error(op, Code::Invalid, format!("operand {i} of {} is negative", op.name))
                })
            })
            .collect()
    }
}
