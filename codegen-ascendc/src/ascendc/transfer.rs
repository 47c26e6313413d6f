//! Loads, stores, and the filling of what a load leaves unset.

use super::EmitError;
use super::expr::{affine, at, linear, moved_literal, moved_type};
use super::print::Printer;
use crate::sched::{Count, Region, Tile, TileId};
use crate::tile::{DType, Num};

/// Elements of a block of 32 bytes.
fn per_block(dtype: DType) -> i64 {
    32 / dtype.bytes()
}

/// The tile as transfers see it.
fn moved(tile: &Tile) -> String {
    if tile.dtype.is_half() {
        format!("{}.ReinterpretCast<uint16_t>()", tile.name)
    } else {
        tile.name.clone()
    }
}

/// Whether the runs follow each other without gaps on both sides, so that they are one run.
fn dense(region: &Region, tile: &Tile) -> bool {
    let lanes = &region.lanes;
    lanes.span.is_none()
        && region.stride == lanes.extent
        && lanes.extent == tile.pitch
        && region.rows.extent > 1
}

fn cast(ty: &str, value: &str) -> String {
    if value.parse::<i64>().is_ok() { value.to_owned() } else { format!("static_cast<{ty}>({value})") }
}

/// The strings of one transfer.
struct Shape {
    /// `DataCopyExtParams{…}`.
    params: String,
    /// Elements that fill the last block of a run.
    padding: String,
}

impl Printer<'_> {
    pub(super) fn load(&mut self, dst: TileId, from: &Region, fill: Num) -> Result<(), EmitError> {
        let tile = self.tile(dst)?.clone();
        let global = self.global(from)?;
        let ty = moved_type(tile.dtype);
        self.scoped(from, |p| {
            let shape = p.shape(from, &tile, true);
            let pad = match shape.padding.as_str() {
                "0" => format!("DataCopyPadExtParams<{ty}>{{false, 0, 0, 0}}"),
                n => {
                    let n = cast("uint8_t", n);
                    format!("DataCopyPadExtParams<{ty}>{{true, 0, {n}, {}}}", moved_literal(tile.dtype, fill))
                }
            };
            p.line(format!("DataCopyPad({}, {global}, {}, {pad});", moved(&tile), shape.params));
        });
        Ok(())
    }

    pub(super) fn store(&mut self, src: TileId, to: &Region) -> Result<(), EmitError> {
        let tile = self.tile(src)?.clone();
        let global = self.global(to)?;
        self.scoped(to, |p| {
            let shape = p.shape(to, &tile, false);
            p.line(format!("DataCopyPad({global}, {}, {});", moved(&tile), shape.params));
        });
        Ok(())
    }

    fn global(&self, region: &Region) -> Result<String, EmitError> {
        match self.program.param(region.param) {
            Some(param) => Ok(at(&format!("g_{}", param.name), &affine(&region.base))),
            None => self.unsupported(format!("parameter {}, which does not exist", region.param.0)),
        }
    }

    /// Runs `body` in a block of its own if the region's counts need variables.
    fn scoped(&mut self, region: &Region, body: impl FnOnce(&mut Self)) {
        if region.rows.span.is_some() || region.lanes.span.is_some() {
            self.block("", body);
        } else {
            body(self);
        }
    }

    /// Gaps count in bytes on the global side and in blocks of 32 bytes on chip.
    fn shape(&mut self, region: &Region, tile: &Tile, load: bool) -> Shape {
        let bytes = tile.dtype.bytes();
        let rows = self.count("rows", &region.rows);
        if dense(region, tile) {
            let length = match rows.parse::<i64>() {
                Ok(rows) => (rows * tile.pitch * bytes).to_string(),
                Err(_) => linear(&rows, tile.pitch * bytes, 0),
            };
            let length = cast("uint32_t", &length);
            let params = format!("DataCopyExtParams{{1, {length}, 0, 0, 0}}");
            return Shape { params, padding: "0".to_owned() };
        }
        let lanes = self.count("lanes", &region.lanes);
        let n = per_block(tile.dtype);
        let (length, global, local, padding) = match &region.lanes {
            Count { extent, span: None } => {
                let used = (extent + n - 1) / n;
                let padding = used * n - extent;
                let gap = (region.stride - extent) * bytes;
                (
                    (extent * bytes).to_string(),
                    gap.to_string(),
                    (tile.pitch / n - used).to_string(),
                    padding.to_string(),
                )
            }
            Count { .. } => (
                linear(&lanes, bytes, 0),
                format!("({} - {lanes}) * {bytes}", region.stride),
                format!("{} - ({lanes} + {}) / {n}", tile.pitch / n, n - 1),
                format!("({n} - {lanes} % {n}) % {n}"),
            ),
        };
        let zero = "0".to_owned();
        let (global, local) = if region.rows.extent == 1 { (zero.clone(), zero) } else { (global, local) };
        let (from, to) = if load { (global, local) } else { (local, global) };
        let [length, from, to] = [length, from, to].map(|v| cast("uint32_t", &v));
        let params = format!("DataCopyExtParams{{{}, {length}, {from}, {to}, 0}}", cast("uint16_t", &rows));
        Shape { params, padding }
    }

    /// Fills later rows, and the blocks behind each shortened row.
    pub(super) fn pad(
        &mut self,
        dst: TileId,
        rows: &Count,
        lanes: &Count,
        fill: Num,
    ) -> Result<(), EmitError> {
        let tile = self.tile(dst)?.clone();
        let (name, fill) = (moved(&tile), moved_literal(tile.dtype, fill));
        let ty = moved_type(tile.dtype);
        let fill = format!("static_cast<{ty}>({fill})");
        let n = per_block(tile.dtype);
        self.block("", |p| {
            let count = p.count("rows", rows);
            if rows.span.is_some() {
                let rest = format!("({} - {count}) * {}", tile.rows, tile.pitch);
                let from = at(&name, &linear(&count, tile.pitch, 0));
                p.line(format!("if ({count} < {}) Duplicate({from}, {fill}, {rest});", tile.rows));
            }
            if lanes.span.is_none() {
                return;
            }
            let width = p.count("lanes", lanes);
            p.line(format!("const int64_t used = ({width} + {}) / {n} * {n};", n - 1));
            p.block(&format!("if (used < {})", tile.pitch), |p| {
                let one = |p: &mut Self, r: &str| {
                    let from = at(&name, &super::expr::sum(&linear(r, tile.pitch, 0), "used"));
                    p.line(format!("Duplicate({from}, {fill}, {} - used);", tile.pitch));
                };
                if tile.rows == 1 {
                    one(p, "");
                } else {
                    p.block(&format!("for (int64_t r = 0; r < {count}; r++)"), |p| one(p, "r"));
                }
            });
        });
        Ok(())
    }
}
