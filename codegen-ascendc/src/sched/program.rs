//! Programs and their on-chip tiles.

use super::{FlagDecl, FlagId, Handover, HandoverId, Item, Unit};
use crate::tile::{DType, GridDim, LoopId, Param, ParamId, ScalarParam};

/// Index into [`Program::tiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId(pub u32);

/// What moves a tile besides computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileUse {
    /// Loads write it.
    Loaded,
    /// Stores read it (and no load writes it).
    Stored,
    /// Computation only.
    Computed,
}

/// An on-chip tile: `rows` rows of `lanes` elements, each row starting `pitch` elements after the last.
///
/// A tile of one column is kept as one row, densely. In every other tile all `pitch` lanes of a row hold
/// values; what lies behind `lanes` takes part in computation and is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Name: an identifier, unique among tiles.
    pub name: String,
    /// Unit whose memory holds it.
    pub unit: Unit,
    /// Element type.
    pub dtype: DType,
    /// Number of rows.
    pub rows: i64,
    /// Elements of a row.
    pub lanes: i64,
    /// Elements from one row to the next: `lanes` rounded up to blocks of 32 bytes.
    pub pitch: i64,
    /// Whether lanes behind `lanes` hold no value: a column, whose results are written singly.
    pub column: bool,
    /// Copies, used in turn.
    pub slots: u32,
    /// The loop whose iterations take turns with the slots; `None` if there is one slot.
    pub rotates: Option<LoopId>,
    /// What moves it.
    pub usage: TileUse,
}

impl Tile {
    /// Elements of one slot.
    pub fn slot_elements(&self) -> i64 {
        self.rows * self.pitch
    }

    /// Bytes of one slot, a multiple of 32.
    pub fn slot_bytes(&self) -> i64 {
        self.slot_elements() * self.dtype.bytes()
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> i64 {
        self.slot_bytes() * i64::from(self.slots)
    }

    /// Lanes of a row that element-wise operations process.
    pub fn active(&self) -> i64 {
        if self.column { self.lanes } else { self.pitch }
    }
}

/// The items of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnitProgram {
    /// The unit.
    pub unit: Unit,
    /// Its items, in the order in which its scalar processor issues them.
    pub body: Vec<Item>,
}

/// A scheduled kernel. Grid, parameters and scalars are the tile kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    /// Name of the kernel.
    pub name: String,
    /// What the kernel was made from, for reading.
    pub origin: String,
    /// The grid.
    pub grid: Vec<GridDim>,
    /// Global tensors, in launch order.
    pub params: Vec<Param>,
    /// Run-time scalars, in launch order, after the tensors.
    pub scalars: Vec<ScalarParam>,
    /// On-chip tiles.
    pub tiles: Vec<Tile>,
    /// Flags between pipes.
    pub flags: Vec<FlagDecl>,
    /// Hand-overs between units.
    pub handovers: Vec<Handover>,
    /// One program per unit that takes part.
    pub units: Vec<UnitProgram>,
}

impl Program {
    /// The tile `id` names, if there is one.
    pub fn tile(&self, id: TileId) -> Option<&Tile> {
        self.tiles.get(id.0 as usize)
    }

    /// The flag `id` names, if there is one.
    pub fn flag(&self, id: FlagId) -> Option<&FlagDecl> {
        self.flags.get(id.0 as usize)
    }

    /// The hand-over `id` names, if there is one.
    pub fn handover(&self, id: HandoverId) -> Option<&Handover> {
        self.handovers.get(id.0 as usize)
    }

    /// The parameter `id` names, if there is one.
    pub fn param(&self, id: ParamId) -> Option<&Param> {
        self.params.get(id.0 as usize)
    }

    /// Number of blocks to launch.
    pub fn blocks(&self) -> i64 {
        self.grid.iter().map(|dim| dim.size).product()
    }

    /// Bytes that all slots of all tiles of a unit take.
    pub fn bytes_of(&self, unit: Unit) -> i64 {
        self.tiles.iter().filter(|t| t.unit == unit).map(Tile::bytes).sum()
    }
}
