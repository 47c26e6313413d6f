//! Collectives over streams of bytes between pairs of ranks.
//!
//! What moves bytes is a [`Link`]: shared memory, or MPI. Everything else is here, so the results have the same
//! bits over any of them: each rank gets the parts of all others that it is to combine, and combines them in the
//! group's order. In every call each rank sends every other a header ([`exchange`]), so that ranks that call
//! different things are told apart.

mod exchange;
pub(super) mod party;

use super::arguments::{self, equal_parts, part, whole_elements};
use super::call::Call;
use super::{CommError, Communicator, Result, World, reduce::reduce_at};
use exchange::{Peer, exchange};
use msc_ir::{DType, Monoid};
use party::{Groups, Party};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a part that is combined at a time: parts of all ranks stay in the second-level cache.
const BLOCK: usize = 256 << 10;

/// Up to as many bytes of all ranks together every rank combines everything, in one exchange instead of two.
const SMALL: usize = 16 << 10;

/// Moves bytes between the ranks of a group, in order for each pair and direction. Nothing here waits but
/// [`Link::rest`].
pub(super) trait Link: Send + Sync {
    /// The group.
    fn party(&self) -> &Party;

    /// Takes a beginning of `bytes`, or nothing; how many.
    fn push(&self, to: usize, bytes: &[u8]) -> Result<usize>;

    /// Gives what has come, at most as much as fits; how many bytes.
    fn pop(&self, from: usize, into: &mut [u8]) -> Result<usize>;

    /// Changes when something happens that may let a push or pop go on.
    fn ticket(&self) -> u32;

    /// Waits a little, the longer the more often it was called in vain, unless something has happened since the
    /// ticket.
    fn rest(&self, ticket: u32, rounds: u32);

    /// What ends a call that waits for the positions `awaited`: the world was aborted, a process is gone.
    fn trouble(&self, call: &'static str, awaited: &[usize]) -> Option<CommError> {
        self.party().trouble(call, awaited)
    }
}

/// The ranks that groups are made of.
pub(super) trait PointWorld: World + Clone + 'static {
    /// What moves bytes in a group.
    type Link: Link;

    /// The groups that this process is in.
    fn groups(&self) -> &Groups<Self::Link>;

    /// How long a call waits without anything coming.
    fn timeout(&self) -> Duration;

    /// Comes to a group.
    fn join(&self, party: Party) -> Result<Self::Link>;
}

/// A group over a link.
pub(super) struct PointCommunicator<W: PointWorld> {
    world: W,
    link: Arc<W::Link>,
    failed: AtomicBool,
    /// Parts of other ranks, to be combined.
    parts: Mutex<Vec<u8>>,
}

impl<W: PointWorld> PointCommunicator<W> {
    fn new(world: W, link: Arc<W::Link>) -> PointCommunicator<W> {
        PointCommunicator { world, link, failed: AtomicBool::new(false), parts: Mutex::default() }
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.link.party().me;
        (0..self.size()).filter(move |&r| r != me)
    }

