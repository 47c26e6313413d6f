//! The threads of the ranks.

use super::communicate::Scratch;
use super::error::RunError;
use super::instruction::{Cx, execute};
use super::kernel::KernelLauncher;
use super::rank::{LOOK, Rank};
use crate::comm::{CommError, World};
use msc_ir::program::{Action, Instruction};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What all threads of a run share. It lives as long as any of them, so a thread that hangs in a kernel after
/// the run has failed touches no freed memory.
pub(super) struct Run {
    pub ranks: Vec<Rank>,
    pub world: Box<dyn World>,
    pub kernels: Arc<dyn KernelLauncher>,
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
    pub fn new(ranks: Vec<Rank>, world: Box<dyn World>, kernels: Arc<dyn KernelLauncher>) -> Run {
        let (control, changed) = (Mutex::default(), Condvar::new());
        Run { ranks, world, kernels, control, changed, failed: AtomicBool::new(false) }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Begins a step on `threads` threads and waits for its end. After a failure it waits a little for the
    /// threads that are not stuck.
    pub fn step(&self, threads: usize) -> Result<(), RunError> {
        let mut c = self.control();
        c.begun += 1;
        c.running = threads;
        self.changed.notify_all();
        let mut patience = 100;
        while c.running > 0 && patience > 0 {
            c = self.changed.wait_timeout(c, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if c.failure.is_some() {
                patience -= 1;
            }
        }
        match &c.failure {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// Lets the threads end; whether all of them will.
    pub fn stop(&self) -> bool {
        let mut c = self.control();
        c.stop = true;
        self.changed.notify_all();
        c.running == 0
    }

    /// Stops everything. The first failure is the one that is told; what follows from it is not.
    fn fail(&self, error: RunError) {
        let mut c = self.control();
        if c.failure.is_none() {
            c.failure = Some(self.with_culprits(error));
        }
        drop(c);
        self.failed.store(true, Ordering::SeqCst);
        self.world.abort();
        self.ranks.iter().for_each(Rank::wake);
        self.changed.notify_all();
    }

    /// Adds to a timeout what the ranks were doing for which it waited: those that did not come, or, where they
    /// wait themselves, those for which they wait.
    fn with_culprits(&self, mut error: RunError) -> RunError {
        let RunError::Communication { error: CommError::Timeout { missing, .. }, others, .. } = &mut error
        else {
            return error;
        };
        let mut queue = missing.clone();
        let mut seen = BTreeSet::new();
        let mut waiting = Vec::new();
        while let Some(rank) = queue.pop() {
            let Some(r) = self.ranks.iter().find(|r| r.rank == rank).filter(|_| seen.insert(rank)) else {
                continue;
            };
            let at: Vec<(usize, usize)> = r.positions().collect();
            let action = |&&(_, at): &&(usize, usize)| &r.program().instructions[at].action;
            let busy = |p: &&(usize, usize)| {
                let a = action(p);
                !matches!(a, Action::Wait(_)) && group(a).is_none()
            };
            match at.iter().find(busy) {
                Some(&(step, i)) => others.push(format!("busy: {}", r.place(step, i))),
                None if at.is_empty() => {
                    others.push(format!("rank {rank} has nothing left to do in the step"))
                }
                None => {
                    for (step, i) in &at {
                        let axes = group(&r.program().instructions[*i].action);
                        if let Some(c) = axes {
                            waiting.push(format!("waiting: {}", r.place(*step, *i)));
                            let axes = &r.program().communicators[c].axes;
                            queue.extend(r.plan().mesh().group(rank, axes));
                        }
                    }
                }
            }
        }
        if others.is_empty() {
            *others = waiting;
        }
        error
    }
}

/// The communicator that an action uses.
fn group(a: &Action) -> Option<usize> {
    match a {
        Action::Collective { communicator, .. }
        | Action::Send { communicator, .. }
        | Action::Receive { communicator, .. } => Some(communicator.0 as usize),
        _ => None,
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
            rank.begin(stream, step, at);
            if let Action::Wait(on) = i.action {
                rank.wait(on.0 as usize, step, || run.has_failed());
                continue;
            }
            let mut cx = Cx { rank, kernels: &*run.kernels, step, scratch: &mut scratch };
            // SAFETY: plans are checked when they are read; the stream's earlier instructions and those it has
            // waited for are complete.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { execute(&mut cx, at, i) }));
            match done {
                Ok(Ok(())) => rank.complete(at, step),
                Ok(Err(e)) => run.fail(e),
                Err(panic) => {
                    let message = said(&*panic);
                    run.fail(RunError::Internal { place: rank.place(step, at), message });
                }
            }
        }
        rank.rest(stream);
        let mut c = run.control();
        c.running = c.running.saturating_sub(1);
        if c.running == 0 {
            run.changed.notify_all();
        }
        if c.failure.is_some() {
            return;
        }
        step += 1;
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
}
