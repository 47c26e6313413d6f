//! Dense constants: decoded once, into the bytes that the constant store keeps.

use crate::error::{Code, FrontendError, Result};
use crate::raw::{DenseData, Elem, RawModule, Type, TypeId, TypeTable};
use msc_ir::{DType, TensorType};
use std::sync::Arc;

/// Decoded elements, little-endian.
pub(super) enum Decoded {
    /// One element that stands for all.
    Splat(Vec<u8>),
    /// All elements, `i1` one byte each.
    Full(Arc<[u8]>),
}

impl Decoded {
    /// The bytes, of one element or of all.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Decoded::Splat(b) => b,
            Decoded::Full(b) => b,
        }
    }
}

/// The tensor type of a dense attribute; `index` elements are read as i64.
pub(super) fn index_as_i64(types: &TypeTable, id: TypeId) -> Option<TensorType> {
    let Type::Tensor { dims, elem } = types.get(id) else { return None };
    let dtype = if *elem == Elem::Index { DType::I64 } else { super::types::dtype(elem)? };
    let shape = dims.iter().map(|d| usize::try_from((*d)?).ok()).collect::<Option<_>>()?;
    let t = TensorType { dtype, shape };
    t.checked_bytes().map(|_| t)
}

/// Decodes the elements of a constant of type `ty`.
///
/// # Errors
/// [`Code::Constant`] (without a place) where the data does not fit the type.
pub(super) fn decode(raw: &RawModule<'_>, ty: &TensorType, data: &DenseData<'_>) -> Result<Decoded> {
    match data {
        DenseData::Bytes(b) => from_bytes(ty, b.len(), |out| {
            out.copy_from_slice(b);
            true
        }),
        DenseData::Hex(digits) => {
            if digits.len() % 2 != 0 {
                return Err(bad("the constant has an odd number of hexadecimal digits"));
            }
            from_bytes(ty, digits.len() / 2, |out| unhex(digits, out))
        }
        DenseData::Literal(text) => super::literal::decode(ty, text),
        DenseData::Resource(key) if key == "__elided__" => {
            Err(bad("the constant's elements were left out when the text was printed")
                .help("print the text in full (no `large_elements_limit`)"))
        }
        DenseData::Resource(key) => match raw.resources.get(key.as_ref()) {
            Some(DenseData::Resource(_)) | None => {
                Err(FrontendError::new(Code::Name, format!("the resource {key} is not in the file")).help(
                    "the file ends with a section `dialect_resources` that holds large constants; keep it",
                ))
            }
            Some(blob) => decode(raw, ty, blob),
        },
    }
}

pub(super) fn bad(message: impl Into<String>) -> FrontendError {
    FrontendError::new(Code::Constant, message)
}

/// A buffer of zeros that the constant store can take over.
pub(super) fn buffer(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}

/// Elements from `len` raw bytes that `fill` writes (returning whether they are well-formed).
fn from_bytes(ty: &TensorType, len: usize, fill: impl Fn(&mut [u8]) -> bool) -> Result<Decoded> {
    let n = ty.elements();
    let width = ty.dtype.size_bytes();
    let malformed = || bad("the constant has a digit that is not hexadecimal");
    if ty.dtype == DType::I1 {
        return booleans(n, len, fill);
    }
    if len == width && n != 1 && n != 0 {
        let mut one = vec![0; width];
        return if fill(&mut one) { Ok(Decoded::Splat(one)) } else { Err(malformed()) };
    }
    if n.checked_mul(width) != Some(len) {
        return Err(bad(format!("a constant of type {ty} takes {} bytes, there are {len}", ty.bytes())));
    }
    let mut out = buffer(len);
    if Arc::get_mut(&mut out).is_some_and(fill) { Ok(Decoded::Full(out)) } else { Err(malformed()) }
}

/// Booleans: one byte each, or packed by eight with the lowest bit first; `FF` alone is a splat of true.
fn booleans(n: usize, len: usize, fill: impl Fn(&mut [u8]) -> bool) -> Result<Decoded> {
    let packed = n.div_ceil(8);
    if len != n && len != packed && len != 1 {
        return Err(bad(format!("a constant of {n} booleans takes {n} or {packed} bytes, there are {len}")));
    }
    let mut bytes = vec![0; len];
    if !fill(&mut bytes) {
        return Err(bad("the constant has a digit that is not hexadecimal"));
    }
    if bytes == [0xFF] && n > 0 {
        return Ok(Decoded::Splat(vec![1]));
    }
    if len == packed && len != n {
        return Ok(Decoded::Full((0..n).map(|i| bytes[i / 8] >> (i % 8) & 1).collect()));
    }
    if len == n {
        return Ok(Decoded::Full(bytes.iter().map(|&b| u8::from(b != 0)).collect()));
    }
    match bytes[0] {
        0 => Ok(Decoded::Splat(vec![0])),
        1 => Ok(Decoded::Splat(vec![1])),
        b => Err(bad(format!("{b:#04x} is not a boolean"))),
    }
}

/// Value of a hexadecimal digit, 255 for any other byte.
const DIGITS: [u8; 256] = {
    let mut t = [255u8; 256];
    let mut i = 0;
    while i < 10 {
        t[b'0' as usize + i] = i as u8;
        i += 1;
    }
    let mut i = 0;
    while i < 6 {
        t[b'a' as usize + i] = 10 + i as u8;
        t[b'A' as usize + i] = 10 + i as u8;
        i += 1;
    }
    t
};

/// Two digits a byte; whether all of them are hexadecimal.
fn unhex(digits: &[u8], out: &mut [u8]) -> bool {
    let mut wrong = 0u8;
    for (pair, o) in digits.chunks_exact(2).zip(out) {
        let (hi, lo) = (DIGITS[pair[0] as usize], DIGITS[pair[1] as usize]);
        wrong |= hi | lo;
        *o = hi << 4 | (lo & 15);
    }
    // A wrong digit sets the upper bits, a right one never does.
    wrong < 16
}
