//! What schedule and memory make passes the independent check, and the check notices what is taken away.

mod common;

use common::{MLP, mesh};
use msc_ir::program::check::{ProgramError, check};
use msc_ir::program::{Action, BufferId, Placement, Program};
use msc_ir::text;
use msc_passes::partition::{Options, partition};
use msc_passes::schedule::Kernels;
use msc_passes::{memory, schedule};

fn program() -> (Program, memory::Report) {
    let mut m = text::parse(MLP).expect("parses");
    partition(&mut m, &Options { mesh: mesh(&[("tp", 2)]), ..Options::default() }).expect("partitions");
    let mut p = schedule::schedule(&m, &Kernels::new()).expect("schedules");
    let report = memory::plan(&mut p);
    (p, report)
}

#[test]
fn the_plan_is_sound_and_reuses_memory() {
    let (p, report) = program();
    assert_eq!(check(&p), Ok(()));
    assert!(report.arena_bytes - report.persistent_bytes < report.transient_bytes, "{report:?}");
    assert!(report.peak_live_bytes <= report.arena_bytes - report.persistent_bytes, "{report:?}");
    // Each of the two layers has its own collective; both wait for their operand and are waited for.
    let collectives = p.instructions.iter().filter(|i| matches!(i.action, Action::Collective { .. })).count();
    assert_eq!(collectives, 4);
    // `down.0` is negated in place: no second copy of the state. `up.0` is still read after its negation.
    assert_eq!(p.inputs[2], p.outputs[2]);
    assert_ne!(p.inputs[1], p.outputs[1]);
}

#[test]
fn every_wait_that_is_taken_away_is_missed() {
    let (p, _) = program();
    let waits: Vec<usize> =
        (0..p.instructions.len()).filter(|&i| matches!(p.instructions[i].action, Action::Wait(_))).collect();
    // The last wait only ends the step.
    for &w in &waits[..waits.len() - 1] {
        let mut broken = p.clone();
        broken.instructions[w].action = Action::Copy;
        assert!(check(&broken).is_err(), "wait {w} of {} is not needed", p.instructions.len());
    }
}

#[test]
fn every_overlap_of_live_buffers_is_found() {
    let (p, _) = program();
    let mut refused = 0;
    for n in 0..p.buffers.len() {
        let Placement::Arena(at) = p.buffers[n].placement else { continue };
        for m in 0..n {
            let Placement::Arena(other) = p.buffers[m].placement else { continue };
            if other == at {
                continue;
            }
            let mut broken = p.clone();
            broken.buffers[n].placement = Placement::Arena(other);
            let touches = |i: usize, b: usize| {
                p.instructions[i]
                    .reads
                    .iter()
                    .chain(&p.instructions[i].writes)
                    .any(|x| *x == BufferId(b as u32))
            };
            let span = |b: usize| {
                let keeps = p.inputs.contains(&BufferId(b as u32)) || p.outputs.contains(&BufferId(b as u32));
                let used: Vec<usize> = (0..p.instructions.len()).filter(|&i| touches(i, b)).collect();
                match used.as_slice() {
                    [] => None,
                    [first, .., last] => Some((*first, if keeps { usize::MAX } else { *last })),
                    [one] => Some((*one, if keeps { usize::MAX } else { *one })),
                }
            };
            let (Some(a), Some(b)) = (span(n), span(m)) else { continue };
            // In list order one is still in use when the other is written: no order of streams can save that.
            if a.0 > b.0 && a.0 < b.1 && !p.inputs.contains(&BufferId(m as u32)) {
                assert!(check(&broken).is_err(), "buffers {m} and {n} at {other}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_wait_for_the_future_is_refused() {
    let (mut p, _) = program();
    let n = p.instructions.len();
    let at = p.instructions.iter().position(|i| matches!(i.action, Action::Wait(_))).expect("a wait");
    p.instructions[at].action = Action::Wait(msc_ir::program::InstructionId(n as u32 - 1));
    assert!(matches!(check(&p), Err(ProgramError::Wait { .. })));
}
