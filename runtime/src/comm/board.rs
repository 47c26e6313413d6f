//! The board: what the ranks of a run know of each other beside what they send.
//!
//! It holds for each rank its process and what its streams execute, and for the run the first failure. Ranks of
//! one process have it in their memory, processes of one machine in shared memory: a rank that was stopped or
//! killed cannot be asked, but its last word is on the board.

use super::process::{Life, Process};
use super::shm::segment::Segment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long others wait for who has claimed the failure to say it.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// Streams of a rank whose position is kept. Programs have a compute, a communication and perhaps a swap stream.
pub const STREAMS: usize = 8;

/// Words before those of the ranks.
const HEADER: usize = 32;
/// Words of the failure's text; longer ones are cut.
const TEXT: usize = 1024;
/// Words of a rank, whole cache lines.
const RANK: usize = 16;

/// Header: number of ranks, plus one, once the board is ready.
const RANKS: usize = 0;
/// Header: a number that no other run's board has.
const RUN: usize = 1;
/// Header: ranks whose process has come.
const COME: usize = 2;
/// Header: 0, or 1 when the run has failed and someone will say why, 2 when it is said.
const FAILURE: usize = 3;
/// Header: who says so, the exit status, bytes of the text.
const TELLER: usize = 4;
const STATUS: usize = 5;
const LENGTH: usize = 6;
/// Header: whether all waiting shall end.
const ABORTED: usize = 7;
/// Header: the process that started the ranks, if one did: three words.
const PARENT: usize = 8;

/// Of a rank: its process (three words), and whether it has ended.
const PROCESS: usize = 0;
const ENDED: usize = 3;
/// Of a rank: its streams.
const POSITIONS: usize = 8;

/// Marks a position at which a stream waits for others.
const WAITS: u64 = 1 << 63;

/// What a stream executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The step, from 0.
    pub step: usize,
    /// Position in the rank's instruction list.
    pub instruction: usize,
    /// Whether it waits there for another stream or rank.
    pub waits: bool,
}

/// The first failure of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The rank that says so; none if it is the process that started the ranks.
    pub teller: Option<usize>,
    /// The exit status that fits.
    pub status: u8,
    /// The message.
    pub text: String,
}

enum Memory {
    Private(Box<[AtomicU64]>),
    Shared(Segment),
}

/// See the module.
pub struct Board {
    memory: Memory,
}

impl Board {
    /// The board of a run whose ranks are all in this process.
    pub fn private(ranks: usize) -> Board {
        let words = (0..Board::words_for(ranks)).map(|_| AtomicU64::new(0)).collect();
        let board = Board { memory: Memory::Private(words) };
        board.prepare(ranks, 0);
        let own = Process::own();
        for r in 0..ranks {
            board.arrive(r, own);
        }
        board
    }

    /// A board in shared memory, which is [`Board::prepare`]d already or will be.
    pub(super) fn on(segment: Segment) -> Board {
        Board { memory: Memory::Shared(segment) }
    }

    /// Bytes of a board.
    pub(super) fn bytes(ranks: usize) -> usize {
        8 * Board::words_for(ranks)
    }

    fn words_for(ranks: usize) -> usize {
        HEADER + TEXT + RANK * ranks
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.memory {
            Memory::Private(words) => words,
            Memory::Shared(segment) => segment.words(),
        }
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        &self.words()[n]
    }

    /// The first word of a rank.
    fn rank(rank: usize) -> usize {
        HEADER + TEXT + RANK * rank
    }

    fn of(&self, rank: usize, n: usize) -> Option<&AtomicU64> {
        if rank < self.ranks() { self.words().get(Board::rank(rank) + n) } else { None }
    }

    /// Writes the header of an empty board.
    pub(super) fn prepare(&self, ranks: usize, run: u64) {
        self.word(RUN).store(run, Ordering::SeqCst);
        self.word(RANKS).store(ranks as u64 + 1, Ordering::SeqCst);
    }

