//! Dense tensors in host memory, the interpreter's values.

use crate::dtype::DType;
use crate::types::TensorType;
use half::{bf16, f16};

pub use crate::view::IndexSpace;

/// The f32 nearest to `x` towards zero, with its last bit set if that is inexact ("round to odd"): rounding it
/// again to a format of at most 22 bits gives what rounding `x` at once would (Boldo & Melquiond, "When double
/// rounding is odd").
fn f32_to_odd(x: f64) -> f32 {
    let y = x as f32;
    if f64::from(y) == x || x.is_nan() {
        return y;
    }
    let towards_zero = y.to_bits() - u32::from(f64::from(y).abs() > x.abs());
    f32::from_bits(towards_zero | 1)
}

/// The nearest bfloat16, ties to even.
pub fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_f32(f32_to_odd(x))
}

/// The nearest half, ties to even.
pub fn f16_from_f64(x: f64) -> f16 {
    f16::from_f32(f32_to_odd(x))
}

/// Elements of one type, row-major. `I1` holds 0 or 1 in each byte.
#[derive(Clone, Debug, PartialEq)]
pub enum Storage {
    /// Booleans.
    I1(Vec<u8>),
    /// 8-bit signed integers.
    I8(Vec<i8>),
    /// 16-bit signed integers.
    I16(Vec<i16>),
    /// 32-bit signed integers.
    I32(Vec<i32>),
    /// 64-bit signed integers.
    I64(Vec<i64>),
    /// 8-bit unsigned integers.
    U8(Vec<u8>),
    /// 16-bit unsigned integers.
    U16(Vec<u16>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
    /// Half precision.
    F16(Vec<f16>),
    /// bfloat16.
    BF16(Vec<bf16>),
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
}

/// Runs an expression with the typed vector behind a [`Storage`].
#[macro_export]
macro_rules! with_storage {
    ($s:expr, $v:ident => $body:expr) => {
        match $s {
            $crate::Storage::I1($v) => $body,
            $crate::Storage::I8($v) => $body,
            $crate::Storage::I16($v) => $body,
            $crate::Storage::I32($v) => $body,
            $crate::Storage::I64($v) => $body,
            $crate::Storage::U8($v) => $body,
            $crate::Storage::U16($v) => $body,
            $crate::Storage::U32($v) => $body,
            $crate::Storage::U64($v) => $body,
            $crate::Storage::F16($v) => $body,
            $crate::Storage::BF16($v) => $body,
            $crate::Storage::F32($v) => $body,
            $crate::Storage::F64($v) => $body,
        }
    };
}

/// Like [`with_storage!`], and wraps the resulting vector back into the same variant.
#[macro_export]
macro_rules! map_storage {
    ($s:expr, $v:ident => $body:expr) => {
        match $s {
            $crate::Storage::I1($v) => $crate::Storage::I1($body),
            $crate::Storage::I8($v) => $crate::Storage::I8($body),
            $crate::Storage::I16($v) => $crate::Storage::I16($body),
            $crate::Storage::I32($v) => $crate::Storage::I32($body),
            $crate::Storage::I64($v) => $crate::Storage::I64($body),
            $crate::Storage::U8($v) => $crate::Storage::U8($body),
            $crate::Storage::U16($v) => $crate::Storage::U16($body),
            $crate::Storage::U32($v) => $crate::Storage::U32($body),
            $crate::Storage::U64($v) => $crate::Storage::U64($body),
            $crate::Storage::F16($v) => $crate::Storage::F16($body),
            $crate::Storage::BF16($v) => $crate::Storage::BF16($body),
            $crate::Storage::F32($v) => $crate::Storage::F32($body),
            $crate::Storage::F64($v) => $crate::Storage::F64($body),
        }
    };
}

impl Storage {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Storage::I1(_) => DType::I1,
            Storage::I8(_) => DType::I8,
            Storage::I16(_) => DType::I16,
            Storage::I32(_) => DType::I32,
            Storage::I64(_) => DType::I64,
            Storage::U8(_) => DType::U8,
            Storage::U16(_) => DType::U16,
            Storage::U32(_) => DType::U32,
            Storage::U64(_) => DType::U64,
            Storage::F16(_) => DType::F16,
            Storage::BF16(_) => DType::BF16,
            Storage::F32(_) => DType::F32,
            Storage::F64(_) => DType::F64,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        with_storage!(self, v => v.len())
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        with_storage!(self, v => bytemuck::cast_slice(v))
    }

