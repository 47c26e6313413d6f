//! Who is to blame when ranks wait in vain.
//!
//! A rank that waits knows for whom. That one may wait itself, in another group; the search goes on from rank to
//! rank until it finds one that does not wait: it is dead, or stopped, or at an instruction that does not end. What
//! each rank does is on the board, also of ranks that can no longer be asked.

use super::error::RunError;
use super::place::{self, Place};
use crate::comm::board::{Board, Position};
use crate::comm::{CommError, Life};
use crate::plan::Plan;
use std::collections::{BTreeSet, VecDeque};

/// What a run consists of, for those who ask what went wrong in it.
pub(super) struct Scene<'a> {
    pub plan: &'a Plan,
    pub board: &'a Board,
    /// The step that is next, for ranks that are in none.
    pub next: usize,
    /// Ranks of other machines that do not say that they wait.
    pub silent: Vec<usize>,
}

/// The error of a run one rank of which is dead, as told by the process that started it.
pub fn died(plan: &Plan, board: &Board, rank: usize, how: String) -> RunError {
    let steps = (0..board.ranks()).flat_map(|r| board.positions(r)).map(|p| p.step);
    let scene = Scene { plan, board, next: steps.max().unwrap_or(0), silent: Vec::new() };
    RunError::Died { place: scene.last_place(rank), how }
}

/// What a search finds.
enum Found {
    /// The one to blame, and why.
    Culprit(Box<Place>, String),
    /// All ranks wait for each other, here.
    Waiting(Vec<Place>),
}

impl Scene<'_> {
    /// The error of a rank whose communication at `place` failed: it names whoever is the reason.
    pub fn explain(&self, place: Box<Place>, error: CommError) -> RunError {
        match &error {
            CommError::Timeout { missing, timeout, .. } => match self.search(missing) {
                Found::Culprit(culprit, state) => {
                    RunError::Stalled { culprit, state, waiter: place.to_string(), timeout: *timeout }
                }
                Found::Waiting(others) => {
                    let others = others.iter().map(|p| format!("waiting: {p}")).collect();
                    RunError::Communication { place, error, others }
                }
            },
            CommError::Lost { rank, ended, .. } => {
                let how = match (ended, self.board.process(*rank)) {
                    (true, _) => "ended its run before the others".to_string(),
                    (false, Some(pid)) => format!("its process {pid} is gone"),
                    (false, None) => "its process is gone".to_string(),
                };
                RunError::Died { place: self.last_place(*rank), how }
            }
            _ => RunError::Communication { place, error, others: Vec::new() },
        }
    }

    /// The last that a rank has done, as far as is known: what does not wait comes first.
    pub fn last_place(&self, rank: usize) -> Box<Place> {
        let positions = self.board.positions(rank);
        match positions.iter().min_by_key(|p| (p.waits, p.instruction)) {
            Some(p) => self.place(rank, p),
            None if self.board.process(rank).is_none() => {
                Place::between(rank, self.next, "of another machine, or not started")
            }
            None => Place::between(rank, self.next, "it executes nothing"),
        }
    }

    fn place(&self, rank: usize, p: &Position) -> Box<Place> {
        Place::of(self.plan, rank, p.step, p.instruction)
    }

    fn search(&self, missing: &[usize]) -> Found {
        let mut queue: VecDeque<usize> = missing.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut idle = None;
        let mut waiting = Vec::new();
        while let Some(rank) = queue.pop_front() {
            if !seen.insert(rank) {
                continue;
            }
            let positions = self.board.positions(rank);
            let stuck = match self.board.life(rank) {
                Life::Died => Some("its process died".to_string()),
                Life::Stopped => {
                    let pid = self.board.process(rank).map_or(String::new(), |p| format!(" {p}"));
                    Some(format!("its process{pid} is stopped by a signal"))
                }
                Life::Ended => Some("it has ended its run".to_string()),
                Life::Unknown | Life::Runs => None,
            };
            if let Some(state) = stuck {
                return Found::Culprit(self.last_place(rank), state);
            }
            if let Some(p) = positions.iter().find(|p| !p.waits) {
                return Found::Culprit(self.place(rank, p), "it does not get on".into());
            }
            // One of another machine that waits too has said so.
            if positions.is_empty() && self.board.process(rank).is_some() {
                idle.get_or_insert(rank);
            }
            for p in &positions {
                let group = place::group(self.plan, rank, p.instruction);
                if !group.is_empty() {
                    waiting.push(*self.place(rank, p));
                    queue.extend(group);
                }
            }
        }
        let silent = missing.iter().find(|r| self.silent.contains(r)).or(self.silent.first());
        match (silent, idle) {
            (Some(&rank), _) => Found::Culprit(self.last_place(rank), "it does not answer".into()),
            (None, Some(rank)) => Found::Culprit(self.last_place(rank), "it does not come".into()),
            (None, None) => Found::Waiting(waiting),
        }
    }
}
