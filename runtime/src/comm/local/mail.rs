//! Messages between two ranks of a group.

use super::group::Group;
use super::{CommError, LOOK, Result};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

/// One place for each ordered pair of ranks: messages of a pair are delivered one after the other.
pub(super) struct Mail {
    ranks: usize,
    letters: Vec<Letter>,
    failure: Option<CommError>,
}

#[derive(Clone, Copy, PartialEq)]
enum Letter {
    None,
    /// Published by the sender, who waits.
    Posted(*const u8, usize),
    /// Being read by the receiver.
    Read,
    /// Read; the sender may go on.
    Done,
}

// SAFETY: the pointer is only followed by the receiver while the sender waits.
unsafe impl Send for Mail {}

impl Mail {
    pub fn new(ranks: usize) -> Mail {
        Mail { ranks, letters: vec![Letter::None; ranks * ranks], failure: None }
    }

    fn letter(&mut self, from: usize, to: usize) -> &mut Letter {
        &mut self.letters[from * self.ranks + to]
    }
}

impl Group {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        // Every change of the mail is complete before anything can panic.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a little; fails if the world did, or if `peer` did not come since `since`.
    fn wait_for<'g>(
        &'g self,
        mut m: MutexGuard<'g, Mail>,
        call: &'static str,
        peer: usize,
        since: Instant,
    ) -> Result<MutexGuard<'g, Mail>> {
        let mut fail = None;
        if self.shared.aborted.load(Ordering::SeqCst) {
            fail = Some(CommError::Aborted { call });
        } else if since.elapsed() >= self.shared.timeout {
            let missing = vec![self.members[peer]];
            fail = Some(CommError::Timeout { call, missing, timeout: self.shared.timeout });
        }
        if let Some(f) = m.failure.clone().or(fail) {
            m.failure = Some(f.clone());
            self.delivered.notify_all();
            return Err(f);
        }
        Ok(self.delivered.wait_timeout(m, LOOK).unwrap_or_else(PoisonError::into_inner).0)
    }

    pub fn send(&self, me: usize, to: usize, data: &[u8]) -> Result<()> {
        let since = Instant::now();
        let mut m = self.mail();
        *m.letter(me, to) = Letter::Posted(data.as_ptr(), data.len());
        self.delivered.notify_all();
        loop {
            match *m.letter(me, to) {
                Letter::Done => {
                    *m.letter(me, to) = Letter::None;
                    return Ok(());
                }
                // Reading does not wait, so this ends; only then is the memory the caller's again.
                Letter::Read => {
                    m = self.delivered.wait_timeout(m, LOOK).unwrap_or_else(PoisonError::into_inner).0;
                }
                _ => match self.wait_for(m, "send", to, since) {
                    Ok(next) => m = next,
                    Err(e) => {
                        let mut m = self.mail();
                        // The receiver may have begun just now.
                        while *m.letter(me, to) == Letter::Read {
                            m = self
                                .delivered
                                .wait_timeout(m, LOOK)
                                .unwrap_or_else(PoisonError::into_inner)
                                .0;
                        }
                        *m.letter(me, to) = Letter::None;
                        return Err(e);
                    }
                },
            }
        }
    }

    pub fn receive(&self, from: usize, me: usize, data: &mut [u8]) -> Result<()> {
        let since = Instant::now();
        let mut m = self.mail();
        loop {
            if let Letter::Posted(p, bytes) = *m.letter(from, me) {
                if bytes != data.len() {
                    let f = CommError::Mismatch {
                        rank: self.members[from],
                        call: format!("send of {bytes} bytes"),
                        other_rank: self.members[me],
                        other: format!("receive of {} bytes", data.len()),
                    };
                    m.failure.get_or_insert(f.clone());
                    self.delivered.notify_all();
                    return Err(f);
                }
                *m.letter(from, me) = Letter::Read;
                drop(m);
                // SAFETY: the sender published these bytes and waits until the letter is done.
                unsafe { std::ptr::copy_nonoverlapping(p, data.as_mut_ptr(), bytes) };
                *self.mail().letter(from, me) = Letter::Done;
                self.delivered.notify_all();
                return Ok(());
            }
            m = self.wait_for(m, "receive", from, since)?;
        }
    }
}
