//! The checks of programs see seeded faults.

use msc_ir::module::{AxisId, Entry, GraphId, Member, Mesh, MeshAxis, ParamInfo, ResultInfo, Sharding};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::collective::Collective;
use msc_ir::program::agree::agree;
use msc_ir::program::check::{ProgramError, check};
use msc_ir::program::types::check_ops;
use msc_ir::program::*;
use msc_ir::{DType, LocId, Module, Monoid, Op, TensorType};

const COMPUTE: StreamId = StreamId(0);
const COMM: StreamId = StreamId(1);

fn ty() -> TensorType {
    TensorType::new(DType::F32, [128])
}

fn all_reduce(monoid: Monoid) -> Action {
    let op = Collective::AllReduce { monoid, axes: [AxisId(0)].into_iter().collect() };
    Action::Collective { communicator: CommunicatorId(0), op: op.into() }
}

fn instruction(stream: StreamId, action: Action, reads: &[u32], writes: &[u32]) -> Instruction {
    let ids = |v: &[u32]| v.iter().map(|&b| BufferId(b)).collect();
    Instruction { stream, action, reads: ids(reads), writes: ids(writes), loc: LocId::UNKNOWN }
}

fn add(reads: [u32; 2], write: u32) -> Instruction {
    instruction(COMPUTE, Action::Interpret(Op::from(BinaryKind::Add).into()), &reads, &[write])
}

fn wait(stream: StreamId, on: u32) -> Instruction {
    instruction(stream, Action::Wait(InstructionId(on)), &[], &[])
}

/// `state' = state + all_reduce(x + x)`: buffer 0 is the donated state, 1 is x, and the result is in 0.
fn good() -> Program {
    let buffer =
        |n: u64, name: &str| Buffer { ty: ty(), placement: Placement::Arena(n * 512), name: name.into() };
    let param = |name: &str, alias| ParamInfo { name: name.into(), alias, ..ParamInfo::default() };
    Program {
        class: RankClass::default(),
        mesh: Mesh { axes: vec![MeshAxis { name: "tp".into(), size: 2 }] },
        entry: Entry {
            name: "train".into(),
            graph: GraphId(0),
            params: vec![param("state", Some(0)), param("x", None)],
            results: vec![ResultInfo { name: "state".into(), ..ResultInfo::default() }],
        },
        streams: vec![StreamKind::Compute, StreamKind::Communication],
        communicators: vec![Communicator { axes: [AxisId(0)].into_iter().collect() }],
        buffers: vec![buffer(0, "state"), buffer(1, "x"), buffer(2, "doubled"), buffer(3, "sum")],
        inputs: vec![BufferId(0), BufferId(1)],
        outputs: vec![BufferId(0)],
        instructions: vec![
            add([1, 1], 2),
            wait(COMM, 0),
            instruction(COMM, all_reduce(Monoid::Sum), &[2], &[3]),
            wait(COMPUTE, 2),
            add([0, 3], 0),
        ],
        arena_bytes: 4 * 512,
    }
}

fn checked(change: impl FnOnce(&mut Program)) -> Result<(), ProgramError> {
    let mut p = good();
    change(&mut p);
    check(&p)
}

/// Takes an instruction out; waits for later ones are renumbered.
fn without(p: &mut Program, at: usize) {
    p.instructions.remove(at);
    for i in &mut p.instructions {
        if let Action::Wait(on) = &mut i.action
            && on.0 as usize > at
        {
            on.0 -= 1;
        }
    }
}

macro_rules! refused {
    ($pattern:pat, $change:expr) => {
        let result = checked($change);
        assert!(matches!(result, Err($pattern)), "{result:?}");
    };
}

#[test]
fn a_right_program_passes() {
    assert_eq!(checked(|_| {}), Ok(()));
    let mut m = Module::new("m");
    m.mesh = good().mesh;
    assert_eq!(check_ops(&good(), &m), Ok(()));
    assert_eq!(agree(&[good()]), Ok(()));
}

#[test]
fn stacks_that_do_not_fit_are_found() {
    let members = |n: usize| -> Vec<Member> {
        (0..n as u32).map(|i| Member { name: format!("state.{i}"), number: i }).collect()
    };
    let stacked = |p: &mut Program, params: usize, results: usize| {
        p.entry.params[0].stack = members(params);
        p.entry.results[0].stack = members(results);
    };
    // 128 on each of two ranks that hold the same.
    assert_eq!(checked(|p| stacked(p, 128, 128)), Ok(()));
    refused!(ProgramError::Entry { .. }, |p| stacked(p, 127, 127));
    refused!(ProgramError::Entry { .. }, |p| stacked(p, 256, 256));
    refused!(ProgramError::Entry { .. }, |p| stacked(p, 128, 0));
    refused!(ProgramError::Entry { .. }, |p| {
        stacked(p, 128, 128);
        p.entry.params[0].stack[5].number = 6;
    });
    // Dealt to two ranks it holds twice as many.
    let split = Sharding { dims: vec![vec![AxisId(0)]], ..Sharding::default() };
    let dealt = |p: &mut Program, n: usize| {
        stacked(p, n, n);
        (p.entry.params[0].sharding, p.entry.results[0].sharding) = (split.clone(), split.clone());
    };
    assert_eq!(checked(|p| dealt(p, 256)), Ok(()));
    refused!(ProgramError::Entry { .. }, |p| dealt(p, 128));
}

