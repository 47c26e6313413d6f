//! Which ranks a process runs: all of them, those that it starts, or the one that a launcher gave it.

use crate::error::{Error, Result};
use std::str::FromStr;

/// How ranks come to be and meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Comm {
    /// As the launcher's environment says; without one, threads.
    #[default]
    Auto,
    /// All ranks are threads of this process.
    Threads,
    /// Each rank is a process of this machine. Without a launcher, this one starts them.
    Processes,
    /// Each rank is a process that `mpirun` or `srun` started.
    Mpi,
}

impl FromStr for Comm {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Comm, String> {
        Ok(match name {
            "auto" => Comm::Auto,
            "threads" => Comm::Threads,
            "processes" => Comm::Processes,
            "mpi" => Comm::Mpi,
            _ => return Err("back ends are: auto, threads, processes, mpi".into()),
        })
    }
}

/// What this process is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Launch {
    /// Run all ranks.
    Threads,
    /// Start a process for each rank.
    Start,
    /// Be one rank.
    Rank(Seat),
    /// Be one rank; MPI knows which.
    Mpi,
}

/// The rank that a process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seat {
    pub rank: usize,
    pub ranks: usize,
    /// The job whose processes meet.
    pub job: String,
    /// Who started it.
    pub by: &'static str,
}

/// Environment of the processes that `msc run` starts.
pub(super) const JOB: &str = "MSC_JOB";
pub(super) const RANK: &str = "MSC_RANK";
pub(super) const RANKS: &str = "MSC_RANKS";

/// Who started the processes that `msc run` starts.
pub(super) const OURSELVES: &str = "msc run";

/// Reads the environment.
///
/// # Errors
/// A launcher that contradicts itself, or processes of several machines without MPI.
pub(super) fn decide(comm: Comm, var: &dyn Fn(&str) -> Option<String>) -> Result<Launch> {
    if let Some(job) = var(JOB) {
        let (rank, ranks) = (number(var, RANK)?, number(var, RANKS)?);
        return Ok(Launch::Rank(Seat { rank, ranks, job, by: OURSELVES }));
    }
    Ok(match comm {
        Comm::Threads => Launch::Threads,
        Comm::Mpi => Launch::Mpi,
        Comm::Processes => seat(var)?.map_or(Launch::Start, Launch::Rank),
        Comm::Auto if is_mpi(var) => Launch::Mpi,
        Comm::Auto => seat(var)?.map_or(Launch::Threads, Launch::Rank),
    })
}

/// Whether `mpirun` started this process, or `srun` with support for MPI. One process alone runs all ranks.
fn is_mpi(var: &dyn Fn(&str) -> Option<String>) -> bool {
    let many = |name: &str| var(name).and_then(|v| v.parse::<usize>().ok()).is_some_and(|n| n > 1);
    let step = || many("SLURM_STEP_NUM_TASKS") || many("SLURM_NTASKS");
    many("OMPI_COMM_WORLD_SIZE") || (var("PMIX_RANK").is_some() && step())
}

/// The rank that torchrun or Slurm gave this process.
fn seat(var: &dyn Fn(&str) -> Option<String>) -> Result<Option<Seat>> {
    let or_none = |name: &str| var(name).unwrap_or_default();
    if var("RANK").is_some() && var("WORLD_SIZE").is_some() {
        let (rank, ranks) = (number(var, "RANK")?, number(var, "WORLD_SIZE")?);
        if ranks == 1 {
            return Ok(None);
        }
        if var("LOCAL_WORLD_SIZE").is_some() {
            one_machine("LOCAL_WORLD_SIZE", number(var, "LOCAL_WORLD_SIZE")?, "WORLD_SIZE", ranks)?;
        }
        let parts = ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"];
        let job = format!("torchrun {}", parts.map(or_none).join(" "));
        return Ok(Some(Seat { rank, ranks, job, by: "torchrun" }));
    }
    // A batch script has SLURM_PROCID too, but is no step of a number.
    let is_step = var("SLURM_STEP_ID").and_then(|s| s.parse::<u32>().ok()).is_some_and(|s| s < 0xffff_fff0);
    if is_step && var("SLURM_PROCID").is_some() {
        let total = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"].into_iter().find(|v| var(v).is_some());
        let Some(total) = total else { return Ok(None) };
        let (rank, ranks) = (number(var, "SLURM_PROCID")?, number(var, total)?);
        if ranks == 1 {
            return Ok(None);
        }
        let nodes = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"].into_iter().find(|v| var(v).is_some());
        if let Some(nodes) = nodes {
            one_machine(nodes, number(var, nodes)?, "one machine", 1)?;
        }
        let job = format!("slurm {} {}", or_none("SLURM_JOB_ID"), or_none("SLURM_STEP_ID"));
        return Ok(Some(Seat { rank, ranks, job, by: "srun" }));
    }
    Ok(None)
}

