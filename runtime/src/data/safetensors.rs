//! `.safetensors` files.

use super::DataError;
use msc_ir::{DType, Tensor, TensorType};
use safetensors::tensor::{Metadata, TensorInfo, TensorView};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A mapped file.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: memmap2::Mmap,
    metadata: Metadata,
    /// Where the elements begin.
    data: usize,
    steps: Option<u64>,
}

/// Key of the number of steps in a file's metadata.
const STEPS: &str = "msc.steps";

/// More steps than any run makes; a larger number is damage.
const MAX_STEPS: u64 = 1 << 40;

impl SafetensorsFile {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Format`].
    pub fn open(path: &Path) -> Result<SafetensorsFile, DataError> {
        let io = |error| DataError::Io { path: path.to_path_buf(), error };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            let message = "the file is empty".into();
            return Err(DataError::Format { path: path.to_path_buf(), message });
        }
        // SAFETY: the mapping is read only and private; that no one truncates the file meanwhile is asked of the
        // user, as for plans. Files that msc replaces are renamed, which is harmless.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        let format = |message: String| DataError::Format { path: path.to_path_buf(), message };
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|e| format(format!("neither .npz, .npy nor .safetensors: {e}")))?;
        let noted = metadata.metadata().as_ref().and_then(|m| m.get(STEPS));
        let steps = noted.map(|n| n.parse().ok().filter(|&n: &u64| n <= MAX_STEPS).ok_or(n));
        let steps = steps.transpose().map_err(|n| format(format!("`{n}` is no number of steps")))?;
        // The elements begin behind the header and its length.
        let data = size_of::<u64>() + header;
        Ok(SafetensorsFile { path: path.to_path_buf(), map, metadata, data, steps })
    }

    fn format(&self, message: String) -> DataError {
        DataError::Format { path: self.path.clone(), message }
    }

    /// The steps that led to the file, if msc wrote it.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The names of its tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.metadata.offset_keys();
        names.sort();
        names
    }

    /// A tensor's type and its bytes, in the file.
    ///
    /// # Errors
    /// [`DataError::Format`].
    pub fn view(&self, name: &str) -> Result<(TensorType, &[u8]), DataError> {
        let info = self.metadata.info(name);
        let info = info.ok_or_else(|| self.format(format!("there is no tensor `{name}`")))?;
        let Some(dtype) = dtype(info.dtype) else {
            return Err(self.format(format!("tensor `{name}`: element type {} is not read", info.dtype)));
        };
        let ty = TensorType::new(dtype, info.shape.iter().copied());
        let (start, end) = info.data_offsets;
        let bytes = self.map.get(self.data..).and_then(|all| all.get(start..end));
        match bytes {
            Some(bytes) if ty.checked_bytes() == Some(bytes.len()) => Ok((ty, bytes)),
            _ => Err(self.format(format!("tensor `{name}` has not the size its header says"))),
        }
    }
}

/// Writes a file. `steps` is noted in it.
///
/// # Errors
/// [`DataError::Io`].
pub fn write(path: &Path, tensors: &[(&str, &Tensor)], steps: Option<u64>) -> Result<(), DataError> {
    let other = |e: safetensors::SafeTensorError| DataError::Io {
        path: path.to_path_buf(),
        error: std::io::Error::other(e),
    };
    let views: Result<Vec<(&str, TensorView<'_>)>, _> = tensors
        .iter()
        .map(|(name, t)| Ok((*name, TensorView::new(named(t.dtype()), t.shape.to_vec(), t.data.bytes())?)))
        .collect();
    let metadata = steps.map(|n| HashMap::from([(STEPS.to_string(), n.to_string())]));
    safetensors::serialize_to_file(views.map_err(other)?, metadata, path).map_err(other)
}

/// The beginning of a file of tensors of these types, up to their elements, and in which order these follow: by number,
/// wide types first, so that all are aligned.
///
/// # Errors
/// If sizes overflow, or a name is there twice.
pub(super) fn header<'a>(
    tensors: impl Iterator<Item = (&'a str, TensorType)>,
    steps: Option<u64>,
) -> std::io::Result<(Vec<u8>, Vec<usize>)> {
    let tensors: Vec<(&str, TensorType)> = tensors.collect();
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(tensors[i].1.dtype.size_bytes()), tensors[i].0));
    let mut at = 0;
    let mut infos = Vec::new();
    for &i in &order {
        let (name, ty) = &tensors[i];
        let end = ty.checked_bytes().and_then(|n| n.checked_add(at));
        let end = end.ok_or_else(|| std::io::Error::other(format!("`{name}` is too large")))?;
        let info = TensorInfo { dtype: named(ty.dtype), shape: ty.shape.to_vec(), data_offsets: (at, end) };
        infos.push((name.to_string(), info));
        at = end;
    }
    let noted = steps.map(|n| HashMap::from([(STEPS.to_string(), n.to_string())]));
    let metadata = Metadata::new(noted, infos).map_err(std::io::Error::other)?;
    let mut text = serde_json::to_vec(&metadata)?;
    text.resize(text.len().next_multiple_of(size_of::<u64>()), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.append(&mut text);
    Ok((out, order))
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