#[test]
fn removed_waits_are_found() {
    refused!(ProgramError::Unwritten { buffer: 2, .. }, |p| without(p, 1));
    refused!(ProgramError::Unwritten { buffer: 3, .. }, |p| without(p, 3));
}

#[test]
fn waits_that_cannot_end_are_found() {
    refused!(ProgramError::Wait { at: 1, on: 4 }, |p| p.instructions[1] = wait(COMM, 4));
    refused!(ProgramError::Wait { at: 1, on: 1 }, |p| p.instructions[1] = wait(COMM, 1));
    refused!(ProgramError::Wait { at: 3, on: 0 }, |p| p.instructions[3] = wait(COMPUTE, 0));
}

#[test]
fn reads_before_writes_are_found() {
    refused!(ProgramError::Unwritten { at: 0, buffer: 3, .. }, |p| p.instructions[0] = add([3, 1], 2));
    refused!(ProgramError::Unwritten { at: 5, .. }, |p| {
        p.buffers.push(Buffer { ty: ty(), placement: Placement::Arena(1536), name: "never".into() });
        p.outputs[0] = BufferId(4);
        p.entry.params[0].alias = None;
    });
}

#[test]
fn overlapping_buffers_are_found() {
    // `sum` over `doubled`: the collective overwrites what it reads.
    refused!(ProgramError::Clobbered { writer: 2, buffer: 2, .. }, |p| {
        p.buffers[3].placement = Placement::Arena(1024);
    });
    // `doubled` over the state, which is read later.
    refused!(ProgramError::Clobbered { writer: 0, buffer: 0, .. }, |p| {
        p.buffers[2].placement = Placement::Arena(0);
    });
    // Partly: the state is longer and reaches into `x`.
    refused!(ProgramError::Entry { .. }, |p| {
        p.buffers[0].ty = TensorType::new(DType::F32, [129]);
    });
    // `x`, which is not donated, is overwritten after its last read: the next step still needs it.
    refused!(ProgramError::Clobbered { writer: 2, buffer: 1, .. }, |p| {
        p.buffers[3].placement = Placement::Arena(512);
    });
    // Had it been donated, that were fine.
    let donated = checked(|p| {
        p.buffers[3].placement = Placement::Arena(512);
        p.entry.params[1].alias = Some(1);
        p.entry.results.push(ResultInfo::default());
        p.outputs.push(BufferId(3));
    });
    assert_eq!(donated, Ok(()));
    // An output that a later instruction overwrites.
    refused!(ProgramError::Clobbered { writer: 5, buffer: 0, .. }, |p| {
        p.buffers.push(Buffer { ty: ty(), placement: Placement::Arena(0), name: "late".into() });
        p.instructions.push(add([1, 1], 4));
    });
}

#[test]
fn unordered_accesses_are_found() {
    // A second writer on the compute stream while the collective still reads.
    refused!(ProgramError::Race { first: 2, second: 3, .. }, |p| {
        p.instructions.insert(3, add([1, 1], 2));
    });
    // Two buffers of one instruction on the same bytes.
    refused!(ProgramError::Race { first: 0, second: 0, .. }, |p| {
        p.instructions[0].writes.push(BufferId(3));
        p.buffers[3].placement = Placement::Arena(1024);
    });
    // Ordered by a chain of waits through a third stream, it is none.
    let chained = checked(|p| {
        p.streams.push(StreamKind::Swap);
        p.buffers.push(Buffer { ty: ty(), placement: Placement::Arena(2048), name: "saved".into() });
        p.arena_bytes += 512;
        p.instructions.insert(3, wait(StreamId(2), 2));
        p.instructions.insert(4, instruction(StreamId(2), Action::Copy, &[3], &[4]));
        p.instructions[5] = wait(COMPUTE, 4);
    });
    assert_eq!(chained, Ok(()));
}