    /// One exchange with each of `peers`; the call is over for good if it fails.
    fn exchange(&self, call: Call, theirs: Call, peers: Vec<Peer<'_>>) -> Result<()> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(CommError::Aborted { call: call.name() });
        }
        // Also when nobody has to wait.
        if let Some(e) = self.link.trouble(call.name(), &[]) {
            return Err(e);
        }
        let done = exchange(&*self.link, call, theirs, peers);
        if done.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        done
    }

    /// An exchange in which nothing is sent but what is called.
    fn meet(&self, call: Call) -> Result<()> {
        self.exchange(call, call, self.others().map(|r| Peer::new(r, &[], &mut [])).collect())
    }

    /// Sends each rank `r` the `send_bytes(r)` bytes at `send(r)`, gets from each as many as the own block has, and
    /// combines them with the own block; `own` is where that is, where the result goes, and its bytes.
    fn combine(
        &self,
        call: Call,
        (dtype, monoid): (DType, Monoid),
        send: impl Fn(usize) -> *const u8,
        send_bytes: impl Fn(usize) -> usize,
        own: (*const u8, *mut u8, usize),
    ) -> Result<()> {
        let (input, out, bytes) = own;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = bytes * (self.size() - 1);
        if parts.len() < needed {
            parts.resize(needed, 0);
        }
        let mut rest = &mut parts[..needed];
        let mut peers = Vec::new();
        let mut inputs = Vec::new();
        for r in 0..self.size() {
            if r == self.link.party().me {
                inputs.push(input);
                continue;
            }
            let (part, tail) = rest.split_at_mut(bytes);
            rest = tail;
            inputs.push(part.as_ptr());
            // SAFETY: the callers below pass blocks of their inputs, which nobody writes during the exchange.
            let sent = unsafe { std::slice::from_raw_parts(send(r), send_bytes(r)) };
            peers.push(Peer::new(r, sent, part));
        }
        self.exchange(call, call, peers)?;
        // SAFETY: `size` inputs of `bytes` bytes; `out` is apart from all of them or the own one.
        unsafe { reduce_at(dtype, monoid, &inputs, out, bytes) };
        Ok(())
    }
}

impl<W: PointWorld> Communicator for PointCommunicator<W> {
    fn rank(&self) -> usize {
        self.link.party().me
    }

    fn size(&self) -> usize {
        self.link.party().members.len()
    }

