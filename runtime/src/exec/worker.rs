//! The threads of the ranks.

use super::communicate::Scratch;
use super::culprit::Scene;
use super::error::RunError;
use super::fault::Fault;
use super::instruction::{Cx, execute};
use super::kernel::KernelLauncher;
use super::place::{self, Place};
use super::rank::{LOOK, Rank};
use crate::comm::board::{Failure, Position};
use crate::comm::{CommError, World};
use crate::plan::Plan;
use msc_ir::program::{Action, Instruction};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the process that started the ranks has to say how one of them died: it knows more.
const PARENT_KNOWS: Duration = Duration::from_millis(300);

/// What all threads of a run share. It lives as long as any of them, so a thread that hangs in a kernel after
/// the run has failed touches no freed memory.
pub(super) struct Run {
    pub ranks: Vec<Rank>,
    pub world: Arc<dyn World>,
    pub kernels: Arc<dyn KernelLauncher>,
    pub fault: Option<Fault>,
    plan: Arc<Plan>,
    timeout: Duration,
    control: Mutex<Control>,
    changed: Condvar,
    failed: AtomicBool,
}

#[derive(Default)]
struct Control {
    /// Steps begun.
    begun: usize,
    /// Threads that are not yet at the end of the step.
    running: usize,
    stop: bool,
    failure: Option<RunError>,
}

