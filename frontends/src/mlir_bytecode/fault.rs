//! What the byte-level reader reports: a byte offset, the op concerned, and what is wrong.
//!
//! [`Fault`]s know nothing of files; [`Fault::into_error`] makes the front end's coded error of one.

use crate::error::{Code, FrontendError};

/// Shorthand for a result with a [`Fault`].
pub type Result<T> = std::result::Result<T, Box<Fault>>;

/// A problem at a byte of the artifact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Kind of trouble.
    pub code: Code,
    /// Byte offset from the start of the artifact.
    pub at: usize,
    /// The op concerned, where one is: its full name in the file (`vhlo.add_v1`).
    pub op: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Fault {
    /// A fault with any code.
    pub fn new(code: Code, at: usize, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault { code, at, op: None, message: message.into(), help: None })
    }

    /// Bytes that are not what the format says: damaged, truncated, or not bytecode at all.
    pub fn malformed(at: usize, message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::Syntax, at, message)
    }

    /// A limit of this reader that a legal file could exceed.
    pub fn limit(at: usize, message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::Limit, at, message)
    }

    /// The same fault, naming the op it concerns unless an inner one is named already.
    pub fn in_op(mut self: Box<Self>, op: &str) -> Box<Fault> {
        self.op.get_or_insert_with(|| op.to_string());
        self
    }

    /// The same fault with advice.
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Fault> {
        self.help = Some(help.into());
        self
    }

    /// The front end's error, for an artifact that starts at byte `base` of `file`.
    pub fn into_error(self, file: &str, base: usize) -> FrontendError {
        let message = match &self.op {
            Some(op) => format!("{op}: {}", self.message),
            None => self.message,
        };
        let error = FrontendError::new(self.code, message).at_bytes(file, base + self.at);
        match self.help {
            Some(h) => error.help(h),
            None => error,
        }
    }
}
