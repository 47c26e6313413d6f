//! Groups as their members see them, and where a process keeps those it is in.

use super::super::board::Board;
use super::super::process::Life;
use super::super::shm::first_word;
use super::super::{BETWEEN, CommError, Communicator, Result, arguments};
use super::{PointCommunicator, PointWorld};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A group as one of its members sees it.
pub(in crate::comm) struct Party {
    /// The ranks of the world, in the group's order.
    pub members: Vec<usize>,
    /// Position in the group.
    pub me: usize,
    /// A number of the group that its members know.
    pub id: u64,
    /// Whether it meets between steps only.
    pub between: bool,
    /// How long a call waits without anything coming.
    pub timeout: Duration,
    /// What the ranks of this machine do.
    pub board: Arc<Board>,
}

impl Party {
    /// What the board says that ends a call which waits for some positions.
    pub fn trouble(&self, call: &'static str, awaited: &[usize]) -> Option<CommError> {
        if self.board.is_aborted() {
            return Some(CommError::Aborted { call });
        }
        for rank in awaited.iter().map(|&p| self.members[p]) {
            match self.board.life(rank) {
                Life::Died => return Some(CommError::Lost { call, rank, ended: false }),
                Life::Ended => return Some(CommError::Lost { call, rank, ended: true }),
                Life::Unknown | Life::Runs | Life::Stopped => {}
            }
        }
        None
    }

    /// Whether positions that are awaited between steps may be late: they read or write files, or compile kernels.
    pub fn excuses(&self, awaited: &[usize]) -> bool {
        let is_excused =
            |rank: usize| self.board.life(rank) != Life::Stopped && self.board.positions(rank).is_empty();
        self.between && awaited.iter().all(|&p| is_excused(self.members[p]))
    }
}

/// The groups that this process is in, by members and tag.
pub(in crate::comm) type Groups<L> = Mutex<BTreeMap<(Vec<usize>, u64), Arc<L>>>;

/// A world's communicator for a rank of this process; members that pass the same `members` and `tag` meet.
pub(in crate::comm) fn communicator<W: PointWorld>(
    world: &W,
    rank: usize,
    members: &[usize],
    tag: u64,
) -> Result<Box<dyn Communicator>> {
    let me = arguments::position(rank, members, world.ranks())?;
    if !world.here().contains(&rank) {
        return arguments::argument("communicator", format!("rank {rank} is in another process"));
    }
    // A thread that panics while it holds the lock leaves the map whole.
    let mut groups = world.groups().lock().unwrap_or_else(PoisonError::into_inner);
    let link = match groups.entry((members.to_vec(), tag)) {
        Entry::Occupied(e) => Arc::clone(e.get()),
        Entry::Vacant(e) => {
            let party = Party {
                members: members.to_vec(),
                me,
                id: group_id(members, tag),
                between: tag == BETWEEN,
                timeout: world.timeout(),
                board: Arc::clone(world.board()),
            };
            Arc::clone(e.insert(Arc::new(world.join(party)?)))
        }
    };
    Ok(Box::new(PointCommunicator::new(world.clone(), link)))
}

/// A number for the group of these members and tag, known to all of them.
fn group_id(members: &[usize], tag: u64) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(&tag.to_le_bytes());
    for m in members {
        hash.update(&(*m as u64).to_le_bytes());
    }
    first_word(&hash.finalize())
}
