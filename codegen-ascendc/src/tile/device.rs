//! What a kernel must know about the device it is tiled for.

use serde::{Deserialize, Serialize};

/// On-chip sizes and core counts of one device. All sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// Name as the AscendNPU IR compiler takes it in `-target`.
    pub name: String,
    /// Number of vector cores; the row family uses at most this many blocks.
    pub vector_cores: i64,
    /// Number of cube cores.
    pub cube_cores: i64,
    /// Vector memory of one vector core (the unified buffer).
    pub vector_bytes: i64,
    /// Part of `vector_bytes` that compilers and libraries keep for themselves.
    pub vector_reserved: i64,
    /// Operand memory of one cube core (L1).
    pub operand_bytes: i64,
    /// Left-operand memory at the cube's inputs (L0A); back ends cut larger tiles to it.
    pub left_bytes: i64,
    /// Right-operand memory at the cube's inputs (L0B).
    pub right_bytes: i64,
    /// Accumulator memory of one cube core (L0C).
    pub accumulator_bytes: i64,
    /// Granule of on-chip storage: rows of a tile start at multiples of it.
    pub align: i64,
}

impl DeviceSpec {
    /// Ascend 910B3 (NPU architecture 2201): 20 cube and 40 vector cores.
    ///
    /// Of the 192 KiB of vector memory, 8 KiB and 256 bytes are the compiler's when its default options
    /// are used (Ascend C documentation, NPU architecture 2201).
    pub fn ascend_910b3() -> DeviceSpec {
        DeviceSpec {
            name: "Ascend910B3".to_owned(),
            vector_cores: 40,
            cube_cores: 20,
            vector_bytes: 192 << 10,
            vector_reserved: (8 << 10) + 256,
            operand_bytes: 512 << 10,
            left_bytes: 64 << 10,
            right_bytes: 64 << 10,
            accumulator_bytes: 128 << 10,
            align: 32,
        }
    }

    /// Vector memory that tiles may use.
    pub fn vector_usable(&self) -> i64 {
        self.vector_bytes - self.vector_reserved
    }
}
