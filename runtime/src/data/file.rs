//! Files of tensors.

use super::safetensors::SafetensorsFile;
use super::shards::Shards;
use super::{DataError, npz};
use msc_ir::{Storage, Tensor, TensorType};
use std::path::{Path, PathBuf};

/// An open file. Its tensors are read one at a time; those of a `.safetensors` file stay in the file, mapped into
/// memory, until they are used.
#[derive(Debug)]
pub enum TensorFile {
    /// `.npz`, with the names of its arrays, sorted.
    Npz(PathBuf, Vec<String>),
    /// `.npy`: one array, named like the file.
    Npy(PathBuf),
    /// `.safetensors`.
    Safetensors(SafetensorsFile),
    /// A folder of shards.
    Shards(Shards),
}

impl TensorFile {
    /// Opens a file; its first bytes say of which kind it is.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Format`].
    pub fn open(path: &Path) -> Result<TensorFile, DataError> {
        use std::io::Read;
        if path.is_dir() {
            return Ok(TensorFile::Shards(Shards::open(path)?));
        }
        let io = |error| DataError::Io { path: path.to_path_buf(), error };
        let mut start = Vec::new();
        std::fs::File::open(path).map_err(io)?.take(6).read_to_end(&mut start).map_err(io)?;
        if start.starts_with(b"PK") {
            let mut names = npz::names(path)?;
            names.sort();
            Ok(TensorFile::Npz(path.to_path_buf(), names))
        } else if start == b"\x93NUMPY" {
            Ok(TensorFile::Npy(path.to_path_buf()))
        } else {
            Ok(TensorFile::Safetensors(SafetensorsFile::open(path)?))
        }
    }

    /// The names of its tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        match self {
            TensorFile::Npz(_, names) => names.clone(),
            TensorFile::Npy(path) => {
                vec![path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()]
            }
            TensorFile::Safetensors(f) => f.names(),
            TensorFile::Shards(f) => f.names(),
        }
    }

    /// The steps that led to the file, if it holds a run's state.
    pub fn steps(&self) -> Option<u64> {
        match self {
            TensorFile::Safetensors(f) => f.steps(),
            TensorFile::Shards(f) => f.steps(),
            _ => None,
        }
    }

    /// A tensor's type and bytes where they can be used in place.
    ///
    /// # Errors
    /// [`DataError::Format`].
    pub fn view(&self, name: &str) -> Result<Option<(TensorType, &[u8])>, DataError> {
        match self {
            TensorFile::Safetensors(f) => f.view(name).map(Some),
            _ => Ok(None),
        }
    }

    /// A tensor.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Format`].
    pub fn tensor(&self, name: &str) -> Result<Tensor, DataError> {
        match self {
            TensorFile::Npz(path, _) => npz::read_one(path, name),
            TensorFile::Npy(path) => npz::read_npy(path),
            TensorFile::Safetensors(f) => {
                let (ty, bytes) = f.view(name)?;
                Ok(Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, bytes)))
            }
            TensorFile::Shards(f) => f.tensor(name),
        }
    }
}
