//! The back end for the threads of one process: ranks read each other's memory.
//!
//! A collective is a few *phases* between meetings of all ranks ([`group`]). Within a phase each rank reads what
//! others have published and writes its own part; a phase never waits, so that a failing rank can wait for the
//! phase to end before it takes its memory back.

mod group;
mod mail;

use super::arguments::{self, equal_parts, part, whole_elements};
use super::board::Board;
use super::call::Call;
use super::{CommError, Communicator, LOOK, Result, World, reduce::reduce_at};
use group::{Group, Post};
use msc_ir::{DType, Monoid};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What all groups of a world share.
struct Shared {
    timeout: Duration,
    aborted: AtomicBool,
}

/// The ranks of this process, one or more threads each.
#[derive(Clone)]
pub struct LocalWorld {
    ranks: usize,
    shared: Arc<Shared>,
    groups: Arc<Mutex<Groups>>,
    board: Arc<Board>,
}

/// Groups by members and tag.
type Groups = BTreeMap<(Vec<usize>, u64), Arc<Group>>;

impl LocalWorld {
    /// A world of `ranks` ranks in which no call waits longer than `timeout`.
    pub fn new(ranks: usize, timeout: Duration) -> LocalWorld {
        let shared = Arc::new(Shared { timeout, aborted: AtomicBool::new(false) });
        LocalWorld { ranks, shared, groups: Arc::default(), board: Arc::new(Board::private(ranks)) }
    }
}

impl World for LocalWorld {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn here(&self) -> Vec<usize> {
        (0..self.ranks).collect()
    }

    fn board(&self) -> &Arc<Board> {
        &self.board
    }

    fn communicator(&self, rank: usize, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>> {
        let position = arguments::position(rank, members, self.ranks)?;
        // A thread that panics while it holds the lock leaves the map whole.
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups
            .entry((members.to_vec(), tag))
            .or_insert_with(|| Arc::new(Group::new(members, Arc::clone(&self.shared))));
        Ok(Box::new(LocalCommunicator { world: self.clone(), group: Arc::clone(group), me: position }))
    }

    fn abort(&self) {
        self.shared.aborted.store(true, Ordering::SeqCst);
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.values().for_each(|g| g.wake());
    }
}

struct LocalCommunicator {
    world: LocalWorld,
    group: Arc<Group>,
    me: usize,
}

impl Communicator for LocalCommunicator {
    fn rank(&self) -> usize {
        self.me
    }

    fn size(&self) -> usize {
        self.group.members.len()
    }

