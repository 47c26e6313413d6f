//! Shapes and tensor types.

use crate::dtype::DType;
use smallvec::SmallVec;
use std::fmt;

/// Dimension sizes, outermost first. All sizes are static.
pub type Shape = SmallVec<[usize; 4]>;

/// The type of a value: element type and static shape.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimension sizes; empty for a scalar.
    pub shape: Shape,
}

impl Clone for TensorType {
    /// Copies the sizes as bytes; the derived form, which goes from one to the next, shows in compile times.
    fn clone(&self) -> Self {
        TensorType { dtype: self.dtype, shape: Shape::from_slice(&self.shape) }
    }
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = usize>) -> Self {
        TensorType { dtype, shape: shape.into_iter().collect() }
    }

    /// A rank-0 type.
    pub fn scalar(dtype: DType) -> Self {
        TensorType { dtype, shape: Shape::new() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements (1 for a scalar). Verified types never overflow, see [`TensorType::checked_bytes`].
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }

    /// Size in bytes, or `None` where it does not fit in an `isize` (no such tensor can be addressed).
    pub fn checked_bytes(&self) -> Option<usize> {
        let n = self.shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d))?;
        let b = n.checked_mul(self.dtype.size_bytes())?;
        (b <= isize::MAX as usize).then_some(b)
    }

    /// The same shape with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        TensorType { dtype, shape: self.shape.clone() }
    }

    /// The same element type with another shape.
    pub fn with_shape(&self, shape: impl IntoIterator<Item = usize>) -> Self {
        TensorType::new(self.dtype, shape)
    }
}

/// Row-major strides of a shape, in elements.
pub fn strides(shape: &[usize]) -> SmallVec<[usize; 4]> {
    let mut out: SmallVec<[usize; 4]> = SmallVec::from_elem(1, shape.len());
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i].max(1);
    }
    out
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
