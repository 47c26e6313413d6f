//! Kernels of a row group: choice of the form and of the tiling.
//!
//! *Elementwise*: see [`flat`](super::flat).
//!
//! *Resident*: a tile holds whole rows. Inputs are read once; reductions over the rows are kept on chip
//! and written as one partial result per block, which a second small kernel adds up.
//!
//! *Chunked*: rows are too long for that. Each row is walked in chunks of columns, once per level of
//! column reductions, reading the inputs again each time. Reductions over the rows are computed by a
//! kernel of their own whose blocks split the columns ([`columns`](super::columns)).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::columns::build_columns;
use super::emit::{Emitter, reachable};
use super::flat::{build_flat, is_elementwise};
use super::reuse::{Sharing, moved, reuse_buffers};
use super::{BuildError, RowDef, RowGroup, RowShape, RowType, RowValueId, Sink};
use crate::tile::{
    Affine, Bound, BufferId, DType, DeviceSpec, GridId, Kernel, Over, Ranges, Role, Space, Span, Step, View,
    div_ceil, verify,
};

/// A tensor between the kernels of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Temp {
    /// Name of the parameter in the kernels that write and read it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<i64>,
}

/// The kernels of a group, in launch order. Parameters are bound by name: a parameter is one of the
/// group's inputs or outputs, or a temporary. A parameter has the element count of the tensor bound to
/// it; its shape may be another (elementwise groups see all tensors as one long row).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowKernels {
    /// The kernels; each starts when the one before has finished.
    pub kernels: Vec<Kernel>,
    /// Tensors that pass between them.
    pub temps: Vec<Temp>,
}

/// Rows of a tile at most.
const MAX_TILE_ROWS: i64 = 256;
/// Columns of a chunk are a multiple of this: one vector instruction's worth of f32.
const CHUNK_GRANULE: i64 = 64;

/// Builds the kernels of a group for a device: at most one block per vector core, the largest tiles that
/// fit. Every kernel returned has passed the verifier.
///
/// # Errors
/// If the description is malformed or nothing fits the device.
pub fn build_rows(group: &RowGroup, device: &DeviceSpec) -> Result<RowKernels, BuildError> {
    let types = group.infer()?;
    if group.outputs.is_empty() {
        return Err(group.whole("no outputs".to_owned()));
    }
    let plan = if is_elementwise(group, &types) {
        RowKernels { kernels: vec![build_flat(group, device)?], temps: Vec::new() }
    } else if let Some(plan) = resident_plan(group, &types, device) {
        plan?
    } else {
        chunked_plan(group, &types, device)?
    };
    plan.kernels.iter().try_for_each(|kernel| verify(kernel, device))?;
    Ok(plan)
}

/// How rows are dealt to blocks: every block but the last gets `per_block`.
struct RowSplit {
    blocks: i64,
    per_block: i64,
    tile: i64,
}

impl RowSplit {
    /// At most `cores` blocks, tiles of at most `max_tile` rows, as even as whole tiles allow.
    fn new(rows: i64, cores: i64, max_tile: i64) -> RowSplit {
        let share = div_ceil(rows, cores.max(1));
        let tile = div_ceil(share, div_ceil(share, max_tile));
        let per_block = div_ceil(share, tile) * tile;
        RowSplit { blocks: div_ceil(rows, per_block), per_block, tile }
    }
}

/// Merges buffers and checks the size: with transfers kept apart and counted twice, so that they can
/// overlap computation. With `tight`, for the smallest tiles, less will do.
pub(super) fn finish(e: Emitter<'_>, device: &DeviceSpec, tight: bool) -> Option<Kernel> {
    let attempts = [(Sharing::Apart, true), (Sharing::Apart, false), (Sharing::All, false)];
    for (sharing, twice) in &attempts[..if tight { 3 } else { 1 }] {
        let mut kernel = e.kernel.clone();
        reuse_buffers(&mut kernel, *sharing);
        let mut bytes = kernel.bytes_in(Space::Vector, device);
        if *twice {
            bytes += moved(&kernel).keys().map(|id| kernel.buffer(*id).bytes(device.align)).sum::<i64>();
        }
        if bytes <= device.vector_usable() {
            return Some(kernel);
        }
    }
    None
}