    fn all_reduce(&self, data: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()> {
        whole_elements("all_reduce", data.len(), dtype)?;
        let (n, bytes, width) = (self.size(), data.len(), dtype.size_bytes());
        let call = Call::AllReduce { dtype, monoid, bytes };
        let mine = data.as_mut_ptr();
        let phase = self.group.meet(self.me, Post::new(call, mine))?;
        let own = part(bytes, width, self.me, n);
        let inputs: Vec<*const u8> = phase.posts.iter().map(|p| p.input.wrapping_add(own.start)).collect();
        // SAFETY: every rank published `bytes` bytes; in this phase each rank touches its own part of all of
        // them, and no other.
        unsafe { reduce_at(dtype, monoid, &inputs, mine.add(own.start), own.len()) };
        let phase = phase.next()?;
        for (r, p) in phase.posts.iter().enumerate().filter(|(r, _)| *r != self.me) {
            let theirs = part(bytes, width, r, n);
            // SAFETY: part `r` of rank `r`'s memory holds the result and is not written in this phase.
            unsafe {
                let from = p.input.add(theirs.start);
                std::ptr::copy_nonoverlapping(from, mine.add(theirs.start), theirs.len());
            }
        }
        phase.end()
    }

    fn all_gather(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let bytes = input.len();
        equal_parts("all_gather", output.len(), bytes.checked_mul(self.size()))?;
        let post = Post::new(Call::AllGather { bytes }, input.as_ptr());
        let phase = self.group.meet(self.me, post)?;
        for (part, p) in output.chunks_exact_mut(bytes.max(1)).zip(&phase.posts) {
            // SAFETY: each rank published `bytes` bytes that no one writes.
            unsafe { std::ptr::copy_nonoverlapping(p.input, part.as_mut_ptr(), bytes) };
        }
        phase.end()
    }

    fn reduce_scatter(&self, input: &[u8], output: &mut [u8], dtype: DType, monoid: Monoid) -> Result<()> {
        whole_elements("reduce_scatter", output.len(), dtype)?;
        equal_parts("reduce_scatter", input.len(), output.len().checked_mul(self.size()))?;
        let call = Call::ReduceScatter { dtype, monoid, bytes: output.len() };
        let post = Post::new(call, input.as_ptr());
        let phase = self.group.meet(self.me, post)?;
        let at = self.me * output.len();
        let inputs: Vec<*const u8> = phase.posts.iter().map(|p| p.input.wrapping_add(at)).collect();
        // SAFETY: each rank published `size` parts that no one writes; `output` is ours.
        unsafe { reduce_at(dtype, monoid, &inputs, output.as_mut_ptr(), output.len()) };
        phase.end()
    }

    fn all_to_all(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let n = self.size();
        equal_parts("all_to_all", input.len(), Some(output.len()))?;
        equal_parts("all_to_all", input.len(), (input.len() / n).checked_mul(n))?;
        let bytes = input.len() / n;
        let post = Post::new(Call::AllToAll { bytes }, input.as_ptr());
        let phase = self.group.meet(self.me, post)?;
        for (part, p) in output.chunks_exact_mut(bytes.max(1)).zip(&phase.posts) {
            // SAFETY: each rank published `n` parts that no one writes.
            unsafe { std::ptr::copy_nonoverlapping(p.input.add(self.me * bytes), part.as_mut_ptr(), bytes) };
        }
        phase.end()
    }

    fn all_to_all_v(&self, input: &[u8], send: &[usize], output: &mut [u8], receive: &[usize]) -> Result<()> {
        const CALL: &str = "all_to_all_v";
        arguments::counts(CALL, self.size(), (input.len(), send), (output.len(), receive))?;
        let mut post = Post::new(Call::AllToAllV, input.as_ptr());
        post.counts = send.as_ptr();
        let phase = self.group.meet(self.me, post)?;
        let mut rest = output;
        let mut wrong = None;
        for (r, (p, &want)) in phase.posts.iter().zip(receive).enumerate() {
            // SAFETY: each rank published one count for every rank.
            let theirs = unsafe { std::slice::from_raw_parts(p.counts, receive.len()) };
            let (part, tail) = rest.split_at_mut(want);
            rest = tail;
            if theirs[self.me] != want {
                wrong = Some((r, theirs[self.me], want));
                break;
            }
            let at: usize = theirs[..self.me].iter().sum();
            // SAFETY: the counts add up to the length of what the rank published.
            unsafe { std::ptr::copy_nonoverlapping(p.input.add(at), part.as_mut_ptr(), want) };
        }
        if let Some((r, sent, want)) = wrong {
            let members = &self.group.members;
            return phase.fail(CommError::Mismatch {
                rank: members[r],
                call: format!("all_to_all_v with {sent} bytes for it"),
                other_rank: members[self.me],
                other: format!("all_to_all_v with {want} bytes from it"),
            });
        }
        phase.end()
    }

    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()> {
        arguments::root("broadcast", root, self.size())?;
        let (bytes, mine) = (data.len(), data.as_mut_ptr());
        let phase = self.group.meet(self.me, Post::new(Call::Broadcast { root, bytes }, mine))?;
        if self.me != root {
            // SAFETY: the root published `bytes` bytes that no one writes; `data` is ours.
            unsafe { std::ptr::copy_nonoverlapping(phase.posts[root].input, mine, bytes) };
        }
        phase.end()
    }

    fn send(&self, to: usize, data: &[u8]) -> Result<()> {
        arguments::peer("send", self.me, to, self.size())?;
        self.group.send(self.me, to, data)
    }

    fn receive(&self, from: usize, data: &mut [u8]) -> Result<()> {
        arguments::peer("receive", self.me, from, self.size())?;
        self.group.receive(from, self.me, data)
    }

    fn barrier(&self) -> Result<()> {
        let post = Post::new(Call::Barrier, std::ptr::null());
        self.group.meet(self.me, post)?.end()
    }

    fn subgroup(&self, members: &[usize], tag: u64) -> Result<Box<dyn Communicator>> {
        let ranks = arguments::subgroup(&self.group.members, members)?;
        self.world.communicator(self.group.members[self.me], &ranks, tag)
    }
}
