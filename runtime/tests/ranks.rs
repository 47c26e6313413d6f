//! Conformance of ranks that are processes: this very program, started several times, over shared memory and by
//! `mpirun`.

use msc_runtime::comm::World;
use msc_runtime::comm::conformance::check_rank;
use msc_runtime::comm::mpi::MpiWorld;
use msc_runtime::comm::shm::{Job, ShmWorld};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// For the ranks: sizes, and over shared memory the job, the rank and how many there are.
const SIZES: &str = "MSC_TEST_SIZES";
const JOB: &str = "MSC_TEST_JOB";

const TIMEOUT: Duration = Duration::from_secs(120);

/// This program as [`rank`].
fn this(mut before: Command, sizes: &str) -> Command {
    before
        .args(["--exact", "rank", "--ignored"])
        .env(SIZES, sizes)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    before
}

fn passed(o: &Output, ranks: usize, what: &str) {
    let text = String::from_utf8_lossy(&o.stdout);
    assert!(o.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&o.stderr));
    assert_eq!(text.matches("1 passed").count(), ranks, "{what}: {text}");
}

fn mpi(ranks: usize, sizes: &str) {
    let mut c = Command::new("mpirun");
    c.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    c.arg(std::env::current_exe().expect("a path"));
    let o = this(c, sizes).output().expect("mpirun is installed: make setup");
    passed(&o, ranks, &format!("{ranks} ranks of mpirun"));
}

fn shm(ranks: usize, sizes: &str) {
    let job = Job::new(ranks).expect("shared memory");
    let start = |rank: usize| {
        let c = Command::new(std::env::current_exe().expect("a path"));
        let seat = format!("{} {rank} {ranks}", job.name());
        this(c, sizes).env(JOB, seat).spawn().expect("starts")
    };
    let children: Vec<_> = (0..ranks).map(start).collect();
    for (rank, c) in children.into_iter().enumerate() {
        passed(&c.wait_with_output().expect("ends"), 1, &format!("rank {rank} of {ranks}"));
    }
}

/// One rank, as the environment says; alone, one of one.
#[test]
#[ignore = "started by the tests below"]
fn rank() {
    let sizes = std::env::var(SIZES).unwrap_or_else(|_| "0,1,7,1031".into());
    let sizes: Vec<usize> = sizes.split(',').map(|s| s.parse().expect("a number")).collect();
    let world: Box<dyn World> = match std::env::var(JOB) {
        Ok(seat) => {
            let parts: Vec<&str> = seat.split(' ').collect();
            let number = |n: usize| parts[n].parse().expect("a number");
            Box::new(ShmWorld::join(parts[0], number(1), number(2), TIMEOUT).expect("joins"))
        }
        Err(_) => Box::new(MpiWorld::start(TIMEOUT).expect("MPI is installed: make setup")),
    };
    assert_eq!(check_rank(&*world, world.here()[0], &sizes), Ok(()));
    world.end();
}

#[test]
fn conforms_over_shared_memory() {
    shm(3, "0,1,7,1031");
    shm(2, "70001");
}

#[test]
fn conforms_over_mpi() {
    mpi(3, "0,1,7,1031");
    mpi(2, "70001");
}

#[test]
#[ignore = "takes minutes"]
fn conforms_for_1_to_16_ranks_up_to_64_mb() {
    for conform in [shm, mpi] {
        for ranks in 1..=16 {
            conform(ranks, "0,1,7,333");
        }
        conform(4, "65537,1048576");
        conform(2, "16777216");
    }
}

#[test]
fn a_job_is_joined_once_by_each_of_its_ranks() {
    let job = Job::new(2).expect("shared memory");
    let refused = |rank, ranks| {
        ShmWorld::join(&job.name(), rank, ranks, TIMEOUT).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refused(2, 2).contains("it has 2 ranks"), "{}", refused(2, 2));
    assert!(refused(0, 3).contains("has 2 ranks, not 3"), "{}", refused(0, 3));
    let first = ShmWorld::join(&job.name(), 0, 2, TIMEOUT).expect("joins");
    assert!(refused(0, 2).contains("is its rank 0 already"), "{}", refused(0, 2));
    let second = ShmWorld::join(&job.name(), 1, 2, TIMEOUT).expect("joins");
    assert_eq!((first.here(), second.here()), (vec![0], vec![1]));
}

/// Of a launcher's job a rank died before all had come: its name must not keep the next job of that name out.
#[test]
fn names_of_dead_jobs_are_taken_over() {
    let name = format!("a dead job {}", std::process::id());
    let mut c = Command::new(std::env::current_exe().expect("a path"));
    c.args(["--exact", "dies_before_all_have_come", "--ignored"]).env(JOB, &name);
    assert!(c.output().expect("starts").status.success());
    let join = |rank| ShmWorld::join(&name, rank, 2, TIMEOUT).expect("joins");
    let worlds = [join(1), join(0)];
    std::thread::scope(|s| {
        let ranks = worlds.iter().enumerate().map(|(n, w)| s.spawn(move || check_rank(w, 1 - n, &[3])));
        let results: Vec<_> =
            ranks.collect::<Vec<_>>().into_iter().map(|h| h.join().expect("ends")).collect();
        assert_eq!(results, [Ok(()), Ok(())]);
    });
}

#[test]
#[ignore = "started by a test above"]
fn dies_before_all_have_come() {
    let name = std::env::var(JOB).unwrap_or_else(|_| format!("nobody else's {}", std::process::id()));
    let world = ShmWorld::join(&name, 0, 2, TIMEOUT).expect("joins");
    assert_eq!(world.ranks(), 2);
    // A rank that is killed would not clean up either.
    std::mem::forget(world);
}

/// Who starts the ranks may be killed before they have come: the next run removes what is left.
#[test]
fn names_of_killed_starters_are_removed() {
    let mut c = Command::new(std::env::current_exe().expect("a path"));
    c.args(["--exact", "leaves_a_job", "--ignored", "--nocapture"]);
    let o = c.output().expect("starts");
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    let name = text.split_whitespace().find(|w| w.starts_with("msc-")).expect("a name");
    let path = std::path::Path::new("/dev/shm").join(name);
    let group = std::path::Path::new("/dev/shm")
        .join(text.split_whitespace().find(|w| w.len() > 30).expect("a group"));
    // Tests at the same time may have removed them already; none of them may leave them.
    let job = Job::new(1).expect("shared memory");
    assert!(!path.exists() && !group.exists(), "{name}");
    assert!(std::path::Path::new("/dev/shm").join(job.name()).exists(), "of a living one");
}

#[test]
#[ignore = "started by a test above"]
fn leaves_a_job() {
    let job = Job::new(2).expect("shared memory");
    assert_eq!(job.board().ranks(), 2);
    let world = ShmWorld::join(&job.name(), 0, 2, TIMEOUT).expect("joins");
    std::mem::forget(world.communicator(0, &[0, 1], 0).expect("a group"));
    let prefix = format!("{}-", job.name());
    let names = std::fs::read_dir("/dev/shm").expect("reads").flatten();
    let group = names.map(|e| e.file_name().to_string_lossy().into_owned()).find(|n| n.starts_with(&prefix));
    println!(" {} {} ", job.name(), group.expect("a group"));
    std::mem::forget((job, world));
}
