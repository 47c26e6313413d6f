//! Tensors in NumPy's `.npz` archives.
//!
//! NumPy has no bfloat16: it is stored as `uint16` bit patterns. [`read`] gives such arrays as `u16`, and
//! [`fit`] turns them into bf16 where that is wanted; [`write()`] stores bf16 as `uint16`.

use crate::error::{Code, FrontendError, Result};
use msc_ir::{DType, Shape, Storage, Tensor, TensorType};
use npyz::{NpyFile, NpyHeader, Order, WriterBuilder, npz};
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

fn fail(path: &Path, e: impl std::fmt::Display) -> FrontendError {
    FrontendError::new(Code::Io, format!("{}: {e}", path.display()))
}

/// Reads every array of an archive, by name.
///
/// # Errors
/// [`Code::Io`] where the file cannot be read, is not an archive, or holds an array of another element type than
/// booleans, 8- to 64-bit integers and 16- to 64-bit floats.
pub fn read(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let file = std::fs::File::open(path).map_err(|e| fail(path, e))?;
    let mut archive = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(|e| fail(path, e))?;
    let mut out = BTreeMap::new();
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(|e| fail(path, e))?;
        let Some(name) = npz::array_name_from_file_name(entry.name()).map(str::to_string) else { continue };
        let tensor = array(entry).map_err(|e| fail(path, format!("array {name}: {e}")))?;
        out.insert(name, tensor);
    }
    Ok(out)
}

/// One `.npy` file.
fn array(mut reader: impl Read) -> std::result::Result<Tensor, String> {
    let header = NpyHeader::from_reader(&mut reader).map_err(|e| e.to_string())?;
    let descr = header.dtype().descr();
    let dtype = match descr.trim_matches('\'') {
        "|b1" => DType::I1,
        "|i1" => DType::I8,
        "<i2" => DType::I16,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|u1" => DType::U8,
        "<u2" => DType::U16,
        "<u4" => DType::U32,
        "<u8" => DType::U64,
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        other => return Err(format!("elements of type {other} are not read")),
    };
    let shape: Option<Shape> = header.shape().iter().map(|&d| usize::try_from(d).ok()).collect();
    let mut ty = TensorType { dtype, shape: shape.ok_or("the shape does not fit in memory")? };
    let want = ty.checked_bytes().ok_or("the array does not fit in memory")?;
    let column_major = header.order() == Order::Fortran && ty.rank() > 1;
    if column_major {
        ty.shape.reverse();
    }
    let mut bytes = Vec::new();
    let data = NpyFile::with_header(header, reader).into_inner();
    data.take(want as u64 + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() != want {
        return Err(format!("{} bytes of elements where {want} were expected", bytes.len()));
    }
    let t = Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(dtype, &bytes));
    Ok(if column_major { transposed(&t) } else { t })
}

/// The tensor with its dimensions in reverse order.
fn transposed(t: &Tensor) -> Tensor {
    let mut shape = t.shape.clone();
    shape.reverse();
    let strides = msc_ir::types::strides(&t.shape);
    let index = msc_ir::tensor::IndexSpace::new(&shape)
        .map(|ix| ix.iter().rev().zip(&strides).map(|(i, s)| i * s).sum::<usize>());
    Tensor::new(shape.iter().copied(), t.data.pick(index))
}

/// Writes tensors as an uncompressed archive, in name order.
///
/// # Errors
/// [`Code::Io`] where the file cannot be written.
pub fn write<'t>(path: &Path, tensors: impl IntoIterator<Item = (&'t str, &'t Tensor)>) -> Result<()> {
    let sorted: BTreeMap<&str, &Tensor> = tensors.into_iter().collect();
    let file = std::fs::File::create(path).map_err(|e| fail(path, e))?;
    let mut archive = zip::ZipWriter::new(BufWriter::new(file));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .large_file(true);
    for (name, t) in sorted {
        archive.start_file(npz::file_name_from_array_name(name), options).map_err(|e| fail(path, e))?;
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
        let descr = descr.parse().map_err(|e| fail(path, e))?;
        let shape: Vec<u64> = t.shape.iter().map(|&d| d as u64).collect();
        npyz::WriteOptions::new_header_only()
            .dtype(npyz::DType::new_scalar(descr))
            .shape(&shape)
            .writer(&mut archive)
            .write_header_only()
            .map_err(|e| fail(path, e))?;
        archive.write_all(t.data.bytes()).map_err(|e| fail(path, e))?;
    }
    archive.finish().map_err(|e| fail(path, e))?.flush().map_err(|e| fail(path, e))
}

/// The tensor as one of type `ty`: unchanged, or `u16` bit patterns as bf16.
///
/// # Errors
/// [`Code::Type`] where it is of another type.
pub fn fit(t: &Tensor, ty: &TensorType) -> Result<Tensor> {
    if t.ty() == *ty {
        return Ok(t.clone());
    }
    if t.dtype() == DType::U16 && ty.dtype == DType::BF16 && t.shape == ty.shape {
        return Ok(Tensor { shape: t.shape.clone(), data: Storage::from_bytes(DType::BF16, t.data.bytes()) });
    }
    Err(FrontendError::new(Code::Type, format!("an array of type {} where {ty} is wanted", t.ty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_it_reads() {
        let dir = std::env::temp_dir().join(format!("msc-npz-{}", std::process::id()));
        let f = Tensor::new([2, 3], Storage::F32(vec![1.0, -2.5, 3.0, f32::INFINITY, 0.0, -0.0]));
        let b = Tensor::new([], Storage::I1(vec![1]));
        let n = Tensor::new([0, 4], Storage::I64(vec![]));
        let h = Tensor::new([2], Storage::from_f64s(DType::BF16, &[1.0, 2.5]));
        write(&dir, [("f", &f), ("b", &b), ("n", &n), ("h", &h)]).unwrap();
        let back = read(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(back.keys().collect::<Vec<_>>(), ["b", "f", "h", "n"]);
        assert_eq!((&back["f"], &back["b"], &back["n"]), (&f, &b, &n));
        assert_eq!(back["h"].dtype(), DType::U16);
        assert_eq!(fit(&back["h"], &h.ty()).unwrap(), h);
        assert_eq!(fit(&back["f"], &h.ty()).unwrap_err().code(), Code::Type);
    }

    #[test]
    fn column_major_is_turned() {
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }";
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        let padded = format!("{header:<117}\n");
        file.extend((padded.len() as u16).to_le_bytes());
        file.extend(padded.as_bytes());
        file.extend([1i32, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()));
        assert_eq!(array(&file[..]).unwrap(), Tensor::new([2, 3], Storage::I32(vec![1, 2, 3, 4, 5, 6])));
    }
}
