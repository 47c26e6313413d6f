//! `.safetensors` files.

use super::{DataError, Tensors};
use msc_ir::{DType, Storage, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::fs::File;
use std::path::Path;

/// Reads every tensor of a file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read(path: &Path) -> Result<Tensors, DataError> {
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    let format = |message: String| DataError::Format { path: path.to_path_buf(), message };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(format("the file is empty".into()));
    }
    // SAFETY: the mapping is read only, private, and gone before this function returns; tensors are copies.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
    let all = SafeTensors::deserialize(&map)
        .map_err(|e| format(format!("neither .npz, .npy nor .safetensors: {e}")))?;
    let mut tensors = Tensors::new();
    for (name, view) in all.iter() {
        let Some(dtype) = dtype(view.dtype()) else {
            return Err(format(format!("tensor `{name}`: element type {} is not read", view.dtype())));
        };
        let data = Storage::from_bytes(dtype, view.data());
        if data.len() != view.shape().iter().product::<usize>() {
            return Err(format(format!("tensor `{name}` has not the size its header says")));
        }
        tensors.insert(name.to_string(), Tensor::new(view.shape().iter().copied(), data));
    }
    Ok(tensors)
}

/// Writes a file.
///
/// # Errors
/// [`DataError::Io`].
pub fn write(path: &Path, tensors: &[(&str, &Tensor)]) -> Result<(), DataError> {
    let other = |e: safetensors::SafeTensorError| DataError::Io {
        path: path.to_path_buf(),
        error: std::io::Error::other(e),
    };
    let views: Result<Vec<(&str, TensorView<'_>)>, _> = tensors
        .iter()
        .map(|(name, t)| Ok((*name, TensorView::new(named(t.dtype()), t.shape.to_vec(), t.data.bytes())?)))
        .collect();
    safetensors::serialize_to_file(views.map_err(other)?, None, path).map_err(other)
}

fn dtype(d: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&t| named(t) == d)
}

fn named(d: DType) -> Dtype {
    match d {
        DType::I1 => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}
