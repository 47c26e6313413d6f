//! The back end for processes that `mpirun` or `srun` started, on one machine or many.
//!
//! MPI moves bytes; what is done with them is ours ([`super::point`]), because MPI promises neither an order of sums
//! nor an end when a rank does not come. All calls take turns and none of them waits.
//!
//! Ranks of one machine share a board. Those of others are told of a failure by a message, and asked whether they wait
//! too before one of them is blamed; such messages are looked for whenever a call waits.

mod library;
mod link;

use super::board::{Board, Failure};
use super::point::PointWorld;
use super::point::party::{Groups, Party, communicator};
use super::shm::{JoinError, board_path, fresh_number, join_board};
use super::{Communicator, Result, World};
use library::{ANY_SOURCE, Handle, Mpi, Status, checked};
use link::Group;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The tag of what ranks say beside their calls, which goes over a communicator of its own.
const WORD_TAG: c_int = 0;

/// Bytes of such a message at most.
const WORD_BYTES: usize = 9 << 10;

/// What a message is, its first byte: the question whether a rank waits, the answer that it does, or why the run
/// failed, with the exit status and the text.
const ASK: u8 = 0;
const WAITS: u8 = 1;
const FAILED: u8 = 2;

/// How long a rank has to answer, and what is added for each rank before the asking one, so that one of them tells the
/// failure before others do.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(20);

/// MPI with what all groups share.
struct Shared {
    mpi: Mpi,
    /// For the messages of groups, and for what ranks say beside.
    messages: Handle,
    words: Handle,
    /// The largest tag that MPI takes: with some networks it is far below the type's.
    largest_tag: c_int,
    rank: usize,
    ranks: usize,
    board: Arc<Board>,
    aborted: AtomicBool,
    /// Ranks that have said that they wait.
    waiting: Mutex<BTreeSet<usize>>,
    /// Who holds it may call MPI.
    turn: Mutex<()>,
}

// SAFETY: handles are addresses of MPI's objects; calls take turns.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// One rank's end of the world of MPI.
#[derive(Clone)]
pub struct MpiWorld {
    shared: Arc<Shared>,
    timeout: Duration,
    groups: Arc<Groups<Group>>,
}

impl MpiWorld {
    /// Starts MPI, once in a process and from its main thread. No call waits longer than `timeout` for other ranks.
    ///
    /// # Errors
    /// [`JoinError::Mpi`] if there is no MPI, [`JoinError::Memory`].
    pub fn start(timeout: Duration) -> std::result::Result<MpiWorld, JoinError> {
        let failed = |message: String| JoinError::Mpi { message };
        let mpi = Mpi::start().map_err(failed)?;
        let (rank, ranks) = mpi.place().map_err(failed)?;
        let (messages, words) = (mpi.duplicate().map_err(failed)?, mpi.duplicate().map_err(failed)?);
        // Rank 0 names the job, by which ranks of a machine find their board.
        let mut number = fresh_number().to_le_bytes();
        let data = number.as_mut_ptr().cast::<c_void>();
        // SAFETY: eight bytes on every rank.
        checked("MPI_Bcast", unsafe { (mpi.f.bcast)(data, 8, mpi.byte, 0, mpi.world) }).map_err(failed)?;
        let job = format!("mpi {:016x}", u64::from_le_bytes(number));
        let board = join_board(&job, rank, ranks);
        // SAFETY: all ranks call it. Then all have come to their boards, and names can go.
        checked("MPI_Barrier", unsafe { (mpi.f.barrier)(mpi.world) }).map_err(failed)?;
        let _ = std::fs::remove_file(board_path(&job));
        let board = Arc::new(board?);
        let (aborted, waiting, turn) = (AtomicBool::new(false), Mutex::default(), Mutex::new(()));
        let largest_tag = mpi.largest_tag().map_err(failed)?;
        let shared = Shared { mpi, messages, words, largest_tag, rank, ranks, board, aborted, waiting, turn };
        Ok(MpiWorld { shared: Arc::new(shared), timeout, groups: Arc::default() })
    }

    /// MPI's own sum of `data` over all ranks, whose order it does not promise; to be measured beside ours.
    ///
    /// # Errors
    /// What MPI says.
    pub fn library_all_reduce(&self, input: &[f32], output: &mut [f32]) -> std::result::Result<(), String> {
        let m = &self.shared.mpi;
        let n = c_int::try_from(input.len().min(output.len())).map_err(|e| e.to_string())?;
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let _turn = self.shared.turn();
        // SAFETY: both have `n` elements, on every rank.
        checked("MPI_Allreduce", unsafe { (m.f.allreduce)(from, to, n, m.float, m.sum, m.world) })
    }

