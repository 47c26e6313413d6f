//! Errors of this level.

use thiserror::Error;

/// Why a kernel could not be scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchedError {
    /// The kernel uses something that no pass handles yet.
    #[error("S001: kernel `{kernel}`: {what} is not supported on vector cores yet")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// What is missing.
        what: String,
    },
    /// Tiles and scratch do not fit even with one slot each.
    #[error(
        "S002: kernel `{kernel}` needs {bytes} bytes of the unified buffer with its scratch; {usable} are usable"
    )]
    TooLarge {
        /// Name of the kernel.
        kernel: String,
        /// Bytes needed.
        bytes: i64,
        /// Bytes there are.
        usable: i64,
    },
    /// More flags between two pipes than there are event ids.
    #[error("S003: kernel `{kernel}` needs {needed} event ids from pipe {src} to {dst}; there are 8")]
    EventIds {
        /// Name of the kernel.
        kernel: String,
        /// Ids needed.
        needed: u32,
        /// Source pipe.
        src: String,
        /// Destination pipe.
        dst: String,
    },
    /// The program made breaks the rules of this level: a fault of the derivation.
    #[error("S004: kernel `{kernel}`: {violation}")]
    Broken {
        /// Name of the kernel.
        kernel: String,
        /// The rule broken.
        violation: Violation,
    },
}

/// A rule of this level that a program breaks; see [`verify`](super::verify()).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// Conflicting accesses that nothing orders.
    #[error("V001: {kind} of {resource}: `{later}` is not ordered after `{earlier}`")]
    Hazard {
        /// What is touched.
        resource: String,
        /// "read after write", "write after read" or "write after write".
        kind: &'static str,
        /// The operation that comes first in program order, with its pipe.
        earlier: String,
        /// The other operation, with its pipe.
        later: String,
    },
    /// A flag set while it is set.
    #[error("V002: flag {0} is set twice without a wait between")]
    SetTwice(String),
    /// A wait that is never satisfied.
    #[error("V003: {0} waits for ever")]
    Deadlock(String),
    /// A flag or a cross-core signal left over at the end.
    #[error("V004: {0} is still set at the end")]
    LeftSet(String),
    /// Event ids out of range, or two flags alive at once that share one.
    #[error("V005: {0}")]
    EventIds(String),
    /// Tiles exceed a memory.
    #[error("V006: tiles take {bytes} bytes of {usable}")]
    Memory {
        /// Bytes taken.
        bytes: i64,
        /// Bytes there are.
        usable: i64,
    },
    /// An id, slot or pipe that does not exist.
    #[error("V007: {0}")]
    Unknown(String),
}
