//! Elementwise groups: no value knows rows from columns, so the elements are one long row that blocks cut
//! up evenly.

use super::emit::{Emitter, reachable};
use super::rows::finish;
use super::{BuildError, RowDef, RowGroup, RowShape, RowType, Sink};
use crate::tile::{Affine, Bound, DeviceSpec, Kernel, Span, div_ceil};

/// Extents are multiples of this: one vector instruction's worth of f32.
const GRANULE: i64 = 64;

/// Whether every value is elementwise in full tensors.
pub(super) fn is_elementwise(group: &RowGroup, types: &[RowType]) -> bool {
    let used = reachable(group, group.outputs.iter().map(|o| o.value), |_| false);
    let plain = used.iter().all(|id| {
        let shape = types[id.0 as usize].shape;
        let positional = matches!(group.def(*id), RowDef::Position(_) | RowDef::Reduce(..));
        matches!(shape, RowShape::Full | RowShape::Single) && !positional
    });
    plain && group.outputs.iter().all(|o| o.sink == Sink::Store)
}

/// Builds the kernel of such a group. Its tensors have the shape `[1, rows · cols]`.
pub(super) fn build_flat(group: &RowGroup, device: &DeviceSpec) -> Result<Kernel, BuildError> {
    let elements = group.rows.checked_mul(group.cols);
    let elements = elements.ok_or_else(|| group.whole("too many elements".to_owned()))?;
    let flat = RowGroup { rows: 1, cols: elements, ..group.clone() };
    let types = flat.infer()?;
    let share = div_ceil(div_ceil(elements, device.vector_cores.max(1)), GRANULE) * GRANULE;
    let mut parts = 1;
    loop {
        let tile = div_ceil(div_ceil(share, parts), GRANULE) * GRANULE;
        if let Some(kernel) = flat_kernel(&flat, &types, share, tile, device) {
            return Ok(kernel);
        }
        if tile == GRANULE {
            return Err(BuildError::TooLarge { group: group.name.clone(), device: device.name.clone() });
        }
        parts *= 2;
    }
}

fn flat_kernel(
    group: &RowGroup,
    types: &[RowType],
    share: i64,
    tile: i64,
    device: &DeviceSpec,
) -> Option<Kernel> {
    let needed = reachable(group, group.outputs.iter().map(|o| o.value), |_| false);
    let mut e = Emitter::new(group, types, group.name.clone(), &needed, [1, tile.min(group.cols)]);
    let grid = e.kernel.add_grid("elements", div_ceil(group.cols, share));
    for id in &needed {
        let computed = !matches!(group.def(*id), RowDef::Num(_) | RowDef::Int(_) | RowDef::Scalar { .. });
        if types[id.0 as usize].shape == RowShape::Single && computed {
            e.wide(*id);
        }
    }
    let start = Affine::grid(grid).times(share);
    let end = Bound::at(start.plus_const(share)).or(group.cols);
    let id = e.open("elements", start, end.clone(), tile, Vec::new());
    e.cols = Span::new(Affine::loop_var(id), end);
    for id in &needed {
        if types[id.0 as usize].shape != RowShape::Full {
            continue;
        }
        if !matches!(group.def(*id), RowDef::Input { .. }) {
            e.compute(*id);
        }
        for output in group.outputs.iter().filter(|o| o.value == *id) {
            e.store(output);
        }
    }
    e.close();
    finish(e, device, tile == GRANULE)
}
