//! `msc run --comm processes`: a process for each rank.
//!
//! Every process is this program again with the same arguments and its rank in the environment. This one waits for
//! them, hands signals on, sees how a process dies, ends all others then, and prints the one message.

use super::RunOptions;
use super::launch::{JOB, RANK, RANKS};
use crate::error::{Error, Result};
use msc_runtime::comm::Life;
use msc_runtime::comm::board::Failure;
use msc_runtime::comm::shm::Job;
use msc_runtime::cpu::{TileKernels, default_cache};
use msc_runtime::exec::{RunError, died};
use msc_runtime::plan::Plan;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often processes are looked after.
const LOOK: Duration = Duration::from_millis(5);

/// How long processes have to end by themselves once the run has failed; one that is stopped
/// cannot and has none.
const GRACE: Duration = Duration::from_secs(2);

/// The processes; dropped, those that still run are killed.
struct Children(Vec<(Child, Option<ExitStatus>)>);

impl Children {
    /// Kills some of those that run.
    fn kill(&mut self, which: impl Fn(usize) -> bool) {
        for (rank, (child, ended)) in self.0.iter_mut().enumerate() {
            if ended.is_none() && which(rank) {
                // One that has just ended is none to kill.
                let _ = child.kill();
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill(|_| true);
        for (child, _) in self.0.iter_mut().filter(|(_, ended)| ended.is_none()) {
            let _ = child.wait();
        }
    }
}

/// Starts a process for each rank of the plan and waits for them.
///
/// # Errors
/// What the first rank that fails says; how a process died.
pub(super) fn start(options: &RunOptions, plan: &Plan) -> Result<()> {
    // Compiled once: the ranks find the code in the cache.
    TileKernels::compile(&plan.kernels, default_cache().as_deref()).map_err(Error::Kernel)?;
    let ranks = plan.mesh().ranks();
    let job = Job::new(ranks)?;
    let board = job.board().clone();
    let mut children = Children(Vec::new());
    for rank in 0..ranks {
        let child = spawn(&job.name(), rank, ranks)
            .map_err(|e| RunError::Start { rank, message: format!("its process does not start: {e}") })?;
        children.0.push((child, None));
    }
    let mut failed_at: Option<Instant> = None;
    let mut handed_on = false;
    while children.0.iter().any(|(_, ended)| ended.is_none()) {
        for (rank, (child, ended)) in children.0.iter_mut().enumerate() {
            if ended.is_some() {
                continue;
            }
            let Ok(Some(status)) = child.try_wait() else { continue };
            *ended = Some(status);
            // A rank that fails says so before its process ends; this one could not.
            if !status.success() && board.claim() {
                let error = died(plan, &board, rank, how(child.id(), status));
                board.tell(&Failure { teller: None, status: error.status(), text: error.to_string() });
                job.abort();
            }
        }
        let signal = options.interrupt.load(Ordering::Relaxed);
        // Rank 0 decides for all of them, as long as it runs.
        if signal != 0
            && !std::mem::replace(&mut handed_on, true)
            && let Some((child, None)) = children.0.first()
        {
            // SAFETY: a signal to a child that was not waited for, so the number is its own.
            unsafe { libc::kill(child.id() as libc::pid_t, signal as libc::c_int) };
        }
        if board.has_failed() {
            let late = failed_at.get_or_insert_with(Instant::now).elapsed() > GRACE;
            children.kill(|rank| late || board.life(rank) == Life::Stopped);
        }
        std::thread::sleep(LOOK);
    }
    match board.failure() {
        Some(Failure { text, status, .. }) => Err(RunError::Elsewhere { text, status }.into()),
        None if board.has_failed() => {
            let text = "MSC-N0002: a rank failed and died before it said why".to_string();
            Err(RunError::Elsewhere { text, status: 1 }.into())
        }
        None => Ok(()),
    }
}

fn spawn(job: &str, rank: usize, ranks: usize) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command.env(JOB, job).env(RANK, rank.to_string()).env(RANKS, ranks.to_string());
    command.stdin(Stdio::null());
    if rank != 0 {
        command.stdout(Stdio::null());
    }
    // A terminal's Ctrl-C comes to this process alone.
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let parent = std::process::id();
        // SAFETY: system calls without memory, allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // If this process is killed, its ranks are too; it may have been before they could ask for that.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match libc::getppid() as u32 == parent {
                    true => Ok(()),
                    false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
                }
            });
        }
    }
    command.spawn()
}

/// How a process ended, in words.
fn how(pid: u32, status: ExitStatus) -> String {
    let name = |signal: i32| match signal {
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        _ => "",
    };
    match (status.signal(), status.code()) {
        (Some(s), _) => format!("its process {pid} was killed by signal {s}{}", name(s)),
        (None, Some(code)) => format!("its process {pid} ended with status {code} and did not say why"),
        (None, None) => format!("its process {pid} ended"),
    }
}
