//! Streams of bytes over MPI's messages.
//!
//! Bytes go through buffers of the group, never from or to the caller's memory: a message that nobody takes cannot be
//! taken back, and its memory must stay. For each peer two messages may be under way in each direction.

use super::super::point::Link;
use super::super::point::party::Party;
use super::super::{CommError, Result};
use super::Shared;
use super::library::{Handle, Status, checked};
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a group's buffers together, but for the limits of one; so much goes in a message at most.
const BUFFERS: usize = 8 << 20;
const LEAST: usize = 32 << 10;
const LARGEST: usize = 512 << 10;

/// Messages under way for each peer and direction.
const UNDER_WAY: usize = 2;

/// Rounds in vain after which a waiting thread sleeps; until then it lets others run.
const YIELDS: u32 = 50;

/// A message with its buffer, which MPI uses while there is a request.
struct Message {
    buffer: Vec<u8>,
    request: Option<Handle>,
    /// Of a received message: how much has come, and how much of that is taken.
    come: usize,
    taken: usize,
}

/// Messages to or from a peer, in order; `next` is the oldest.
struct Lane {
    messages: Vec<Message>,
    next: usize,
}

/// The messages of a group.
pub(in crate::comm) struct Group {
    shared: Arc<Shared>,
    party: Party,
    tag: c_int,
    to: Vec<Mutex<Lane>>,
    from: Vec<Mutex<Lane>>,
}

// SAFETY: requests are used by who holds their lane and MPI's turn.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Lane {
    fn new(messages: usize, bytes: usize) -> Mutex<Lane> {
        let message = || Message { buffer: vec![0; bytes], request: None, come: 0, taken: 0 };
        Mutex::new(Lane { messages: (0..messages).map(|_| message()).collect(), next: 0 })
    }
}

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// Makes the group's buffers and expects messages.
    pub(super) fn join(shared: &Arc<Shared>, party: Party) -> Result<Group> {
        let (members, me, id) = (party.members.len(), party.me, party.id);
        let peers = (members - 1).max(1);
        let bytes = (BUFFERS / (2 * UNDER_WAY * peers)).clamp(LEAST, LARGEST);
        let lanes = || {
            let count = |p| if p == me { 0 } else { UNDER_WAY };
            (0..members).map(move |p| Lane::new(count(p), bytes))
        };
        let group = Group {
            shared: Arc::clone(shared),
            party,
            // MPI tells messages of groups apart by this, headers by the whole number: two groups of one number, which
            // is most unlikely, are an error and not a wrong result.
            tag: (id % (shared.largest_tag as u64 + 1)) as c_int,
            to: lanes().collect(),
            from: lanes().collect(),
        };
        for p in 0..members {
            for m in lock(&group.from[p]).messages.iter_mut() {
                group.expect(p, m)?;
            }
        }
        Ok(group)
    }

    fn failed(&self, message: String) -> CommError {
        CommError::Library { message }
    }

    /// Expects a message from a member.
    fn expect(&self, from: usize, m: &mut Message) -> Result<()> {
        let (s, mut request) = (&self.shared, std::ptr::null_mut());
        let (data, n, rank) =
            (m.buffer.as_mut_ptr().cast(), m.buffer.len() as c_int, self.party.members[from] as c_int);
        let _turn = s.turn();
        // SAFETY: the buffer is left alone until the request is complete.
        let status =
            unsafe { (s.mpi.f.irecv)(data, n, s.mpi.byte, rank, self.tag, s.messages, &mut request) };
        checked("MPI_Irecv", status).map_err(|e| self.failed(e))?;
        (m.request, m.come, m.taken) = (Some(request), 0, 0);
        Ok(())
    }

    /// Whether MPI is done with a message; of one that was received, how much has come.
    fn done(&self, m: &mut Message) -> Result<bool> {
        let Some(mut request) = m.request else { return Ok(true) };
        let (s, mut flag, mut status): (_, c_int, Status) = (&self.shared, 0, Default::default());
        let turn = s.turn();
        // SAFETY: a request of ours, and places for the answers.
        let tested = unsafe { (s.mpi.f.test)(&mut request, &mut flag, &mut status) };
        checked("MPI_Test", tested).map_err(|e| self.failed(e))?;
        if flag == 0 {
            return Ok(false);
        }
        let mut count = 0;
        // SAFETY: the status of a complete request.
        let counted = unsafe { (s.mpi.f.get_count)(&status, s.mpi.byte, &mut count) };
        drop(turn);
        checked("MPI_Get_count", counted).map_err(|e| self.failed(e))?;
        m.request = None;
        m.come = usize::try_from(count).unwrap_or(0).min(m.buffer.len());
        Ok(true)
    }
}

