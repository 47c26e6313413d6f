//! Sessions: ranks that are ready to step.

use super::arena::Arena;
use super::carry::{self, Carry};
use super::error::RunError;
use super::kernel::KernelLauncher;
use super::rank::{Rank, Splats};
use super::worker::{Run, work};
use crate::comm::World;
use crate::comm::local::LocalWorld;
use crate::layout::{Block, global_type};
use crate::plan::Plan;
use msc_ir::module::Sharding;
use msc_ir::program::{BufferId, Placement};
use msc_ir::{Storage, Tensor, TensorType};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a session runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// How long a collective waits for ranks that do not come.
    pub comm_timeout: Duration,
    /// Results that become parameters of the next step, beside those that the plan says are donated:
    /// (result, parameter).
    pub carry: Vec<(usize, usize)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { comm_timeout: Duration::from_secs(60), carry: Vec::new() }
    }
}

/// A step that has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepReport {
    /// Its number, from 0.
    pub step: usize,
    /// How long it took.
    pub duration: Duration,
}

/// A result of which two ranks should hold the same block, and do not: a bug in the plan or a back end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Name of the result.
    pub name: String,
    /// The two ranks.
    pub ranks: (usize, usize),
    /// The first element of the block, row-major, that differs.
    pub element: usize,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Divergence { name, ranks: (a, b), element } = self;
        write!(f, "MSC-R0102: ranks {a} and {b} differ in {name}, element {element} of their common block")
    }
}