    /// Whether its header is written.
    pub(super) fn is_prepared(&self) -> bool {
        self.word(RANKS).load(Ordering::SeqCst) != 0
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        // Never more than there is memory for, whatever a damaged file says.
        let room = self.words().len().saturating_sub(HEADER + TEXT) / RANK;
        (self.word(RANKS).load(Ordering::SeqCst) as usize).saturating_sub(1).min(room)
    }

    /// A number that no other run's board has.
    pub(super) fn run(&self) -> u64 {
        self.word(RUN).load(Ordering::SeqCst)
    }

    /// Notes a rank's process; gives the number of ranks that have come.
    pub(super) fn arrive(&self, rank: usize, process: Process) -> usize {
        if rank < self.ranks() {
            let at = Board::rank(rank) + PROCESS;
            process.write(&self.words()[at..at + 3]);
        }
        self.word(COME).fetch_add(1, Ordering::SeqCst) as usize + 1
    }

    fn read_process(&self, at: usize) -> Option<Process> {
        Process::read(self.words().get(at..at + 3)?)
    }

    /// Notes the process that starts the ranks: it will say of a rank that died how it did.
    pub(super) fn set_parent(&self) {
        Process::own().write(&self.words()[PARENT..PARENT + 3]);
    }

    /// Whether some process watches over those of the ranks.
    pub fn has_parent(&self) -> bool {
        self.read_process(PARENT).is_some()
    }

    /// Whether the process that starts the ranks is dead, and with it the run.
    pub(super) fn is_orphan(&self) -> bool {
        self.read_process(PARENT).is_some_and(|p| p.life() == Life::Died)
    }

    /// The number of a rank's process, if it has come.
    pub fn process(&self, rank: usize) -> Option<u64> {
        self.process_of(rank).map(|p| p.pid)
    }

    fn process_of(&self, rank: usize) -> Option<Process> {
        if rank < self.ranks() { self.read_process(Board::rank(rank) + PROCESS) } else { None }
    }

    /// What a rank's process does.
    pub fn life(&self, rank: usize) -> Life {
        match (self.process_of(rank), self.of(rank, ENDED)) {
            (Some(_), Some(ended)) if ended.load(Ordering::SeqCst) != 0 => Life::Ended,
            (Some(process), _) => process.life(),
            (None, _) => Life::Unknown,
        }
    }

    /// Notes that a rank has ended its work.
    pub(super) fn end(&self, rank: usize) {
        if let Some(e) = self.of(rank, ENDED) {
            e.store(1, Ordering::SeqCst);
        }
    }

    /// Notes what a stream executes.
    pub fn begin(&self, rank: usize, stream: usize, at: Position) {
        let Some(p) = self.of(rank, POSITIONS + stream).filter(|_| stream < STREAMS) else { return };
        let waits = if at.waits { WAITS } else { 0 };
        let step = (at.step as u64 & 0x3fff_ffff) << 32;
        // Zero says: nothing.
        let place = step | (at.instruction as u64 & 0xffff_ffff);
        p.store(waits | (place + 1), Ordering::Relaxed);
    }

    /// Notes that a stream executes nothing.
    pub fn rest(&self, rank: usize, stream: usize) {
        if let Some(p) = self.of(rank, POSITIONS + stream).filter(|_| stream < STREAMS) {
            p.store(0, Ordering::Relaxed);
        }
    }

    /// What the streams of a rank execute.
    pub fn positions(&self, rank: usize) -> Vec<Position> {
        let words = (0..STREAMS).filter_map(|s| self.of(rank, POSITIONS + s));
        let busy = words.map(|p| p.load(Ordering::Relaxed)).filter(|&p| p != 0);
        busy.map(|p| {
            let at = (p & !WAITS) - 1;
            let (step, instruction) = ((at >> 32) as usize, (at & 0xffff_ffff) as usize);
            Position { step, instruction, waits: p & WAITS != 0 }
        })
        .collect()
    }

