//! A group's shared memory.

use super::super::point::Link;
use super::super::point::party::Party;
use super::super::process::{Life, Process};
use super::super::{CommError, LOOK, Result};
use super::group_path;
use super::ring::{COUNTERS, Ring};
use super::segment::{Locked, Segment};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of all rings of a group together, but for the limits of one.
const RINGS: usize = 4 << 20;
/// Least and largest bytes of a ring: a header and a little; what the second-level cache holds beside the tensors.
const LEAST: usize = 8 << 10;
const LARGEST: usize = 1 << 20;

/// Bytes before those of the members: the word that counts who has come, and the process that came first.
const HEADER: usize = 64;
/// Word of that process.
const FIRST: usize = 1;
/// Bytes of a member: its bell, on a cache line of its own.
const MEMBER: usize = 64;

/// Rounds in vain after which a waiting thread sleeps until its bell rings. Until then it lets others run.
const YIELDS: u32 = 20;

/// The memory of a group, as one member sees it.
pub(in crate::comm) struct Group {
    segment: Option<Segment>,
    party: Party,
    capacity: usize,
    path: PathBuf,
}

// SAFETY: all of the shared memory is atomics and rings, whose ends one thread each uses.
unsafe impl Send for Group {}
// SAFETY: as above; a communicator is in one call at a time.
unsafe impl Sync for Group {}

impl Group {
    /// Comes to the group's memory; the last member that comes removes its name.
    pub fn join(run: u64, party: Party) -> Result<Group> {
        let n = party.members.len();
        let pairs = n * (n - 1);
        let capacity = (RINGS / pairs.max(1)).clamp(LEAST, LARGEST) / 64 * 64;
        let path = group_path(run, party.id);
        let mut group = Group { segment: None, party, capacity, path: path.clone() };
        if n == 1 {
            return Ok(group);
        }
        let open = || -> std::io::Result<Segment> {
            let file = Locked::open(&path)?;
            let segment = file.map(group.bytes())?;
            if segment.words()[0].load(Ordering::SeqCst) == 0 {
                Process::own().write(&segment.words()[FIRST..HEADER / 8]);
            }
            if segment.words()[0].fetch_add(1, Ordering::SeqCst) + 1 == n as u64 {
                file.remove();
            }
            Ok(segment)
        };
        let failed =
            |e: std::io::Error| CommError::Memory { path: path.display().to_string(), error: e.to_string() };
        group.segment = Some(open().map_err(failed)?);
        Ok(group)
    }

    /// Counters of all ordered pairs, then rings of all.
    fn rings(&self) -> usize {
        HEADER + MEMBER * self.party.members.len()
    }

    fn bytes(&self) -> usize {
        let n = self.party.members.len();
        self.rings() + n * (n - 1) * (COUNTERS + self.capacity)
    }

    /// The ring from one member to another.
    fn ring(&self, from: usize, to: usize) -> Option<Ring<'_>> {
        let segment = self.segment.as_ref()?;
        let n = self.party.members.len();
        let pair = from * (n - 1) + if to < from { to } else { to - 1 };
        let counters = &segment.words()[(self.rings() + pair * COUNTERS) / 8..][..COUNTERS / 8];
        let at = self.rings() + n * (n - 1) * COUNTERS + pair * self.capacity;
        // SAFETY: the memory is as long as all rings, and each end of a ring has one user.
        Some(unsafe { Ring::new(counters, segment.base().add(at), self.capacity) })
    }

    /// A member's bell: how often it rang, and whether the member sleeps.
    fn bell(&self, member: usize) -> Option<(&AtomicU32, &AtomicU64)> {
        let segment = self.segment.as_ref()?;
        let at = (HEADER + MEMBER * member) / 8;
        let words = &segment.words()[at..at + 2];
        // SAFETY: half of a word of the mapping that is used as this only.
        let rung = unsafe { AtomicU32::from_ptr(words[0].as_ptr().cast()) };
        Some((rung, &words[1]))
    }

    /// Rings a member's bell.
    fn ring_bell(&self, member: usize) {
        if let Some((rung, sleeps)) = self.bell(member) {
            rung.fetch_add(1, Ordering::SeqCst);
            if sleeps.swap(0, Ordering::SeqCst) != 0 {
                futex::wake(rung);
            }
        }
    }
}

impl Drop for Group {
    /// Who leaves before all have come leaves no name.
    fn drop(&mut self) {
        if self
            .segment
            .as_ref()
            .is_some_and(|s| s.words()[0].load(Ordering::SeqCst) < self.party.members.len() as u64)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the name of a group whose first member died before all had come.
pub(super) fn remove_orphan(path: &Path) {
    // Of another user: nothing to do here.
    let Ok(file) = Locked::open(path) else { return };
    let first = match file.len() {
        // Gone since it was seen, and made again by opening it.
        Ok(0) => return file.remove(),
        Ok(_) => file.map(HEADER).ok().and_then(|s| Process::read(&s.words()[FIRST..])),
        Err(_) => return,
    };
    if first.is_some_and(|p| p.life() == Life::Died) {
        file.remove();
    }
}

impl Link for Group {
    fn party(&self) -> &Party {
        &self.party
    }

    fn push(&self, to: usize, bytes: &[u8]) -> Result<usize> {
        let n = self.ring(self.party.me, to).map_or(0, |r| r.push(bytes));
        if n > 0 {
            self.ring_bell(to);
        }
        Ok(n)
    }

    fn pop(&self, from: usize, into: &mut [u8]) -> Result<usize> {
        let n = self.ring(from, self.party.me).map_or(0, |r| r.pop(into));
        if n > 0 {
            self.ring_bell(from);
        }
        Ok(n)
    }

    fn ticket(&self) -> u32 {
        self.bell(self.party.me).map_or(0, |(rung, _)| rung.load(Ordering::SeqCst))
    }

    fn rest(&self, ticket: u32, rounds: u32) {
        let Some((rung, sleeps)) = self.bell(self.party.me) else { return };
        if rounds < YIELDS {
            return std::thread::yield_now();
        }
        sleeps.store(1, Ordering::SeqCst);
        futex::wait(rung, ticket, LOOK);
        sleeps.store(0, Ordering::SeqCst);
    }
}

/// Sleeping until a word of shared memory changes.
mod futex {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Sleeps while the word is `value`, until woken, at most as long as `limit`.
    #[cfg(target_os = "linux")]
    pub fn wait(word: &AtomicU32, value: u32, limit: Duration) {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the word lives during the call, the kernel reads it and `limit` only. Any outcome is fine: the
        // caller looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                std::ptr::from_ref(&limit),
            );
        }
    }

    /// Wakes who sleeps on the word.
    #[cfg(target_os = "linux")]
    pub fn wake(word: &AtomicU32) {
        // SAFETY: as above; nothing is read or written.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    #[cfg(not(target_os = "linux"))]
    pub fn wait(_: &AtomicU32, _: u32, _: Duration) {
        std::thread::sleep(Duration::from_micros(100));
    }

    #[cfg(not(target_os = "linux"))]
    pub fn wake(_: &AtomicU32) {}
}