/// Ranks with their memory and threads. After an error a session is of no further use.
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
    failed: bool,
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
        Session::in_world(plan, kernels, options, Box::new(world))
    }

    fn in_world(
        plan: Arc<Plan>,
        kernels: Arc<dyn KernelLauncher>,
        options: &Options,
        world: Box<dyn World>,
    ) -> Result<Session, RunError> {
        let pairs = carry::pairs(&plan, &options.carry)?;
        let splats = Arc::new(splats(&plan)?);
        let mut ranks = Vec::new();
        for rank in 0..world.ranks() {
            ranks.push(Rank::new(&plan, rank, &*world, &splats)?);
        }
        let carries = ranks.iter().map(|r| Carry::new(r.program(), &pairs)).collect();
        let run = Arc::new(Run::new(ranks, world, kernels));
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
            failed: false,
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

    /// Steps run.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The global type of an input.
    pub fn input_type(&self, n: usize) -> Option<TensorType> {
        let p = &self.plan.programs[0];
        let info = p.entry.params.get(n)?;
        Some(global_type(&p.buffer(p.inputs[n]).ty, &info.sharding, self.plan.mesh()))
    }

    /// The global type of a result.
    pub fn output_type(&self, n: usize) -> Option<TensorType> {
        let p = &self.plan.programs[0];
        let info = p.entry.results.get(n)?;
        Some(global_type(&p.buffer(p.outputs[n]).ty, &info.sharding, self.plan.mesh()))
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
        if self.steps > 0 || self.failed {
            return Err(RunError::Order { message: "inputs are loaded before the first step".into() });
        }
        let refuse = |message: String| Err(RunError::Input { message });
        let Some(want) = self.input_type(n) else { return refuse(format!("there is no input {n}")) };
        if *ty != want || elements.len() != want.bytes() {
            let name = &self.plan.entry().params[n].name;
            return refuse(format!("input {n} ({name}) is {ty}, should be {want}"));
        }
        let sharding = &self.plan.entry().params[n].sharding;
        for rank in &self.run.ranks {
            let buffer = rank.program().inputs[n];
            // SAFETY: the threads wait for the first step.
            let local = unsafe { rank.write(buffer) };
            self.block(rank, buffer, sharding).cut(elements, local);
        }
        self.given[n] = true;
        self.pending[n] = None;
        Ok(())
    }

    /// Runs a step.
    ///
    /// # Errors
    /// [`RunError::Input`] if an input was never set; whatever fails on a rank.
    pub fn step(&mut self) -> Result<StepReport, RunError> {
        if self.failed {
            return Err(RunError::Order { message: "the session has failed before".into() });
        }
        if let Some(n) = self.given.iter().position(|g| !g) {
            let name = &self.plan.entry().params[n].name;
            return Err(RunError::Input { message: format!("input {n} ({name}) is not set") });
        }
        let begun = Instant::now();
        if self.steps > 0 {
            for (carry, rank) in self.carries.iter_mut().zip(&self.run.ranks) {
                // SAFETY: the threads wait for the next step.
                unsafe { carry.run(rank) };
            }
        }
        for n in 0..self.pending.len() {
            let Some(value) = self.pending[n].take() else { continue };
            let sharding = &self.plan.entry().params[n].sharding;
            for rank in &self.run.ranks {
                let buffer = rank.program().inputs[n];
                // SAFETY: as above.
                let local = unsafe { rank.write(buffer) };
                self.block(rank, buffer, sharding).cut(value.data.bytes(), local);
            }
        }
        let result = self.run.step(self.threads.len());
        if let Err(e) = result {
            self.failed = true;
            return Err(e);
        }
        self.steps += 1;
        Ok(StepReport { step: self.steps - 1, duration: begun.elapsed() })
    }

    /// A result of the last step, global; and, if ranks that should hold the same block do not, where.
    ///
    /// # Errors
    /// [`RunError::Order`] before the first step and after a failure; [`RunError::Input`] if there is none of
    /// this number.
    pub fn output(&self, n: usize) -> Result<(Tensor, Option<Divergence>), RunError> {
        if self.failed || self.steps == 0 {
            return Err(RunError::Order { message: "there are no results".into() });
        }
        let (Some(ty), Some(info)) = (self.output_type(n), self.plan.entry().results.get(n)) else {
            return Err(RunError::Input { message: format!("there is no result {n}") });
        };
        Ok(self.gather(&ty, &info.name, &info.sharding, |r| r.program().outputs[n]))
    }

    /// Every result of the last step, global, and where ranks differ that should hold the same.
    ///
    /// # Errors
    /// As [`Session::output`].
    pub fn outputs(&self) -> Result<(Vec<Tensor>, Vec<Divergence>), RunError> {
        let (mut outputs, mut divergences) = (Vec::new(), Vec::new());
        for n in 0..self.plan.entry().results.len() {
            let (t, d) = self.output(n)?;
            outputs.push(t);
            divergences.extend(d);
        }
        Ok((outputs, divergences))
    }

    /// Result and parameter of everything that carries over to the next step.
    pub fn carried(&self) -> &[(usize, usize)] {
        &self.pairs
    }

    /// The value that an input has in the next step, global: what was set, or the result that replaces it.
    ///
    /// # Errors
    /// As [`Session::output`]; [`RunError::Input`] if it was never set.
    pub fn input(&self, n: usize) -> Result<Tensor, RunError> {
        if let Some(Some(value)) = self.pending.get(n) {
            return Ok(value.clone());
        }
        if let Some(&(result, _)) = self.pairs.iter().find(|(_, p)| *p == n)
            && self.steps > 0
        {
            return Ok(self.output(result)?.0);
        }
        let (Some(ty), Some(true)) = (self.input_type(n), self.given.get(n)) else {
            return Err(RunError::Input { message: format!("there is no input {n}, or it is not set") });
        };
        let info = &self.plan.entry().params[n];
        Ok(self.gather(&ty, &info.name, &info.sharding, |r| r.program().inputs[n]).0)
    }

    fn block(&self, rank: &Rank, buffer: BufferId, sharding: &Sharding) -> Block {
        Block::of_rank(&rank.program().buffer(buffer).ty, sharding, self.plan.mesh(), rank.rank)
    }

    fn gather(
        &self,
        ty: &TensorType,
        name: &str,
        sharding: &Sharding,
        buffer: impl Fn(&Rank) -> BufferId,
    ) -> (Tensor, Option<Divergence>) {
        let mut global = vec![0u8; ty.bytes()];
        let mut owners: Vec<(msc_ir::Shape, usize)> = Vec::new();
        let mut divergence = None;
        for rank in &self.run.ranks {
            let local = &rank.program().buffer(buffer(rank)).ty;
            let start = crate::layout::block_start(local, sharding, self.plan.mesh(), rank.rank);
            let block = self.block(rank, buffer(rank), sharding);
            // SAFETY: the threads wait for the next step.
            let bytes = unsafe { rank.read(buffer(rank)) };
            match owners.iter().find(|(s, _)| *s == start) {
                None => {
                    block.paste(bytes, &mut global);
                    owners.push((start, rank.rank));
                }
                Some(&(_, owner)) if divergence.is_none() => {
                    divergence = block.first_difference(bytes, &global).map(|element| Divergence {
                        name: name.to_string(),
                        ranks: (owner, rank.rank),
                        element,
                    });
                }
                Some(_) => {}
            }
        }
        (Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, &global)), divergence)
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
