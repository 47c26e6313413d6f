//! The verifier: checks everything that back ends rely on.

mod access;
mod assign;
mod structure;
mod types;

use thiserror::Error;

use super::{DeviceSpec, Kernel, Space, Step};

/// A kernel that breaks the rules of the kernel IR. Always a fault of whoever built the kernel, never of
/// the user's program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: kernel `{kernel}`{}: {fault}", fault.code(), at(step))]
pub struct VerifyError {
    /// Name of the kernel.
    pub kernel: String,
    /// Text of the step at fault, if it is one step's.
    pub step: Option<String>,
    /// What is wrong.
    pub fault: Fault,
}

fn at(step: &Option<String>) -> String {
    step.as_ref().map_or_else(String::new, |text| format!(", step `{text}`"))
}

/// What is wrong with a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// A name is not an identifier or is used twice.
    #[error("name `{0}` is not an identifier, or is used twice")]
    Name(String),
    /// A size of the grid, a tensor or a buffer is not positive, or a tensor has too many elements.
    #[error("{0} has a size that is not positive or too large")]
    Size(String),
    /// An id names nothing in this kernel.
    #[error("{0} does not exist")]
    Unknown(String),
    /// An index expression uses a variable that is no grid dimension and no enclosing loop.
    #[error("index variable {0} is not in scope")]
    Scope(String),
    /// A loop is malformed: number used twice, step not positive, or no end.
    #[error("loop i{0} has a number used twice, a step that is not positive, or no end")]
    Loop(u32),
    /// A loop's list of carried buffers is wrong.
    #[error("loop i{id} carries `{buffer}`, which {why}")]
    Carry {
        /// Number of the loop.
        id: u32,
        /// The buffer.
        buffer: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Shapes do not fit.
    #[error("shape {found:?} where {wanted} is needed")]
    Shape {
        /// Shape found, `[rows, cols]`.
        found: [i64; 2],
        /// Shape needed.
        wanted: String,
    },
    /// Element types do not fit.
    #[error("{0}")]
    Type(String),
    /// A buffer's memory class does not allow the use.
    #[error("`{buffer}` is in {space} memory, which does not allow this use")]
    Space {
        /// The buffer.
        buffer: String,
        /// Its memory class.
        space: Space,
    },
    /// A view does not fit its tensor's dimensions.
    #[error("view of `{param}` does not fit its {rank} dimensions")]
    View {
        /// The tensor.
        param: String,
        /// Its rank.
        rank: usize,
    },
    /// A load from a tensor that is only stored, or a store to one that is only loaded.
    #[error("tensor `{0}` may not be used in this direction")]
    Role(String),
    /// A tile is read that may hold no value.
    #[error("`{0}` may be read before it is written")]
    Unassigned(String),
    /// An access may leave its tensor.
    #[error("dimension {dim} of `{param}` has size {size}, but indices {low}..{high} may be touched")]
    Overrun {
        /// The tensor.
        param: String,
        /// The dimension.
        dim: usize,
        /// Its size.
        size: i64,
        /// Least index that may be touched.
        low: i64,
        /// One more than the greatest index that may be touched.
        high: i64,
    },
    /// A span may be empty.
    #[error("span {0} may be empty")]
    Empty(String),
    /// Two blocks may touch the same element, and one of them writes it.
    #[error("blocks that differ in grid dimension {grid} may touch the same elements of `{param}`")]
    Overlap {
        /// The tensor.
        param: String,
        /// The grid dimension.
        grid: usize,
    },
    /// An output is never stored.
    #[error("output `{0}` is never stored")]
    NeverStored(String),
    /// The buffers of one memory class do not fit.
    #[error("{space} buffers take {bytes} bytes of {limit} on {device}")]
    TooLarge {
        /// The memory class.
        space: Space,
        /// Bytes taken.
        bytes: i64,
        /// Bytes there are.
        limit: i64,
        /// Name of the device.
        device: String,
    },
}

impl Fault {
    /// Stable code of the fault, for tests and reports.
    pub const fn code(&self) -> &'static str {
        match self {
            Fault::Name(_) => "K001",
            Fault::Size(_) => "K002",
            Fault::Unknown(_) => "K003",
            Fault::Scope(_) => "K004",
            Fault::Loop(_) => "K005",
            Fault::Carry { .. } => "K006",
            Fault::Shape { .. } => "K007",
            Fault::Type(_) => "K008",
            Fault::Space { .. } => "K009",
            Fault::View { .. } => "K010",
            Fault::Role(_) => "K011",
            Fault::Unassigned(_) => "K012",
            Fault::Overrun { .. } => "K013",
            Fault::Empty(_) => "K014",
            Fault::Overlap { .. } => "K015",
            Fault::NeverStored(_) => "K016",
            Fault::TooLarge { .. } => "K017",
        }
    }
}

/// Checks `kernel` against the rules of the kernel IR and the memories of `device`.
///
/// Back ends require a kernel that passed; they may rely on all of it (see [the module](super)).
///
/// # Errors
/// The first fault found: names and ids, then types and shapes, then assignment, then accesses, then
/// memory.
pub fn verify(kernel: &Kernel, device: &DeviceSpec) -> Result<(), VerifyError> {
    structure::check(kernel)?;
    types::check(kernel)?;
    assign::check(kernel)?;
    access::check(kernel)?;
    memory(kernel, device)
}

fn memory(kernel: &Kernel, device: &DeviceSpec) -> Result<(), VerifyError> {
    let limits = [
        (Space::Vector, device.vector_usable()),
        (Space::Operand, device.operand_bytes),
        (Space::Accumulator, device.accumulator_bytes),
    ];
    for (space, limit) in limits {
        let bytes = kernel.bytes_in(space, device);
        if bytes > limit {
            let device = device.name.clone();
            return Err(whole(kernel, Fault::TooLarge { space, bytes, limit, device }));
        }
    }
    Ok(())
}

/// A fault of the kernel as a whole.
fn whole(kernel: &Kernel, fault: Fault) -> VerifyError {
    VerifyError { kernel: kernel.name.clone(), step: None, fault }
}

/// A fault of one step.
fn here(kernel: &Kernel, step: &Step, fault: Fault) -> VerifyError {
    VerifyError { kernel: kernel.name.clone(), step: Some(kernel.step_text(step)), fault }
}
