//! The executor: runs a plan's programs on the ranks of this process, all of the plan's or one of them.
//!
//! Every rank has one arena, allocated before the first step, and one thread for each stream of its program;
//! collectives are on communication streams, so they progress on threads that never run a kernel. A thread walks
//! the instructions of its stream in order; a `wait` blocks until its instruction is complete. Nothing else
//! orders threads: two instructions overlap exactly where the plan allows it, and the plan's check has shown that
//! such instructions touch different bytes.
//!
//! [`Session`] is the interface: inputs in, steps, outputs out; [`run`] drives it. Donated state stays on the
//! ranks from step to step.
//!
//! A rank that fails, panics, dies or does not come to a collective makes every other stop; one [`RunError`] says
//! where, found by [`culprit`] on the board that all ranks write on. [`fault`] makes ranks fail in tests.

mod arena;
mod carry;
mod communicate;
mod culprit;
mod error;
pub mod fault;
mod gather;
mod instruction;
mod kernel;
mod options;
mod place;
mod rank;
mod session;
mod worker;

pub use culprit::died;
pub use error::RunError;
pub use kernel::{KernelArg, KernelLauncher, LaunchContext, NoKernels};
pub use options::{Divergence, Options, StepReport};
pub use place::Place;
pub use session::Session;

use crate::plan::Plan;
use msc_ir::Tensor;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a run leaves.
#[derive(Debug)]
pub struct Outcome {
    /// The results of the last step, global, in order.
    pub outputs: Vec<Tensor>,
    /// Steps run.
    pub steps: usize,
    /// Results that ranks should have in common and have not.
    pub divergences: Vec<Divergence>,
}

/// Runs `steps` steps from `inputs`, global and in order. `on_step` sees every step as it ends: it can read
/// outputs, set inputs for the next step, and end the run.
///
/// # Errors
/// See [`RunError`].
pub fn run(
    plan: Arc<Plan>,
    kernels: Arc<dyn KernelLauncher>,
    inputs: Vec<Tensor>,
    steps: usize,
    options: &Options,
    on_step: &mut dyn FnMut(&mut Session, &StepReport) -> ControlFlow<()>,
) -> Result<Outcome, RunError> {
    let mut session = Session::new(plan, kernels, options)?;
    let expected = session.plan().entry().params.len();
    if inputs.len() != expected {
        let message = format!("the step takes {expected} inputs, {} are given", inputs.len());
        return Err(RunError::Input { message });
    }
    for (n, t) in inputs.into_iter().enumerate() {
        session.set_input(n, t)?;
    }
    for _ in 0..steps {
        let report = session.step()?;
        if on_step(&mut session, &report).is_break() {
            break;
        }
    }
    let (outputs, divergences) = match session.steps() {
        0 => (Vec::new(), Vec::new()),
        _ => session.outputs()?,
    };
    Ok(Outcome { outputs, steps: session.steps(), divergences })
}
