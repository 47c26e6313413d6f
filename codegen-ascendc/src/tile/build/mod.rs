//! Kernel families: from a small description of an operation to verified tile kernels.
//!
//! - [`RowGroup`] and [`build_rows`]: row-wise groups, which are normalisations forward and backward,
//!   softmax, and every elementwise group;
//! - [`norms`], [`losses`]: groups of well-known operations.

mod columns;
mod emit;
mod flat;
pub mod losses;
pub mod norms;
mod reuse;
mod row_group;
mod rows;

use thiserror::Error;

pub use row_group::{RowDef, RowGroup, RowOutput, RowShape, RowType, RowValue, RowValueId, Sink};
pub use rows::{RowKernels, Temp, build_rows};

use super::VerifyError;

/// Why no kernel could be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The description does not describe a row-wise group.
    #[error("B001: row group `{group}`: value {value}: {why}")]
    Group {
        /// Name of the group.
        group: String,
        /// Number of the value at fault.
        value: u32,
        /// What is wrong.
        why: String,
    },
    /// The description as a whole is wrong.
    #[error("B002: row group `{group}`: {why}")]
    Whole {
        /// Name of the group.
        group: String,
        /// What is wrong.
        why: String,
    },
    /// Not even the smallest tiles fit the device.
    #[error("B003: row group `{group}` does not fit {device} at any tile size")]
    TooLarge {
        /// Name of the group.
        group: String,
        /// Name of the device.
        device: String,
    },
    /// The kernel built breaks the rules of the kernel IR: a fault of the kernel family.
    #[error("B004: {0}")]
    Verify(#[from] VerifyError),
}
