//! First pass: a tile kernel's buffers become tiles, its steps operations of one pipe each.
//!
//! Scratch is added here: blocks of equal lanes for broadcasts, partial results of reductions, literals
//! that instructions take as tiles. What must be set once is set in a prologue.

use std::collections::{BTreeMap, BTreeSet};

use super::op::lanes_per_block;
use super::{Count, Item, Lane, Loop, Op, Region, SchedError, Tile, TileId, TileUse, Unit, Value};
use crate::tile::{self, BufferId, DType, Kernel, LoopId, Num, Operand, Ranges, Space, Span, Step, View};

/// Result of the pass: items without any synchronisation, every tile with one slot.
pub(super) struct Lowered {
    /// Tiles; the first ones are the kernel's buffers, in their order.
    pub tiles: Vec<Tile>,
    /// Items of the vector core.
    pub body: Vec<Item>,
    /// Per loop the tiles whose values pass from one iteration to the next.
    pub carried: BTreeMap<LoopId, BTreeSet<TileId>>,
    /// Loops that run at most once in every block.
    pub single_trip: BTreeSet<LoopId>,
}

/// Lowers a kernel that passed [`tile::verify`].
pub(super) fn lower(kernel: &Kernel) -> Result<Lowered, SchedError> {
    let mut l = Lowering {
        kernel,
        tiles: Vec::new(),
        items: Vec::new(),
        prologue: Vec::new(),
        spreads: BTreeMap::new(),
        current: BTreeSet::new(),
        constants: BTreeMap::new(),
        parts: BTreeMap::new(),
        cleared: BTreeSet::new(),
        ranges: Ranges::new(&kernel.grid),
        carried: BTreeMap::new(),
        single_trip: BTreeSet::new(),
    };
    l.buffers()?;
    l.steps(&kernel.body)?;
    let mut body = l.prologue;
    body.append(&mut l.items);
    Ok(Lowered { tiles: l.tiles, body, carried: l.carried, single_trip: l.single_trip })
}

/// State of the pass.
pub(super) struct Lowering<'k> {
    pub(super) kernel: &'k Kernel,
    tiles: Vec<Tile>,
    items: Vec<Item>,
    prologue: Vec<Item>,
    /// Column or single tile -> its tile of equal lanes.
    spreads: BTreeMap<TileId, TileId>,
    /// Columns whose tile of equal lanes is up to date.
    current: BTreeSet<TileId>,
    constants: BTreeMap<Value, TileId>,
    /// Scratch of reductions, by rows and lanes.
    parts: BTreeMap<(i64, i64), TileId>,
    cleared: BTreeSet<TileId>,
    ranges: Ranges,
    carried: BTreeMap<LoopId, BTreeSet<TileId>>,
    single_trip: BTreeSet<LoopId>,
}

