//! NumPy's `.npy` and `.npz`.
//!
//! NumPy has no bfloat16: it is written as `uint16` bit patterns, and read from those or from the two-byte void
//! type of `ml_dtypes`; both are held as `u16` here, and become bfloat16 where an input is of that type
//! ([`super::fit`]).

use super::{DataError, Tensors};
use msc_ir::tensor::IndexSpace;
use msc_ir::types::strides;
use msc_ir::{DType, Storage, Tensor, TensorType};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The most bytes of one array (1 TiB).
const MAX_BYTES: usize = 1 << 40;

/// Reads every array of an `.npz` file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read(path: &Path) -> Result<Tensors, DataError> {
    let file = File::open(path).map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
    read_from(BufReader::new(file)).map_err(|message| DataError::Format { path: path.to_path_buf(), message })
}

/// Reads every array of an `.npz` archive.
///
/// # Errors
/// What is wrong with it.
pub fn read_from(source: impl Read + Seek) -> Result<Tensors, String> {
    let mut archive = ZipArchive::new(source).map_err(|e| format!("not an .npz archive: {e}"))?;
    let mut tensors = Tensors::new();
    for n in 0..archive.len() {
        let entry = archive.by_index(n).map_err(|e| format!("member {n}: {e}"))?;
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_string) else {
            return Err(format!("member `{}` is not an array", entry.name()));
        };
        let t = array(entry).map_err(|e| format!("array `{name}`: {e}"))?;
        if tensors.insert(name.clone(), t).is_some() {
            return Err(format!("array `{name}` is there twice"));
        }
    }
    Ok(tensors)
}

/// Reads an `.npy` file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read_npy(path: &Path) -> Result<Tensor, DataError> {
    let file = File::open(path).map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
    array(BufReader::new(file)).map_err(|message| DataError::Format { path: path.to_path_buf(), message })
}

/// An `.npy` file in memory: element type, shape, and the byte where row-major elements begin. `None` for
/// column-major ones.
///
/// # Errors
/// What is wrong with it.
pub fn row_major(bytes: &[u8]) -> Result<Option<(TensorType, usize)>, String> {
    let mut rest = bytes;
    let header = header(&mut rest)?;
    let ty = array_type(&header)?;
    if header.column_major && ty.rank() > 1 {
        return Ok(None);
    }
    if rest.len() < ty.bytes() {
        return Err(format!("has {} bytes instead of {}", rest.len(), ty.bytes()));
    }
    Ok(Some((ty, bytes.len() - rest.len())))
}

fn array_type(header: &Header) -> Result<TensorType, String> {
    let dtype = match header.descr.as_str() {
        "|b1" => DType::I1,
        "|i1" => DType::I8,
        "<i2" => DType::I16,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|u1" => DType::U8,
        "<u2" | "<V2" | "|V2" => DType::U16,
        "<u4" => DType::U32,
        "<u8" => DType::U64,
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        other => return Err(format!("elements of type `{other}` are not read")),
    };
    let shape = &header.shape;
    let size = shape.iter().try_fold(dtype.size_bytes(), |n, &d| n.checked_mul(d));
    if size.is_none_or(|n| n > MAX_BYTES) {
        return Err(format!("shape {shape:?} is too large"));
    }
    Ok(TensorType::new(dtype, shape.iter().copied()))
}

fn array(mut source: impl Read) -> Result<Tensor, String> {
    let header = header(&mut source)?;
    let ty = array_type(&header)?;
    let (dtype, size, shape) = (ty.dtype, ty.bytes(), header.shape);
    // The header may lie: memory is taken as bytes arrive.
    let mut data = Vec::new();
    source.take(size as u64).read_to_end(&mut data).map_err(|e| e.to_string())?;
    if data.len() != size {
        return Err(format!("has {} bytes instead of {size}", data.len()));
    }
    let data = Storage::from_bytes(dtype, &data);
    if !header.column_major || shape.len() < 2 {
        return Ok(Tensor::new(shape, data));
    }
    // Column-major elements are the row-major ones of the reversed shape.
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let st = strides(&reversed);
    let index = IndexSpace::new(&shape).map(|ix| ix.iter().rev().zip(&st).map(|(i, s)| i * s).sum::<usize>());
    let data = data.pick(index);
    Ok(Tensor::new(shape, data))
}