fn one_machine(name: &str, got: usize, other: &str, wanted: usize) -> Result<()> {
    if got == wanted {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{name} is {got}, not {wanted} ({other}): processes of several machines meet through MPI only\n  help: start \
         them with mpirun, or with srun --mpi=pmix"
    )))
}

fn number(var: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<usize> {
    let value = var(name).unwrap_or_default();
    value
        .parse()
        .map_err(|_| Error::Usage(format!("the environment's {name} is `{value}`, which is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(comm: Comm, env: &[(&str, &str)]) -> Result<Launch> {
        decide(comm, &|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    fn rank(env: &[(&str, &str)]) -> Seat {
        match decided(Comm::Auto, env) {
            Ok(Launch::Rank(seat)) => seat,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_launcher_ranks_are_as_asked() {
        assert_eq!(decided(Comm::Auto, &[]).expect("fine"), Launch::Threads);
        assert_eq!(decided(Comm::Threads, &[]).expect("fine"), Launch::Threads);
        assert_eq!(decided(Comm::Processes, &[]).expect("fine"), Launch::Start);
        assert_eq!(decided(Comm::Mpi, &[]).expect("fine"), Launch::Mpi);
    }

    #[test]
    fn launchers_are_recognised() {
        let mpirun = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "1")];
        assert_eq!(decided(Comm::Auto, &mpirun).expect("fine"), Launch::Mpi);
        assert_eq!(decided(Comm::Threads, &mpirun).expect("fine"), Launch::Threads);
        assert_eq!(decided(Comm::Auto, &[("OMPI_COMM_WORLD_SIZE", "1")]).expect("fine"), Launch::Threads);

        let torch =
            [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")];
        let seat = rank(&torch);
        assert_eq!((seat.rank, seat.ranks, seat.by), (3, 4, "torchrun"));
        let other = rank(&[&torch[..3], &[("MASTER_PORT", "29501")]].concat());
        assert_ne!(seat.job, other.job, "another port, another job");
        let many = decided(Comm::Auto, &[&torch[..], &[("LOCAL_WORLD_SIZE", "2")]].concat());
        assert!(many.expect_err("two machines").to_string().contains("mpirun"));
        let wrong = decided(Comm::Auto, &[("RANK", "x"), ("WORLD_SIZE", "4")]);
        assert!(wrong.expect_err("no number").to_string().contains("RANK is `x`"));

        let srun = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_NNODES", "1"),
        ];
        let seat = rank(&srun);
        assert_eq!((seat.rank, seat.ranks, seat.by, seat.job.as_str()), (1, 2, "srun", "slurm 77 0"));
        assert_eq!(
            decided(Comm::Auto, &[&srun[..], &[("PMIX_RANK", "1")]].concat()).expect("fine"),
            Launch::Mpi
        );
        assert!(decided(Comm::Auto, &[&srun[..4], &[("SLURM_NNODES", "2")]].concat()).is_err());
        // The batch script itself.
        assert_eq!(decided(Comm::Auto, &srun[..2]).expect("fine"), Launch::Threads);
        assert_eq!(
            decided(Comm::Auto, &[&srun[..2], &[("SLURM_STEP_ID", "4294967291")]].concat()).expect("fine"),
            Launch::Threads
        );

        let ours = [(JOB, "msc-1"), (RANK, "0"), (RANKS, "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(rank(&ours).by, OURSELVES);
    }
}