impl Lowering<'_> {
    pub(super) fn unsupported<T>(&self, what: impl Into<String>) -> Result<T, SchedError> {
        Err(SchedError::Unsupported { kernel: self.kernel.name.clone(), what: what.into() })
    }

    fn buffers(&mut self) -> Result<(), SchedError> {
        let (mut loaded, mut stored) = (BTreeSet::new(), BTreeSet::new());
        self.kernel.walk(&mut |step| match step {
            Step::Load { dst, .. } => drop(loaded.insert(*dst)),
            Step::Store { src, .. } => drop(stored.insert(*src)),
            _ => {}
        });
        for (n, buffer) in self.kernel.buffers.iter().enumerate() {
            if buffer.space != Space::Vector {
                return self.unsupported(format!("buffer `{}` in {} memory", buffer.name, buffer.space));
            }
            let id = BufferId(u32::try_from(n).unwrap_or(u32::MAX));
            let usage = match (loaded.contains(&id), stored.contains(&id)) {
                (true, _) => TileUse::Loaded,
                (false, true) => TileUse::Stored,
                (false, false) => TileUse::Computed,
            };
            let column = buffer.cols == 1;
            let (rows, lanes) = if column { (1, buffer.rows) } else { (buffer.rows, buffer.cols) };
            self.add_tile(format!("b_{}", buffer.name), buffer.dtype, [rows, lanes], column, usage);
        }
        Ok(())
    }

    fn add_tile(
        &mut self,
        name: String,
        dtype: DType,
        [rows, lanes]: [i64; 2],
        column: bool,
        usage: TileUse,
    ) -> TileId {
        let pitch = tile::div_ceil(lanes, lanes_per_block(dtype)) * lanes_per_block(dtype);
        let unit = Unit::Aiv;
        self.tiles.push(Tile {
            name,
            unit,
            dtype,
            rows,
            lanes,
            pitch,
            column,
            slots: 1,
            rotates: None,
            usage,
        });
        TileId(u32::try_from(self.tiles.len() - 1).unwrap_or(u32::MAX))
    }

    pub(super) fn tile(&self, id: TileId) -> &Tile {
        &self.tiles[id.0 as usize]
    }

    /// The tile of a buffer.
    pub(super) fn of(&self, buffer: BufferId) -> TileId {
        TileId(buffer.0)
    }

    /// Issues an operation.
    pub(super) fn emit(&mut self, op: Op) {
        for access in op.accesses().iter().filter(|a| a.write) {
            if let super::Resource::Tile(id) = access.resource {
                self.current.remove(&id);
            }
        }
        if let Op::Spread { src, .. } = op {
            self.current.insert(src);
        }
        self.items.push(Item::Op(op));
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), SchedError> {
        for step in steps {
            match step {
                Step::For(l) => self.repeat(l)?,
                step => self.step(step)?,
            }
        }
        Ok(())
    }

    fn repeat(&mut self, l: &tile::Loop) -> Result<(), SchedError> {
        let longest = l.end.ends().iter().map(|end| self.ranges.max(&end.minus(&l.start))).min();
        if longest.is_some_and(|n| n <= l.step) {
            self.single_trip.insert(l.id);
        }
        self.carried.insert(l.id, l.carries.iter().map(|b| self.of(*b)).collect());
        let outer = std::mem::take(&mut self.items);
        // Inside, only what the body does not write is up to date from before; behind it, the same.
        let mut written = BTreeSet::new();
        written_by(&l.body, &mut written);
        self.current.retain(|id| !written.contains(&BufferId(id.0)));
        let before = self.current.clone();
        self.ranges.push(l);
        let result = self.steps(&l.body);
        self.ranges.pop();
        self.current = before;
        let body = std::mem::replace(&mut self.items, outer);
        result?;
        let (start, end) = (l.start.clone(), l.end.clone());
        self.items.push(Item::For(Loop { id: l.id, name: l.name.clone(), start, end, step: l.step, body }));
        Ok(())
    }

    /// How many of `extent` indices a span holds: a constant where that is provable.
    pub(super) fn count(&self, span: Option<&Span>, extent: i64) -> Count {
        match span {
            Some(span) if !self.ranges.always_full(span, extent) => {
                Count { extent, span: Some(span.clone()) }
            }
            _ => Count::all(extent),
        }
    }

    /// The transfer between a buffer and a view.
    pub(super) fn region(&self, buffer: BufferId, view: &View) -> Result<Region, SchedError> {
        let (param, [rows, cols]) = (self.kernel.param(view.param), self.kernel.buffer(buffer).shape());
        let strides = param.strides();
        let base = view
            .starts()
            .iter()
            .zip(&strides)
            .fold(tile::Affine::zero(), |sum, (start, stride)| sum.plus(&start.times(*stride)));
        let of = |part: &Option<(usize, Span)>, extent| {
            let count = self.count(part.as_ref().map(|(_, span)| span), extent);
            let stride = part.as_ref().and_then(|(dim, _)| strides.get(*dim)).copied().unwrap_or(1);
            (count, stride)
        };
        let (rows, cols) = (of(&view.rows, rows), of(&view.cols, cols));
        // A tile of one column is kept as one row.
        let column = cols.0.extent == 1;
        let ((lanes, lane_stride), (runs, stride)) =
            if column { (rows, (Count::all(1), 1)) } else { (cols, rows) };
        if lane_stride != 1 && lanes.extent > 1 {
            return self
                .unsupported(format!("access to `{}` with gaps between the elements of a row", param.name));
        }
        if runs.extent > 4095 || stride.saturating_mul(param.dtype.bytes()) > i64::from(u32::MAX) {
            return self
                .unsupported(format!("transfer of `{}` in {} runs {stride} apart", param.name, runs.extent));
        }
        let shape = self.kernel.buffer(buffer).shape();
        Ok(Region { param: view.param, base, rows: runs, stride, lanes, view: view.clone(), shape })
    }

    /// How a destination of shape `[rows, cols]` reads a buffer.
    pub(super) fn lane(&mut self, [rows, cols]: [i64; 2], buffer: BufferId) -> Result<Lane, SchedError> {
        let shape = self.kernel.buffer(buffer).shape();
        let id = self.of(buffer);
        Ok(if shape == [rows, cols] {
            Lane::Full(id)
        } else if shape == [1, 1] {
            Lane::Single(self.spread(id)?)
        } else if shape[0] == 1 {
            Lane::Row(id)
        } else {
            Lane::Column(self.spread(id)?)
        })
    }

    /// The tile that repeats each lane of a column over a block, up to date.
    fn spread(&mut self, src: TileId) -> Result<TileId, SchedError> {
        let column = self.tile(src).clone();
        // One instruction takes 8 lanes, and at most 255 times.
        let groups = tile::div_ceil(column.lanes, 8);
        if column.dtype != DType::F32 || groups > 255 {
            return self.unsupported(format!("broadcast of column `{}`", column.name));
        }
        let dst = match self.spreads.get(&src) {
            Some(dst) => *dst,
            None => {
                let name = format!("s_{}", column.name);
                let dst = self.add_tile(name, DType::F32, [1, groups * 64], false, TileUse::Computed);
                self.spreads.insert(src, dst);
                dst
            }
        };
        if column.lanes % 8 != 0 && self.cleared.insert(src) {
            self.prologue.push(Item::Op(Op::Clear { dst: src }));
        }
        if !self.current.contains(&src) {
            self.emit(Op::Spread { dst, src });
        }
        Ok(dst)
    }

    /// A block of 8 lanes that hold the value from the start of the kernel on.
    pub(super) fn constant(&mut self, value: Value) -> TileId {
        if let Some(id) = self.constants.get(&value) {
            return *id;
        }
        let name = format!("c_{}", self.constants.len());
        let dst = self.add_tile(name, DType::F32, [1, 8], false, TileUse::Computed);
        self.prologue.push(Item::Op(Op::Duplicate { dst, value }));
        self.constants.insert(value, dst);
        dst
    }

    /// Scratch of `rows` rows of `lanes` partial results; a column if that is one each.
    pub(super) fn part(&mut self, rows: i64, lanes: i64) -> TileId {
        if let Some(id) = self.parts.get(&(rows, lanes)) {
            return *id;
        }
        let column = lanes == 1;
        let shape = if column { [1, rows] } else { [rows, lanes] };
        let id =
            self.add_tile(format!("p_{}", self.parts.len()), DType::F32, shape, column, TileUse::Computed);
        self.parts.insert((rows, lanes), id);
        id
    }

    /// The scalar that an operand is, if it is no tile.
    pub(super) fn value(operand: &Operand) -> Option<Value> {
        match operand {
            Operand::Tile(_) => None,
            Operand::Num(v) => Some(Value::Num(*v)),
            Operand::Int(v) => Some(Value::Num(Num::new(*v as f32))),
            Operand::Scalar(id) => Some(Value::Scalar(*id, false)),
        }
    }
}

/// Buffers that steps write, loops included.
fn written_by(steps: &[Step], out: &mut BTreeSet<BufferId>) {
    for step in steps {
        out.extend(step.writes());
        if let Step::For(l) = step {
            written_by(&l.body, out);
        }
    }
}