impl Drop for Group {
    /// Takes back what is expected. Buffers that MPI does not let go of stay; after a failure nobody waits for it.
    fn drop(&mut self) {
        let s = &self.shared;
        if s.aborted.load(Ordering::SeqCst) {
            for l in self.from.iter().chain(&self.to) {
                std::mem::forget(std::mem::take(&mut lock(l).messages));
            }
            return;
        }
        for (lanes, cancel) in [(&self.from, true), (&self.to, false)] {
            for m in lanes.iter().flat_map(|l| std::mem::take(&mut lock(l).messages)) {
                let mut m = m;
                if let (Some(mut request), true) = (m.request, cancel) {
                    let _turn = s.turn();
                    // SAFETY: a pending request of ours.
                    unsafe { (s.mpi.f.cancel)(&mut request) };
                }
                let mut rounds = 0;
                while !matches!(self.done(&mut m), Ok(true)) && rounds < 100 {
                    rounds += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                if m.request.is_some() {
                    std::mem::forget(m.buffer);
                }
            }
        }
    }
}

impl Link for Group {
    fn party(&self) -> &Party {
        &self.party
    }

    fn push(&self, to: usize, bytes: &[u8]) -> Result<usize> {
        let g = self;
        let mut lane = lock(&g.to[to]);
        let next = lane.next;
        let Some(m) = lane.messages.get_mut(next) else { return Ok(0) };
        if bytes.is_empty() || !g.done(m)? {
            return Ok(0);
        }
        let n = bytes.len().min(m.buffer.len());
        m.buffer[..n].copy_from_slice(&bytes[..n]);
        let (s, mut request) = (&g.shared, std::ptr::null_mut());
        let (data, count, rank) = (m.buffer.as_ptr().cast(), n as c_int, g.party.members[to] as c_int);
        let turn = s.turn();
        // SAFETY: the buffer is left alone until the request is complete.
        let sent = unsafe { (s.mpi.f.isend)(data, count, s.mpi.byte, rank, g.tag, s.messages, &mut request) };
        drop(turn);
        checked("MPI_Isend", sent).map_err(|e| g.failed(e))?;
        m.request = Some(request);
        lane.next = (next + 1) % UNDER_WAY;
        Ok(n)
    }

    fn pop(&self, from: usize, into: &mut [u8]) -> Result<usize> {
        let g = self;
        let mut lane = lock(&g.from[from]);
        let next = lane.next;
        let Some(m) = lane.messages.get_mut(next) else { return Ok(0) };
        if into.is_empty() || !g.done(m)? {
            return Ok(0);
        }
        let n = into.len().min(m.come - m.taken);
        into[..n].copy_from_slice(&m.buffer[m.taken..m.taken + n]);
        m.taken += n;
        if m.taken == m.come {
            g.expect(from, m)?;
            lane.next = (next + 1) % UNDER_WAY;
        }
        Ok(n)
    }

    fn ticket(&self) -> u32 {
        // Nothing rings: [`Link::rest`] looks again by itself.
        0
    }

    fn rest(&self, _: u32, rounds: u32) {
        match rounds {
            0..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(if rounds < 500 { 20 } else { 500 })),
        }
    }

    fn trouble(&self, call: &'static str, awaited: &[usize]) -> Option<CommError> {
        let s = &self.shared;
        if !awaited.is_empty() {
            s.hear();
        }
        if s.aborted.load(Ordering::SeqCst) {
            return Some(CommError::Aborted { call });
        }
        self.party.trouble(call, awaited)
    }
}