#[test]
fn wrong_indices_and_forms_are_found() {
    refused!(ProgramError::Dangling { .. }, |p| p.instructions[0].reads[0] = BufferId(9));
    refused!(ProgramError::Dangling { .. }, |p| p.instructions[0].stream = StreamId(9));
    refused!(ProgramError::Dangling { .. }, |p| p.communicators.clear());
    refused!(ProgramError::Entry { .. }, |p| p.inputs[0] = BufferId(9));
    refused!(ProgramError::Entry { .. }, |p| p.outputs[0] = BufferId(9));
    refused!(ProgramError::Entry { .. }, |p| p.entry.params[0].alias = Some(3));
    refused!(ProgramError::Entry { .. }, |p| p.inputs[1] = BufferId(0));
    refused!(ProgramError::Entry { .. }, |p| p.entry.params[1].sharding.dims = vec![vec![AxisId(4)]]);
    refused!(ProgramError::Entry { .. }, |p| p.entry.params[0].sharding.dims = vec![vec![AxisId(0)]]);
    refused!(ProgramError::Entry { .. }, |p| p.class.fixed = vec![(AxisId(0), 2)]);
    refused!(ProgramError::Entry { .. }, |p| p.mesh.axes[0].size = 0);
    refused!(ProgramError::Entry { .. }, |p| p.communicators[0].axes.push(AxisId(0)));
    refused!(ProgramError::Placement { buffer: 2 }, |p| p.buffers[2].placement = Placement::Arena(1000));
    refused!(ProgramError::Placement { buffer: 3 }, |p| p.arena_bytes = 2000);
    refused!(ProgramError::Placement { buffer: 2 }, |p| {
        p.buffers[2].ty = TensorType::new(DType::F32, [usize::MAX / 2, 8]);
    });
    // Collectives belong on communication streams, and nothing else does.
    refused!(ProgramError::Form { .. }, |p| p.instructions[2].stream = COMPUTE);
    refused!(ProgramError::Form { .. }, |p| p.instructions[0].stream = COMM);
    refused!(ProgramError::Form { .. }, |p| p.instructions[2].reads.clear());
    refused!(ProgramError::Form { .. }, |p| {
        p.buffers[3].ty = TensorType::new(DType::I32, [128]);
        p.instructions[2].action = Action::Copy;
    });
    refused!(ProgramError::Form { .. }, |p| {
        p.streams.push(StreamKind::Communication);
        p.instructions.push(instruction(StreamId(2), all_reduce(Monoid::Sum), &[1], &[2]));
    });
    refused!(ProgramError::Form { .. }, |p| {
        let send = Action::Send { communicator: CommunicatorId(0), offset: 2 };
        p.instructions.push(instruction(COMM, send, &[1], &[]));
    });
}

#[test]
fn ops_that_do_not_fit_their_buffers_are_found() {
    let mut m = Module::new("m");
    m.mesh = good().mesh;
    let mut p = good();
    p.buffers[3].ty = TensorType::new(DType::F32, [64]);
    assert!(matches!(check_ops(&p, &m), Err(ProgramError::Form { at: 2, .. })));
    let mut p = good();
    let Action::Collective { op, .. } = p.instructions[2].action.clone() else { panic!("a collective") };
    p.instructions[2] = instruction(COMPUTE, Action::Interpret(op.into()), &[2], &[3]);
    assert!(matches!(check_ops(&p, &m), Err(ProgramError::Form { at: 2, .. })));
    let mut p = good();
    p.instructions[0].action = Action::Interpret(Op::from(BinaryKind::And).into());
    assert!(matches!(check_ops(&p, &m), Err(ProgramError::Form { at: 0, .. })));
}

/// One program for each of two ranks, with these communication streams.
fn two(streams: [Vec<Instruction>; 2]) -> Vec<Program> {
    let of = |(n, list): (usize, Vec<Instruction>)| {
        let mut p = good();
        p.class.fixed = vec![(AxisId(0), n)];
        p.instructions = list;
        p
    };
    streams.into_iter().enumerate().map(of).collect()
}

fn send(offset: i32) -> Instruction {
    instruction(COMM, Action::Send { communicator: CommunicatorId(0), offset }, &[1], &[])
}

fn receive(offset: i32) -> Instruction {
    instruction(COMM, Action::Receive { communicator: CommunicatorId(0), offset }, &[], &[2])
}

#[test]
fn ranks_with_another_order_are_found() {
    let reduce = |monoid| instruction(COMM, all_reduce(monoid), &[1], &[2]);
    let (sum, max) = (reduce(Monoid::Sum), reduce(Monoid::Max));
    assert_eq!(agree(&two([vec![sum.clone(), max.clone()], vec![sum.clone(), max.clone()]])), Ok(()));
    let e = agree(&two([vec![sum.clone(), max.clone()], vec![max, sum.clone()]])).expect_err("swapped");
    let message = e.to_string();
    assert!(matches!(e, ProgramError::Mismatch { .. }), "{message}");
    for part in ["rank 0", "rank 1", "monoid = sum", "monoid = max", "instruction 0"] {
        assert!(message.contains(part), "{message}");
    }
    // One rank has a collective more.
    let e = agree(&two([vec![sum.clone()], vec![sum.clone(), sum]])).expect_err("one waits for ever");
    assert!(matches!(&e, ProgramError::Deadlock { waiting } if waiting.len() == 1), "{e}");
}

