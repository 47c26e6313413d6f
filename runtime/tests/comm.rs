//! The back ends of one machine: conformance, failures, and that no call hangs. Worlds of shared memory have a thread
//! for each rank here; `msc run --comm processes` is tested with the command.

use msc_ir::{DType, Monoid};
use msc_runtime::comm::conformance::check_rank;
use msc_runtime::comm::local::LocalWorld;
use msc_runtime::comm::shm::{Job, ShmWorld};
use msc_runtime::comm::{CommError, World};
use std::thread;
use std::time::{Duration, Instant};

/// Runs each rank on a thread of its own.
fn on_all<T: Send>(worlds: &[Box<dyn World>], f: impl Fn(&dyn World, usize) -> T + Sync) -> Vec<T> {
    let f = &f;
    thread::scope(|s| {
        let mut ranks = Vec::new();
        for (r, w) in worlds.iter().enumerate() {
            let w: &dyn World = &**w;
            ranks.push(s.spawn(move || f(w, r)));
        }
        ranks.into_iter().map(|h| h.join().expect("the rank ends")).collect()
    })
}

fn local(ranks: usize, timeout: Duration) -> Vec<Box<dyn World>> {
    let world = LocalWorld::new(ranks, timeout);
    (0..ranks).map(|_| Box::new(world.clone()) as Box<dyn World>).collect()
}

fn shm(ranks: usize, timeout: Duration) -> Vec<Box<dyn World>> {
    let job = Job::new(ranks).expect("shared memory");
    let join = |r| ShmWorld::join(&job.name(), r, ranks, timeout).expect("joins");
    (0..ranks).map(|r| Box::new(join(r)) as Box<dyn World>).collect()
}

/// A back end: worlds of as many ranks and of a timeout, one for each rank.
type Worlds = fn(usize, Duration) -> Vec<Box<dyn World>>;

const BACK_ENDS: [(&str, Worlds); 2] = [("local", local), ("shm", shm)];

fn conform(ranks: usize, sizes: &[usize]) {
    for (name, worlds) in BACK_ENDS {
        for result in on_all(&worlds(ranks, Duration::from_secs(120)), |w, r| check_rank(w, r, sizes)) {
            assert_eq!(result, Ok(()), "{name}, {ranks} ranks");
        }
    }
}

#[test]
fn conforms_for_1_to_16_ranks() {
    for ranks in [1, 2, 3, 4, 5] {
        conform(ranks, &[0, 1, 7, 1031]);
    }
    for ranks in [8, 16] {
        conform(ranks, &[0, 3, 65]);
    }
}

/// More than a ring holds, more than is combined at a time.
#[test]
fn conforms_in_pieces() {
    conform(2, &[70_001]);
    conform(3, &[9_001]);
}

/// Messages of up to 64 MB for each rank; minutes, so it is run on request.
#[test]
#[ignore = "takes minutes and 2 GB"]
fn conforms_up_to_64_mb() {
    conform(4, &[65_537, 1 << 20]);
    conform(2, &[16 << 20]);
    for ranks in 1..=16 {
        conform(ranks, &[0, 1, 5, 333, 4_097]);
    }
}

#[test]
fn unaligned_memory_is_fine() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(2, Duration::from_secs(20));
        let got = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1], 0).expect("a group");
            let mut bytes = [0u8; 4 * 5 + 1];
            for k in 0..5 {
                bytes[1 + 4 * k..][..4].copy_from_slice(&((k + 10 * r) as f32).to_le_bytes());
            }
            c.all_reduce(&mut bytes[1..], DType::F32, Monoid::Sum).expect("all come");
            f32::from_le_bytes([bytes[17], bytes[18], bytes[19], bytes[20]])
        });
        assert_eq!(got, [18.0, 18.0]);
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_within_the_timeout() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(3, Duration::from_millis(300));
        let begun = Instant::now();
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1, 2], 0).expect("a group");
            if r == 1 {
                return Ok(());
            }
            c.all_reduce(&mut [0; 4], DType::F32, Monoid::Sum)
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
        for r in [0, 2] {
            let e = results[r].clone().expect_err("rank 1 is missing");
            assert!(matches!(&e, CommError::Timeout { missing, .. } if missing == &[1]), "{e}");
        }
    }
}

