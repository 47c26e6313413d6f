//! Reductions over the rows: blocks split the columns, each walks all rows.
//!
//! Used where per-block partial results are summed, and for rows too long to keep a whole row of sums on
//! chip.

use super::emit::{Emitter, reachable};
use super::rows::{finish, per_column_values, valid_rows};
use super::{BuildError, RowDef, RowGroup, RowShape, RowType, Sink};
use crate::tile::{Affine, Bound, DType, DeviceSpec, Kernel, Over, Role, Span, Step, View, div_ceil};

/// Least and greatest number of columns of a block, in elements.
const COLS: [i64; 2] = [64, 1024];
/// Rows of a tile at most.
const MAX_TILE_ROWS: i64 = 128;

/// Builds the kernel of a group whose outputs are all reduced over the rows and whose values need no
/// reduction over the columns.
pub(super) fn build_columns(group: &RowGroup, device: &DeviceSpec) -> Result<Kernel, BuildError> {
    let types = group.infer()?;
    let share = div_ceil(group.cols, device.vector_cores.max(1));
    let mut cols = (div_ceil(share, COLS[0]) * COLS[0]).clamp(COLS[0], COLS[1]).min(group.cols);
    let mut rows = MAX_TILE_ROWS.min(group.rows);
    loop {
        let smallest = rows == 1 && cols <= COLS[0];
        if let Some(kernel) = columns(group, &types, [rows, cols], device, smallest) {
            return Ok(kernel);
        }
        if rows > 1 {
            rows /= 2;
        } else if cols > COLS[0] {
            cols = (cols / 2).max(COLS[0]);
        } else {
            return Err(BuildError::TooLarge { group: group.name.clone(), device: device.name.clone() });
        }
    }
}

fn columns(
    group: &RowGroup,
    types: &[RowType],
    [rows, cols]: [i64; 2],
    device: &DeviceSpec,
    smallest: bool,
) -> Option<Kernel> {
    let needed = reachable(group, group.outputs.iter().map(|o| o.value), |_| false);
    let mut e = Emitter::new(group, types, group.name.clone(), &needed, [rows, cols]);
    let grid = e.kernel.add_grid("columns", div_ceil(group.cols, cols));
    e.cols = Span::new(Affine::grid(grid).times(cols), Bound::at(group.cols));
    let mut sums = Vec::new();
    for output in &group.outputs {
        let Sink::ReduceRows(op) = output.sink else { continue };
        let sum = e.buffer(&format!("{}_sum", output.name), DType::F32, [1, cols]);
        e.emit(Step::Fill { dst: sum, value: op.neutral() });
        sums.push((output, op, sum));
    }
    per_column_values(&mut e, &needed);
    let end = Bound::at(group.rows);
    let carries = sums.iter().map(|(_, _, sum)| *sum).collect();
    let id = e.open("rows", Affine::zero(), end.clone(), rows, carries);
    e.rows = Span::new(Affine::loop_var(id), end);
    let valid = e.innermost().and_then(|l| valid_rows(&e, &[l]));
    for &id in &needed {
        if types[id.0 as usize].shape == RowShape::Full && !matches!(group.def(id), RowDef::Input { .. }) {
            e.compute(id);
        }
        for &(_, op, dst) in sums.iter().filter(|(o, _, _)| o.value == id) {
            let src = e.wide(id);
            let valid = valid.clone();
            e.emit(Step::Reduce { op, over: Over::Rows, dst, src, valid, accumulate: true });
        }
    }
    e.close();
    for (output, _, sum) in sums {
        let param = e.add_param(&output.name, output.dtype, vec![group.cols], Role::Out);
        let src = if output.dtype == DType::F32 {
            sum
        } else {
            let dst = e.buffer(&output.name, output.dtype, [1, cols]);
            e.emit(Step::Convert { dst, src: sum });
            dst
        };
        let to = View::row(param, e.cols.clone());
        e.emit(Step::Store { src, to });
    }
    finish(e, device, smallest)
}
