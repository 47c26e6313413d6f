//! A process that is one rank, or all of them, or starts them.

use super::launch::{Launch, OURSELVES, Seat, decide};
use super::{RunOptions, check_options, parent, run_in, threads};
use crate::error::{Error, Result};
use msc_runtime::comm::World;
use msc_runtime::comm::board::Failure;
use msc_runtime::comm::mpi::MpiWorld;
use msc_runtime::comm::shm::ShmWorld;
use msc_runtime::plan::Plan;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// `msc run`: runs all ranks, or starts a process for each, or runs the rank that a launcher gave this process.
///
/// # Errors
/// As [`super::run`]. Of all processes of a run only one has an error with a text; that of the others is [`Error::Told`].
pub fn train(options: &RunOptions, out: &mut dyn Write) -> Result<()> {
    quiet_ranks();
    check_options(options)?;
    let plan = Arc::new(Plan::open(&options.plan)?);
    match decide(options.comm, &|name| std::env::var(name).ok())? {
        Launch::Threads => threads(options, plan, out),
        Launch::Start => parent::start(options, &plan),
        Launch::Rank(seat) => {
            fits(options, &plan, seat.ranks, seat.by)?;
            let Seat { rank, ranks, job, by } = seat;
            let timeout = Duration::from_secs(options.comm_timeout);
            let world = ShmWorld::join(&job, rank, ranks, timeout)?;
            one(options, plan, Arc::new(world), by == OURSELVES, out)
        }
        Launch::Mpi => {
            let world = MpiWorld::start(Duration::from_secs(options.comm_timeout))?;
            // All ranks say the same; one is enough.
            if let Err(e) = fits(options, &plan, world.ranks(), "mpirun") {
                return Err(if world.here() == [0] { e } else { Error::Told { status: e.exit_code() } });
            }
            one(options, plan, Arc::new(world), false, out)
        }
    }
}

/// Panics of ranks are errors of the run, which say where; they are not printed beside,
/// unless `RUST_BACKTRACE=full` asks for it.
fn quiet_ranks() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let of_rank = std::thread::current().name().is_some_and(|n| n.starts_with("rank"));
        if !of_rank || std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v == "full") {
            print(panic);
        }
    }));
}

/// Whether a launcher has started as many processes as the plan has ranks.
fn fits(options: &RunOptions, plan: &Plan, started: usize, by: &str) -> Result<()> {
    let ranks = plan.mesh().ranks();
    if ranks == started {
        return Ok(());
    }
    let plan = options.plan.display();
    Err(Error::Usage(format!(
        "{plan} has {ranks} ranks, {by} started {started} processes\n  help: start as many as the plan has ranks"
    )))
}

/// Runs the rank of this process. Who started us prints the failure, if that is `msc run`; else the rank does that
/// failed first.
fn one(
    options: &RunOptions,
    plan: Arc<Plan>,
    world: Arc<dyn World>,
    has_parent: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let rank = world.here().first().copied().unwrap_or(0);
    let mut nowhere = std::io::sink();
    let out: &mut dyn Write = if rank == 0 { out } else { &mut nowhere };
    let options = RunOptions { progress: options.progress && rank == 0, ..options.clone() };
    let board = Arc::clone(world.board());
    let error = match run_in(&options, plan, Arc::clone(&world), out) {
        Ok(()) => {
            world.end();
            return Ok(());
        }
        Err(e) => e,
    };
    if board.claim() {
        board.tell(&Failure { teller: Some(rank), status: error.exit_code(), text: error.to_string() });
    }
    world.abort();
    match board.failure_when_said() {
        Some(told) if has_parent || told.teller != Some(rank) => Err(Error::Told { status: told.status }),
        _ => Err(error),
    }
}
