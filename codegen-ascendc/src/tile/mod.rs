//! Kernel IR, level `tile`: what a kernel computes and how it is cut into on-chip tiles.
//!
//! A [`Kernel`] is a grid of independent blocks. Each block runs the same list of [`Step`]s: loads of
//! regions of global tensors into named on-chip [`Buffer`]s, elementwise, reduction and matrix steps on
//! whole buffers, stores, and counted loops around them. Every buffer is a 2-D tile `[rows, cols]` with a
//! static extent; every offset is an affine expression of grid ids and loop variables. There are no
//! hardware units and no synchronisation here: those are derived below this level, by the back ends that
//! need them.
//!
//! What holds for a kernel that passes [`verify`]:
//! - no access leaves its tensor, for every block and every loop iteration;
//! - every element of a buffer that is read has been written ([`Load`](Step::Load) fills what lies
//!   beyond the region, all other steps write the whole extent);
//! - two blocks never write the same element, so blocks may run in any order or at once;
//! - values cross loop iterations only through the buffers that the loop lists as carried;
//! - the buffers fit the device's on-chip memories together.
//!
//! Numeric meaning (all back ends): arithmetic is IEEE f32 without contraction; f16 and bf16 are storage
//! types that only loads, stores, copies, conversions and matrix operands touch; conversion to a narrower
//! type rounds to nearest even. The order of summation inside one reduction step belongs to the back end,
//! but is fixed for each of them.

pub mod build;
mod device;
mod index;
mod kernel;
mod print;
mod ranges;
mod step;
mod types;
mod verify;

pub use device::DeviceSpec;
pub(crate) use index::div_ceil;
pub use index::{Affine, Bound, GridId, LoopId, Span, Var};
pub use kernel::{Buffer, BufferId, GridDim, Kernel, Param, ParamId, ScalarId, ScalarParam};
pub use ranges::Ranges;
pub use step::{BinaryOp, CompareOp, Loop, Operand, Over, ReduceOp, Step, UnaryOp, View};
pub use types::{DType, Num, Role, Space};
pub use verify::{Fault, VerifyError, verify};