#[test]
fn a_message_that_nobody_wants_times_out() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(2, Duration::from_millis(200));
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1], 0).expect("a group");
            if r == 0 { c.send(1, &[1, 2, 3]) } else { Ok(()) }
        });
        assert!(matches!(&results[0], Err(CommError::Timeout { missing, .. }) if missing == &[1]));
    }
}

#[test]
fn different_calls_are_told_apart_on_every_rank() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(2, Duration::from_secs(20));
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1], 0).expect("a group");
            let dtype = if r == 0 { DType::F32 } else { DType::I32 };
            c.all_reduce(&mut [0; 8], dtype, Monoid::Sum)
        });
        for r in results {
            let message = r.expect_err("the calls differ").to_string();
            assert!(message.contains("bytes of f32") && message.contains("bytes of i32"), "{message}");
        }
        let world = worlds(2, Duration::from_secs(20));
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1], 0).expect("a group");
            if r == 0 { c.send(1, &[0; 8]) } else { c.receive(0, &mut [0; 4]) }
        });
        assert!(results.iter().all(|r| matches!(r, Err(CommError::Mismatch { .. }))), "{results:?}");
        let world = worlds(2, Duration::from_secs(20));
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1], 0).expect("a group");
            let receive = if r == 0 { [1, 2] } else { [1, 1] };
            c.all_to_all_v(&[0; 2], &[1, 1], &mut vec![0; receive.iter().sum()], &receive)
        });
        assert!(results.iter().all(|r| matches!(r, Err(CommError::Mismatch { .. }))), "{results:?}");
    }
}

#[test]
fn abort_ends_every_wait_at_once() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(4, Duration::from_secs(600));
        let begun = Instant::now();
        let results = on_all(&world, |w, r| {
            let c = w.communicator(r, &[0, 1, 2, 3], 0).expect("a group");
            match r {
                0 => c.barrier(),
                1 => c.receive(3, &mut [0; 4]),
                2 => c.send(3, &[0; 4]),
                _ => {
                    thread::sleep(Duration::from_millis(100));
                    w.abort();
                    Ok(())
                }
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(results[..3].iter().all(|r| matches!(r, Err(CommError::Aborted { .. }))), "{results:?}");
    }
}

#[test]
fn wrong_arguments_are_refused_before_anyone_waits() {
    for (_, worlds) in BACK_ENDS {
        let world = worlds(2, Duration::from_secs(600));
        let c = world[0].communicator(0, &[0, 1], 0).expect("a group");
        let refused =
            |r: Result<(), CommError>| assert!(matches!(r, Err(CommError::Argument { .. })), "{r:?}");
        refused(c.all_reduce(&mut [0; 3], DType::F32, Monoid::Sum));
        refused(c.all_gather(&[0; 3], &mut [0; 5]));
        refused(c.reduce_scatter(&[0; 12], &mut [0; 8], DType::F32, Monoid::Sum));
        refused(c.all_to_all(&[0; 3], &mut [0; 3]));
        refused(c.all_to_all_v(&[0; 2], &[1, 1], &mut [0; 2], &[usize::MAX, 3]));
        refused(c.broadcast(2, &mut []));
        refused(c.send(0, &[]));
        refused(c.receive(2, &mut []));
        refused(world[0].communicator(0, &[1], 0).map(drop));
        refused(world[0].communicator(0, &[0, 0], 0).map(drop));
        refused(world[0].communicator(0, &[0, 2], 0).map(drop));
        refused(c.subgroup(&[0, 2], 0).map(drop));
    }
}

/// A rank in the middle of a call fails while the others read its memory: it must not return before they are
/// done. Many short timeouts make the overlap likely; the sanitizers' and Miri's business as much as ours.
#[test]
fn memory_is_not_taken_back_while_others_read_it() {
    for (_, worlds) in BACK_ENDS {
        for round in 0..40 {
            let world = worlds(3, Duration::from_secs(5));
            on_all(&world, |w, r| {
                let c = w.communicator(r, &[0, 1, 2], 0).expect("a group");
                for n in 0.. {
                    let mut data = vec![r as u8 + 1; 1 << 12];
                    if c.all_reduce(&mut data, DType::U8, Monoid::Sum).is_err() {
                        break;
                    }
                    assert!(data.iter().all(|&b| b == 6), "round {round}, call {n}");
                    if r == 2 && n == round {
                        w.abort();
                    }
                }
            });
        }
    }
}
