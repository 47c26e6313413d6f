//! Element types, literals, on-chip spaces and parameter roles.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Element type of global tensors and tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DType {
    /// IEEE binary32; the only type that arithmetic is done in.
    F32,
    /// IEEE binary16; storage only.
    F16,
    /// bfloat16; storage only.
    BF16,
    /// Signed 32-bit integer: indices and labels. Compared and converted, not computed with.
    I32,
}

impl DType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> i64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// Whether the type is one of the two 16-bit storage types.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
        })
    }
}

/// An f32 literal, kept by its bits so that kernels can be compared, hashed and serialised exactly,
/// infinities and NaN included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Num(u32);

impl Num {
    /// Positive zero.
    pub const ZERO: Num = Num(0);

    /// The literal with the given value.
    pub const fn new(value: f32) -> Num {
        Num(value.to_bits())
    }

    /// The value.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// The bits of the value.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl From<f32> for Num {
    fn from(value: f32) -> Num {
        Num::new(value)
    }
}

impl fmt::Debug for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Num({:?})", self.get())
    }
}

/// Prints the shortest decimal that reads back to the same f32.
impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

/// Which on-chip memory class a buffer belongs to, by what may be done with it.
///
/// | class | read by | written by |
/// |---|---|---|
/// | `Vector` | elementwise, reduce, convert, copy, store | load, fill, index, elementwise, reduce, convert, copy |
/// | `Operand` | matmul, copy | load, copy |
/// | `Accumulator` | copy, store | fill, matmul |
///
/// On Ascend these are the unified buffer of a vector core, L1 (and L0A/L0B below it) of a cube core and
/// L0C. A copy between classes is what becomes a hand-over through global memory there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Space {
    /// Tiles of elementwise and reduction steps.
    Vector,
    /// Left and right operands of matrix steps.
    Operand,
    /// Results of matrix steps (f32).
    Accumulator,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Vector => "vector",
            Space::Operand => "operand",
            Space::Accumulator => "accumulator",
        })
    }
}

/// How a kernel uses a global tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Loaded only.
    In,
    /// Stored only. Its contents before the launch are not read.
    Out,
    /// Loaded and stored, element for element by the same block (optimizer state).
    InOut,
}

impl Role {
    /// Whether the kernel may load the tensor.
    pub const fn readable(self) -> bool {
        matches!(self, Role::In | Role::InOut)
    }

    /// Whether the kernel may store to the tensor.
    pub const fn writable(self) -> bool {
        matches!(self, Role::Out | Role::InOut)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::In => "in",
            Role::Out => "out",
            Role::InOut => "inout",
        })
    }
}
