//! What a run reads and writes: tensors in `.npz`, `.npy` and `.safetensors`, tokens in these and in flat files.
//!
//! - [`mod@file`]: files of tensors; large ones are mapped into memory and read one tensor at a time;
//! - [`assign()`], [`Places`], [`names`]: which tensor of a file is which input. They are matched by name, or by order
//!   where they are only numbered (`in0000`, `in0001`, …, as exporters of test data write them);
//! - [`shards`]: folders with a file of blocks for each rank;
//! - [`init`]: initial values; [`schedule`]: values of run-time scalars;
//! - [`tokens`], [`megatron`]: files of tokens; [`feed`]: batches of them.

mod assign;
pub mod feed;
pub mod file;
pub mod init;
pub mod megatron;
pub mod names;
pub mod npz;
pub mod safetensors;
pub mod schedule;
pub mod shards;
pub mod tokens;

pub use assign::{Places, assign, fit, fit_as};

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
    /// Inputs or reference outputs that nothing gives.
    #[error("MSC-D0004: {} of {total} {what}s are not given: {}{}\n  help: {help}", names.len(), listed(names),
        if names.len() > 5 { ", …" } else { "" })]
    Missing {
        /// "input" or "output".
        what: &'static str,
        /// How many there are in all.
        total: usize,
        /// The names of those missing.
        names: Vec<String>,
        /// How to give them.
        help: String,
    },
    /// A tensor of another type.
    #[error("MSC-D0005: `{name}` should be {want}, the file has {found}{help}")]
    Type {
        /// Name of the input.
        name: String,
        /// Its type.
        want: String,
        /// What is in the file.
        found: String,
        /// What to do, if there is something beside giving another file.
        help: &'static str,
    },
    /// Two files give the same input.
    #[error("MSC-D0006: `{name}` is given twice")]
    Twice {
        /// Name of the input.
        name: String,
    },
    /// A mapping of names that is none.
    #[error("MSC-D0007: {path}: {message}", path = path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A schedule that is none.
    #[error("MSC-D0008: {path}: {message}", path = path.display())]
    Schedule {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A folder of shards that is none, or is incomplete.
    #[error("MSC-D0012: {path}: {message}\n  help: {help}", path = path.display())]
    Shards {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        message: String,
        /// What to do.
        help: String,
    },
    /// Fewer tokens than one step takes.
    #[error("MSC-D0009: the data has {found}, one step takes {needed}")]
    TooSmall {
        /// What there is, with its unit.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// A token that the model does not have.
    #[error(
        "MSC-D0010: {what} {token} at position {at} of the data: the model has the tokens 0 to {}\n  help: use data \
         made with this model's tokenizer",
        vocabulary - 1
    )]
    Token {
        /// "token" or "label".
        what: &'static str,
        /// The token.
        token: i64,
        /// Its position in the file.
        at: u64,
        /// Size of the vocabulary.
        vocabulary: u64,
    },
    /// Data that do not fit the step's inputs, or that do not say what they are.
    #[error("MSC-D0011: {message}\n  help: {help}")]
    Tokens {
        /// What does not fit.
        message: String,
        /// What to do.
        help: String,
    },
}

fn listed(names: &[String]) -> String {
    names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Reads a file of tensors; its first bytes say of which kind it is.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`].
pub fn read(path: &Path) -> Result<Tensors, DataError> {
    let file = file::TensorFile::open(path)?;
    if let file::TensorFile::Npz(..) = file {
        return npz::read(path);
    }
    file.names().into_iter().map(|name| Ok((name.clone(), file.tensor(&name)?))).collect()
}

/// Writes a file of tensors; its extension says of which kind. A file of that name is replaced only when the new
/// one is complete. `steps` is noted in `.safetensors` files, for a run that goes on from there.
///
/// # Errors
/// [`DataError::Io`]; [`DataError::Format`] for another extension.
pub fn write<'a>(
    path: &Path,
    tensors: &[(&'a str, &'a Tensor)],
    steps: Option<u64>,
) -> Result<(), DataError> {
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    let temporary = || tempfile::Builder::new().prefix(".msc").tempfile_in(folder(path)).map_err(io);
    let file = match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => {
            let file = temporary()?;
            npz::write_to(std::io::BufWriter::new(file.as_file()), tensors).map_err(io)?;
            file
        }
        Some("safetensors") => {
            let file = temporary()?;
            safetensors::write(file.path(), tensors, steps)?;
            file
        }
        _ => return Err(bad_extension(path)),
    };
    readable(file.path(), 0o644).map_err(io)?;
    file.persist(path).map_err(|e| io(e.error))?;
    Ok(())
}

/// Refuses a file to be written whose extension says nothing or whose folder is not there, before the work is done.
///
/// # Errors
/// [`DataError::Format`], [`DataError::Io`].
pub fn check_writable(path: &Path) -> Result<(), DataError> {
    if shards::is_folder(path) {
        return shards::check_folder(path);
    }
    if !matches!(path.extension().and_then(|e| e.to_str()), Some("npz" | "safetensors")) {
        return Err(bad_extension(path));
    }
    if folder(path).is_dir() {
        return Ok(());
    }
    let error = std::io::Error::new(std::io::ErrorKind::NotFound, "its folder is not there");
    Err(DataError::Io { path: path.to_path_buf(), error })
}

/// The folder that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn bad_extension(path: &Path) -> DataError {
    let message = "the name should end in .npz or .safetensors".into();
    DataError::Format { path: path.to_path_buf(), message }
}

/// Temporary files and folders are their owner's alone; results are as readable as any new one, which `mode` says.
#[cfg(unix)]
fn readable(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn readable(_: &Path, _: u32) -> std::io::Result<()> {
    Ok(())
}