    fn all_reduce(&self, data: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()> {
        whole_elements("all_reduce", data.len(), dtype)?;
        let (n, me, width) = (self.size(), self.link.party().me, dtype.size_bytes());
        let call = Call::AllReduce { dtype, monoid, bytes: data.len() };
        if data.is_empty() {
            return self.meet(call);
        }
        if data.len() * n <= SMALL {
            let own = data.to_vec();
            let (sent, bytes) = (own.as_ptr(), own.len());
            let out = (sent, data.as_mut_ptr(), bytes);
            return self.combine(call, (dtype, monoid), |_| sent, |_| bytes, out);
        }
        for chunk in data.chunks_mut(n * BLOCK) {
            let bytes = chunk.len();
            let base = chunk.as_mut_ptr();
            let of = |r: usize| part(bytes, width, r, n);
            let own = of(me);
            let mine = base.wrapping_add(own.start);
            let sent = |r: usize| base.wrapping_add(of(r).start).cast_const();
            self.combine(call, (dtype, monoid), sent, |r| of(r).len(), (mine, mine, own.len()))?;
            let (mut before, rest) = chunk.split_at_mut(own.start);
            let (own, mut after) = rest.split_at_mut(own.len());
            let mut peers = Vec::new();
            for r in self.others() {
                let side = if r < me { &mut before } else { &mut after };
                let (theirs, tail) = std::mem::take(side).split_at_mut(of(r).len());
                *side = tail;
                peers.push(Peer::new(r, own, theirs));
            }
            self.exchange(call, call, peers)?;
        }
        Ok(())
    }

    fn all_gather(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let bytes = input.len();
        equal_parts("all_gather", output.len(), bytes.checked_mul(self.size()))?;
        let mut peers = Vec::new();
        let mut rest = output;
        for r in 0..self.size() {
            let (part, tail) = rest.split_at_mut(bytes);
            rest = tail;
            if r == self.link.party().me {
                part.copy_from_slice(input);
            } else {
                peers.push(Peer::new(r, input, part));
            }
        }
        let call = Call::AllGather { bytes };
        self.exchange(call, call, peers)
    }

    fn reduce_scatter(&self, input: &[u8], output: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()> {
        whole_elements("reduce_scatter", output.len(), dtype)?;
        let bytes = output.len();
        equal_parts("reduce_scatter", input.len(), bytes.checked_mul(self.size()))?;
        let call = Call::ReduceScatter { dtype, monoid, bytes };
        if output.is_empty() {
            return self.meet(call);
        }
        for (k, out) in output.chunks_mut(BLOCK).enumerate() {
            let block = |r: usize| input[r * bytes + k * BLOCK..].as_ptr();
            let (me, length) = (self.link.party().me, out.len());
            self.combine(call, (dtype, monoid), block, |_| length, (block(me), out.as_mut_ptr(), length))?;
        }
        Ok(())
    }

    fn all_to_all(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let n = self.size();
        equal_parts("all_to_all", input.len(), Some(output.len()))?;
        equal_parts("all_to_all", input.len(), (input.len() / n).checked_mul(n))?;
        let bytes = input.len() / n;
        let counts = vec![bytes; n];
        self.swap(Call::AllToAll { bytes }, input, &counts, output, &counts)
    }

    fn all_to_all_v(&self, input: &[u8], send: &[usize], output: &mut [u8], receive: &[usize]) -> Result<()> {
        arguments::counts("all_to_all_v", self.size(), (input.len(), send), (output.len(), receive))?;
        self.swap(Call::AllToAllV, input, send, output, receive)
    }

    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()> {
        arguments::root("broadcast", root, self.size())?;
        let call = Call::Broadcast { root, bytes: data.len() };
        if root == self.link.party().me {
            let data = &*data;
            let peers = self.others().map(|r| Peer::new(r, data, &mut [])).collect();
            return self.exchange(call, call, peers);
        }
        let mut data = Some(data);
        let mut of = |r| if r == root { data.take().unwrap_or_default() } else { &mut [] };
        let peers = self.others().map(|r| Peer::new(r, &[], of(r))).collect();
        self.exchange(call, call, peers)
    }

    fn send(&self, to: usize, data: &[u8]) -> Result<()> {
        arguments::peer("send", self.link.party().me, to, self.size())?;
        let bytes = data.len();
        self.exchange(Call::Send { bytes }, Call::Receive { bytes }, vec![Peer::new(to, data, &mut [])])
    }

    fn receive(&self, from: usize, data: &mut [u8]) -> Result<()> {
        arguments::peer("receive", self.link.party().me, from, self.size())?;
        let bytes = data.len();
        self.exchange(Call::Receive { bytes }, Call::Send { bytes }, vec![Peer::new(from, &[], data)])
    }

    fn barrier(&self) -> Result<()> {
        self.meet(Call::Barrier)
    }

    fn subgroup(&self, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>> {
        let ranks = arguments::subgroup(&self.link.party().members, members)?;
        self.world.communicator(self.link.party().members[self.link.party().me], &ranks, tag)
    }
}

impl<W: PointWorld> PointCommunicator<W> {
    /// Parts of the input for those of the output; the counts add up to their lengths.
    fn swap(
        &self,
        call: Call,
        input: &[u8],
        send: &[usize],
        output: &mut [u8],
        receive: &[usize],
    ) -> Result<()> {
        let mut peers = Vec::new();
        let (mut from, mut to) = (input, output);
        let mut own: (&[u8], &mut [u8]) = (&[], &mut []);
        for r in 0..self.size() {
            let (sent, rest) = from.split_at(send[r]);
            let (got, tail) = to.split_at_mut(receive[r]);
            (from, to) = (rest, tail);
            if r == self.link.party().me {
                own = (sent, got);
            } else {
                peers.push(Peer::new(r, sent, got));
            }
        }
        if own.0.len() != own.1.len() {
            let me = self.link.party().members[self.link.party().me];
            return Err(CommError::Mismatch {
                rank: me,
                call: format!("{} with {} bytes for itself", call.name(), own.0.len()),
                other_rank: me,
                other: format!("{} with {} bytes from itself", call.name(), own.1.len()),
            });
        }
        own.1.copy_from_slice(own.0);
        self.exchange(call, call, peers)
    }
}
