//! `.safetensors` files.

use super::{DataError, Tensors};
use msc_ir::{DType, Storage, Tensor, TensorType};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A mapped file.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: memmap2::Mmap,
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
        let steps = SafeTensors::read_metadata(&map)
            .ok()
            .and_then(|(_, m)| m.metadata().as_ref()?.get(STEPS)?.parse().ok())
            .filter(|&n: &u64| n <= MAX_STEPS);
        let opened = SafetensorsFile { path: path.to_path_buf(), map, steps };
        opened.header()?;
        Ok(opened)
    }

    fn format(&self, message: String) -> DataError {
        DataError::Format { path: self.path.clone(), message }
    }

    fn header(&self) -> Result<SafeTensors<'_>, DataError> {
        SafeTensors::deserialize(&self.map)
            .map_err(|e| self.format(format!("neither .npz, .npy nor .safetensors: {e}")))
    }

    /// The steps that led to the file, if msc wrote it.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The names of its tensors.
    pub fn names(&self) -> Vec<String> {
        let all = self.header().map(|h| h.names().into_iter().map(str::to_string).collect());
        let mut names: Vec<String> = all.unwrap_or_default();
        names.sort();
        names
    }

    /// A tensor's type and its bytes, in the file.
    ///
    /// # Errors
    /// [`DataError::Format`].
    pub fn view(&self, name: &str) -> Result<(TensorType, &[u8]), DataError> {
        let view = self.header()?.tensor(name).map_err(|e| self.format(format!("tensor `{name}`: {e}")))?;
        let Some(dtype) = dtype(view.dtype()) else {
            return Err(self.format(format!("tensor `{name}`: element type {} is not read", view.dtype())));
        };
        let ty = TensorType::new(dtype, view.shape().iter().copied());
        if ty.checked_bytes() != Some(view.data().len()) {
            return Err(self.format(format!("tensor `{name}` has not the size its header says")));
        }
        Ok((ty, view.data()))
    }
}

/// Reads every tensor of a file.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read(path: &Path) -> Result<Tensors, DataError> {
    let file = SafetensorsFile::open(path)?;
    let one = |name: String| {
        let (ty, bytes) = file.view(&name)?;
        Ok((name, Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, bytes))))
    };
    file.names().into_iter().map(one).collect()
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
