//! Convolution, batch norms, random bits.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::{Attr, RawOp};
use msc_ir::ops::batch_norm::{BatchNorm, BatchNormKind};
use msc_ir::ops::convolution::Convolution;
use msc_ir::ops::fused::Scalar;
use msc_ir::ops::rng::{Algorithm, RngBitGenerator};
use msc_ir::{LocId, Shape};
use smallvec::{SmallVec, smallvec};

impl<'r, 'a> Importer<'r, 'a> {
    /// `convolution`.
    pub(super) fn convolution(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands_n::<2>(op)?;
        let f = self.fields(op, "dimension_numbers")?;
        let lhs_spatial = self.field_dims(op, f, "input_spatial_dimensions")?;
        let rank = lhs_spatial.len();
        let (low, high) = self.padding(op, rank)?;
        let mut or_ones = |name: &str| -> Result<Shape> {
            match op.attr(name) {
                Some(_) => self.dims(op, name),
                None => Ok(smallvec![1; rank]),
            }
        };
        let stride = or_ones("window_strides")?;
        let lhs_dilation = or_ones("lhs_dilation")?;
        let rhs_dilation = or_ones("rhs_dilation")?;
        let reversed: SmallVec<[bool; 4]> = match op.attr("window_reversal") {
            Some(_) => self.ints(op, "window_reversal")?.iter().map(|&b| b != 0).collect(),
            None => smallvec![false; rank],
        };
        let what = Convolution {
            lhs_batch: self.field_index(op, f, "input_batch_dimension")?,
            lhs_feature: self.field_index(op, f, "input_feature_dimension")?,
            lhs_spatial,
            rhs_in: self.field_index(op, f, "kernel_input_feature_dimension")?,
            rhs_out: self.field_index(op, f, "kernel_output_feature_dimension")?,
            rhs_spatial: self.field_dims(op, f, "kernel_spatial_dimensions")?,
            out_batch: self.field_index(op, f, "output_batch_dimension")?,
            out_feature: self.field_index(op, f, "output_feature_dimension")?,
            out_spatial: self.field_dims(op, f, "output_spatial_dimensions")?,
            stride,
            low,
            high,
            lhs_dilation,
            rhs_dilation,
            reversed,
            feature_groups: self.index(op, "feature_group_count")?,
            batch_groups: self.index(op, "batch_group_count")?,
            dtype: self.result_type(op, 0)?.dtype,
        };
        self.emit(op, what, &operands, loc)
    }

    /// `batch_norm_training`, `batch_norm_inference`, `batch_norm_grad`.
    pub(super) fn batch_norm(&mut self, op: &RawOp<'a>, name: &str, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let epsilon = match self.need(op, "epsilon")? {
            Attr::Float(x, _) => Scalar::new(*x),
            _ => return Err(self.bad_attr(op, "epsilon", "should be a number")),
        };
        let kind = match name {
            "batch_norm_training" => BatchNormKind::Training,
            "batch_norm_inference" => BatchNormKind::Inference,
            _ => BatchNormKind::Grad,
        };
        let what = BatchNorm { kind, epsilon, feature: self.index(op, "feature_index")? };
        self.emit(op, what, &operands, loc)
    }

    /// `rng_bit_generator`.
    pub(super) fn random_bits(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands_n::<1>(op)?;
        let algorithm = match self.word(op, "rng_algorithm")? {
            Some("DEFAULT") => Algorithm::Default,
            Some("THREE_FRY") => Algorithm::ThreeFry,
            Some("PHILOX") => Algorithm::Philox,
            _ => {
                return Err(self.bad_attr(op, "rng_algorithm", "should be DEFAULT, THREE_FRY or PHILOX"));
            }
        };
        let ty = self.result_type(op, 1)?;
        self.emit(op, RngBitGenerator { algorithm, ty }, &operands, loc)
    }

    /// The error for `rng`, whose numbers no two back ends give alike.
    pub(super) fn refuse_rng(&self, op: &RawOp<'_>) -> crate::FrontendError {
        self.error(op, Code::UnsupportedForm, "stablehlo.rng has no defined result").help(
            "use random numbers from a key (jax.random), which stablehlo.rng_bit_generator or plain ops give",
        )
    }
}
