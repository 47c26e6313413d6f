//! Gather and scatter.

use super::attrs::Field;
use super::reducers::{Combine, recognise};
use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::scatter_by::ScatterBy;
use msc_ir::{LocId, Shape};

impl<'r, 'a> Importer<'r, 'a> {
    /// `gather`.
    pub(super) fn gather(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands_n::<2>(op)?;
        let f = self.fields(op, "dimension_numbers")?;
        let what = Gather { slice_sizes: self.dims(op, "slice_sizes")?, ..self.gather_numbers(op, f)? };
        self.emit(op, what, &operands, loc)
    }

    /// A gather's dimension numbers, without slice sizes.
    pub(super) fn gather_numbers(&mut self, op: &RawOp<'a>, f: &[Field<'a>]) -> Result<Gather> {
        Ok(Gather {
            offset_dims: self.field_dims(op, f, "offset_dims")?,
            collapsed_slice_dims: self.field_dims(op, f, "collapsed_slice_dims")?,
            operand_batching_dims: self.field_dims(op, f, "operand_batching_dims")?,
            start_indices_batching_dims: self.field_dims(op, f, "start_indices_batching_dims")?,
            start_index_map: self.field_dims(op, f, "start_index_map")?,
            index_vector_dim: self.field_index(op, f, "index_vector_dim")?,
            slice_sizes: Shape::new(),
        })
    }

    /// `scatter`; one of several inputs that are combined independently becomes one per input.
    pub(super) fn scatter(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let n = operands.len() / 2;
        if operands.len() != 2 * n + 1 || n == 0 {
            let message = "stablehlo.scatter takes inputs, indices and as many updates";
            return Err(self.error(op, Code::Invalid, message));
        }
        let f = self.fields(op, "scatter_dimension_numbers")?;
        let mut what = Scatter {
            update_window_dims: self.field_dims(op, f, "update_window_dims")?,
            inserted_window_dims: self.field_dims(op, f, "inserted_window_dims")?,
            input_batching_dims: self.field_dims(op, f, "input_batching_dims")?,
            scatter_indices_batching_dims: self.field_dims(op, f, "scatter_indices_batching_dims")?,
            scatter_dims_to_operand_dims: self.field_dims(op, f, "scatter_dims_to_operand_dims")?,
            index_vector_dim: self.field_index(op, f, "index_vector_dim")?,
            combine: None,
            unique_indices: self.flag(op, "unique_indices")?,
        };
        let region = self.single_region(op)?;
        let Some(combines) = recognise(region, n) else {
            let body = self.scalar_graph(op, region, "update")?;
            return self.emit(op, ScatterBy { numbers: what, body }, &operands, loc);
        };
        let mut results = Results::new();
        for (i, combine) in combines.into_iter().enumerate() {
            what.combine = match combine {
                Combine::Monoid(m) => Some(m),
                Combine::Second => None,
            };
            let v = [operands[i], operands[n], operands[n + 1 + i]];
            results.push(self.emit1(op, what.clone(), &v, loc)?);
        }
        Ok(results)
    }
}
