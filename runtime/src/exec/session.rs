//! Sessions: ranks that are ready to step.

use super::arena::Arena;
use super::carry::{self, Carry};
use super::error::RunError;
use super::gather::{Gathered, Wanted};
use super::kernel::KernelLauncher;
use super::options::{Divergence, Options, StepReport};
use super::rank::{Rank, Splats};
use super::worker::{Run, work};
use crate::comm::local::LocalWorld;
use crate::comm::{BETWEEN, CommError, Communicator, World};
use crate::plan::{Plan, Which};
use msc_ir::program::Placement;
use msc_ir::{Tensor, TensorType};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Ranks with their memory and threads: all of a plan, or one where each has a process of its own. Then all processes
/// set the same inputs, run the same steps and ask for the same results, in the same order. After an error a session is
/// of no further use.
pub struct Session {
    plan: Arc<Plan>,
    run: Arc<Run>,
    threads: Vec<JoinHandle<()>>,
    pairs: Vec<(usize, usize)>,
    carries: Vec<Carry>,
    /// Inputs to be set when the next step begins.
    pending: Vec<Option<Tensor>>,
    /// Which inputs were ever set.
    given: Vec<bool>,
    steps: usize,
    /// Of all ranks, for what happens between steps; none if all are in this process.
    between: Option<Box<dyn Communicator>>,
}

impl Session {
    /// All ranks of a plan as threads of this process.
    ///
    /// # Errors
    /// [`RunError::Memory`], [`RunError::Carry`], [`RunError::Start`].
    pub fn new(
        plan: Arc<Plan>,
        kernels: Arc<dyn KernelLauncher>,
        options: &Options,
    ) -> Result<Session, RunError> {
        let world = LocalWorld::new(plan.mesh().ranks(), options.comm_timeout);
        Session::in_world(plan, kernels, options, Arc::new(world))
    }

