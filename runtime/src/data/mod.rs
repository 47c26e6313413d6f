//! Tensors from and to files: `.npz`, `.npy`, `.safetensors`.
//!
//! A file's tensors are matched to a step's inputs by name, or by order where they are only numbered
//! (`in0000`, `in0001`, …, as exporters of test data write them).

mod assign;
pub mod npz;
pub mod safetensors;

pub use assign::{assign, fit};

use msc_ir::Tensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Why data could not be read, written, or used. The file or the command line is at fault.
#[derive(Debug, Error)]
pub enum DataError {
    /// The file system refused.
    #[error("MSC-D0001: {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is not what its name says, or holds what msc does not read.
    #[error("MSC-D0002: {path}: {message}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A tensor that the step has no input for.
    #[error("MSC-D0003: the step has no {what} named `{name}`{hint}")]
    Unknown {
        /// "input" or "output".
        what: &'static str,
        /// Name in the file.
        name: String,
        /// Names that may be meant.
        hint: String,
    },
    /// An input that no file gives.
    #[error("MSC-D0004: no file gives {what} {}", names.join(", "))]
    Missing {
        /// "input" or "output".
        what: &'static str,
        /// Their names.
        names: Vec<String>,
    },
    /// A tensor of another type.
    #[error("MSC-D0005: `{name}` should be {want}, the file has {found}")]
    Type {
        /// Name of the input.
        name: String,
        /// Its type.
        want: String,
        /// What is in the file.
        found: String,
    },
    /// Two files give the same input.
    #[error("MSC-D0006: `{name}` is given twice")]
    Twice {
        /// Name of the input.
        name: String,
    },
}

/// Reads a file of tensors; its first bytes say of which kind it is.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read(path: &Path) -> Result<Tensors, DataError> {
    use std::io::Read;
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    let mut start = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(6).read_to_end(&mut start).map_err(io)?;
    if start.starts_with(b"PK") {
        npz::read(path)
    } else if start == b"\x93NUMPY" {
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Tensors::from([(name, npz::read_npy(path)?)]))
    } else {
        safetensors::read(path)
    }
}

/// Writes a file of tensors; its extension says of which kind.
///
/// # Errors
/// [`DataError::Io`]; [`DataError::Format`] for another extension.
pub fn write<'a>(path: &Path, tensors: &[(&'a str, &'a Tensor)]) -> Result<(), DataError> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => npz::write(path, tensors),
        Some("safetensors") => safetensors::write(path, tensors),
        _ => Err(DataError::Format {
            path: path.to_path_buf(),
            message: "the name should end in .npz or .safetensors".into(),
        }),
    }
}