/// `None` if not even one row at a time fits.
fn resident_plan(
    group: &RowGroup,
    types: &[RowType],
    device: &DeviceSpec,
) -> Option<Result<RowKernels, BuildError>> {
    let mut tile = MAX_TILE_ROWS;
    let kernel = loop {
        let split = RowSplit::new(group.rows, device.vector_cores, tile);
        if let Some(kernel) = resident(group, types, &split, device) {
            break kernel;
        }
        if split.tile == 1 {
            return None;
        }
        tile = split.tile / 2;
    };
    Some(with_partials(group, kernel, device))
}

/// Adds the kernel that sums the blocks' partial results, if there are any.
fn with_partials(group: &RowGroup, kernel: Kernel, device: &DeviceSpec) -> Result<RowKernels, BuildError> {
    let mut temps = Vec::new();
    let mut sum = RowGroup::new(format!("{}_sum", group.name), kernel.blocks(), group.cols);
    sum.origin.clone_from(&group.origin);
    for output in &group.outputs {
        let Sink::ReduceRows(op) = output.sink else { continue };
        let name = partial_name(&output.name);
        let value = sum.input(&name, RowShape::Full, DType::F32);
        sum.reduce_rows(&output.name, op, value, output.dtype);
        temps.push(Temp { name, dtype: DType::F32, shape: vec![sum.rows, sum.cols] });
    }
    let mut kernels = vec![kernel];
    if !temps.is_empty() {
        kernels.push(build_columns(&sum, device)?);
    }
    Ok(RowKernels { kernels, temps })
}

fn partial_name(output: &str) -> String {
    format!("{output}_partial")
}

fn is_literal(def: &RowDef) -> bool {
    matches!(def, RowDef::Num(_) | RowDef::Int(_) | RowDef::Scalar { .. })
}

/// Opens the grid and the loop over a block's row tiles; `before` runs between the two and says what the
/// loop carries.
fn open_rows(e: &mut Emitter<'_>, split: &RowSplit, before: impl FnOnce(&mut Emitter<'_>) -> Vec<BufferId>) {
    let grid: GridId = e.kernel.add_grid("rows", split.blocks);
    let start = Affine::grid(grid).times(split.per_block);
    let end = Bound::at(start.plus_const(split.per_block)).or(e.group.rows);
    let carries = before(e);
    let id = e.open("rows", start, end.clone(), split.tile, carries);
    e.rows = Span::new(Affine::loop_var(id), end);
}

/// The span as a reduction must state it: nothing if the tile is always full.
pub(super) fn valid_rows(e: &Emitter<'_>, loops: &[&crate::tile::Loop]) -> Option<Span> {
    let mut ranges = Ranges::new(&e.kernel.grid);
    loops.iter().for_each(|l| ranges.push(l));
    (!ranges.always_full(&e.rows, e.tile[0])).then(|| e.rows.clone())
}

