//! The back end for processes of one machine: streams of bytes through shared memory.
//!
//! Each process has one rank and joins the world of a *job*, which has a name; the board of the world
//! ([`super::board`]) is shared memory of that name. Groups have shared memory of their own: for each pair of
//! members and direction a ring of bytes, and for each member a bell that others ring when it may go on.
//!
//! A run leaves nothing behind: names of shared memory are removed as soon as all who use it have come. Names that
//! a job left which was killed before that are found to be of dead processes, and taken over.

pub(super) mod group;
mod ring;
pub(super) mod segment;

use super::board::Board;
use super::point::PointWorld;
use super::point::party::{Groups, Party, communicator};
use super::process::{Life, Process};
use super::{Communicator, Result, World};
use group::Group;
use segment::{Locked, folder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Why a process does not come into a job.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The system gives no shared memory.
    #[error("MSC-N0006: rank {rank}: shared memory {path}: {error}")]
    Memory {
        /// The rank.
        rank: usize,
        /// The file in memory.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Others of the same name say something else.
    #[error("MSC-N0007: rank {rank} cannot join job {job}: {message}")]
    Job {
        /// The rank.
        rank: usize,
        /// The job's name.
        job: String,
        /// What does not fit.
        message: String,
    },
    /// MPI does not start.
    #[error("MSC-N0008: MPI: {message}")]
    Mpi {
        /// Why.
        message: String,
    },
}

/// One rank's end of a world of processes.
#[derive(Clone)]
pub struct ShmWorld {
    rank: usize,
    timeout: Duration,
    board: Arc<Board>,
    groups: Arc<Groups<Group>>,
}

/// The job of a process that starts those of the ranks itself. Dropped, it removes every name that is left.
pub struct Job {
    path: PathBuf,
    board: Arc<Board>,
}

impl Job {
    /// A new job of `ranks` ranks.
    ///
    /// # Errors
    /// [`JoinError::Memory`].
    pub fn new(ranks: usize) -> std::result::Result<Job, JoinError> {
        remove_orphans();
        let run = fresh_number();
        let path = folder().join(format!("msc-{run:016x}"));
        let make = || -> std::io::Result<Board> {
            let file = Locked::open(&path)?;
            let board = Board::on(file.map(Board::bytes(ranks))?);
            board.prepare(ranks, run);
            board.set_parent();
            Ok(board)
        };
        let board = make().map_err(|error| JoinError::Memory { rank: 0, path: path.clone(), error })?;
        Ok(Job { path, board: Arc::new(board) })
    }

    /// What the ranks need to come in: see [`ShmWorld::join`].
    pub fn name(&self) -> String {
        self.path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned())
    }

    /// The job's board.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Ends all waiting of all ranks.
    pub fn abort(&self) {
        self.board.abort();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        remove_names(&self.path, self.board.run());
    }
}

/// A number that no other run has: from the time, the process and the place of a variable.
pub(super) fn fresh_number() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let place = std::ptr::from_ref(&time) as usize;
    let mut hash = blake3::Hasher::new();
    hash.update(&time.to_le_bytes()).update(&std::process::id().to_le_bytes());
    hash.update(&place.to_le_bytes());
    first_word(&hash.finalize())
}

pub(super) fn first_word(hash: &blake3::Hash) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(word)
}

/// The file of a group's memory.
fn group_path(run: u64, id: u64) -> PathBuf {
    folder().join(format!("msc-{run:016x}-{id:016x}"))
}

