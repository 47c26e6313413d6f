//! What can go wrong in a run.

use crate::comm::CommError;
use msc_ir::IrError;
use std::fmt;
use thiserror::Error;

/// A place in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The rank.
    pub rank: usize,
    /// The step, from 0.
    pub step: usize,
    /// Position in the rank's instruction list.
    pub instruction: usize,
    /// What the instruction does: its action, and the op or kernel.
    pub what: String,
    /// Where the source says so, with the user's name.
    pub source: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { rank, step, instruction, what, source } = self;
        write!(f, "rank {rank}, step {step}, instruction {instruction} ({what}), {source}")
    }
}

/// Why a run ended early.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RunError {
    /// Inputs that the step does not take. The user's.
    #[error("MSC-R0001: {message}")]
    Input {
        /// What does not fit.
        message: String,
    },
    /// Not enough memory for the arenas.
    #[error("MSC-R0002: rank {rank} needs {bytes} bytes of memory, which the system does not give")]
    Memory {
        /// The rank.
        rank: usize,
        /// Bytes of its arena.
        bytes: u64,
    },
    /// An op could not be evaluated.
    #[error("MSC-R0003: {place}: {error}")]
    Op {
        /// Where.
        place: Box<Place>,
        /// Why.
        error: IrError,
    },
    /// A kernel or a library failed.
    #[error("MSC-R0004: {place}: {message}")]
    Kernel {
        /// Where.
        place: Box<Place>,
        /// Why.
        message: String,
    },
    /// A collective or a message failed.
    #[error("MSC-R0005: {place}: {error}{}", culprits(others))]
    Communication {
        /// Where.
        place: Box<Place>,
        /// Why.
        error: CommError,
        /// What the ranks that it waited for were doing.
        others: Vec<String>,
    },
    /// A bug in msc.
    #[error("MSC-R0006: internal: {place}: {message}")]
    Internal {
        /// Where.
        place: Box<Place>,
        /// What the panic said, or which invariant broke.
        message: String,
    },
    /// A mapping of results to parameters that does not fit. The user's.
    #[error("MSC-R0007: {message}")]
    Carry {
        /// What does not fit.
        message: String,
    },
    /// The session cannot go on: it failed before, or no step has run.
    #[error("MSC-R0008: {message}")]
    Order {
        /// What was asked too early or too late.
        message: String,
    },
    /// The system gives no thread, or the group cannot be formed.
    #[error("MSC-R0009: rank {rank}: {message}")]
    Start {
        /// The rank.
        rank: usize,
        /// What the system said.
        message: String,
    },
}

fn culprits(others: &[String]) -> String {
    others.iter().map(|o| format!("; {o}")).collect()
}
