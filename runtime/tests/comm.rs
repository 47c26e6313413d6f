//! The local back end: conformance, failures, and that no call hangs.

use msc_ir::{DType, Monoid};
use msc_runtime::comm::conformance::check_rank;
use msc_runtime::comm::local::LocalWorld;
use msc_runtime::comm::{CommError, World};
use std::thread;
use std::time::{Duration, Instant};

fn on_all<T: Send>(world: &LocalWorld, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let f = &f;
    thread::scope(|s| {
        let ranks: Vec<_> = (0..world.ranks()).map(|r| s.spawn(move || f(r))).collect();
        ranks.into_iter().map(|h| h.join().expect("the rank ends")).collect()
    })
}

fn conform(ranks: usize, sizes: &[usize]) {
    let world = LocalWorld::new(ranks, Duration::from_secs(120));
    for result in on_all(&world, |r| check_rank(&world, r, sizes)) {
        assert_eq!(result, Ok(()), "{ranks} ranks");
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

/// Messages of up to 64 MB for each rank; minutes, so it is run on request.
#[test]
#[ignore = "takes minutes and 2 GB"]
fn conforms_up_to_64_mb() {
    conform(4, &[65_537, 4 << 20]);
    conform(2, &[16 << 20]);
}

#[test]
fn unaligned_memory_is_fine() {
    let world = LocalWorld::new(2, Duration::from_secs(20));
    let got = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1], 0).expect("a group");
        let mut bytes = [0u8; 4 * 5 + 1];
        for k in 0..5 {
            bytes[1 + 4 * k..][..4].copy_from_slice(&((k + 10 * r) as f32).to_le_bytes());
        }
        c.all_reduce(&mut bytes[1..], DType::F32, Monoid::Sum).expect("all come");
        f32::from_le_bytes([bytes[17], bytes[18], bytes[19], bytes[20]])
    });
    assert_eq!(got, [18.0, 18.0]);
}

#[test]
fn a_rank_that_does_not_come_is_named_within_the_timeout() {
    let world = LocalWorld::new(3, Duration::from_millis(300));
    let begun = Instant::now();
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1, 2], 0).expect("a group");
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

#[test]
fn a_message_that_nobody_wants_times_out() {
    let world = LocalWorld::new(2, Duration::from_millis(200));
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1], 0).expect("a group");
        if r == 0 { c.send(1, &[1, 2, 3]) } else { Ok(()) }
    });
    assert!(matches!(&results[0], Err(CommError::Timeout { missing, .. }) if missing == &[1]));
}

#[test]
fn different_calls_are_told_apart_on_every_rank() {
    let world = LocalWorld::new(2, Duration::from_secs(20));
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1], 0).expect("a group");
        let dtype = if r == 0 { DType::F32 } else { DType::I32 };
        c.all_reduce(&mut [0; 8], dtype, Monoid::Sum)
    });
    for r in results {
        let message = r.expect_err("the calls differ").to_string();
        assert!(message.contains("bytes of f32") && message.contains("bytes of i32"), "{message}");
    }
    let world = LocalWorld::new(2, Duration::from_secs(20));
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1], 0).expect("a group");
        if r == 0 { c.send(1, &[0; 8]) } else { c.receive(0, &mut [0; 4]) }
    });
    assert!(results.iter().all(|r| matches!(r, Err(CommError::Mismatch { .. }))), "{results:?}");
    let world = LocalWorld::new(2, Duration::from_secs(20));
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1], 0).expect("a group");
        let receive = if r == 0 { [1, 2] } else { [1, 1] };
        c.all_to_all_v(&[0; 2], &[1, 1], &mut vec![0; receive.iter().sum()], &receive)
    });
    assert!(results.iter().all(|r| matches!(r, Err(CommError::Mismatch { .. }))), "{results:?}");
}

#[test]
fn abort_ends_every_wait_at_once() {
    let world = LocalWorld::new(4, Duration::from_secs(600));
    let begun = Instant::now();
    let results = on_all(&world, |r| {
        let c = world.communicator(r, &[0, 1, 2, 3], 0).expect("a group");
        match r {
            0 => c.barrier(),
            1 => c.receive(3, &mut [0; 4]),
            2 => c.send(3, &[0; 4]),
            _ => {
                thread::sleep(Duration::from_millis(100));
                world.abort();
                Ok(())
            }
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(results[..3].iter().all(|r| matches!(r, Err(CommError::Aborted { .. }))), "{results:?}");
}

#[test]
fn wrong_arguments_are_refused_before_anyone_waits() {
    let world = LocalWorld::new(2, Duration::from_secs(600));
    let c = world.communicator(0, &[0, 1], 0).expect("a group");
    let refused = |r: Result<(), CommError>| assert!(matches!(r, Err(CommError::Argument { .. })), "{r:?}");
    refused(c.all_reduce(&mut [0; 3], DType::F32, Monoid::Sum));
    refused(c.all_gather(&[0; 3], &mut [0; 5]));
    refused(c.reduce_scatter(&[0; 12], &mut [0; 8], DType::F32, Monoid::Sum));
    refused(c.all_to_all(&[0; 3], &mut [0; 3]));
    refused(c.all_to_all_v(&[0; 2], &[1, 1], &mut [0; 2], &[usize::MAX, 3]));
    refused(c.broadcast(2, &mut []));
    refused(c.send(0, &[]));
    refused(c.receive(2, &mut []));
    refused(world.communicator(0, &[1], 0).map(drop));
    refused(world.communicator(0, &[0, 0], 0).map(drop));
    refused(world.communicator(0, &[0, 2], 0).map(drop));
    refused(c.subgroup(&[0, 2], 0).map(drop));
}

/// A rank in the middle of a call fails while the others read its memory: it must not return before they are
/// done. Many short timeouts make the overlap likely; the sanitizers' and Miri's business as much as ours.
#[test]
fn memory_is_not_taken_back_while_others_read_it() {
    for round in 0..40 {
        let world = LocalWorld::new(3, Duration::from_secs(5));
        on_all(&world, |r| {
            let c = world.communicator(r, &[0, 1, 2], 0).expect("a group");
            for n in 0.. {
                let mut data = vec![r as u8 + 1; 1 << 12];
                if c.all_reduce(&mut data, DType::U8, Monoid::Sum).is_err() {
                    break;
                }
                assert!(data.iter().all(|&b| b == 6), "round {round}, call {n}");
                if r == 2 && n == round {
                    world.abort();
                }
            }
        });
    }
}