    /// Elements from little-endian bytes; a partial last element is dropped. Non-zero `i1` bytes become 1.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Storage {
        // One copy: builds without optimisation would spend most of a step here, element by element.
        fn read<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
            let mut out = vec![T::zeroed(); bytes.len() / size_of::<T>()];
            let whole = out.len() * size_of::<T>();
            bytemuck::cast_slice_mut(&mut out).copy_from_slice(&bytes[..whole]);
            out
        }
        match dtype {
            DType::I1 => Storage::I1(bytes.iter().map(|&b| u8::from(b != 0)).collect()),
            DType::I8 => Storage::I8(read(bytes)),
            DType::I16 => Storage::I16(read(bytes)),
            DType::I32 => Storage::I32(read(bytes)),
            DType::I64 => Storage::I64(read(bytes)),
            DType::U8 => Storage::U8(read(bytes)),
            DType::U16 => Storage::U16(read(bytes)),
            DType::U32 => Storage::U32(read(bytes)),
            DType::U64 => Storage::U64(read(bytes)),
            DType::F16 => Storage::F16(read(bytes)),
            DType::BF16 => Storage::BF16(read(bytes)),
            DType::F32 => Storage::F32(read(bytes)),
            DType::F64 => Storage::F64(read(bytes)),
        }
    }

    /// `n` elements of one value, rounded to the element type as [`Storage::from_f64s`] does.
    pub fn splat(dtype: DType, value: f64, n: usize) -> Storage {
        let one = Storage::from_f64s(dtype, &[value]);
        map_storage!(&one, v => vec![v[0]; n])
    }

    /// Elements from doubles: floats round to nearest even, integers truncate and saturate, `i1` is `≠ 0`.
    pub fn from_f64s(dtype: DType, values: &[f64]) -> Storage {
        macro_rules! ints {
            ($variant:ident, $t:ty) => {
                Storage::$variant(values.iter().map(|&x| x as $t).collect())
            };
        }
        match dtype {
            DType::I1 => Storage::I1(values.iter().map(|&x| u8::from(x != 0.0)).collect()),
            DType::I8 => ints!(I8, i8),
            DType::I16 => ints!(I16, i16),
            DType::I32 => ints!(I32, i32),
            DType::I64 => ints!(I64, i64),
            DType::U8 => ints!(U8, u8),
            DType::U16 => ints!(U16, u16),
            DType::U32 => ints!(U32, u32),
            DType::U64 => ints!(U64, u64),
            DType::F16 => Storage::F16(values.iter().map(|&x| f16_from_f64(x)).collect()),
            DType::BF16 => Storage::BF16(values.iter().map(|&x| bf16_from_f64(x)).collect()),
            DType::F32 => ints!(F32, f32),
            DType::F64 => Storage::F64(values.to_vec()),
        }
    }

    /// Every element as a double (64-bit integers beyond 2⁵³ lose low bits).
    pub fn to_f64s(&self) -> Vec<f64> {
        match self {
            Storage::I1(v) | Storage::U8(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::I8(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::I16(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::I32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::I64(v) => v.iter().map(|&x| x as f64).collect(),
            Storage::U16(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::U32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::U64(v) => v.iter().map(|&x| x as f64).collect(),
            Storage::F16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Storage::BF16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Storage::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Storage::F64(v) => v.clone(),
        }
    }

    /// Element `i` as a double.
    pub fn get_f64(&self, i: usize) -> f64 {
        match self {
            Storage::I1(v) | Storage::U8(v) => v[i] as f64,
            Storage::I8(v) => v[i] as f64,
            Storage::I16(v) => v[i] as f64,
            Storage::I32(v) => v[i] as f64,
            Storage::I64(v) => v[i] as f64,
            Storage::U16(v) => v[i] as f64,
            Storage::U32(v) => v[i] as f64,
            Storage::U64(v) => v[i] as f64,
            Storage::F16(v) => v[i].to_f64(),
            Storage::BF16(v) => v[i].to_f64(),
            Storage::F32(v) => v[i] as f64,
            Storage::F64(v) => v[i],
        }
    }

    /// Element `i` as an integer; floats truncate and saturate.
    pub fn get_i64(&self, i: usize) -> i64 {
        match self {
            Storage::I64(v) => v[i],
            Storage::U64(v) => i64::try_from(v[i]).unwrap_or(i64::MAX),
            _ => self.get_f64(i) as i64,
        }
    }

    /// Writes the elements of `values`, of the same type, to the places `at`.
    ///
    /// # Errors
    /// [`crate::IrError::Type`] where the element types differ.
    pub fn put(&mut self, at: impl Iterator<Item = usize>, values: &Storage) -> crate::Result<()> {
        macro_rules! write {
            ($($v:ident),*) => {
                match (self, values) {
                    $((Storage::$v(o), Storage::$v(n)) => at.zip(n).for_each(|(i, &e)| o[i] = e),)*
                    (a, b) => {
                        let message = format!("{} is written into {}", b.dtype(), a.dtype());
                        return Err(crate::IrError::ty("tensor", message));
                    }
                }
            };
        }
        write!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64);
        Ok(())
    }

    /// These elements, then those of `more`, of the same type.
    ///
    /// # Errors
    /// [`crate::IrError::Type`] where the element types differ.
    pub fn followed_by(&self, more: &Storage) -> crate::Result<Storage> {
        macro_rules! join {
            ($($v:ident),*) => {
                match (self, more) {
                    $((Storage::$v(a), Storage::$v(b)) => Storage::$v(a.iter().chain(b).copied().collect()),)*
                    (a, b) => {
                        let message = format!("{} is put beside {}", b.dtype(), a.dtype());
                        return Err(crate::IrError::ty("tensor", message));
                    }
                }
            };
        }
        Ok(join!(I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64))
    }

    /// The elements at `index`, in that order. Every index must be below [`Storage::len`].
    pub fn pick(&self, index: impl Iterator<Item = usize>) -> Storage {
        map_storage!(self, v => index.map(|i| v[i]).collect())
    }
}

/// A tensor: elements and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimension sizes.
    pub shape: crate::types::Shape,
    /// Row-major elements; as many as the shape has.
    pub data: Storage,
}

impl Tensor {
    /// A tensor of a type from its elements.
    ///
    /// # Panics
    /// If the element count is not the shape's: that is a bug in the caller.
    pub fn new(shape: impl IntoIterator<Item = usize>, data: Storage) -> Tensor {
        let shape: crate::types::Shape = shape.into_iter().collect();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "element count of a tensor");
        Tensor { shape, data }
    }

    /// A tensor of a type, every element `value`.
    pub fn splat(ty: &TensorType, value: f64) -> Tensor {
        Tensor::new(ty.shape.iter().copied(), Storage::splat(ty.dtype, value, ty.elements()))
    }

    /// A tensor of a type from doubles.
    pub fn from_f64s(ty: &TensorType, values: &[f64]) -> Tensor {
        Tensor::new(ty.shape.iter().copied(), Storage::from_f64s(ty.dtype, values))
    }

    /// A rank-0 tensor.
    pub fn scalar(dtype: DType, value: f64) -> Tensor {
        Tensor::new([], Storage::from_f64s(dtype, &[value]))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// The tensor's type.
    pub fn ty(&self) -> TensorType {
        TensorType { dtype: self.dtype(), shape: self.shape.clone() }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The same elements in another shape of the same size.
    pub fn reshaped(mut self, shape: &[usize]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "element count of a reshape");
        self.shape = shape.into();
        self
    }

    /// Converted to another element type as StableHLO's `convert` does.
    pub fn converted(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype() {
            return self.clone();
        }
        let data = match (&self.data, dtype) {
            (Storage::I64(v), DType::U64) => Storage::U64(v.iter().map(|&x| x as u64).collect()),
            (Storage::U64(v), DType::I64) => Storage::I64(v.iter().map(|&x| x as i64).collect()),
            // Not by way of f64, which would round twice.
            (Storage::I64(v), DType::F32) => Storage::F32(v.iter().map(|&x| x as f32).collect()),
            (Storage::U64(v), DType::F32) => Storage::F32(v.iter().map(|&x| x as f32).collect()),
            (s, d) if !s.dtype().is_float() && d.is_int() => {
                // Integer to integer wraps; saturation is for floats only.
                let wide: Vec<i64> = match s {
                    Storage::I64(v) => v.clone(),
                    Storage::U64(v) => v.iter().map(|&x| x as i64).collect(),
                    other => (0..other.len()).map(|i| other.get_i64(i)).collect(),
                };
                match d {
                    DType::I8 => Storage::I8(wide.iter().map(|&x| x as i8).collect()),
                    DType::I16 => Storage::I16(wide.iter().map(|&x| x as i16).collect()),
                    DType::I32 => Storage::I32(wide.iter().map(|&x| x as i32).collect()),
                    DType::I64 => Storage::I64(wide),
                    DType::U8 => Storage::U8(wide.iter().map(|&x| x as u8).collect()),
                    DType::U16 => Storage::U16(wide.iter().map(|&x| x as u16).collect()),
                    DType::U32 => Storage::U32(wide.iter().map(|&x| x as u32).collect()),
                    _ => Storage::U64(wide.iter().map(|&x| x as u64).collect()),
                }
            }
            (s, d) => Storage::from_f64s(d, &s.to_f64s()),
        };
        Tensor { shape: self.shape.clone(), data }
    }
}