fn resident(group: &RowGroup, types: &[RowType], split: &RowSplit, device: &DeviceSpec) -> Option<Kernel> {
    let needed = reachable(group, group.outputs.iter().map(|o| o.value), |_| false);
    let mut e = Emitter::new(group, types, group.name.clone(), &needed, [split.tile, group.cols]);
    let mut sums = Vec::new();
    open_rows(&mut e, split, |e| {
        for output in group.outputs.iter() {
            let Sink::ReduceRows(op) = output.sink else { continue };
            let sum = e.buffer(&format!("{}_sum", output.name), DType::F32, [1, group.cols]);
            e.emit(Step::Fill { dst: sum, value: op.neutral() });
            sums.push((output, op, sum));
        }
        per_column_values(e, &needed);
        sums.iter().map(|(_, _, sum)| *sum).collect()
    });
    let valid = e.innermost().and_then(|l| valid_rows(&e, &[l]));
    for &id in &needed {
        let stored = group.outputs.iter().any(|o| o.value == id);
        let leaf = is_literal(group.def(id)) || matches!(group.def(id), RowDef::Input { .. });
        let per_row = matches!(types[id.0 as usize].shape, RowShape::Full | RowShape::Column);
        if !per_row || (leaf && !stored) {
            continue;
        }
        e.compute(id);
        for output in group.outputs.iter().filter(|o| o.value == id && o.sink == Sink::Store) {
            e.store(output);
        }
        for &(_, op, dst) in sums.iter().filter(|(o, _, _)| o.value == id) {
            let src = e.wide(id);
            let valid = valid.clone();
            e.emit(Step::Reduce { op, over: Over::Rows, dst, src, valid, accumulate: true });
        }
    }
    e.close();
    for (output, _, src) in sums {
        let shape = vec![split.blocks, group.cols];
        let param = e.add_param(&partial_name(&output.name), DType::F32, shape, Role::Out);
        let block = Span::exact(Affine::grid(GridId(0)), 1);
        e.emit(Step::Store { src, to: View::matrix(param, block, Span::exact(0, group.cols)) });
    }
    finish(e, device, split.tile == 1)
}

/// Computes at the current place the values that do not depend on the row, as far as values that do
/// depend on it use them.
pub(super) fn per_column_values(e: &mut Emitter<'_>, needed: &BTreeSet<RowValueId>) {
    let group = e.group;
    let per_column = |e: &Emitter<'_>, id: RowValueId| {
        matches!(e.types[id.0 as usize].shape, RowShape::Row | RowShape::Single)
    };
    let mut used = BTreeSet::new();
    for &id in needed.iter().filter(|id| !per_column(e, **id)) {
        used.extend(group.def(id).operands());
    }
    for id in used {
        if per_column(e, id) && !is_literal(group.def(id)) {
            e.wide(id);
        }
    }
}

/// Splits the group at the columns that its reductions over rows need, and builds both parts.
fn chunked_plan(group: &RowGroup, types: &[RowType], device: &DeviceSpec) -> Result<RowKernels, BuildError> {
    let (mut main, mut over_rows) = (group.clone(), group.clone());
    main.outputs.retain(|o| o.sink == Sink::Store);
    over_rows.outputs.retain(|o| o.sink != Sink::Store);
    over_rows.name = format!("{}_sum", group.name);
    let is_cut = |id: RowValueId| {
        let ty = types[id.0 as usize];
        ty.shape == RowShape::Column && ty.level > 0
    };
    let mut temps = Vec::new();
    let below = reachable(group, over_rows.outputs.iter().map(|o| o.value), is_cut);
    for id in below.into_iter().filter(|id| is_cut(*id)) {
        let (name, dtype) =
            (format!("{}_v{}", group.name, id.0), types[id.0 as usize].dtype.unwrap_or(DType::F32));
        main.store(&name, id, dtype);
        over_rows.values[id.0 as usize].def =
            RowDef::Input { name: name.clone(), shape: RowShape::Column, dtype };
        temps.push(Temp { name, dtype, shape: vec![group.rows] });
    }
    let mut kernels = Vec::new();
    if !main.outputs.is_empty() {
        kernels.push(largest_chunk(&main, device)?);
    }
    if !over_rows.outputs.is_empty() {
        kernels.push(build_columns(&over_rows, device)?);
    }
    Ok(RowKernels { kernels, temps })
}

fn largest_chunk(group: &RowGroup, device: &DeviceSpec) -> Result<Kernel, BuildError> {
    let types = group.infer()?;
    let split = RowSplit::new(group.rows, device.vector_cores, 1);
    let mut parts = 1;
    loop {
        let chunk = div_ceil(div_ceil(group.cols, parts), CHUNK_GRANULE) * CHUNK_GRANULE;
        if let Some(kernel) = chunked(group, &types, &split, chunk, device) {
            return Ok(kernel);
        }
        if chunk == CHUNK_GRANULE {
            return Err(BuildError::TooLarge { group: group.name.clone(), device: device.name.clone() });
        }
        parts += 1;
    }
}

