//! Code of a group of steps: one loop nest over its tile, vectors of [`LANES`] elements.
//!
//! The nest's *inner* direction is the one that lies densely in memory: columns, or rows for tiles of one
//! column. Whole vectors within all valid ranges run without masks; a second loop finishes the rest with
//! masks. A reduction along the inner direction keeps one partial result per lane (element i goes to lane
//! i mod LANES) and combines the lanes as a binary tree, so its bits depend on nothing but the data.

use std::collections::BTreeMap;

use inkwell::values::{IntValue, PointerValue};

use super::code::{LANES, Res, Vector};
use super::convert::convert;
use super::group::Group;
use super::lower::{Lowering, row_elements};
use super::math;
use super::region::Region;
use crate::tile::{BufferId, DType, Operand, Over, ReduceOp, Step};

/// The place in the loop nest that code is written for.
pub(super) struct Place<'c> {
    /// Index along the outer direction.
    pub outer: IntValue<'c>,
    /// Index of the first lane along the inner direction.
    pub inner: IntValue<'c>,
    /// Extent of the inner direction.
    pub extent: IntValue<'c>,
    /// Whether lanes may lie beyond valid ranges.
    pub masked: bool,
}

/// The loop nest of a group.
struct Nest<'c> {
    flat: bool,
    outer: i64,
    inner: i64,
    /// Per step: the region it moves, if it is a load or store.
    regions: Vec<Option<Region<'c>>>,
    /// Per step: number of valid elements along the direction it reduces, if restricted.
    valid: Vec<Option<IntValue<'c>>>,
}

impl<'c> Nest<'c> {
    /// Whether reducing `over` runs along the inner direction.
    fn along_inner(&self, over: Over) -> bool {
        (over == Over::Cols) != self.flat
    }
}