    /// MPI's own gather over all ranks, to be measured beside ours.
    ///
    /// # Errors
    /// What MPI says; outputs of another length than `ranks` inputs.
    pub fn library_all_gather(&self, input: &[u8], output: &mut [u8]) -> std::result::Result<(), String> {
        let m = &self.shared.mpi;
        if output.len() != input.len() * self.shared.ranks {
            return Err("lengths differ".into());
        }
        let n = c_int::try_from(input.len()).map_err(|e| e.to_string())?;
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let _turn = self.shared.turn();
        // SAFETY: `n` bytes of each rank, and room for those of all.
        let status = unsafe { (m.f.allgather)(from, n, m.byte, to, n, m.byte, m.world) };
        checked("MPI_Allgather", status)
    }
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what other ranks say beside their calls. Whoever listens waits, and says so when asked.
    fn hear(&self) {
        while let Some((source, bytes)) = self.next_word() {
            match bytes.split_first() {
                Some((&ASK, _)) => {
                    self.say(source, &[WAITS]);
                }
                Some((&WAITS, _)) => {
                    self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(source);
                }
                Some((&FAILED, [status, text @ ..])) => {
                    if self.board.claim() {
                        let text = String::from_utf8_lossy(text).into_owned();
                        self.board.tell(&Failure { teller: Some(source), status: *status, text });
                    }
                    self.aborted.store(true, Ordering::SeqCst);
                }
                _ => {}
            }
        }
    }

    /// The next message of that kind, and who sent it, if one has come.
    fn next_word(&self) -> Option<(usize, Vec<u8>)> {
        let (mut flag, mut status): (c_int, Status) = (0, Default::default());
        let (m, _turn) = (&self.mpi, self.turn());
        // SAFETY: a valid communicator and places for the answers.
        let probed = unsafe { (m.f.iprobe)(ANY_SOURCE, WORD_TAG, self.words, &mut flag, &mut status) };
        if probed != 0 || flag == 0 {
            return None;
        }
        let source = (status[0] & 0xffff_ffff) as c_int;
        let (mut bytes, mut count) = (vec![0u8; WORD_BYTES], 0);
        // SAFETY: as many bytes as are sent at most.
        let got = unsafe {
            let (data, n) = (bytes.as_mut_ptr().cast(), WORD_BYTES as c_int);
            let s = (m.f.recv)(data, n, m.byte, source, WORD_TAG, self.words, &mut status);
            s == 0 && (m.f.get_count)(&status, m.byte, &mut count) == 0
        };
        bytes.truncate(usize::try_from(count).ok()?);
        Some((usize::try_from(source).ok()?, bytes)).filter(|_| got)
    }

    /// Says something to a rank. Nobody may receive it any more, so the bytes stay as long as the process lives.
    fn say(&self, to: usize, bytes: &'static [u8]) -> Option<Handle> {
        let (m, mut request) = (&self.mpi, std::ptr::null_mut());
        let (data, n) = (bytes.as_ptr().cast(), bytes.len() as c_int);
        let _turn = self.turn();
        // SAFETY: the bytes are never freed.
        let sent = unsafe { (m.f.isend)(data, n, m.byte, to as c_int, WORD_TAG, self.words, &mut request) };
        Some(request).filter(|_| sent == 0)
    }

    /// Sends the failure to all other ranks, and waits a moment for it to go.
    fn spread_failure(&self) {
        let Some(failure) = self.board.failure() else { return };
        let mut bytes = vec![FAILED, failure.status];
        bytes.extend(failure.text.bytes().take(WORD_BYTES - 2));
        let bytes: &'static [u8] = Vec::leak(bytes);
        let others = (0..self.ranks).filter(|&r| r != self.rank);
        let mut requests: Vec<Handle> = others.filter_map(|to| self.say(to, bytes)).collect();
        let since = Instant::now();
        while !requests.is_empty() && since.elapsed() < Duration::from_millis(200) {
            requests.retain_mut(|r| {
                let mut done = 0;
                let _turn = self.turn();
                // SAFETY: a request of ours; null stands for no status.
                let tested = unsafe { (self.mpi.f.test)(r, &mut done, std::ptr::null_mut()) };
                tested == 0 && done == 0
            });
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl World for MpiWorld {
    fn ranks(&self) -> usize {
        self.shared.ranks
    }

    fn here(&self) -> Vec<usize> {
        vec![self.shared.rank]
    }

    fn board(&self) -> &Arc<Board> {
        &self.shared.board
    }

    fn communicator(&self, rank: usize, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>> {
        communicator(self, rank, members, tag)
    }

    fn abort(&self) {
        if !self.shared.aborted.swap(true, Ordering::SeqCst) {
            self.shared.board.abort();
            self.shared.spread_failure();
        }
    }

    fn silent(&self) -> Vec<usize> {
        let s = &self.shared;
        let mut unknown: Vec<usize> = (0..s.ranks).filter(|&r| s.board.process(r).is_none()).collect();
        if unknown.is_empty() {
            return unknown;
        }
        for &r in &unknown {
            s.say(r, &[ASK]);
        }
        let since = Instant::now();
        let limit = ANSWERS_WITHIN + (TURN * s.rank as u32).min(ANSWERS_WITHIN);
        while since.elapsed() < limit && !s.board.has_failed() {
            s.hear();
            std::thread::sleep(Duration::from_millis(2));
        }
        let waiting = s.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.retain(|r| !waiting.contains(r));
        unknown
    }

    /// Ends MPI: all ranks have to come here. Communicators are of no further use.
    fn end(&self) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let _turn = self.shared.turn();
        // SAFETY: the last call, from the thread that started MPI; no request of ours is pending.
        unsafe { (self.shared.mpi.f.finalize)() };
        // Not before: what this rank has sent may have been on its way.
        self.shared.board.end(self.shared.rank);
    }
}

impl PointWorld for MpiWorld {
    type Link = Group;

    fn groups(&self) -> &Groups<Group> {
        &self.groups
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn join(&self, party: Party) -> Result<Group> {
        Group::join(&self.shared, party)
    }
}