#[test]
fn messages_that_do_not_meet_are_found() {
    assert_eq!(agree(&two([vec![send(1), receive(1)], vec![receive(-1), send(-1)]])), Ok(()));
    // Offsets wrap around: with two ranks, +1 and −1 are the same peer.
    assert_eq!(agree(&two([vec![send(1)], vec![receive(1)]])), Ok(()));
    let e = agree(&two([vec![send(1), receive(1)], vec![send(1), receive(1)]])).expect_err("both send");
    assert!(matches!(&e, ProgramError::Deadlock { waiting } if waiting.len() == 2), "{e}");
    let mut p = two([vec![send(1)], vec![receive(1)]]);
    p[1].buffers[2].ty = TensorType::new(DType::F32, [64]);
    assert!(matches!(agree(&p), Err(ProgramError::Mismatch { .. })));
}

#[test]
fn cycles_through_ranks_and_streams_are_found() {
    // Rank 0 reduces on `a` before `b`, rank 1 the other way round: each communicator sees one order, but the
    // streams wait for each other.
    let mut p = two([vec![], vec![]]);
    for (n, q) in p.iter_mut().enumerate() {
        q.streams = vec![StreamKind::Compute, StreamKind::Communication, StreamKind::Communication];
        q.communicators.push(q.communicators[0].clone());
        let on = |stream: u32| {
            let op = Collective::AllReduce { monoid: Monoid::Sum, axes: [AxisId(0)].into_iter().collect() };
            let action = Action::Collective { communicator: CommunicatorId(stream - 1), op: op.into() };
            instruction(StreamId(stream), action, &[1], &[1 + stream])
        };
        let (first, second) = if n == 0 { (1, 2) } else { (2, 1) };
        q.instructions = vec![on(first), wait(StreamId(second), 0), on(second)];
        assert_eq!(check(q), Ok(()));
    }
    let e = agree(&p).expect_err("a cycle");
    assert!(matches!(&e, ProgramError::Deadlock { waiting } if waiting.len() == 4), "{e}");
    // The same order on both ranks is fine.
    let mut q = p[0].clone();
    q.class.fixed[0].1 = 1;
    assert_eq!(agree(&[p[0].clone(), q]), Ok(()));
}

#[test]
fn many_ranks_cost_as_much_as_their_classes() {
    // Four stages of 4096 ranks each, a reduction within each stage, and messages from stage to stage.
    let mesh = Mesh {
        axes: vec![
            MeshAxis { name: "pp".into(), size: 4 },
            MeshAxis { name: "dp".into(), size: 64 },
            MeshAxis { name: "tp".into(), size: 64 },
        ],
    };
    let stage = |n: usize| {
        let mut p = good();
        p.mesh = mesh.clone();
        p.class.fixed = vec![(AxisId(0), n)];
        let axes = |list: &[u8]| Communicator { axes: list.iter().map(|&a| AxisId(a)).collect() };
        p.communicators = vec![axes(&[0]), axes(&[1, 2])];
        let op =
            Collective::AllReduce { monoid: Monoid::Sum, axes: [AxisId(1), AxisId(2)].into_iter().collect() };
        let reduce = Action::Collective { communicator: CommunicatorId(1), op: op.into() };
        p.instructions = vec![];
        if n > 0 {
            p.instructions.push(receive(-1));
        }
        p.instructions.push(instruction(COMM, reduce, &[1], &[3]));
        if n < 3 {
            p.instructions.push(send(1));
        }
        p
    };
    let mut programs: Vec<Program> = (0..4).map(stage).collect();
    assert_eq!(agree(&programs), Ok(()));
    programs[2].instructions.pop();
    assert!(matches!(agree(&programs), Err(ProgramError::Deadlock { .. })));
    programs.pop();
    assert!(matches!(agree(&programs), Err(ProgramError::Coverage { .. })));
}

#[test]
fn long_programs_are_checked_in_time() {
    // 200,000 instructions that reuse three buffers in turn.
    let mut p = good();
    p.instructions.clear();
    for n in 0..200_000u32 {
        p.instructions.push(add([1, 1], if n % 2 == 0 { 2 } else { 3 }));
        if n % 2 == 1 {
            p.instructions.push(add([2, 3], 0));
        }
    }
    assert_eq!(check(&p), Ok(()));
}
