//! Back end: Ascend C source from a kernel, by way of [`crate::sched`].
//!
//! The source is for `bisheng` or the run-time compiler (NPU architecture 2201), and for g++ with the
//! emulator in `emu/`, unchanged. It uses explicit flags and buffers, no queues: what waits for what has
//! been decided and checked in the program already.
//!
//! - Tiles are `TBuf`s of one or two slots; rows start at multiples of 32 bytes.
//! - All transfers are `DataCopyPad`: runs of any byte length, padded up to the block. f16 and bf16 pass
//!   as `uint16_t`, so that fill values are bits.
//! - Arithmetic is f32; 16-bit tiles are only cast.
//! - A row repeated over rows, or a column over lanes (`Brcb`, then block stride 0), is read in place, in
//!   repeat mode; of the two ways to walk a tile, along rows or along chunks of 64 lanes, the one with
//!   fewer instructions is taken.
//! - Sums of rows are `WholeReduceSum` in levels of 64: pairs of neighbours within each level.
//! - `1 / sqrt(x)` is `Sqrt` and `Div`: the instructions `Rsqrt` and `Reciprocal` are approximations.

pub mod emulate;
mod expr;
mod lanes;
mod print;
mod reduce;
mod transfer;

use thiserror::Error;

pub use print::print;

use crate::sched::{self, SchedError};
use crate::tile::{self, DeviceSpec, Kernel, VerifyError};

/// Why no source could be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EmitError {
    /// The kernel breaks the rules of the kernel IR.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The kernel could not be scheduled.
    #[error(transparent)]
    Sched(#[from] SchedError),
    /// The program has something that the printer has no source for.
    #[error("C001: kernel `{kernel}`: no Ascend C source for {what}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// What it is.
        what: String,
    },
}

/// Ascend C source of a kernel for a device.
///
/// The kernel function takes one pointer per tensor and one `float` per scalar, in the kernel's order,
/// and is launched on as many vector cores as the grid has blocks.
///
/// # Errors
/// If the kernel is not well formed, or its steps have no Ascend C form yet.
pub fn emit(kernel: &Kernel, device: &DeviceSpec) -> Result<String, EmitError> {
    tile::verify(kernel, device)?;
    print(&sched::derive(kernel, device)?)
}
