//! Bounds of every access, and independence of blocks.

use super::{Fault, VerifyError, here, whole};
use crate::tile::ranges::Ranges;
use crate::tile::{Affine, Bound, GridId, Kernel, Over, Span, Step, Var, View};

pub(super) fn check(k: &Kernel) -> Result<(), VerifyError> {
    let mut ranges = Ranges::new(&k.grid);
    let mut regions = Vec::new();
    steps(k, &k.body, &mut ranges, &mut regions)?;
    independence(k, &regions).map_err(|fault| whole(k, fault))
}

/// What one load or store touches along each tensor dimension, as functions of the grid alone.
struct Region {
    param: usize,
    store: bool,
    /// Per dimension: lower bounds of the first index, upper bounds of one past the last.
    dims: Vec<(Vec<Affine>, Vec<Affine>)>,
}

fn steps(
    k: &Kernel,
    list: &[Step],
    ranges: &mut Ranges,
    regions: &mut Vec<Region>,
) -> Result<(), VerifyError> {
    for step in list {
        match step {
            Step::Load { dst: tile, from: view, .. } | Step::Store { src: tile, to: view } => {
                let shape = k.buffer(*tile).shape();
                let store = matches!(step, Step::Store { .. });
                let region = access(k, view, shape, store, ranges);
                regions.push(region.map_err(|fault| here(k, step, fault))?);
            }
            Step::Reduce { over, src, valid: Some(span), .. } => {
                let [rows, cols] = k.buffer(*src).shape();
                let extent = if *over == Over::Rows { rows } else { cols };
                nonempty(span, extent, ranges).map_err(|fault| here(k, step, fault))?;
            }
            Step::For(l) => {
                ranges.push(l);
                steps(k, &l.body, ranges, regions)?;
                ranges.pop();
            }
            _ => {}
        }
    }
    Ok(())
}

fn access(
    k: &Kernel,
    view: &View,
    [rows, cols]: [i64; 2],
    store: bool,
    ranges: &Ranges,
) -> Result<Region, Fault> {
    let param = k.param(view.param);
    let mut spans: Vec<(Span, i64)> = view.origin.iter().map(|o| (Span::exact(o.clone(), 1), 1)).collect();
    for (part, extent) in [(&view.rows, rows), (&view.cols, cols)] {
        if let Some((dim, span)) = part {
            nonempty(span, extent, ranges)?;
            spans[*dim] = (span.clone(), extent);
        }
    }
    let mut dims = Vec::new();
    for (dim, (span, extent)) in spans.iter().enumerate() {
        // The tile's own extent ends an access as well as the span does.
        let end = span.end.clone().or(span.start.plus_const(*extent));
        let (low, high) = (ranges.min(&span.start), max_end(&end, ranges));
        let size = param.shape[dim];
        if low < 0 || high > size {
            return Err(Fault::Overrun { param: param.name.clone(), dim, size, low, high });
        }
        let uppers = end.ends().iter().flat_map(|e| ranges.uppers(e)).collect();
        dims.push((ranges.lowers(&span.start), uppers));
    }
    Ok(Region { param: view.param.0 as usize, store, dims })
}

fn max_end(end: &Bound, ranges: &Ranges) -> i64 {
    end.ends().iter().map(|e| ranges.max(e)).min().unwrap_or(i64::MAX)
}

fn nonempty(span: &Span, extent: i64, ranges: &Ranges) -> Result<(), Fault> {
    let some = span.end.ends().iter().all(|end| ranges.max(&span.start.minus(end)) < 0);
    if some && extent > 0 { Ok(()) } else { Err(Fault::Empty(span.to_string())) }
}

/// For every tensor that is written and every grid dimension of more than one block there must be a
/// tensor dimension along which the blocks' regions follow each other without overlap.
fn independence(k: &Kernel, regions: &[Region]) -> Result<(), Fault> {
    let sizes: Vec<i64> = k.grid.iter().map(|dim| dim.size).collect();
    for (n, param) in k.params.iter().enumerate() {
        let of: Vec<&Region> = regions.iter().filter(|r| r.param == n).collect();
        if !of.iter().any(|r| r.store) {
            continue;
        }
        for (grid, &size) in sizes.iter().enumerate() {
            if size > 1 && !(0..param.shape.len()).any(|dim| ordered(&of, dim, grid, &sizes)) {
                return Err(Fault::Overlap { param: param.name.clone(), grid });
            }
        }
    }
    Ok(())
}

/// Whether along tensor dimension `dim` everything that block g of grid dimension `grid` touches lies
/// below what block g + 1 touches, whatever the other coordinates of the two blocks are.
fn ordered(regions: &[&Region], dim: usize, grid: usize, sizes: &[i64]) -> bool {
    regions.iter().all(|below| {
        regions.iter().all(|above| {
            (!below.store && !above.store)
                || below.dims[dim]
                    .1
                    .iter()
                    .any(|upper| above.dims[dim].0.iter().any(|lower| precedes(upper, lower, grid, sizes)))
        })
    })
}

/// Whether `upper(g) <= lower(g + 1)` for all g, with `lower` not falling in g.
fn precedes(upper: &Affine, lower: &Affine, grid: usize, sizes: &[i64]) -> bool {
    let var = Var::Grid(GridId(u32::try_from(grid).unwrap_or(u32::MAX)));
    let (up, low) = (upper.coefficient(var), lower.coefficient(var));
    // Extremes over the other grid dimensions, independently for the two blocks.
    let extreme = |f: &Affine, greatest: bool| {
        f.terms().iter().filter(|(v, _)| *v != var).fold(i128::from(f.offset()), |sum, &(v, c)| {
            let Var::Grid(GridId(g)) = v else { return sum };
            let reach = if greatest { c.max(0) } else { c.min(0) };
            sum + i128::from(reach) * i128::from(sizes[g as usize] - 1)
        })
    };
    let gap = |g: i64| {
        let low = extreme(lower, false) + i128::from(low) * i128::from(g + 1);
        low - (extreme(upper, true) + i128::from(up) * i128::from(g))
    };
    low >= 0 && gap(0) >= 0 && gap(sizes[grid] - 2) >= 0
}