    /// Whether this is the run's first failure; if so, the caller has to [`Board::tell`] it.
    pub fn claim(&self) -> bool {
        self.word(FAILURE).compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the run has failed.
    pub fn has_failed(&self) -> bool {
        self.word(FAILURE).load(Ordering::SeqCst) != 0
    }

    /// Says why the run failed, after a [`Board::claim`].
    pub fn tell(&self, failure: &Failure) {
        // Cut between characters.
        let mut end = failure.text.len().min(8 * TEXT);
        while !failure.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &failure.text[..end];
        for (n, piece) in text.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.word(HEADER + n).store(u64::from_le_bytes(word), Ordering::SeqCst);
        }
        self.word(LENGTH).store(text.len() as u64, Ordering::SeqCst);
        self.word(STATUS).store(failure.status.into(), Ordering::SeqCst);
        self.word(TELLER).store(failure.teller.map_or(0, |r| r as u64 + 1), Ordering::SeqCst);
        self.word(FAILURE).store(2, Ordering::SeqCst);
    }

    /// Why the run failed: waits a little for who has claimed it to say so.
    pub fn failure_when_said(&self) -> Option<Failure> {
        let since = Instant::now();
        loop {
            let said = self.failure();
            if said.is_some() || since.elapsed() > SAID_WITHIN {
                return said;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Why the run failed, if it is said.
    pub fn failure(&self) -> Option<Failure> {
        if self.word(FAILURE).load(Ordering::SeqCst) != 2 {
            return None;
        }
        let length = (self.word(LENGTH).load(Ordering::SeqCst) as usize).min(8 * TEXT);
        let words = (0..length.div_ceil(8)).map(|n| self.word(HEADER + n).load(Ordering::SeqCst));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        Some(Failure {
            teller: (self.word(TELLER).load(Ordering::SeqCst) as usize).checked_sub(1),
            status: self.word(STATUS).load(Ordering::SeqCst) as u8,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// Ends all waiting.
    pub(super) fn abort(&self) {
        self.word(ABORTED).store(1, Ordering::SeqCst);
    }

    /// Whether all waiting shall end.
    pub(super) fn is_aborted(&self) -> bool {
        self.word(ABORTED).load(Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_the_first_failure_are_kept() {
        let board = Board::private(3);
        assert_eq!(board.ranks(), 3);
        assert_eq!(board.positions(1), []);
        let at = |step, instruction, waits| Position { step, instruction, waits };
        for p in [at(0, 0, false), at(0, 0, true), at(70_000, u32::MAX as usize - 1, true)] {
            board.begin(1, 0, p);
            board.begin(1, 2, at(1, 2, false));
            assert_eq!(board.positions(1), [p, at(1, 2, false)]);
        }
        assert_eq!(board.positions(0), []);
        board.rest(1, 0);
        assert_eq!(board.positions(1), [at(1, 2, false)]);
        // Out of range: not kept.
        board.begin(1, STREAMS, at(1, 1, true));
        board.begin(9, 0, at(1, 1, true));
        assert_eq!((board.positions(9), board.life(9)), (vec![], Life::Unknown));

        assert_eq!((board.has_failed(), board.failure()), (false, None));
        assert!(board.claim() && !board.claim());
        assert_eq!((board.has_failed(), board.failure()), (true, None));
        for (teller, text) in [(Some(2), "ünfinished".to_string()), (None, "é".repeat(9000))] {
            board.tell(&Failure { teller, status: 70, text: text.clone() });
            let told = board.failure().expect("told");
            assert_eq!((told.teller, told.status), (teller, 70));
            assert!(text.starts_with(&told.text) && told.text.len() >= text.len().min(8190), "{}", told.text);
        }
    }

    #[test]
    fn ranks_end() {
        let board = Board::private(2);
        assert_eq!(board.life(1), Life::Runs);
        board.end(1);
        assert_eq!((board.life(0), board.life(1)), (Life::Runs, Life::Ended));
    }
}
