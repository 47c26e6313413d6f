//! Meetings of all ranks of a group.

use super::mail::Mail;
use super::{Call, CommError, LOOK, Result, Shared};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How often a waiting rank lets other threads run before it sleeps.
const YIELDS: u32 = 20;

/// What a rank publishes at a meeting: its call, and the memory that others may touch until the call ends.
#[derive(Clone, Copy)]
pub(super) struct Post {
    call: Call,
    pub input: *const u8,
    /// Bytes for each rank, of an `all_to_all_v`.
    pub counts: *const usize,
}

// SAFETY: the pointers are only followed within phases, while the ranks that published them wait.
unsafe impl Send for Post {}

impl Post {
    pub fn new(call: Call, input: *const u8) -> Post {
        Post { call, input, counts: std::ptr::null() }
    }
}

/// A group of ranks.
pub(super) struct Group {
    /// The ranks of the world, in the group's order.
    pub members: Vec<usize>,
    pub(super) shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
    pub(super) mail: Mutex<Mail>,
    pub(super) delivered: Condvar,
}

struct State {
    /// Counts meetings.
    round: u64,
    /// Who has come to the next meeting.
    present: Vec<bool>,
    posts: Vec<Option<Post>>,
    /// Ranks that are in a phase: they may be touching any published memory.
    active: usize,
    failure: Option<CommError>,
}

/// A rank's part of the time between two meetings, in which published memory may be touched.
pub(super) struct Phase<'g> {
    group: &'g Group,
    me: usize,
    call: Call,
    /// What all ranks have published.
    pub posts: Vec<Post>,
    ended: bool,
}

impl Group {
    pub fn new(members: &[usize], shared: Arc<Shared>) -> Group {
        let n = members.len();
        Group {
            members: members.to_vec(),
            shared,
            state: Mutex::new(State {
                round: 0,
                present: vec![false; n],
                posts: vec![None; n],
                active: 0,
                failure: None,
            }),
            changed: Condvar::new(),
            mail: Mutex::new(Mail::new(n)),
            delivered: Condvar::new(),
        }
    }

    /// Lets waiting ranks look at the world again.
    pub fn wake(&self) {
        self.changed.notify_all();
        self.delivered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes to a meeting with a post, and starts a phase when all have come.
    pub fn meet(&self, me: usize, post: Post) -> Result<Phase<'_>> {
        let mut s = self.lock();
        s.posts[me] = Some(post);
        let s = self.come(s, me, post.call, true)?;
        let posts = s.posts.iter().flatten().copied().collect();
        Ok(Phase { group: self, me, call: post.call, posts, ended: false })
    }

    /// Waits until all ranks have come; then, if `phase`, all of them are active.
    fn come<'g>(
        &'g self,
        mut s: MutexGuard<'g, State>,
        me: usize,
        call: Call,
        phase: bool,
    ) -> Result<MutexGuard<'g, State>> {
        let round = s.round;
        if s.failure.is_none() {
            s.present[me] = true;
            if s.present.iter().all(|&p| p) {
                s.failure = self.mismatch(&s.posts);
                if s.failure.is_none() {
                    s.present.fill(false);
                    s.round += 1;
                    s.active = if phase { self.members.len() } else { 0 };
                }
                self.changed.notify_all();
            }
        }
        let since = Instant::now();
        let mut yields = 0;
        // A meeting that took place counts, whatever failed since.
        while s.round == round {
            if s.failure.is_none() && self.shared.aborted.load(Ordering::SeqCst) {
                s.failure = Some(CommError::Aborted { call: call.name() });
                self.changed.notify_all();
            }
            if s.failure.is_none() && since.elapsed() >= self.shared.timeout {
                let absent = s.present.iter().zip(&self.members).filter(|(here, _)| !**here);
                s.failure = Some(CommError::Timeout {
                    call: call.name(),
                    missing: absent.map(|(_, &m)| m).collect(),
                    timeout: self.shared.timeout,
                });
                self.changed.notify_all();
            }
            if let Some(failure) = &s.failure {
                // Phases do not wait, so this ends: then no one touches the caller's memory.
                if s.active == 0 {
                    return Err(failure.clone());
                }
            }
            if yields < YIELDS {
                // Others are mostly about to come: to sleep and be woken takes longer than a small collective.
                yields += 1;
                drop(s);
                std::thread::yield_now();
                s = self.lock();
            } else {
                s = self.changed.wait_timeout(s, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        Ok(s)
    }

    /// Whether the ranks call different things.
    fn mismatch(&self, posts: &[Option<Post>]) -> Option<CommError> {
        let first = posts.first().copied().flatten()?;
        let differs = |p: &Option<Post>| p.is_some_and(|p| p.call != first.call);
        let n = posts.iter().position(differs)?;
        let other = posts[n]?;
        Some(CommError::Mismatch {
            rank: self.members[0],
            call: first.call.describe(),
            other_rank: self.members[n],
            other: other.call.describe(),
        })
    }
}

impl<'g> Phase<'g> {
    /// Ends this phase and begins another with the same posts.
    pub fn next(mut self) -> Result<Phase<'g>> {
        self.ended = true;
        let mut s = self.group.lock();
        s.active -= 1;
        drop(self.group.come(s, self.me, self.call, true)?);
        let posts = std::mem::take(&mut self.posts);
        Ok(Phase { group: self.group, me: self.me, call: self.call, posts, ended: false })
    }

    /// Ends this phase and the call: after this no one touches the published memory.
    pub fn end(mut self) -> Result<()> {
        self.ended = true;
        let mut s = self.group.lock();
        s.active -= 1;
        self.group.come(s, self.me, self.call, false).map(drop)
    }

    /// Ends this phase with a failure, for all ranks.
    pub fn fail<T>(mut self, failure: CommError) -> Result<T> {
        self.ended = true;
        let mut s = self.group.lock();
        s.active -= 1;
        s.failure.get_or_insert(failure);
        self.group.changed.notify_all();
        match self.group.come(s, self.me, self.call, false) {
            Err(e) => Err(e),
            // Not reached: with a failure no meeting takes place.
            Ok(_) => Err(CommError::Aborted { call: self.call.name() }),
        }
    }
}

impl Drop for Phase<'_> {
    /// A phase that ends by a panic fails the call for all.
    fn drop(&mut self) {
        if !self.ended {
            let mut s = self.group.lock();
            s.active -= 1;
            s.failure.get_or_insert(CommError::Aborted { call: self.call.name() });
            self.group.changed.notify_all();
        }
    }
}