    /// The ranks of a plan that are those of this process in a world: all of them, or one.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn in_world(
        plan: Arc<Plan>,
        kernels: Arc<dyn KernelLauncher>,
        options: &Options,
        world: Arc<dyn World>,
    ) -> Result<Session, RunError> {
        let here = world.here();
        let first = here.first().copied().unwrap_or(0);
        if world.ranks() != plan.mesh().ranks() {
            let message =
                format!("the plan has {} ranks, {} are started", plan.mesh().ranks(), world.ranks());
            return Err(RunError::Start { rank: first, message });
        }
        let between = if here.len() == world.ranks() {
            None
        } else {
            let all: Vec<usize> = (0..world.ranks()).collect();
            let c = world.communicator(first, &all, BETWEEN);
            Some(c.map_err(|e| RunError::Start { rank: first, message: e.to_string() })?)
        };
        let pairs = carry::pairs(&plan, &options.carry)?;
        let slots = carry::slots(&plan, &pairs)?;
        let splats = Arc::new(splats(&plan)?);
        let mut ranks = Vec::new();
        for rank in here {
            ranks.push(Rank::new(&plan, rank, &*world, &splats)?);
        }
        let carries = ranks.iter().map(|r| Carry::new(r.program(), &slots)).collect();
        let run = Run::new(&plan, ranks, world, kernels, options.comm_timeout, options.fault);
        let run = Arc::new(run);
        let inputs = plan.entry().params.len();
        let mut session = Session {
            plan,
            run,
            threads: Vec::new(),
            pairs,
            carries,
            pending: vec![None; inputs],
            given: vec![false; inputs],
            steps: 0,
            between,
        };
        for n in 0..session.run.ranks.len() {
            let rank = &session.run.ranks[n];
            let kinds: Vec<&str> = rank.program().streams.iter().map(|s| s.name()).collect();
            let number = rank.rank;
            for (stream, kind) in kinds.into_iter().enumerate() {
                let run = Arc::clone(&session.run);
                let thread = std::thread::Builder::new()
                    .name(format!("rank{number}.{kind}"))
                    .spawn(move || work(&run, n, stream))
                    .map_err(|e| RunError::Start { rank: number, message: e.to_string() })?;
                session.threads.push(thread);
            }
        }
        Ok(session)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether rank 0 is in this process: it is the one that has the results.
    pub fn is_root(&self) -> bool {
        self.run.ranks.first().is_some_and(|r| r.rank == 0)
    }

    /// Steps run.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The global type of an input.
    pub fn input_type(&self, n: usize) -> Option<TensorType> {
        let _ = self.plan.entry().params.get(n)?;
        Some(self.plan.laid(Which::Input(n), 0).global_type())
    }

    /// The global type of a result.
    pub fn output_type(&self, n: usize) -> Option<TensorType> {
        let _ = self.plan.entry().results.get(n)?;
        Some(self.plan.laid(Which::Output(n), 0).global_type())
    }

    /// Sets an input, global, from the next step on. Inputs keep their value, except that donated ones take over
    /// the result that replaces them.
    ///
    /// # Errors
    /// [`RunError::Input`] if there is no such input or it is of another type.
    pub fn set_input(&mut self, n: usize, value: Tensor) -> Result<(), RunError> {
        let refuse = |message: String| Err(RunError::Input { message });
        let Some(want) = self.input_type(n) else { return refuse(format!("there is no input {n}")) };
        if value.ty() != want {
            let name = &self.plan.entry().params[n].name;
            return refuse(format!("input {n} ({name}) is {}, should be {want}", value.ty()));
        }
        self.given[n] = true;
        self.pending[n] = Some(value);
        Ok(())
    }

    /// Sets an input, global, before the first step, from row-major little-endian elements: each rank's block is
    /// copied to its place, and no whole tensor is held.
    ///
    /// # Errors
    /// As [`Session::set_input`]; [`RunError::Order`] after the first step.
    pub fn load_input(&mut self, n: usize, ty: &TensorType, elements: &[u8]) -> Result<(), RunError> {
        if self.steps > 0 || self.run.has_failed() {
            return Err(RunError::Order { message: "inputs are loaded before the first step".into() });
        }
        let refuse = |message: String| Err(RunError::Input { message });
        let Some(want) = self.input_type(n) else { return refuse(format!("there is no input {n}")) };
        if *ty != want || elements.len() != want.bytes() {
            let name = &self.plan.entry().params[n].name;
            return refuse(format!("input {n} ({name}) is {ty}, should be {want}"));
        }
        // SAFETY: the threads wait for the first step.
        unsafe { self.cut(n, elements) };
        self.given[n] = true;
        self.pending[n] = None;
        Ok(())
    }

    /// Runs a step.
    ///
    /// # Errors
    /// [`RunError::Input`] if an input was never set; whatever fails on a rank.
    pub fn step(&mut self) -> Result<StepReport, RunError> {
        if self.run.failure_is_told() {
            return Err(RunError::Order { message: "the session has failed before".into() });
        }
        if let Some(n) = self.given.iter().position(|g| !g) {
            let name = &self.plan.entry().params[n].name;
            return Err(RunError::Input { message: format!("input {n} ({name}) is not set") });
        }
        // Reading inputs, compiling kernels and saving take some processes longer than others: that is no stall.
        self.together("begin a step", |c| c.barrier())?;
        let begun = Instant::now();
        if self.steps > 0 {
            for (carry, rank) in self.carries.iter_mut().zip(&self.run.ranks) {
                // SAFETY: the threads wait for the next step.
                unsafe { carry.run(rank) };
            }
        }
        for n in 0..self.pending.len() {
            let Some(value) = self.pending[n].take() else { continue };
            // SAFETY: as above.
            unsafe { self.cut(n, value.data.bytes()) };
        }
        self.run.step(self.threads.len())?;
        self.steps += 1;
        Ok(StepReport { step: self.steps - 1, duration: begun.elapsed() })
    }

    /// A result of the last step, global, in every process; and, if ranks that should hold the same block do not,
    /// where: that is known in the process of rank 0.
    ///
    /// # Errors
    /// [`RunError::Order`] before the first step and after a failure; [`RunError::Input`] if there is none of
    /// this number; what happens to other processes.
    pub fn output(&self, n: usize) -> Result<(Tensor, Option<Divergence>), RunError> {
        let gathered = self.result(n, true)?;
        gathered.ok_or_else(|| RunError::Order { message: "there are no results".into() })
    }

    fn result(&self, n: usize, everyone: bool) -> Result<Option<Gathered>, RunError> {
        if self.run.has_failed() || self.steps == 0 {
            return Err(RunError::Order { message: "there are no results".into() });
        }
        let (Some(ty), Some(info)) = (self.output_type(n), self.plan.entry().results.get(n)) else {
            return Err(RunError::Input { message: format!("there is no result {n}") });
        };
        self.gather(ty, &info.name, Which::Output(n), everyone)
    }

    /// Every result of the last step, global, and where ranks differ that should hold the same. In processes without
    /// rank 0 there are none, but they have to ask too.
    ///
    /// # Errors
    /// As [`Session::output`].
    pub fn outputs(&self) -> Result<(Vec<Tensor>, Vec<Divergence>), RunError> {
        let (mut outputs, mut divergences) = (Vec::new(), Vec::new());
        for n in 0..self.plan.entry().results.len() {
            if let Some((t, d)) = self.result(n, false)? {
                outputs.push(t);
                divergences.extend(d);
            }
        }
        Ok((outputs, divergences))
    }

    /// Result and parameter of everything that carries over to the next step.
    pub fn carried(&self) -> &[(usize, usize)] {
        &self.pairs
    }

    /// The value that an input has in the next step, global, in every process: what was set, or the result that
    /// replaces it.
    ///
    /// # Errors
    /// As [`Session::output`]; [`RunError::Input`] if it was never set.
    pub fn input(&self, n: usize) -> Result<Tensor, RunError> {
        let value = self.next_input(n, true)?;
        value.ok_or_else(|| RunError::Order { message: "there are no inputs".into() })
    }

    /// [`Session::input`] in the process of rank 0 only. The others have to ask too.
    ///
    /// # Errors
    /// As [`Session::input`].
    pub fn input_at_root(&self, n: usize) -> Result<Option<Tensor>, RunError> {
        self.next_input(n, false)
    }

    fn next_input(&self, n: usize, everyone: bool) -> Result<Option<Tensor>, RunError> {
        if let Some(Some(value)) = self.pending.get(n) {
            return Ok(Some(value.clone()));
        }
        if let Some(&(result, _)) = self.pairs.iter().find(|(_, p)| *p == n)
            && self.steps > 0
        {
            return Ok(self.result(result, everyone)?.map(|(t, _)| t));
        }
        let (Some(ty), Some(true)) = (self.input_type(n), self.given.get(n)) else {
            return Err(RunError::Input { message: format!("there is no input {n}, or it is not set") });
        };
        let info = &self.plan.entry().params[n];
        let gathered = self.gather(ty, &info.name, Which::Input(n), everyone)?;
        Ok(gathered.map(|(t, _)| t))
    }

    /// The number that the process of rank 0 gives, in every process: what a run does next must not differ.
    ///
    /// # Errors
    /// What happens to other processes.
    pub fn agree(&self, number: usize) -> Result<usize, RunError> {
        let mut bytes = (number as u64).to_le_bytes();
        self.together("agree", |c| c.broadcast(0, &mut bytes))?;
        Ok(u64::from_le_bytes(bytes) as usize)
    }

    /// Does something with the other processes, if there are any.
    fn together<T>(
        &self,
        what: &str,
        f: impl FnOnce(&dyn Communicator) -> Result<T, CommError>,
    ) -> Result<Option<T>, RunError> {
        let (Some(c), Some(rank)) = (&self.between, self.run.ranks.first()) else { return Ok(None) };
        f(&**c).map(Some).map_err(|e| self.run.fail_between(rank.rank, what, e))
    }

    /// Copies each rank's part of an input to its place.
    ///
    /// # Safety
    /// No thread of the ranks is in a step.
    unsafe fn cut(&self, n: usize, elements: &[u8]) {
        let which = Which::Input(n);
        for rank in &self.run.ranks {
            let Some(part) = self.plan.laid(which, rank.rank).part(rank.rank) else { continue };
            // SAFETY: passed on.
            let local = unsafe { rank.write(self.plan.buffer(which, rank.program())) };
            part.block.cut(elements, &mut local[part.bytes]);
        }
    }

    fn gather(
        &self,
        ty: TensorType,
        name: &str,
        which: Which,
        everyone: bool,
    ) -> Result<Option<Gathered>, RunError> {
        let wanted = Wanted { plan: &self.plan, ty, name, which };
        let ranks = &self.run.ranks;
        if self.between.is_none() {
            // SAFETY: the threads wait for the next step.
            return Ok(Some(unsafe { wanted.here(ranks) }));
        }
        let what = format!("gather {name}");
        // SAFETY: as above.
        let gathered = self.together(&what, |c| unsafe { wanted.together(&ranks[0], c, everyone) })?;
        Ok(gathered.flatten())
    }
}

/// Fills the constants of buffers that the plan holds as one element.
fn splats(plan: &Plan) -> Result<Splats, RunError> {
    let mut splats = Splats::new();
    for b in plan.programs.iter().flat_map(|p| &p.buffers) {
        let Placement::Constant(id) = b.placement else { continue };
        let Some(std::borrow::Cow::Owned(bytes)) = plan.constant(id) else { continue };
        if splats.contains_key(&id) {
            continue;
        }
        let size = bytes.len() as u64;
        let memory = Arena::new(size).ok_or(RunError::Memory { rank: 0, bytes: size })?;
        // SAFETY: just allocated, of this size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.at(0, bytes.len()), bytes.len()) };
        splats.insert(id, memory);
    }
    Ok(splats)
}

impl Drop for Session {
    /// Ends the threads. One that hangs in a kernel is left to itself; it keeps what it uses alive.
    fn drop(&mut self) {
        let all_idle = self.run.stop();
        for t in self.threads.drain(..) {
            if all_idle || t.is_finished() {
                // A thread's panics have been caught and told.
                let _ = t.join();
            }
        }
    }
}
