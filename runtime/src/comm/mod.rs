//! Communication between ranks.
//!
//! A [`World`] holds all ranks of a run and hands out [`Communicator`]s: groups of ranks in a given order. One
//! trait, three back ends: [`local`] for threads of one process, [`shm`] for processes of one machine, [`mpi`] for
//! processes that a launcher of MPI started. [`conformance`] is what every back end must pass.
//!
//! Calls block. What overlaps communication with computation is the executor: every rank issues its collectives
//! from a thread of its own that runs nothing else, and streams meet in waits.
//!
//! **Order of sums.** Results have the same bits for any back end, timing and number of threads, and are those
//! of [`msc_ir::ops::collective::Collective::combine_group`]: sums of floats are accumulated in f64 in the
//! order of the group's ranks and rounded once; everything else is combined in that order in its own type.
//!
//! **Failure.** No call waits longer than the world's timeout for other ranks, and [`World::abort`] ends all
//! waiting at once. After a failure a group is of no further use.

mod arguments;
pub mod board;
mod call;
pub mod conformance;
pub mod local;
pub mod mpi;
mod point;
mod process;
mod reduce;
pub mod shm;

pub use process::Life;
pub use reduce::reduce;

use board::Board;
use msc_ir::{DType, Monoid};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How often a waiting rank looks whether it waits in vain.
const LOOK: Duration = Duration::from_millis(20);

/// The tag of groups that meet between steps only. Processes may be late there, because one reads or writes files:
/// they are waited for as long as they run and are not within a step, up to ten timeouts.
pub const BETWEEN: u64 = u64::MAX;

/// Why a call failed. It has then delivered nothing, and no other rank touches the caller's memory any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommError {
    /// Some ranks did not come.
    #[error(
        "MSC-N0001: {call}: rank{} {} did not come within {} s",
        if missing.len() == 1 { "" } else { "s" },
        list(missing),
        timeout.as_secs_f64()
    )]
    Timeout {
        /// The call that waited.
        call: &'static str,
        /// The ranks (of the world) that did not come.
        missing: Vec<usize>,
        /// How long it waited.
        timeout: Duration,
    },
    /// The world was aborted, because a rank failed elsewhere.
    #[error("MSC-N0002: {call}: another rank failed")]
    Aborted {
        /// The call that was given up.
        call: &'static str,
    },
    /// Ranks of a group called different things. A bug in the plan.
    #[error("MSC-N0003: rank {rank} calls {call}, rank {other_rank} calls {other}")]
    Mismatch {
        /// A rank.
        rank: usize,
        /// What it called.
        call: String,
        /// Another rank.
        other_rank: usize,
        /// What it called.
        other: String,
    },
    /// The process of a rank is gone.
    #[error(
        "MSC-N0005: {call}: rank {rank} {}",
        if *ended { "has ended its run already" } else { "is gone: its process died" }
    )]
    Lost {
        /// The call that waited for it.
        call: &'static str,
        /// The rank.
        rank: usize,
        /// Whether it had ended its work.
        ended: bool,
    },
    /// The system gives no shared memory for a group.
    #[error("MSC-N0006: shared memory {path}: {error}")]
    Memory {
        /// The file in memory.
        path: String,
        /// What the system says.
        error: String,
    },
    /// MPI failed.
    #[error("MSC-N0008: MPI: {message}")]
    Library {
        /// What it said.
        message: String,
    },
    /// Arguments that do not fit the call.
    #[error("MSC-N0004: {call}: {message}")]
    Argument {
        /// The call.
        call: &'static str,
        /// What does not fit.
        message: String,
    },
}

fn list(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

type Result<T> = std::result::Result<T, CommError>;

/// All ranks of a run, as seen from this process.
pub trait World: Send + Sync {
    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// The ranks of this process.
    fn here(&self) -> Vec<usize>;

    /// What ranks know of each other beside what they send.
    fn board(&self) -> &Arc<Board>;

    /// The communicator of the ranks `members`, in this order, for the rank `rank` of this process, which is one
    /// of them. Members that pass the same `members` and `tag` meet; different tags keep groups of the same
    /// ranks apart.
    ///
    /// # Errors
    /// [`CommError::Argument`] if `members` are not distinct ranks or do not hold `rank`.
    fn communicator(&self, rank: usize, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>>;

    /// Ends all waiting in this world, now and later.
    fn abort(&self);

    /// Asks all ranks of which the board does not know whether they wait too; those that do not say so in time. Called by
    /// a rank that has waited in vain.
    fn silent(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Says that the ranks of this process have done their work: who waits for one of them now waits in vain.
    fn end(&self) {}
}

/// A rank's end of a group. At most one thread of a rank may be in a call at a time.
///
/// Tensors are given as their bytes, row-major, of any alignment. All ranks of the group make the same calls
/// in the same order with the same sizes. Every call may fail as [`CommError`] says.
pub trait Communicator: Send + Sync {
    /// Position in the group.
    fn rank(&self) -> usize;

    /// Number of ranks in the group.
    fn size(&self) -> usize;

    /// Combines the `data` of all ranks; every rank gets the result in its place.
    fn all_reduce(&self, data: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()>;

    /// Concatenates the `input`s of all ranks in group order; `output` is `size` times as long.
    fn all_gather(&self, input: &[u8], output: &mut [u8]) -> Result<()>;

    /// Combines the `input`s of all ranks and gives rank `i` the `i`-th of `size` equal parts of the result.
    fn reduce_scatter(&self, input: &[u8], output: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()>;

    /// Rank `i` gets the `i`-th of `size` equal parts of every rank's `input`, in group order.
    fn all_to_all(&self, input: &[u8], output: &mut [u8]) -> Result<()>;

    /// [`Communicator::all_to_all`] with parts of `send[i]` bytes for rank `i` and `receive[i]` bytes from it,
    /// back to back.
    fn all_to_all_v(&self, input: &[u8], send: &[usize], output: &mut [u8], receive: &[usize]) -> Result<()>;

    /// Every rank gets rank `root`'s `data`.
    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()>;

    /// Sends to a rank of the group; returns when that rank receives. Messages between two ranks arrive in order.
    fn send(&self, to: usize, data: &[u8]) -> Result<()>;

    /// Receives a message of this very length.
    fn receive(&self, from: usize, data: &mut [u8]) -> Result<()>;

    /// Returns when all ranks have called it.
    fn barrier(&self) -> Result<()>;

    /// The communicator of some positions of this group, in this order; as [`World::communicator`].
    ///
    /// # Errors
    /// [`CommError::Argument`] if `members` are not distinct positions or do not hold this rank's.
    fn subgroup(&self, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>>;
}
