//! Matrix steps: for every row of the result and every vector of columns, a sum over k in order.
//!
//! This is the meaning of a matrix step on tiles, not a fast GEMM; large products on the CPU are library
//! calls.

use super::LlvmError;
use super::code::{LANES, Res, Vector};
use super::convert::convert;
use super::lower::{Lowering, row_elements};
use crate::tile::{BufferId, DType, Step};
use inkwell::values::IntValue;

impl<'c> Lowering<'_, 'c> {
    pub(super) fn matmul(&self, step: &Step) -> Res<()> {
        let Step::Matmul { dst, a, b, transpose_a, transpose_b, accumulate } = step else {
            return Err(LlvmError::Internal("not a matrix step".to_owned()));
        };
        let c = self.code;
        let [m, n] = self.kernel.buffer(*dst).shape();
        let [rows_a, cols_a] = self.kernel.buffer(*a).shape();
        let inner = if *transpose_a { rows_a } else { cols_a };
        let row = c.open(c.int(0), c.int(m), 1, &[])?;
        let col = c.open(c.int(0), c.int(n), i64::from(LANES), &[])?;
        let stride = c.int(row_elements(self.kernel.buffer(*dst)));
        // A result of one column is dense: whole vectors there would reach into the next rows.
        let dense = n == 1;
        let at = c.iadd64(c.imul64(row.var, stride)?, col.var)?;
        let to = c.at(c.f32t, self.buffer(*dst), at)?;
        let old = match (accumulate, dense) {
            (false, _) => c.f32s(0.0),
            (true, true) => c.splat(c.load(c.f32t, to, 4)?)?,
            (true, false) => c.load(c.f32v, to, 64)?.into_vector_value(),
        };
        let k = c.open(c.int(0), c.int(inner), 1, &[old])?;
        let sums = k.carried();
        let (i, j) = if *transpose_a { (k.var, row.var) } else { (row.var, k.var) };
        let left = self.scalar_of(*a, i, j)?;
        let right =
            if *transpose_b { self.column_of(*b, col.var, k.var)? } else { self.row_of(*b, k.var, col.var)? };
        let sum = c.fadd(sums[0], c.fmul(left, right)?)?;
        let sum = c.close(k, &[sum])?[0];
        if dense {
            let value = c.b.build_extract_element(sum, c.i32t.const_zero(), "")?;
            c.store(to, value, 4)?;
        } else {
            c.store(to, sum, 64)?;
        }
        c.close(col, &[])?;
        c.close(row, &[])?;
        Ok(())
    }

    /// Element (i, j) of a tile as f32 in every lane.
    fn scalar_of(&self, id: BufferId, i: IntValue<'c>, j: IntValue<'c>) -> Res<Vector<'c>> {
        let c = self.code;
        let tile = self.kernel.buffer(id);
        let at = c.iadd64(c.imul64(i, c.int(row_elements(tile)))?, j)?;
        let from = c.at(c.scalar_type(tile.dtype), self.buffer(id), at)?;
        let value = c.splat(c.load(c.scalar_type(tile.dtype), from, align(tile.dtype))?)?;
        convert(c, value, tile.dtype, DType::F32)
    }

    /// Elements (i, j), (i, j + 1), … of a tile as f32.
    fn row_of(&self, id: BufferId, i: IntValue<'c>, j: IntValue<'c>) -> Res<Vector<'c>> {
        let c = self.code;
        let tile = self.kernel.buffer(id);
        if tile.cols == 1 {
            return self.scalar_of(id, i, j);
        }
        let at = c.iadd64(c.imul64(i, c.int(row_elements(tile)))?, j)?;
        let from = c.at(c.scalar_type(tile.dtype), self.buffer(id), at)?;
        let ty = c.vector_type(tile.dtype);
        let value = c.load(ty, from, LANES * align(tile.dtype))?.into_vector_value();
        convert(c, value, tile.dtype, DType::F32)
    }

    /// Elements (i, j), (i + 1, j), … of a tile as f32; lanes beyond the last row repeat it.
    fn column_of(&self, id: BufferId, i: IntValue<'c>, j: IntValue<'c>) -> Res<Vector<'c>> {
        let c = self.code;
        let tile = self.kernel.buffer(id);
        let mut value = c.vector_type(tile.dtype).get_poison();
        for lane in 0..LANES {
            let row = c.iadd64(i, c.int(i64::from(lane)))?;
            let row = c.min64(row, c.int(tile.rows - 1))?;
            let at = c.iadd64(c.imul64(row, c.int(row_elements(tile)))?, j)?;
            let from = c.at(c.scalar_type(tile.dtype), self.buffer(id), at)?;
            let element = c.load(c.scalar_type(tile.dtype), from, align(tile.dtype))?;
            let at = c.i32t.const_int(u64::from(lane), false);
            value = c.b.build_insert_element(value, element, at, "")?;
        }
        convert(c, value, tile.dtype, DType::F32)
    }
}

fn align(dtype: DType) -> u32 {
    u32::try_from(dtype.bytes()).unwrap_or(1)
}
