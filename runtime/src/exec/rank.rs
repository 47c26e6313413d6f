//! What the threads of a rank share.

use super::arena::Arena;
use super::error::RunError;
use super::place::Place;
use crate::comm::board::{Board, Position};
use crate::comm::{Communicator, World};
use crate::plan::Plan;
use msc_ir::ConstId;
use msc_ir::program::{Action, BufferId, CommunicatorId, Placement, Program, agree};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting thread looks whether the run has failed.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Constants of buffers that the plan holds in short, filled; shared by all ranks.
pub(super) type Splats = BTreeMap<ConstId, Arena>;

/// A rank of this process.
pub(super) struct Rank {
    pub rank: usize,
    plan: Arc<Plan>,
    class: usize,
    arena: Arena,
    splats: Arc<Splats>,
    communicators: Vec<Box<dyn Communicator>>,
    /// For each instruction that another stream waits for, the last step (from 1) in which it was completed.
    events: Mutex<Vec<usize>>,
    changed: Condvar,
    /// For each instruction its event, if it has one.
    event_of: Vec<Option<u32>>,
    /// Where is noted what the streams execute.
    board: Arc<Board>,
}

impl Rank {
    pub fn new(
        plan: &Arc<Plan>,
        rank: usize,
        world: &dyn World,
        splats: &Arc<Splats>,
    ) -> Result<Rank, RunError> {
        let contains = |p: &Program| p.class.contains(plan.mesh(), rank);
        let class = plan.programs.iter().position(contains).unwrap_or(0);
        let p = &plan.programs[class];
        let arena = Arena::new(p.arena_bytes).ok_or(RunError::Memory { rank, bytes: p.arena_bytes })?;
        let mut communicators = Vec::new();
        for (n, c) in p.communicators.iter().enumerate() {
            let members = plan.mesh().group(rank, &c.axes);
            let tag = agree::ordinal(p, CommunicatorId(n as u32)) as u64;
            let c = world.communicator(rank, &members, tag);
            communicators.push(c.map_err(|e| RunError::Start { rank, message: e.to_string() })?);
        }
        let mut event_of = vec![None; p.instructions.len()];
        let mut events = 0;
        for i in &p.instructions {
            if let Action::Wait(on) = i.action {
                event_of[on.0 as usize].get_or_insert_with(|| {
                    events += 1;
                    events - 1
                });
            }
        }
        Ok(Rank {
            rank,
            plan: Arc::clone(plan),
            class,
            arena,
            splats: Arc::clone(splats),
            communicators,
            events: Mutex::new(vec![0; events as usize]),
            changed: Condvar::new(),
            event_of,
            board: Arc::clone(world.board()),
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn program(&self) -> &Program {
        &self.plan.programs[self.class]
    }

    pub fn communicator(&self, id: CommunicatorId) -> &dyn Communicator {
        &*self.communicators[id.0 as usize]
    }

    /// First byte and length of a buffer.
    pub fn memory(&self, id: BufferId) -> (*mut u8, usize) {
        let b = self.program().buffer(id);
        let bytes = b.ty.bytes();
        match b.placement {
            Placement::Arena(at) => (self.arena.at(at, bytes), bytes),
            // Never written: checked plans write no constants.
            Placement::Constant(c) => match self.splats.get(&c) {
                Some(a) => (a.at(0, bytes), bytes),
                None => {
                    let data = self.plan.constant(c).unwrap_or_default();
                    debug_assert!(matches!(data, std::borrow::Cow::Borrowed(_)));
                    (data.as_ptr().cast_mut(), bytes)
                }
            },
        }
    }

    /// The bytes of a buffer.
    ///
    /// # Safety
    /// No one writes them while the slice is in use.
    pub unsafe fn read(&self, id: BufferId) -> &[u8] {
        let (data, bytes) = self.memory(id);
        // SAFETY: inside the arena or the plan, which `self` holds; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(data, bytes) }
    }

    /// The bytes of a buffer in the arena, to be written.
    ///
    /// # Safety
    /// No one else touches them while the slice is in use.
    #[allow(clippy::mut_from_ref, reason = "the arena is shared memory; the caller orders accesses")]
    pub unsafe fn write(&self, id: BufferId) -> &mut [u8] {
        let (data, bytes) = self.memory(id);
        // SAFETY: inside the arena, which `self` holds; the rest is the caller's.
        unsafe { std::slice::from_raw_parts_mut(data, bytes) }
    }

    fn events(&self) -> MutexGuard<'_, Vec<usize>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks an instruction complete, if anyone waits for it.
    pub fn complete(&self, instruction: usize, step: usize) {
        if let Some(e) = self.event_of[instruction] {
            self.events()[e as usize] = step + 1;
            self.changed.notify_all();
        }
    }

    /// Waits until an instruction is complete; `false` if `failed` says that it will not be.
    pub fn wait(&self, instruction: usize, step: usize, failed: impl Fn() -> bool) -> bool {
        let Some(e) = self.event_of[instruction] else { return true };
        let mut events = self.events();
        while events[e as usize] <= step {
            if failed() {
                return false;
            }
            events = self.changed.wait_timeout(events, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Lets waiting threads look whether the run has failed.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Notes what a stream executes, and whether it waits there for others.
    pub fn begin(&self, stream: usize, step: usize, instruction: usize, waits: bool) {
        self.board.begin(self.rank, stream, Position { step, instruction, waits });
    }

    /// Notes that a stream executes nothing.
    pub fn rest(&self, stream: usize) {
        self.board.rest(self.rank, stream);
    }

    /// A place for messages.
    pub fn place(&self, step: usize, instruction: usize) -> Box<Place> {
        Place::of(&self.plan, self.rank, step, instruction)
    }
}
