//! Element-wise instructions whose operands may repeat a row, a column or a single value.

use super::EmitError;
use super::expr::{at, linear};
use super::print::Printer;
use crate::sched::{Lane, Tile, TileId};

/// Lanes of one repeat of an f32 instruction.
pub(super) const REPEAT: i64 = 64;
/// Most repeats of an instruction, and longest repeat stride in blocks.
pub(super) const MOST: i64 = 255;

/// An operand with its tile's name and pitch.
struct Operand {
    lane: Lane,
    name: String,
    pitch: i64,
}

impl Operand {
    /// Address of the operand for lane `lane` (an expression `var · 64 + constant`) of row `row`.
    fn address(&self, row: (&str, i64), lane: (&str, i64)) -> String {
        let along = linear(lane.0, REPEAT, lane.1);
        let down = |step: i64| linear(row.0, step, row.1 * step);
        let offset = match self.lane {
            Lane::Full(_) => super::expr::sum(&down(self.pitch), &along),
            Lane::Row(_) => along,
            Lane::Column(_) => down(8),
            Lane::Single(_) => "0".to_owned(),
        };
        at(&self.name, &offset)
    }

    /// Block stride, and repeat stride if repeats run along a row.
    fn along_row(&self) -> (i64, i64) {
        match self.lane {
            Lane::Full(_) | Lane::Row(_) => (1, 8),
            Lane::Column(_) | Lane::Single(_) => (0, 0),
        }
    }

    /// Block stride, and repeat stride if repeats run down the rows.
    fn down_rows(&self) -> (i64, i64) {
        match self.lane {
            Lane::Full(_) => (1, self.pitch / 8),
            Lane::Row(_) => (1, 0),
            Lane::Column(_) => (0, 1),
            Lane::Single(_) => (0, 0),
        }
    }
}

/// An instruction: name, destination, operands, trailing scalar.
struct Call<'c> {
    name: &'c str,
    dst: Operand,
    operands: Vec<Operand>,
    scalar: Option<&'c str>,
}

impl Call<'_> {
    fn arguments(&self, row: (&str, i64), lane: (&str, i64)) -> String {
        let mut all = vec![self.dst.address(row, lane)];
        all.extend(self.operands.iter().map(|o| o.address(row, lane)));
        all.extend(self.scalar.map(str::to_owned));
        all.join(", ")
    }

    /// Counter mode.
    fn counted(&self, row: (&str, i64), count: i64) -> String {
        format!("{}({}, {count});", self.name, self.arguments(row, ("", 0)))
    }

    /// Repeat mode; `strides` gives an operand's block and repeat stride.
    fn repeated(
        &self,
        row: (&str, i64),
        lane: (&str, i64),
        mask: i64,
        repeats: i64,
        strides: impl Fn(&Operand) -> (i64, i64),
    ) -> String {
        let all: Vec<(i64, i64)> = std::iter::once(&self.dst).chain(&self.operands).map(&strides).collect();
        let params = if self.operands.len() == 2 { "BinaryRepeatParams" } else { "UnaryRepeatParams" };
        let fields = all.iter().map(|s| s.0).chain(all.iter().map(|s| s.1));
        let fields: Vec<String> = fields.map(|n| n.to_string()).collect();
        let arguments = self.arguments(row, lane);
        format!("{}({arguments}, {mask}, {repeats}, {params}{{{}}});", self.name, fields.join(", "))
    }
}

impl Printer<'_> {
    /// `dst = name(operands…, scalar)` over the destination's lanes.
    pub(super) fn lanes(
        &mut self,
        name: &str,
        dst: TileId,
        operands: &[Lane],
        scalar: Option<&str>,
    ) -> Result<(), EmitError> {
        let tile = self.tile(dst)?.clone();
        let operand = |p: &Self, lane: Lane| {
            let t = p.tile(lane.tile())?;
            Ok::<_, EmitError>(Operand { lane, name: t.name.clone(), pitch: t.pitch })
        };
        let mut call = Call { name, dst: operand(self, Lane::Full(dst))?, operands: Vec::new(), scalar };
        for lane in operands {
            call.operands.push(operand(self, *lane)?);
        }
        let flat = tile.rows == 1 || call.operands.iter().all(|o| matches!(o.lane, Lane::Full(_)));
        let counter = call.operands.iter().all(|o| matches!(o.lane, Lane::Full(_) | Lane::Row(_)));
        let chunks = tile.active() / REPEAT + i64::from(tile.active() % REPEAT != 0);
        let down = tile.rows > 1 && tile.pitch / 8 <= MOST;
        if flat && counter {
            self.line(call.counted(("", 0), tile.rows * tile.active()));
        } else if down && chunks < tile.rows {
            self.down_rows(&call, &tile);
        } else if counter {
            self.each("r", tile.rows, |p, r| p.line(call.counted((r, 0), tile.active())));
        } else {
            self.along_rows(&call, &tile);
        }
        Ok(())
    }

    /// Repeats run down the rows; one instruction per chunk of lanes.
    fn down_rows(&mut self, call: &Call<'_>, tile: &Tile) {
        let (full, tail) = (tile.active() / REPEAT, tile.active() % REPEAT);
        let rows: Vec<(i64, i64)> =
            (0..tile.rows).step_by(MOST as usize).map(|r| (r, MOST.min(tile.rows - r))).collect();
        let strides = Operand::down_rows;
        if full > 0 {
            self.each("c", full, |p, c| {
                for (r, n) in &rows {
                    p.line(call.repeated(("", *r), (c, 0), REPEAT, *n, strides));
                }
            });
        }
        if tail > 0 {
            for (r, n) in &rows {
                self.line(call.repeated(("", *r), ("", full * REPEAT), tail, *n, strides));
            }
        }
    }

    /// Repeats run along each row.
    fn along_rows(&mut self, call: &Call<'_>, tile: &Tile) {
        let (full, tail) = (tile.active() / REPEAT, tile.active() % REPEAT);
        self.each("r", tile.rows, |p, r| {
            for c in (0..full).step_by(MOST as usize) {
                let n = MOST.min(full - c);
                p.line(call.repeated((r, 0), ("", c * REPEAT), REPEAT, n, Operand::along_row));
            }
            if tail > 0 {
                p.line(call.repeated((r, 0), ("", full * REPEAT), tail, 1, Operand::along_row));
            }
        });
    }
}
