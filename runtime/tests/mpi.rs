//! The MPI back end under `mpirun`: this very program, started as several ranks.

use msc_runtime::comm::World;
use msc_runtime::comm::conformance::check_rank;
use msc_runtime::comm::mpi::MpiWorld;
use std::process::Command;
use std::time::Duration;

/// Sizes for the ranks.
const SIZES: &str = "MSC_TEST_SIZES";

/// Runs [`rank`] as several processes.
fn conform(ranks: usize, sizes: &str) {
    let this = std::env::current_exe().expect("a path");
    let o = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()])
        .arg(this)
        .args(["--exact", "rank", "--ignored"])
        .env(SIZES, sizes)
        .output()
        .expect("mpirun is installed: make setup");
    let text = String::from_utf8_lossy(&o.stdout);
    assert!(o.status.success(), "{ranks} ranks: {text}{}", String::from_utf8_lossy(&o.stderr));
    assert_eq!(text.matches("1 passed").count(), ranks, "{text}");
}

/// One rank of as many as the launcher started; alone, one of one.
#[test]
#[ignore = "started by the tests below"]
fn rank() {
    let sizes = std::env::var(SIZES).unwrap_or_else(|_| "0,1,7,1031".into());
    let sizes: Vec<usize> = sizes.split(',').map(|s| s.parse().expect("a number")).collect();
    let world = MpiWorld::start(Duration::from_secs(120)).expect("MPI is installed: make setup");
    assert_eq!(check_rank(&world, world.here()[0], &sizes), Ok(()));
    world.end();
}

#[test]
fn conforms() {
    conform(2, "0,1,7,1031,70001");
    conform(3, "0,5");
}

#[test]
#[ignore = "takes minutes"]
fn conforms_for_1_to_16_ranks_up_to_64_mb() {
    for ranks in 1..=16 {
        conform(ranks, "0,1,7,333");
    }
    conform(4, "65537,4194304");
    conform(2, "16777216");
}
