//! Reductions over lanes and over rows.

use super::EmitError;
use super::expr::{at, linear, sum};
use super::lanes::{MOST, REPEAT};
use super::print::{Printer, binary_name};
use crate::sched::{Count, TileId};
use crate::tile::{ReduceOp, div_ceil};

impl Printer<'_> {
    /// One level: every run of 64 lanes of a row becomes one.
    pub(super) fn reduce_lanes(
        &mut self,
        op: ReduceOp,
        dst: TileId,
        src: TileId,
        lanes: &Count,
        level: u32,
    ) -> Result<(), EmitError> {
        let (to, from) = (self.tile(dst)?.clone(), self.tile(src)?.clone());
        let (name, order) = match op {
            ReduceOp::Sum => ("WholeReduceSum", ""),
            ReduceOp::Max => ("WholeReduceMax", ", ReduceOrder::ORDER_ONLY_VALUE"),
            ReduceOp::Min => ("WholeReduceMin", ", ReduceOrder::ORDER_ONLY_VALUE"),
        };
        let rows = if to.column { to.lanes } else { to.rows };
        let extent = (0..level).fold(lanes.extent, |n, _| div_ceil(n, REPEAT));
        let step = if to.column { 1 } else { to.pitch };
        let blocks = from.pitch / 8;
        let down = from.pitch / 8 <= MOST && div_ceil(extent, REPEAT) < rows.max(2);
        let call = |d: &str, s: &str, mask: &str, repeats: &str, step: i64, stride: i64| {
            let (d, s) = (at(&to.name, d), at(&from.name, s));
            format!("{name}({d}, {s}, {mask}, {repeats}, {step}, 1, {stride}{order});")
        };
        let body = |p: &mut Self| {
            let width = p.count("lanes", lanes);
            let width = if lanes.span.is_some() {
                for _ in 0..level {
                    p.line(format!("{width} = ({width} + 63) / 64;"));
                }
                width
            } else {
                extent.to_string()
            };
            if extent <= REPEAT {
                for r in (0..rows).step_by(MOST as usize) {
                    let n = MOST.min(rows - r).to_string();
                    let (d, s) = ((r * step).to_string(), (r * from.pitch).to_string());
                    p.line(call(&d, &s, &width, &n, step, blocks));
                }
                return;
            }
            let full = if lanes.span.is_some() { format!("{width} / 64") } else { (extent / 64).to_string() };
            let tail = if lanes.span.is_some() { format!("{width} % 64") } else { (extent % 64).to_string() };
            if down {
                p.block(&format!("for (int64_t c = 0; c < {full}; c++)"), |p| {
                    for r in (0..rows).step_by(MOST as usize) {
                        let n = MOST.min(rows - r).to_string();
                        let (d, s) = (linear("c", 1, r * step), linear("c", REPEAT, r * from.pitch));
                        p.line(call(&d, &s, "64", &n, step, blocks));
                    }
                });
            } else {
                p.each("r", rows, |p, r| {
                    let (d, s) = (linear(r, step, 0), linear(r, from.pitch, 0));
                    if lanes.span.is_none() && extent / 64 <= MOST {
                        p.line(call(&d, &s, "64", &full, 1, 8));
                    } else {
                        p.block(&format!("for (int64_t c = 0; c < {full}; c += {MOST})"), |p| {
                            let n = format!("{full} - c < {MOST} ? {full} - c : {MOST}");
                            p.line(call(&sum(&d, "c"), &sum(&s, "c * 64"), "64", &n, 1, 8));
                        });
                    }
                });
            }
            if tail == "0" {
                return;
            }
            let last = |p: &mut Self| {
                p.each("r", if down { 1 } else { rows }, |p, r| {
                    let (d, s) = (linear(r, step, 0), linear(r, from.pitch, 0));
                    let (d, s) = (sum(&d, &full), sum(&s, &format!("{full} * 64")));
                    if !down {
                        p.line(call(&d, &s, &tail, "1", 1, 8));
                        return;
                    }
                    for r in (0..rows).step_by(MOST as usize) {
                        let n = MOST.min(rows - r).to_string();
                        let (d, s) =
                            (sum(&d, &(r * step).to_string()), sum(&s, &(r * from.pitch).to_string()));
                        p.line(call(&d, &s, &tail, &n, step, blocks));
                    }
                });
            };
            if lanes.span.is_some() {
                p.block(&format!("if ({tail} != 0)"), last);
            } else {
                last(p);
            }
        };
        if lanes.span.is_some() {
            self.block("", body);
        } else {
            body(self);
        }
        Ok(())
    }

    /// Adds the rows to the destination one after the other. With rows close enough together one
    /// instruction does it for 64 lanes: destination and second source stay (repeat stride 0).
    pub(super) fn fold_rows(
        &mut self,
        op: ReduceOp,
        dst: TileId,
        src: TileId,
        rows: &Count,
    ) -> Result<(), EmitError> {
        let (to, from) = (self.tile(dst)?.clone(), self.tile(src)?.clone());
        let name = binary_name(op.combine());
        let (lanes, pitch) = (to.active(), from.pitch);
        let body = |p: &mut Self| {
            let n = p.count("rows", rows);
            if pitch / 8 > MOST {
                p.block(&format!("for (int64_t r = 0; r < {n}; r++)"), |p| {
                    p.line("if (r > 0) PipeBarrier<PIPE_V>();");
                    let s = at(&from.name, &linear("r", pitch, 0));
                    p.line(format!("{name}({0}, {s}, {0}, {lanes});", to.name));
                });
                return;
            }
            let chunks = |p: &mut Self, row: &str, repeats: &str| {
                let strides = format!("BinaryRepeatParams{{1, 1, 1, 0, {}, 0}}", pitch / 8);
                let one = |p: &mut Self, offset: &str, mask: i64| {
                    let d = at(&to.name, offset);
                    let s = at(&from.name, &sum(&linear(row, pitch, 0), offset));
                    p.line(format!("{name}({d}, {s}, {d}, {mask}, {repeats}, {strides});"));
                };
                if lanes >= REPEAT {
                    p.each("c", lanes / REPEAT, |p, c| one(p, &linear(c, REPEAT, 0), REPEAT));
                }
                if lanes % REPEAT > 0 {
                    one(p, &(lanes / REPEAT * REPEAT).to_string(), lanes % REPEAT);
                }
            };
            if rows.extent <= MOST {
                chunks(p, "", &n);
            } else {
                p.block(&format!("for (int64_t r = 0; r < {n}; r += {MOST})"), |p| {
                    p.line("if (r > 0) PipeBarrier<PIPE_V>();");
                    chunks(p, "r", &format!("{n} - r < {MOST} ? {n} - r : {MOST}"));
                });
            }
        };
        if rows.span.is_some() {
            self.block("", body);
        } else {
            body(self);
        }
        Ok(())
    }
}