/// The header of an `.npy` file.
struct Header {
    descr: String,
    column_major: bool,
    shape: Vec<usize>,
}

/// Reads the header: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, keys in any order.
///
/// Our own because the crates for it multiply the sizes unchecked.
fn header(source: &mut impl Read) -> Result<Header, String> {
    let mut start = [0u8; 8];
    source.read_exact(&mut start).map_err(|e| e.to_string())?;
    if &start[..6] != b"\x93NUMPY" {
        return Err("is no array".into());
    }
    // Version 1 has a length of two bytes, versions 2 and 3 of four.
    let mut length = [0u8; 4];
    let width = if start[6] == 1 { 2 } else { 4 };
    source.read_exact(&mut length[..width]).map_err(|e| e.to_string())?;
    let length = u32::from_le_bytes(length);
    let mut text = Vec::new();
    source.take(length.into()).read_to_end(&mut text).map_err(|e| e.to_string())?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    let value = |key: &str| -> Result<&str, String> {
        let missing = || format!("the header `{}` has no {key}", text.trim());
        let (_, rest) = text.split_once(&format!("'{key}':")).ok_or_else(missing)?;
        Ok(rest.trim_start())
    };
    let descr = value("descr")?.strip_prefix('\'').and_then(|d| d.split_once('\''));
    let Some((descr, _)) = descr else { return Err("elements of several fields are not read".into()) };
    let order = value("fortran_order")?;
    let column_major = order.starts_with("True");
    let dims = value("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
    let dims = dims.map(|(d, _)| d.split(',').map(str::trim).filter(|d| !d.is_empty()));
    let shape: Option<Vec<usize>> = dims.and_then(|d| d.map(|d| d.parse().ok()).collect());
    match shape {
        Some(shape) if column_major || order.starts_with("False") => {
            Ok(Header { descr: descr.to_string(), column_major, shape })
        }
        _ => Err(format!("the header `{}` is malformed", text.trim())),
    }
}

/// The names of the arrays of an `.npz` file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn names(path: &Path) -> Result<Vec<String>, DataError> {
    let file = File::open(path).map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
    let format = |message: String| DataError::Format { path: path.to_path_buf(), message };
    let archive =
        ZipArchive::new(BufReader::new(file)).map_err(|e| format(format!("not an .npz archive: {e}")))?;
    let name = |n: &str| match n.strip_suffix(".npy") {
        Some(name) => Ok(name.to_string()),
        None => Err(format(format!("member `{n}` is not an array"))),
    };
    archive.file_names().map(name).collect()
}

/// Reads one array of an `.npz` file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read_one(path: &Path, name: &str) -> Result<Tensor, DataError> {
    let file = File::open(path).map_err(|error| DataError::Io { path: path.to_path_buf(), error })?;
    let format = |message: String| DataError::Format { path: path.to_path_buf(), message };
    let mut archive =
        ZipArchive::new(BufReader::new(file)).map_err(|e| format(format!("not an .npz archive: {e}")))?;
    let entry =
        archive.by_name(&format!("{name}.npy")).map_err(|e| format(format!("array `{name}`: {e}")))?;
    array(entry).map_err(|e| format(format!("array `{name}`: {e}")))
}

/// Writes an `.npz` archive, arrays in the order given, uncompressed. The same tensors give the same bytes.
///
/// # Errors
/// Those of the writer.
pub fn write_to(out: impl Write + Seek, tensors: &[(&str, &Tensor)]) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    for (name, t) in tensors {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(t.data.bytes().len() as u64 >= u64::from(u32::MAX));
        zip.start_file(format!("{name}.npy"), options).map_err(io::Error::other)?;
        zip.write_all(&npy_header(t))?;
        zip.write_all(t.data.bytes())?;
    }
    zip.finish().map_err(io::Error::other)?.flush()
}

/// The header of an `.npy` file, version 1.0: a Python dictionary, padded to a multiple of 64 bytes.
fn npy_header(t: &Tensor) -> Vec<u8> {
    let descr = match t.dtype() {
        DType::I1 => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 | DType::BF16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    };
    let dims: String = t.shape.iter().map(|d| format!("{d}, ")).collect();
    let dims = if t.shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    let padding = 63 - (10 + text.len()) % 64;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.into_bytes());
    out
}