impl<'c> Lowering<'_, 'c> {
    pub(super) fn group(&mut self, group: &Group<'_>) -> Res<()> {
        let c = self.code;
        let nest = self.nest(group)?;
        self.start_sums(group, &nest)?;
        let full = self.unmasked(&nest)?;
        let rows = c.open(c.int(0), c.int(nest.outer), 1, &[])?;
        let lanes: Vec<(usize, ReduceOp)> = inner_reductions(group, &nest);
        let neutral: Vec<Vector> = lanes.iter().map(|(_, op)| c.f32s(op.neutral().get())).collect();
        let mut sums = neutral;
        let whole = nest.inner % i64::from(LANES) == 0 && full.is_const();
        for masked in [false, true] {
            if masked && whole {
                break;
            }
            let (start, end) = if masked { (full, c.int(nest.inner)) } else { (c.int(0), full) };
            let l = c.open(start, end, i64::from(LANES), &sums)?;
            let place = Place { outer: rows.var, inner: l.var, extent: c.int(nest.inner), masked };
            let next = self.body(group, &nest, &place, &lanes, l.carried())?;
            sums = c.close(l, &next)?;
        }
        for ((n, op), sum) in lanes.into_iter().zip(sums) {
            self.finish_sum(group.steps[n], op, sum, rows.var)?;
        }
        c.close(rows, &[])?;
        Ok(())
    }

    fn nest(&self, group: &Group<'_>) -> Res<Nest<'c>> {
        let [rows, cols] = group.shape;
        let flat = cols == 1 && rows > 1;
        let (outer, inner) = if flat { (1, rows) } else { (rows, cols) };
        let mut nest = Nest { flat, outer, inner, regions: Vec::new(), valid: Vec::new() };
        for step in &group.steps {
            let region = match step {
                Step::Load { from: view, .. } | Step::Store { to: view, .. } => {
                    Some(self.region(view, group.shape, flat)?)
                }
                _ => None,
            };
            nest.regions.push(region);
            let valid = match step {
                Step::Reduce { over, valid: Some(span), .. } => {
                    self.valid(span, if *over == Over::Rows { rows } else { cols })?
                }
                _ => None,
            };
            nest.valid.push(valid);
        }
        Ok(nest)
    }

    /// End of the part of the inner direction that whole vectors within all valid ranges cover.
    fn unmasked(&self, nest: &Nest<'c>) -> Res<IntValue<'c>> {
        let c = self.code;
        let mut end = c.int(nest.inner);
        for region in nest.regions.iter().flatten() {
            if let Some(valid) = region.inner_valid {
                end = c.min64(end, valid)?;
            }
        }
        for valid in nest.valid.iter().flatten() {
            end = c.min64(end, *valid)?;
        }
        Ok(c.b.build_and(end, c.int(-i64::from(LANES)), "full")?)
    }

    /// Sets the results of reductions over the outer direction to neutral, where they do not accumulate.
    fn start_sums(&self, group: &Group<'_>, nest: &Nest<'c>) -> Res<()> {
        let c = self.code;
        for step in &group.steps {
            let Step::Reduce { op, over, dst, accumulate: false, .. } = step else { continue };
            if nest.along_inner(*over) || nest.outer == 1 {
                continue;
            }
            let l = c.open(c.int(0), c.int(nest.inner), i64::from(LANES), &[])?;
            let to = c.at(c.f32t, self.buffer(*dst), l.var)?;
            c.store(to, c.f32s(op.neutral().get()), vector_align(DType::F32))?;
            c.close(l, &[])?;
        }
        Ok(())
    }

    /// Combines the lanes of an inner reduction and stores the result.
    fn finish_sum(&self, step: &Step, op: ReduceOp, sum: Vector<'c>, outer: IntValue<'c>) -> Res<()> {
        let Step::Reduce { dst, accumulate, .. } = step else { return Ok(()) };
        let c = self.code;
        let mut sum = sum;
        let mut width = LANES / 2;
        while width > 0 {
            // Lane n meets lane n + width; the lanes from width on are no longer used.
            let upper: Vec<_> =
                (0..LANES).map(|n| c.i32t.const_int(u64::from((n + width) % LANES), false)).collect();
            let mask = inkwell::types::VectorType::const_vector(&upper);
            let shifted = c.b.build_shuffle_vector(sum, sum, mask, "")?;
            sum = math::binary(c, op.combine(), sum, shifted)?;
            width /= 2;
        }
        let to = c.at(c.f32t, self.buffer(*dst), outer)?;
        if *accumulate {
            let old = c.splat(c.load(c.f32t, to, 4)?)?;
            sum = math::binary(c, op.combine(), old, sum)?;
        }
        let value = c.b.build_extract_element(sum, c.i32t.const_zero(), "")?;
        c.store(to, value, 4)
    }

    /// Code of all steps for one vector; gives the lane accumulators' next values.
    fn body(
        &self,
        group: &Group<'_>,
        nest: &Nest<'c>,
        place: &Place<'c>,
        lanes: &[(usize, ReduceOp)],
        mut sums: Vec<Vector<'c>>,
    ) -> Res<Vec<Vector<'c>>> {
        let c = self.code;
        let mut held: BTreeMap<BufferId, Vector<'c>> = BTreeMap::new();
        for (n, step) in group.steps.iter().enumerate() {
            let value = match step {
                Step::Load { fill, .. } => match &nest.regions[n] {
                    Some(region) => self.load_region(region, *fill, place)?,
                    None => continue,
                },
                Step::Store { src, .. } => {
                    let value = self.value(*src, &held, nest, place)?;
                    if let Some(region) = &nest.regions[n] {
                        let value = convert(c, value, self.kernel.buffer(*src).dtype, region.dtype)?;
                        self.store_region(region, value, place)?;
                    }
                    continue;
                }
                Step::Fill { value, .. } => c.f32s(value.get()),
                Step::Index { along, start, .. } => {
                    let start = c.splat(self.narrow(self.affine(start)?)?.into())?;
                    let at = if nest.along_inner(*along) {
                        self.positions(place)?
                    } else {
                        c.splat(self.narrow(place.outer)?.into())?
                    };
                    c.iadd(start, at)?
                }
                Step::Unary { op, src, .. } => math::unary(c, *op, self.operand(src, &held, nest, place)?)?,
                Step::Binary { op, a, b, .. } => {
                    let (a, b) = (self.operand(a, &held, nest, place)?, self.operand(b, &held, nest, place)?);
                    math::binary(c, *op, a, b)?
                }
                Step::Select { op, a, b, on_true, on_false, .. } => {
                    let ints = self.is_int(a);
                    let get = |o| self.operand(o, &held, nest, place);
                    let (a, b) = (get(a)?, get(b)?);
                    let mask =
                        if ints { math::compare_ints(c, *op, a, b)? } else { math::compare(c, *op, a, b)? };
                    c.select(mask, get(on_true)?, get(on_false)?)?
                }
                Step::Convert { dst, src } => {
                    let (from, to) = (self.kernel.buffer(*src).dtype, self.kernel.buffer(*dst).dtype);
                    convert(c, self.value(*src, &held, nest, place)?, from, to)?
                }
                Step::Copy { src, .. } => self.value(*src, &held, nest, place)?,
                Step::Reduce { op, over, dst, src, accumulate, .. } => {
                    let value = self.value(*src, &held, nest, place)?;
                    match lanes.iter().position(|(at, _)| *at == n) {
                        Some(at) => {
                            let value = if place.masked {
                                let mask = self.lanes_below(nest.valid[n], nest.inner, place)?;
                                c.select(mask, value, c.f32s(op.neutral().get()))?
                            } else {
                                value
                            };
                            sums[at] = math::binary(c, op.combine(), sums[at], value)?;
                        }
                        None => {
                            debug_assert!(!nest.along_inner(*over));
                            let replace = nest.outer == 1 && !accumulate;
                            self.add_outer(*op, *dst, value, nest.valid[n], replace, place)?;
                        }
                    }
                    continue;
                }
                Step::Matmul { .. } | Step::For(_) => continue,
            };
            if let Some(dst) = step.writes() {
                held.insert(dst, value);
            }
        }
        for id in &group.live_out {
            if let Some(value) = held.get(id) {
                let (to, dtype) = (self.element(*id, nest, place)?, self.kernel.buffer(*id).dtype);
                c.store(to, *value, vector_align(dtype))?;
            }
        }
        Ok(sums)
    }

    /// Adds one vector to a reduction over the outer direction.
    fn add_outer(
        &self,
        op: ReduceOp,
        dst: BufferId,
        value: Vector<'c>,
        valid: Option<IntValue<'c>>,
        replace: bool,
        place: &Place<'c>,
    ) -> Res<()> {
        let c = self.code;
        let to = c.at(c.f32t, self.buffer(dst), place.inner)?;
        let mut value = value;
        if !replace {
            if let Some(valid) = valid {
                let inside = c.splat(self.below(place.outer, valid)?.into())?;
                value = c.select(inside, value, c.f32s(op.neutral().get()))?;
            }
            let old = c.load(c.f32v, to, vector_align(DType::F32))?.into_vector_value();
            value = math::binary(c, op.combine(), old, value)?;
        }
        c.store(to, value, vector_align(DType::F32))
    }

    fn is_int(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Tile(id) => self.kernel.buffer(*id).dtype == DType::I32,
            Operand::Int(_) => true,
            Operand::Num(_) | Operand::Scalar(_) => false,
        }
    }

    fn operand(
        &self,
        operand: &Operand,
        held: &BTreeMap<BufferId, Vector<'c>>,
        nest: &Nest<'c>,
        place: &Place<'c>,
    ) -> Res<Vector<'c>> {
        match operand {
            Operand::Tile(id) => self.value(*id, held, nest, place),
            Operand::Num(v) => Ok(self.code.f32s(v.get())),
            Operand::Int(v) => Ok(self.code.i32s(*v)),
            Operand::Scalar(id) => self.code.splat(self.scalar(*id)),
        }
    }

    /// The tile's elements here: from a register, or from memory, repeated where it has one row or column.
    fn value(
        &self,
        id: BufferId,
        held: &BTreeMap<BufferId, Vector<'c>>,
        nest: &Nest<'c>,
        place: &Place<'c>,
    ) -> Res<Vector<'c>> {
        if let Some(value) = held.get(&id) {
            return Ok(*value);
        }
        let c = self.code;
        let buffer = self.kernel.buffer(id);
        let from = self.element(id, nest, place)?;
        let inner = if nest.flat { buffer.rows } else { buffer.cols };
        if inner == nest.inner {
            let ty = c.vector_type(buffer.dtype);
            return Ok(c.load(ty, from, vector_align(buffer.dtype))?.into_vector_value());
        }
        let align = u32::try_from(buffer.dtype.bytes()).unwrap_or(1);
        c.splat(c.load(c.scalar_type(buffer.dtype), from, align)?)
    }

    /// Address in scratch memory of the tile's element for the first lane.
    fn element(&self, id: BufferId, nest: &Nest<'c>, place: &Place<'c>) -> Res<PointerValue<'c>> {
        let c = self.code;
        let buffer = self.kernel.buffer(id);
        let (outer, inner) = if nest.flat { (buffer.cols, buffer.rows) } else { (buffer.rows, buffer.cols) };
        let mut at = c.int(0);
        if outer > 1 {
            at = c.imul64(place.outer, c.int(row_elements(buffer)))?;
        }
        if inner > 1 {
            at = c.iadd64(at, place.inner)?;
        }
        c.at(c.scalar_type(buffer.dtype), self.buffer(id), at)
    }
}

fn vector_align(dtype: DType) -> u32 {
    LANES * u32::try_from(dtype.bytes()).unwrap_or(1)
}

/// The reductions along the inner direction: number of the step, monoid.
fn inner_reductions(group: &Group<'_>, nest: &Nest<'_>) -> Vec<(usize, ReduceOp)> {
    let along = |(n, step): (usize, &&Step)| match step {
        Step::Reduce { op, over, .. } if nest.along_inner(*over) => Some((n, *op)),
        _ => None,
    };
    group.steps.iter().enumerate().filter_map(along).collect()
}
