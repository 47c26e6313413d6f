//! Bandwidth of collectives: our back ends beside MPI's own collectives, in one run.
//!
//! `mpirun -n RANKS bandwidth` prints, for each size of a tensor, how many of its bytes are reduced or gathered a
//! second, and how that compares to MPI's own. Ranks as threads run in the process of rank 0 while the others sleep.

use msc_ir::{DType, Monoid};
use msc_runtime::comm::local::LocalWorld;
use msc_runtime::comm::mpi::MpiWorld;
use msc_runtime::comm::shm::ShmWorld;
use msc_runtime::comm::{BETWEEN, Communicator, World};
use std::error::Error;
use std::time::{Duration, Instant};

/// Bytes of the tensor: of each rank for a sum, of all ranks together for a gather.
const SIZES: [usize; 6] = [1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 26];

/// Bytes moved for one measurement, at least.
const ENOUGH: usize = 128 << 20;

/// Measurements, of which the best counts: others use the machine too.
const TRIES: usize = 5;

const TIMEOUT: Duration = Duration::from_secs(300);

type Failed = Box<dyn Error + Send + Sync>;

/// What is measured: a way to sum and a way to gather.
trait Subject {
    fn sum(&mut self, data: &mut [f32], out: &mut [f32]) -> Result<(), Failed>;
    fn gather(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Failed>;
    fn barrier(&mut self) -> Result<(), Failed>;
}

struct Ours(Box<dyn Communicator>);

impl Subject for Ours {
    fn sum(&mut self, data: &mut [f32], _: &mut [f32]) -> Result<(), Failed> {
        Ok(self.0.all_reduce(bytemuck::cast_slice_mut(data), DType::F32, Monoid::Sum)?)
    }

    fn gather(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Failed> {
        Ok(self.0.all_gather(input, out)?)
    }

    fn barrier(&mut self) -> Result<(), Failed> {
        Ok(self.0.barrier()?)
    }
}

/// MPI's own collectives; ranks begin together by our barrier.
struct Theirs<'a>(&'a MpiWorld, Box<dyn Communicator>);

impl Subject for Theirs<'_> {
    fn sum(&mut self, data: &mut [f32], out: &mut [f32]) -> Result<(), Failed> {
        Ok(self.0.library_all_reduce(data, out)?)
    }

    fn gather(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Failed> {
        Ok(self.0.library_all_gather(input, out)?)
    }

    fn barrier(&mut self) -> Result<(), Failed> {
        Ok(self.1.barrier()?)
    }
}

/// GB/s for each size: sums, gathers.
fn measure(s: &mut dyn Subject, ranks: usize) -> Result<Vec<[f64; 2]>, Failed> {
    let mut rates = Vec::new();
    for bytes in SIZES {
        let rounds = (ENOUGH / bytes).clamp(2, 1000);
        let mut data = vec![1.0f32; bytes / 4];
        let mut out = vec![0.0f32; bytes / 4];
        let part = vec![1u8; bytes / ranks];
        let mut whole = vec![0u8; part.len() * ranks];
        let mut best = [0f64; 2];
        for _ in 0..TRIES {
            for (kind, best) in best.iter_mut().enumerate() {
                s.barrier()?;
                let begun = Instant::now();
                for _ in 0..rounds {
                    match kind {
                        0 => s.sum(&mut data, &mut out)?,
                        _ => s.gather(&part, &mut whole)?,
                    }
                }
                let seconds = begun.elapsed().as_secs_f64();
                *best = best.max((rounds * bytes) as f64 / seconds / 1e9);
                // Sums grow by the number of ranks each time.
                data.fill(1.0);
            }
        }
        rates.push(best);
    }
    Ok(rates)
}

fn threads(ranks: usize) -> Result<Vec<[f64; 2]>, Failed> {
    let world = LocalWorld::new(ranks, TIMEOUT);
    let all: Vec<usize> = (0..ranks).collect();
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for rank in 0..ranks {
            let (world, all) = (world.clone(), all.clone());
            handles.push(scope.spawn(move || -> Result<_, Failed> {
                measure(&mut Ours(world.communicator(rank, &all, 0)?), ranks)
            }));
        }
        let mut rates = Err("no rank".into());
        for h in handles.into_iter().rev() {
            rates = h.join().map_err(|_| Failed::from("a rank panicked"))?;
        }
        rates
    })
}

fn main() -> Result<(), Failed> {
    let mpi = MpiWorld::start(TIMEOUT)?;
    let (rank, ranks) = (mpi.here()[0], mpi.ranks());
    let all: Vec<usize> = (0..ranks).collect();
    // All processes have the same parent: mpirun.
    let job = format!("bandwidth {}", std::os::unix::process::parent_id());
    let shm = ShmWorld::join(&job, rank, ranks, TIMEOUT)?;
    let sleep = shm.communicator(rank, &all, BETWEEN)?;
    sleep.barrier()?;
    let library = measure(&mut Theirs(&mpi, mpi.communicator(rank, &all, 1)?), ranks)?;
    sleep.barrier()?;
    let over_mpi = measure(&mut Ours(mpi.communicator(rank, &all, 0)?), ranks)?;
    sleep.barrier()?;
    let processes = measure(&mut Ours(shm.communicator(rank, &all, 0)?), ranks)?;
    sleep.barrier()?;
    let local = if rank == 0 { threads(ranks)? } else { Vec::new() };
    sleep.barrier()?;
    if rank == 0 {
        println!("{ranks} ranks, GB/s of the tensor, and times MPI's own collective");
        println!(
            "{:12}{:>12}  {:>8}{:>18}{:>18}{:>18}",
            "", "bytes", "MPI", "ours over MPI", "shared memory", "threads"
        );
        for (kind, name) in ["all_reduce", "all_gather"].into_iter().enumerate() {
            for (n, bytes) in SIZES.into_iter().enumerate() {
                let own = library[n][kind];
                let ours = [&over_mpi, &processes, &local].map(|r| {
                    let rate = r[n][kind];
                    format!("{rate:.2} ({:.2}×)", rate / own)
                });
                println!("{name:12}{bytes:>12}  {own:>8.2}{:>18}{:>18}{:>18}", ours[0], ours[1], ours[2]);
            }
        }
    }
    mpi.end();
    Ok(())
}
