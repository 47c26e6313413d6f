//! The one thing that ranks do: each sends something to some others and gets something from them.
//!
//! All transfers go on at once, a piece at a time, so no order of them can block: a rank that waits for room to
//! send takes in what has come. In front of what is sent goes a header with the call and both lengths. It is
//! checked before anything is taken, so ranks that call different things are told apart on both sides.

use super::super::call::Call;
use super::super::{CommError, LOOK, Result};
use super::Link;
use std::time::Instant;

/// Bytes of a header: the group, the call (two words), how much is sent, how much is expected in return.
const HEADER: usize = 40;

/// Bytes that go together with the header: what is small is one message.
const LEAD: usize = 1 << 10;

/// How many timeouts a rank is given that is excused.
const EXCUSED: u32 = 10;

/// What goes to a rank and comes from it.
pub(super) struct Peer<'a> {
    position: usize,
    send: &'a [u8],
    receive: &'a mut [u8],
    sent: usize,
    received: usize,
    header: [u8; HEADER],
}

impl<'a> Peer<'a> {
    pub fn new(position: usize, send: &'a [u8], receive: &'a mut [u8]) -> Peer<'a> {
        Peer { position, send, receive, sent: 0, received: 0, header: [0; HEADER] }
    }

    fn complete(&self) -> bool {
        self.sent == HEADER + self.send.len() && self.received == HEADER + self.receive.len()
    }

    /// Sends as much as goes now; whether that is something.
    fn push(&mut self, link: &impl Link, call: Call) -> Result<bool> {
        let before = self.sent;
        if self.sent < HEADER {
            let lead = self.send.len().min(LEAD);
            let mut first = [0; HEADER + LEAD];
            first[..HEADER].copy_from_slice(&header(
                link.party().id,
                call,
                self.send.len(),
                self.receive.len(),
            ));
            first[HEADER..HEADER + lead].copy_from_slice(&self.send[..lead]);
            self.sent += link.push(self.position, &first[self.sent..HEADER + lead])?;
        }
        if self.sent >= HEADER && self.sent < HEADER + self.send.len() {
            self.sent += link.push(self.position, &self.send[self.sent - HEADER..])?;
        }
        Ok(self.sent > before)
    }

    /// Takes what has come; whether that is something.
    fn pop(&mut self, link: &impl Link, call: Call, theirs: Call) -> Result<bool> {
        let before = self.received;
        if self.received < HEADER {
            self.received += link.pop(self.position, &mut self.header[self.received..])?;
            if self.received == HEADER {
                self.judge(link, call, theirs)?;
            }
        }
        if self.received >= HEADER && self.received < HEADER + self.receive.len() {
            self.received += link.pop(self.position, &mut self.receive[self.received - HEADER..])?;
        }
        Ok(self.received > before)
    }

    /// Whether the header that has come is that of the call that should come.
    fn judge(&self, link: &impl Link, call: Call, theirs: Call) -> Result<()> {
        if self.header == header(link.party().id, theirs, self.receive.len(), self.send.len()) {
            return Ok(());
        }
        let word = |n: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&self.header[8 * n..8 * n + 8]);
            u64::from_le_bytes(w)
        };
        let found = Call::decode([word(1), word(2)]).filter(|_| word(0) == link.party().id);
        let Some(found) = found else {
            return Err(CommError::Argument {
                call: call.name(),
                message: "what came is of another group; its tag is not its own".into(),
            });
        };
        let (sent, expected) = (word(3) as usize, word(4) as usize);
        let counts = |c: Call, sent: usize, expected: usize| {
            format!("{} with {sent} bytes for it and {expected} from it", c.name())
        };
        // The same call with other counts, or another call.
        let (mine, other) = match found == theirs {
            true => (counts(call, self.send.len(), self.receive.len()), counts(found, sent, expected)),
            false => (call.describe(), found.describe()),
        };
        let (one, two) = ((link.party().me, mine), (self.position, other));
        // In the group's order, so that all ranks say the same.
        let (a, b) = if one.0 < two.0 { (one, two) } else { (two, one) };
        let members = &link.party().members;
        Err(CommError::Mismatch { rank: members[a.0], call: a.1, other_rank: members[b.0], other: b.1 })
    }
}

fn header(id: u64, call: Call, sends: usize, expects: usize) -> [u8; HEADER] {
    let [a, b] = call.encode();
    let mut bytes = [0; HEADER];
    for (word, at) in [id, a, b, sends as u64, expects as u64].into_iter().zip(bytes.chunks_exact_mut(8)) {
        at.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Exchanges with all `peers` at once, which call `theirs` while this rank calls `call`.
///
/// # Errors
/// As every call of a communicator.
pub(super) fn exchange(link: &impl Link, call: Call, theirs: Call, mut peers: Vec<Peer<'_>>) -> Result<()> {
    let mut since = Instant::now();
    let mut looked = since;
    let mut rounds = 0;
    let mut excuses = 0;
    let mut trouble = None;
    loop {
        let ticket = link.ticket();
        let mut moved = false;
        // All headers are on their way before one that came is judged.
        for p in peers.iter_mut() {
            moved |= p.push(link, call)?;
        }
        for p in peers.iter_mut() {
            moved |= p.pop(link, call, theirs)?;
        }
        if peers.iter().all(Peer::complete) {
            return Ok(());
        }
        if moved {
            (rounds, since, excuses, trouble) = (0, Instant::now(), 0, None);
            continue;
        }
        if let Some(e) = trouble {
            return Err(e);
        }
        rounds += 1;
        link.rest(ticket, rounds);
        let now = Instant::now();
        if now - looked < LOOK {
            continue;
        }
        looked = now;
        let awaited: Vec<usize> = awaited(&peers);
        trouble = link.trouble(call.name(), &awaited);
        if trouble.is_some() {
            // What a rank sent before it ended may have come since the last look.
            continue;
        }
        if now - since >= link.party().timeout {
            excuses += 1;
            if excuses < EXCUSED && link.party().excuses(&awaited) {
                since = now;
                continue;
            }
            let missing = awaited.iter().map(|&p| link.party().members[p]).collect();
            return Err(CommError::Timeout { call: call.name(), missing, timeout: link.party().timeout });
        }
    }
}

/// For whom a call waits: those that have not come, or else those that are not done.
fn awaited(peers: &[Peer<'_>]) -> Vec<usize> {
    let absent: Vec<usize> = peers.iter().filter(|p| p.received < HEADER).map(|p| p.position).collect();
    if absent.is_empty() {
        return peers.iter().filter(|p| !p.complete()).map(|p| p.position).collect();
    }
    absent
}
