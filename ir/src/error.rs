//! Errors of the IR, each with a code (`MSC-I…`).

use thiserror::Error;

/// Shorthand for a result with an [`IrError`].
pub type Result<T> = std::result::Result<T, IrError>;

/// What can be wrong with a module or an op.
///
/// `Type`, `Attribute`, `Parse` and `Unsupported` describe input that a user may have written; `Structure`
/// always describes a bug in the code that built the graph.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IrError {
    /// Operand or result types do not fit the op.
    #[error("MSC-I0001: {op}: {message}")]
    Type {
        /// Name of the op.
        op: String,
        /// What does not fit, with the types.
        message: String,
    },
    /// An attribute is missing, of the wrong form, or out of range.
    #[error("MSC-I0002: {op}: attribute {attribute}: {message}")]
    Attribute {
        /// Name of the op.
        op: String,
        /// Name of the attribute.
        attribute: String,
        /// What is wrong with it.
        message: String,
    },
    /// The `.msc` text is malformed.
    #[error("MSC-I0003: line {line}, column {column}: {message}")]
    Parse {
        /// 1-based line.
        line: u32,
        /// 1-based column.
        column: u32,
        /// What was expected.
        message: String,
    },
    /// The op is known but this operation on it is not available.
    #[error("MSC-I0004: {op}: {message}")]
    Unsupported {
        /// Name of the op.
        op: String,
        /// What is not available.
        message: String,
    },
    /// The graph's structure is broken (use before definition, dangling id …): a bug in a pass or a reader.
    #[error("MSC-I0005: internal: graph @{graph}: {message}")]
    Structure {
        /// Name of the graph.
        graph: String,
        /// What is broken.
        message: String,
    },
}

impl IrError {
    /// A [`IrError::Type`].
    pub fn ty(op: impl Into<String>, message: impl Into<String>) -> Self {
        IrError::Type { op: op.into(), message: message.into() }
    }

    /// A [`IrError::Attribute`].
    pub fn attr(op: impl Into<String>, attribute: impl Into<String>, message: impl Into<String>) -> Self {
        IrError::Attribute { op: op.into(), attribute: attribute.into(), message: message.into() }
    }

    /// A [`IrError::Unsupported`].
    pub fn unsupported(op: impl Into<String>, message: impl Into<String>) -> Self {
        IrError::Unsupported { op: op.into(), message: message.into() }
    }
}
