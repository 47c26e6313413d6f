//! Kernels, their parameters and their buffers.

use serde::{Deserialize, Serialize};

use super::{DType, DeviceSpec, GridId, Loop, Role, Space, Step};

/// Index into [`Kernel::params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParamId(pub u32);

/// Index into [`Kernel::scalars`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScalarId(pub u32);

/// Index into [`Kernel::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// A global tensor the kernel is launched with: dense, row-major.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Param {
    /// Name: an identifier, unique among parameters and scalars.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Logical shape, outermost dimension first. Every size is at least 1.
    pub shape: Vec<i64>,
    /// How the kernel uses it.
    pub role: Role,
}

impl Param {
    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Row-major strides in elements, one per dimension.
    pub fn strides(&self) -> Vec<i64> {
        let mut strides = vec![1; self.shape.len()];
        for d in (1..self.shape.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d];
        }
        strides
    }
}

/// An f32 value given at launch (a learning rate). Usable as an [`Operand`](super::Operand).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScalarParam {
    /// Name: an identifier, unique among parameters and scalars.
    pub name: String,
}

/// One dimension of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GridDim {
    /// What the dimension counts ("rows", "heads"): for reading only.
    pub name: String,
    /// Number of blocks along it, at least 1.
    pub size: i64,
}

/// A named on-chip tile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffer {
    /// Name: an identifier, unique among buffers.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of rows, at least 1.
    pub rows: i64,
    /// Number of columns, at least 1.
    pub cols: i64,
    /// Memory class.
    pub space: Space,
}

impl Buffer {
    /// Bytes from one row to the next on chip: rows are padded to the granule, except that a tile of one
    /// column is stored densely.
    pub fn row_stride(&self, align: i64) -> i64 {
        let bytes = self.cols * self.dtype.bytes();
        if self.cols == 1 { bytes } else { round_up(bytes, align) }
    }

    /// Bytes the tile takes on chip, a multiple of the granule.
    pub fn bytes(&self, align: i64) -> i64 {
        round_up(self.rows * self.row_stride(align), align)
    }

    /// `[rows, cols]`.
    pub fn shape(&self) -> [i64; 2] {
        [self.rows, self.cols]
    }
}

fn round_up(bytes: i64, align: i64) -> i64 {
    let align = align.max(1);
    bytes.saturating_add(align - 1) / align * align
}

/// A kernel: a grid of blocks that each run `body`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
pub struct Kernel {
    /// Name: an identifier; the symbol that back ends emit.
    pub name: String,
    /// What the kernel was made from (operation, source file and line), for reading and messages.
    pub origin: String,
    /// The grid. Blocks are numbered row-major: the last dimension runs fastest. May be empty: one block.
    pub grid: Vec<GridDim>,
    /// Global tensors, in launch order.
    pub params: Vec<Param>,
    /// Run-time scalars, in launch order, after the tensors.
    pub scalars: Vec<ScalarParam>,
    /// On-chip tiles. All are live for the whole kernel: their sizes add up.
    pub buffers: Vec<Buffer>,
    /// The steps of one block.
    pub body: Vec<Step>,
}

impl Kernel {
    /// Number of blocks.
    pub fn blocks(&self) -> i64 {
        self.grid.iter().map(|dim| dim.size).product()
    }

    /// Coordinates in the grid of block number `block`, one per grid dimension.
    pub fn coordinates(&self, block: i64) -> Vec<i64> {
        let mut rest = block;
        let mut at = vec![0; self.grid.len()];
        for (d, dim) in self.grid.iter().enumerate().rev() {
            at[d] = rest % dim.size.max(1);
            rest /= dim.size.max(1);
        }
        at
    }

    /// The parameter `id` names.
    ///
    /// # Panics
    /// If `id` is not of this kernel; the verifier excludes that.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// The buffer `id` names.
    ///
    /// # Panics
    /// If `id` is not of this kernel; the verifier excludes that.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// The scalar `id` names.
    ///
    /// # Panics
    /// If `id` is not of this kernel; the verifier excludes that.
    pub fn scalar(&self, id: ScalarId) -> &ScalarParam {
        &self.scalars[id.0 as usize]
    }

    /// Adds a grid dimension.
    pub fn add_grid(&mut self, name: impl Into<String>, size: i64) -> GridId {
        self.grid.push(GridDim { name: name.into(), size });
        GridId(index(self.grid.len()))
    }

    /// Adds a global tensor.
    pub fn add_param(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: impl Into<Vec<i64>>,
        role: Role,
    ) -> ParamId {
        self.params.push(Param { name: name.into(), dtype, shape: shape.into(), role });
        ParamId(index(self.params.len()))
    }

    /// Adds a run-time scalar.
    pub fn add_scalar(&mut self, name: impl Into<String>) -> ScalarId {
        self.scalars.push(ScalarParam { name: name.into() });
        ScalarId(index(self.scalars.len()))
    }

    /// Adds a buffer.
    pub fn add_buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        [rows, cols]: [i64; 2],
        space: Space,
    ) -> BufferId {
        self.buffers.push(Buffer { name: name.into(), dtype, rows, cols, space });
        BufferId(index(self.buffers.len()))
    }

    /// Calls `visit` on every step, outer steps before the steps of their bodies.
    pub fn walk<'k>(&'k self, visit: &mut dyn FnMut(&'k Step)) {
        walk(&self.body, visit);
    }

    /// On-chip bytes of all buffers of one memory class.
    pub fn bytes_in(&self, space: Space, device: &DeviceSpec) -> i64 {
        self.buffers.iter().filter(|b| b.space == space).map(|b| b.bytes(device.align)).sum()
    }
}

fn walk<'k>(steps: &'k [Step], visit: &mut dyn FnMut(&'k Step)) {
    for step in steps {
        visit(step);
        if let Step::For(Loop { body, .. }) = step {
            walk(body, visit);
        }
    }
}

/// Index of the last element of a list of `len` elements.
fn index(len: usize) -> u32 {
    u32::try_from(len - 1).unwrap_or(u32::MAX)
}