/// Removes the name of a board and those of its run's groups.
fn remove_names(board: &Path, run: u64) {
    let _ = std::fs::remove_file(board);
    let prefix = format!("msc-{run:016x}-");
    for entry in std::fs::read_dir(folder()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes the names of jobs whose starter was killed before all of their ranks had come, and those of groups.
fn remove_orphans() {
    for entry in std::fs::read_dir(folder()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_group_name(&name) {
            group::remove_orphan(&entry.path());
        }
        if !is_own_name(&name) {
            continue;
        }
        // Of another user: nothing to do here.
        let Ok(file) = Locked::open(&entry.path()) else { continue };
        let length = file.len().unwrap_or(0) as usize;
        if length < Board::bytes(1) {
            // Removed by another process between looking and opening, and made again by that.
            file.remove();
            continue;
        }
        let Ok(segment) = file.map(length) else { continue };
        let board = Board::on(segment);
        if board.is_orphan() {
            remove_names(&entry.path(), board.run());
        }
    }
}

impl ShmWorld {
    /// Comes into the world of the job of this name as rank `rank` of `ranks`. No call waits longer than `timeout`
    /// for other ranks.
    ///
    /// # Errors
    /// [`JoinError`]: no memory; another rank of this number is there; a job of this name has another size.
    pub fn join(
        job: &str,
        rank: usize,
        ranks: usize,
        timeout: Duration,
    ) -> std::result::Result<ShmWorld, JoinError> {
        let board = Arc::new(join_board(job, rank, ranks)?);
        Ok(ShmWorld { rank, timeout, board, groups: Arc::default() })
    }
}

/// Comes to the board of a job.
pub(super) fn join_board(job: &str, rank: usize, ranks: usize) -> std::result::Result<Board, JoinError> {
    let path = board_path(job);
    let memory = |error| JoinError::Memory { rank, path: path.clone(), error };
    let refuse = |message: String| Err(JoinError::Job { rank, job: job.to_string(), message });
    if rank >= ranks {
        return refuse(format!("it has {ranks} ranks"));
    }
    loop {
        let file = Locked::open(&path).map_err(memory)?;
        let length = file.len().map_err(memory)? as usize;
        let new = length == 0;
        if !new && length < Board::bytes(1) {
            file.remove();
            continue;
        }
        let bytes = if new { Board::bytes(ranks) } else { length };
        let board = Board::on(file.map(bytes).map_err(memory)?);
        if new {
            board.prepare(ranks, fresh_number());
        }
        let dead = (0..board.ranks()).any(|r| matches!(board.life(r), Life::Died | Life::Ended));
        if !board.is_prepared() || dead || board.is_aborted() || board.has_failed() {
            remove_names(&path, board.run());
            continue;
        }
        if board.ranks() != ranks {
            return refuse(format!("a job of this name has {} ranks, not {ranks}", board.ranks()));
        }
        if let Some(pid) = board.process(rank) {
            return refuse(format!("process {pid} is its rank {rank} already"));
        }
        if board.arrive(rank, Process::own()) == ranks {
            file.remove();
        }
        return Ok(board);
    }
}

/// Whether a name is one of [`Job::new`].
fn is_own_name(name: &str) -> bool {
    let number = |rest: &str| rest.len() == 16 && rest.bytes().all(|b| b.is_ascii_hexdigit());
    name.strip_prefix("msc-").is_some_and(number)
}

/// Whether a name is one of a group.
fn is_group_name(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(run, id)| is_own_name(run) && is_own_name(&format!("msc-{id}")))
}

/// Where the board of a job is found.
pub(super) fn board_path(job: &str) -> PathBuf {
    folder().join(file_name(job))
}

/// The name of that file. Names made by [`Job::new`] are as they are; others are hashed, with the user's number,
/// because names of jobs may hold anything and may be other users' too.
fn file_name(job: &str) -> String {
    if is_own_name(job) {
        return job.to_string();
    }
    // SAFETY: the call always succeeds and touches no memory.
    let user = unsafe { libc::getuid() };
    let hash = first_word(&blake3::hash(format!("{user} {job}").as_bytes()));
    format!("msc-job-{hash:016x}")
}

impl World for ShmWorld {
    fn ranks(&self) -> usize {
        self.board.ranks()
    }

    fn here(&self) -> Vec<usize> {
        vec![self.rank]
    }

    fn board(&self) -> &Arc<Board> {
        &self.board
    }

    fn communicator(&self, rank: usize, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>> {
        communicator(self, rank, members, tag)
    }

    fn abort(&self) {
        self.board.abort();
    }

    fn end(&self) {
        self.board.end(self.rank);
    }
}

impl PointWorld for ShmWorld {
    type Link = Group;

    fn groups(&self) -> &Groups<Group> {
        &self.groups
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn join(&self, party: Party) -> Result<Group> {
        Group::join(self.board.run(), party)
    }
}