fn chunked(
    group: &RowGroup,
    types: &[RowType],
    split: &RowSplit,
    chunk: i64,
    device: &DeviceSpec,
) -> Option<Kernel> {
    let needed = reachable(group, group.outputs.iter().map(|o| o.value), |_| false);
    let mut e = Emitter::new(group, types, group.name.clone(), &needed, [split.tile, chunk]);
    open_rows(&mut e, split, |e| {
        let singles = needed.iter().filter(|id| e.types[id.0 as usize].shape == RowShape::Single);
        for id in singles.copied().collect::<Vec<_>>() {
            if !is_literal(group.def(id)) {
                e.wide(id);
            }
        }
        Vec::new()
    });
    let last = needed.iter().map(|id| types[id.0 as usize].level).max().unwrap_or(0);
    for level in 0..=last {
        columns_of_level(&mut e, &needed, level);
        pass(&mut e, &needed, level);
    }
    e.close();
    finish(e, device, chunk == CHUNK_GRANULE)
}

/// Computes and stores the per-row values that become available before pass `level`.
fn columns_of_level(e: &mut Emitter<'_>, needed: &BTreeSet<RowValueId>, level: u32) {
    for &id in needed {
        let ty = e.types[id.0 as usize];
        if ty.shape != RowShape::Column || ty.level != level {
            continue;
        }
        e.wide(id);
        let group = e.group;
        for output in group.outputs.iter().filter(|o| o.value == id) {
            e.store(output);
        }
    }
}

/// One walk over the columns: the column reductions and the full outputs of this level.
fn pass(e: &mut Emitter<'_>, needed: &BTreeSet<RowValueId>, level: u32) {
    let (group, types) = (e.group, e.types);
    let is_full = |id: RowValueId| types[id.0 as usize].shape == RowShape::Full;
    let stored = |id: RowValueId| is_full(id) && types[id.0 as usize].level == level;
    let mut accumulators = Vec::new();
    for &id in needed {
        if let RowDef::Reduce(op, a) = group.def(id)
            && types[a.0 as usize].level == level
        {
            let shape = e.extent(RowShape::Column);
            let acc = e.buffer(&format!("v{}_acc", id.0), DType::F32, shape);
            e.emit(Step::Fill { dst: acc, value: op.neutral() });
            accumulators.push((id, *op, *a, acc));
        }
    }
    let outputs: Vec<_> = group.outputs.iter().filter(|o| stored(o.value)).collect();
    if accumulators.is_empty() && outputs.is_empty() {
        return;
    }
    let goals = accumulators.iter().map(|(_, _, a, _)| *a).chain(outputs.iter().map(|o| o.value));
    // Per-row values are there already: the walk stops at them.
    let inside = reachable(group, goals, |id| types[id.0 as usize].shape == RowShape::Column);
    let carries = accumulators.iter().map(|(_, _, _, acc)| *acc).collect();
    let end = Bound::at(group.cols);
    let id = e.open("columns", Affine::zero(), end.clone(), e.tile[1], carries);
    let outer = std::mem::replace(&mut e.cols, Span::new(Affine::loop_var(id), end));
    let valid = (group.cols % e.tile[1] != 0).then(|| e.cols.clone());
    for &id in inside.iter().filter(|id| is_full(**id)) {
        let leaf = matches!(group.def(id), RowDef::Input { .. });
        let reductions = accumulators.iter().filter(|(_, _, a, _)| *a == id);
        if !leaf {
            e.compute(id);
        }
        for &(_, op, _, dst) in reductions {
            let src = e.wide(id);
            let valid = valid.clone();
            e.emit(Step::Reduce { op, over: Over::Cols, dst, src, valid, accumulate: true });
        }
        for output in outputs.iter().filter(|o| o.value == id) {
            e.store(output);
        }
    }
    e.close();
    e.cols = outer;
    e.reduced.extend(accumulators.into_iter().map(|(id, _, _, acc)| (id, acc)));
}
