//! Ops that move elements: broadcast, reshape, transpose, slices, pad, concatenate; and iota.

use super::{Importer, Results};
use crate::error::Result;
use crate::raw::RawOp;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::pad::Pad;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{LocId, Op};

impl<'r, 'a> Importer<'r, 'a> {
    /// One of the ops of this file.
    pub(super) fn shape_op(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let what: Op = match name {
            "broadcast_in_dim" => {
                let dims = self.dims(op, "broadcast_dimensions")?;
                BroadcastInDim { shape: self.result_type(op, 0)?.shape, dims }.into()
            }
            "broadcast" => {
                // The new dimensions come first.
                let sizes = self.dims(op, "broadcast_sizes")?;
                let shape = self.result_type(op, 0)?.shape;
                BroadcastInDim { dims: (sizes.len()..shape.len()).collect(), shape }.into()
            }
            "iota" => Iota { ty: self.result_type(op, 0)?, dim: self.index(op, "iota_dimension")? }.into(),
            "reshape" => Reshape { shape: self.result_type(op, 0)?.shape }.into(),
            "transpose" => Permute::Transpose(self.dims(op, "permutation")?).into(),
            "reverse" => Permute::Reverse(self.dims(op, "dimensions")?).into(),
            "slice" => Slice::Static {
                start: self.dims(op, "start_indices")?,
                limit: self.dims(op, "limit_indices")?,
                stride: self.dims(op, "strides")?,
            }
            .into(),
            "dynamic_slice" => Slice::Dynamic { sizes: self.dims(op, "slice_sizes")? }.into(),
            "dynamic_update_slice" => Slice::Update.into(),
            "pad" => Pad {
                low: self.ints(op, "edge_padding_low")?.into(),
                high: self.ints(op, "edge_padding_high")?.into(),
                interior: self.dims(op, "interior_padding")?,
            }
            .into(),
            "concatenate" => Concatenate { dim: self.index(op, "dimension")? }.into(),
            _ => return Err(self.unknown(op)),
        };
        self.emit(op, what, &operands, loc)
    }
}
