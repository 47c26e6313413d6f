//! Loads and stores of vectors from and to regions of tensors.

use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

use super::code::{LANES, Res, Vector};
use super::convert::convert;
use super::element::Place;
use super::lower::Lowering;
use crate::tile::{Affine, DType, Num, Span, View};

/// A region of a tensor, along the nest's directions.
pub(super) struct Region<'c> {
    base: PointerValue<'c>,
    outer_stride: i64,
    inner_stride: i64,
    /// Valid indices, if they may be fewer than the tile's.
    outer_valid: Option<IntValue<'c>>,
    pub inner_valid: Option<IntValue<'c>>,
    pub dtype: DType,
}

impl<'c> Lowering<'_, 'c> {
    /// Number of valid indices of a span, if it may be less than the extent.
    pub(super) fn valid(&self, span: &Span, extent: i64) -> Res<Option<IntValue<'c>>> {
        if self.ranges.always_full(span, extent) {
            return Ok(None);
        }
        let length = self.code.isub64(self.bound(&span.end)?, self.affine(&span.start)?)?;
        Ok(Some(self.code.min64(length, self.code.int(extent))?))
    }

    pub(super) fn region(&self, view: &View, [rows, cols]: [i64; 2], flat: bool) -> Res<Region<'c>> {
        let param = self.kernel.param(view.param);
        let strides = param.strides();
        let mut offset = Affine::zero();
        for (start, stride) in view.starts().iter().zip(&strides) {
            offset = offset.plus(&start.times(*stride));
        }
        let ty = self.code.scalar_type(param.dtype);
        let base = self.code.at(ty, self.param(view.param), self.affine(&offset)?)?;
        let along = |part: &Option<(usize, Span)>, extent| -> Res<(i64, Option<IntValue<'c>>)> {
            match part {
                Some((dim, span)) => Ok((strides[*dim], self.valid(span, extent)?)),
                None => Ok((0, None)),
            }
        };
        let (by_rows, by_cols) = (along(&view.rows, rows)?, along(&view.cols, cols)?);
        let ((outer_stride, outer_valid), (inner_stride, inner_valid)) =
            if flat { (by_cols, by_rows) } else { (by_rows, by_cols) };
        Ok(Region { base, outer_stride, inner_stride, outer_valid, inner_valid, dtype: param.dtype })
    }

    pub(super) fn load_region(&self, region: &Region<'c>, fill: Num, place: &Place<'c>) -> Res<Vector<'c>> {
        let c = self.code;
        let fill = match region.dtype {
            DType::F32 => c.f32s(fill.get()),
            // A fill for integers is an integral literal.
            DType::I32 => c.i32s(fill.get() as i32),
            half => convert(c, c.f32s(fill.get()), DType::F32, half)?,
        };
        // Rows beyond the last valid one read the last valid one and are overwritten with the fill.
        let outer = match region.outer_valid {
            Some(valid) => c.min64(place.outer, c.isub64(valid, c.int(1))?)?,
            None => place.outer,
        };
        let ty = c.vector_type(region.dtype);
        let mut value = if region.inner_stride == 1 && !place.masked {
            let from = self.address(region, outer, place.inner)?;
            c.load(ty, from, region.align())?.into_vector_value()
        } else if region.inner_stride == 1 {
            let from = self.address(region, outer, place.inner)?;
            let mask = self.lanes_in(region, place)?;
            let types = [ty.into(), c.ptr.into()];
            c.call("llvm.masked.load", &types, &[from.into(), mask.into(), fill.into()])?.into_vector_value()
        } else {
            self.gather(region, outer, fill, place)?
        };
        if let Some(valid) = region.outer_valid {
            let inside = c.splat(self.below(place.outer, valid)?.into())?;
            value = c.select(inside, value, fill)?;
        }
        Ok(value)
    }

    pub(super) fn gather(
        &self,
        region: &Region<'c>,
        outer: IntValue<'c>,
        fill: Vector<'c>,
        place: &Place<'c>,
    ) -> Res<Vector<'c>> {
        let c = self.code;
        let mut value = c.vector_type(region.dtype).get_poison();
        for lane in 0..LANES {
            let mut inner = c.iadd64(place.inner, c.int(i64::from(lane)))?;
            if place.masked {
                inner = c.min64(inner, c.isub64(self.inner_end(region, place), c.int(1))?)?;
            }
            let from = self.address(region, outer, inner)?;
            let element = c.load(c.scalar_type(region.dtype), from, region.align())?;
            let at = c.i32t.const_int(u64::from(lane), false);
            value = c.b.build_insert_element(value, element, at, "")?;
        }
        if place.masked {
            return c.select(self.lanes_in(region, place)?, value, fill);
        }
        Ok(value)
    }

    pub(super) fn store_region(&self, region: &Region<'c>, value: Vector<'c>, place: &Place<'c>) -> Res<()> {
        let write = || -> Res<()> { self.store_lanes(region, value, place) };
        match region.outer_valid {
            Some(valid) => self.code.when(self.below(place.outer, valid)?, write),
            None => write(),
        }
    }

    pub(super) fn store_lanes(&self, region: &Region<'c>, value: Vector<'c>, place: &Place<'c>) -> Res<()> {
        let c = self.code;
        let to = self.address(region, place.outer, place.inner)?;
        if region.inner_stride == 1 {
            if !place.masked {
                return c.store(to, value, region.align());
            }
            let mask = self.lanes_in(region, place)?;
            let types = [value.get_type().into(), c.ptr.into()];
            c.call_any("llvm.masked.store", &types, &[value.into(), to.into(), mask.into()])?;
            return Ok(());
        }
        for lane in 0..LANES {
            let inner = c.iadd64(place.inner, c.int(i64::from(lane)))?;
            let write = || -> Res<()> {
                let element =
                    c.b.build_extract_element(value, c.i32t.const_int(u64::from(lane), false), "")?;
                c.store(self.address(region, place.outer, inner)?, element, region.align())
            };
            if place.masked {
                c.when(self.below(inner, self.inner_end(region, place))?, write)?;
            } else {
                write()?;
            }
        }
        Ok(())
    }

    pub(super) fn address(
        &self,
        region: &Region<'c>,
        outer: IntValue<'c>,
        inner: IntValue<'c>,
    ) -> Res<PointerValue<'c>> {
        let c = self.code;
        let rows = c.imul64(outer, c.int(region.outer_stride))?;
        let cols = c.imul64(inner, c.int(region.inner_stride))?;
        c.at(c.scalar_type(region.dtype), region.base, c.iadd64(rows, cols)?)
    }

    /// Lanes that the region covers.
    pub(super) fn lanes_in(&self, region: &Region<'c>, place: &Place<'c>) -> Res<Vector<'c>> {
        let end = self.inner_end(region, place);
        self.positions_below(end, place)
    }

    pub(super) fn inner_end(&self, region: &Region<'c>, place: &Place<'c>) -> IntValue<'c> {
        region.inner_valid.unwrap_or(place.extent)
    }

    pub(super) fn lanes_below(
        &self,
        valid: Option<IntValue<'c>>,
        extent: i64,
        place: &Place<'c>,
    ) -> Res<Vector<'c>> {
        self.positions_below(valid.unwrap_or(self.code.int(extent)), place)
    }

    pub(super) fn positions_below(&self, end: IntValue<'c>, place: &Place<'c>) -> Res<Vector<'c>> {
        let c = self.code;
        let end = c.splat(self.narrow(end)?.into())?;
        c.icmp(IntPredicate::SLT, self.positions(place)?, end)
    }

    /// Indices of the lanes along the inner direction, i32.
    pub(super) fn positions(&self, place: &Place<'c>) -> Res<Vector<'c>> {
        let first = self.code.splat(self.narrow(place.inner)?.into())?;
        self.code.iadd(first, self.code.iota())
    }

    pub(super) fn narrow(&self, value: IntValue<'c>) -> Res<IntValue<'c>> {
        Ok(self.code.b.build_int_truncate(value, self.code.i32t, "")?)
    }

    pub(super) fn below(&self, index: IntValue<'c>, end: IntValue<'c>) -> Res<IntValue<'c>> {
        Ok(self.code.b.build_int_compare(IntPredicate::SLT, index, end, "")?)
    }
}

impl Region<'_> {
    fn align(&self) -> u32 {
        u32::try_from(self.dtype.bytes()).unwrap_or(1)
    }
}
