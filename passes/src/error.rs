//! Errors of the passes, each with a code (`MSC-C…`).

use msc_ir::IrError;
use thiserror::Error;

/// Shorthand for a result with a [`PassError`].
pub type Result<T> = std::result::Result<T, PassError>;

/// Why a pass stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PassError {
    /// The IR refused what a pass built or was given.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// The requested layout does not fit the model: the user's to change.
    #[error("MSC-C0001: {message}\n  help: {help}")]
    Layout {
        /// What does not fit, in the user's names.
        message: String,
        /// What to do.
        help: String,
    },
    /// The program is larger than a named limit allows: the user's to change.
    #[error("MSC-C0003: {message}\n  help: {help}")]
    TooLarge {
        /// What is too large, and the limit.
        message: String,
        /// What to do.
        help: String,
    },
    /// A topology file is not one: the user's to change.
    #[error("MSC-C0004: {file}: {path}: {message}\n  help: {help}")]
    Topology {
        /// The file as the user named it.
        file: String,
        /// Where in the file: a JSON path from `$`.
        path: String,
        /// What is wrong there.
        message: String,
        /// What to do.
        help: String,
    },
    /// A pass broke its own promise: a bug in msc.
    #[error("MSC-C0002: internal: {pass}: {message}")]
    Broken {
        /// The pass.
        pass: &'static str,
        /// What is broken.
        message: String,
    },
}
