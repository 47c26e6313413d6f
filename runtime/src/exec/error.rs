//! What can go wrong in a run.

use super::place::Place;
use crate::comm::CommError;
use msc_ir::IrError;
use std::time::Duration;
use thiserror::Error;

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
    /// A rank for which others wait does not come.
    #[error("MSC-R0010: {culprit}: {state}; {waiter} waited {} s for it", timeout.as_secs_f64())]
    Stalled {
        /// The rank that does not get on, and where it is.
        culprit: Box<Place>,
        /// What is known of it.
        state: String,
        /// Who waited for it, and where.
        waiter: String,
        /// How long.
        timeout: Duration,
    },
    /// A rank's process is gone.
    #[error("MSC-R0011: {place}: {how}")]
    Died {
        /// Where it was.
        place: Box<Place>,
        /// How it ended.
        how: String,
    },
    /// The run failed in another process, which has said why.
    #[error("{text}")]
    Elsewhere {
        /// What it said.
        text: String,
        /// The exit status that fits.
        status: u8,
    },
}

impl RunError {
    /// The exit status that fits: 2 for what the user gave, 1 for a run that failed.
    pub fn status(&self) -> u8 {
        match self {
            RunError::Carry { .. } | RunError::Input { .. } => 2,
            RunError::Elsewhere { status, .. } => *status,
            _ => 1,
        }
    }
}

fn culprits(others: &[String]) -> String {
    others.iter().map(|o| format!("; {o}")).collect()
}