impl Run {
    pub fn new(
        plan: &Arc<Plan>,
        ranks: Vec<Rank>,
        world: Arc<dyn World>,
        kernels: Arc<dyn KernelLauncher>,
        timeout: Duration,
        fault: Option<Fault>,
    ) -> Run {
        let (control, changed, failed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Run { ranks, world, kernels, fault, plan: Arc::clone(plan), timeout, control, changed, failed }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run has failed, here or in another process.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || self.world.board().has_failed()
    }

    /// Whether a failure was given to the caller already.
    pub fn failure_is_told(&self) -> bool {
        self.control().failure.is_some()
    }

    /// Begins a step on `threads` threads and waits for its end. After a failure it waits a little for the
    /// threads that are not stuck.
    pub fn step(&self, threads: usize) -> Result<(), RunError> {
        let mut c = self.control();
        c.begun += 1;
        c.running = threads;
        self.changed.notify_all();
        let mut patience = 50;
        let mut still = (Instant::now(), self.positions());
        while c.running > 0 && patience > 0 {
            c = self.changed.wait_timeout(c, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if c.failure.is_some() || self.has_failed() {
                patience -= 1;
                continue;
            }
            let now = self.positions();
            if now != still.1 {
                still = (Instant::now(), now);
            } else if still.0.elapsed() >= self.timeout
                && let Some(error) = self.left_behind(&now)
            {
                drop(c);
                self.fail(error);
                c = self.control();
            }
        }
        if c.failure.is_none() && self.has_failed() {
            c.failure = Some(self.elsewhere());
        }
        match &c.failure {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// What the streams of the ranks of this process execute.
    fn positions(&self) -> Vec<Vec<Position>> {
        self.ranks.iter().map(|r| self.world.board().positions(r.rank)).collect()
    }

    /// The rank that does not get on while others have ended the step, so that nobody waits for it but the step's end.
    fn left_behind(&self, positions: &[Vec<Position>]) -> Option<RunError> {
        let done = self.ranks.iter().zip(positions).find(|(_, p)| p.is_empty())?.0.rank;
        let (rank, at) =
            self.ranks.iter().zip(positions).find_map(|(r, p)| Some((r, p.iter().find(|p| !p.waits)?)))?;
        Some(RunError::Stalled {
            culprit: rank.place(at.step, at.instruction),
            state: "it does not get on".into(),
            waiter: format!("rank {done}, which has ended the step,"),
            timeout: self.timeout,
        })
    }

    /// Lets the threads end; whether all of them will.
    pub fn stop(&self) -> bool {
        let mut c = self.control();
        c.stop = true;
        self.changed.notify_all();
        c.running == 0
    }

    /// Stops everything, here and in all other processes. The first failure is the one that is told; what follows
    /// from it is not. Gives what is told here.
    pub fn fail(&self, error: RunError) -> RunError {
        let mut c = self.control();
        let told = match &c.failure {
            Some(e) => e.clone(),
            None => c.failure.insert(self.first(error)).clone(),
        };
        drop(c);
        self.failed.store(true, Ordering::SeqCst);
        self.world.abort();
        self.ranks.iter().for_each(Rank::wake);
        self.changed.notify_all();
        told
    }

    /// A failure between steps, of the calling thread.
    pub fn fail_between(&self, rank: usize, what: &str, error: CommError) -> RunError {
        let place = Place::between(rank, self.control().begun, what);
        self.fail(RunError::Communication { place, error, others: Vec::new() })
    }

    /// The failure as it is told: with the culprit, if it is the run's first; else what another process says.
    fn first(&self, error: RunError) -> RunError {
        let board = self.world.board();
        if let RunError::Communication { error: CommError::Lost { .. }, .. } = error
            && board.has_parent()
        {
            let since = Instant::now();
            while !board.has_failed() && since.elapsed() < PARENT_KNOWS {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let in_vain = matches!(error, RunError::Communication { error: CommError::Timeout { .. }, .. });
        let silent = if in_vain { self.world.silent() } else { Vec::new() };
        if !board.claim() {
            return self.elsewhere();
        }
        let error = match error {
            RunError::Communication { place, error, .. } => {
                let scene = Scene { plan: &self.plan, board, next: place.step, silent };
                scene.explain(place, error)
            }
            e => e,
        };
        let teller = self.ranks.first().map(|r| r.rank);
        board.tell(&Failure { teller, status: error.status(), text: error.to_string() });
        error
    }

    /// What another process says of the failure.
    fn elsewhere(&self) -> RunError {
        match self.world.board().failure_when_said() {
            Some(Failure { text, status, .. }) => RunError::Elsewhere { text, status },
            None => {
                let text = "MSC-N0002: the run failed in another process, which did not say why".into();
                RunError::Elsewhere { text, status: 1 }
            }
        }
    }
}

/// The life of the thread that runs stream `stream` of rank number `n` of this process.
pub(super) fn work(run: &Run, n: usize, stream: usize) {
    let rank = &run.ranks[n];
    let program = rank.program();
    let mine = |(_, i): &(usize, &Instruction)| i.stream.0 as usize == stream;
    let list: Vec<(usize, &Instruction)> = program.instructions.iter().enumerate().filter(mine).collect();
    let mut scratch = Scratch::for_stream(program, stream);
    let mut step = 0;
    loop {
        let mut c = run.control();
        while c.begun <= step && !c.stop {
            c = run.changed.wait(c).unwrap_or_else(PoisonError::into_inner);
        }
        if c.begun <= step {
            return;
        }
        drop(c);
        for &(at, i) in &list {
            if run.has_failed() {
                break;
            }
            rank.begin(stream, step, at, false);
            let mut cx = Cx { rank, kernels: &*run.kernels, step, scratch: &mut scratch };
            let done = catch_unwind(AssertUnwindSafe(|| {
                if let Some(fault) = run.fault {
                    fault.strike(rank.rank, step, at);
                }
                let waits = matches!(i.action, Action::Wait(_));
                if waits || place::communicator(&i.action).is_some() {
                    rank.begin(stream, step, at, true);
                }
                if let Action::Wait(on) = i.action {
                    rank.wait(on.0 as usize, step, || run.has_failed());
                    return Ok(());
                }
                // SAFETY: plans are checked when they are read; the stream's earlier instructions and those it has
                // waited for are complete.
                unsafe { execute(&mut cx, at, i) }
            }));
            match done {
                Ok(Ok(())) => rank.complete(at, step),
                Ok(Err(e)) => {
                    run.fail(e);
                }
                Err(panic) => {
                    let message = said(&*panic);
                    run.fail(RunError::Internal { place: rank.place(step, at), message });
                }
            }
        }
        // After a failure the last position stays, for those who ask who is to blame.
        if !run.has_failed() {
            rank.rest(stream);
        }
        let mut c = run.control();
        c.running = c.running.saturating_sub(1);
        if c.running == 0 {
            run.changed.notify_all();
        }
        if c.failure.is_some() || run.has_failed() {
            return;
        }
        step += 1;
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
}
