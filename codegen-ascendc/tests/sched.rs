//! The verifier of the sched level, by seeded faults: whatever synchronisation is taken away, it must
//! notice, and so must the emulator that executes the source.

mod common;

use common::inputs;
use msc_codegen::ascendc::emulate::{EmulateError, Emulated};
use msc_codegen::ascendc::{emit, print};
use msc_codegen::sched::{
    Access, FlagDecl, FlagId, Handover, HandoverId, Item, Loop, Op, Pipe, Program, Resource, Tile, TileId,
    TileUse, Turn, Unit, UnitProgram, Violation, derive, verify,
};
use msc_codegen::tile::build::{RowGroup, build_rows, norms};
use msc_codegen::tile::{Affine, Bound, DType, DeviceSpec, Kernel, LoopId};

/// A device so small that every block has several tiles.
fn small() -> DeviceSpec {
    DeviceSpec { vector_cores: 2, vector_bytes: 48 << 10, ..DeviceSpec::ascend_910b3() }
}

fn kernels() -> Vec<Kernel> {
    let groups: [RowGroup; 4] = [
        norms::rms_norm(23, 200, DType::F32, 1e-5),
        norms::add_rms_norm(23, 200, DType::BF16, 1e-5),
        norms::rms_norm_grad(23, 200, DType::BF16, true),
        norms::rms_norm_grad(3, 9000, DType::F32, false),
    ];
    groups.iter().flat_map(|g| build_rows(g, &small()).expect("the group builds").kernels).collect()
}

/// The program without the items for which `drop` holds; `drop` is asked once per item, in order.
fn without(program: &Program, drop: &mut dyn FnMut(&Item) -> bool) -> Program {
    fn walk(items: &mut Vec<Item>, drop: &mut dyn FnMut(&Item) -> bool) {
        items.retain(|item| !drop(item));
        for item in items {
            if let Item::For(l) = item {
                walk(&mut l.body, drop);
            }
        }
    }
    let mut faulty = program.clone();
    faulty.units.iter_mut().for_each(|u| walk(&mut u.body, drop));
    faulty
}

fn count(program: &Program, which: &dyn Fn(&Item) -> bool) -> usize {
    let mut n = 0;
    without(program, &mut |item| {
        n += usize::from(which(item));
        false
    });
    n
}

/// The program without the `nth` item for which `which` holds.
fn without_nth(program: &Program, nth: usize, which: &dyn Fn(&Item) -> bool) -> Program {
    let mut n = 0;
    without(program, &mut |item| {
        n += usize::from(which(item));
        which(item) && n == nth + 1
    })
}

fn uses_flag(item: &Item, flag: FlagId) -> bool {
    matches!(item, Item::Set(f, _) | Item::Wait(f, _) if *f == flag)
}

fn without_flag(program: &Program, flag: FlagId) -> Program {
    without(program, &mut |item| uses_flag(item, flag))
}

#[test]
fn every_flag_is_needed() {
    let mut removed = 0;
    for kernel in kernels() {
        let program = derive(&kernel, &small()).expect("the kernel is scheduled");
        for n in 0..program.flags.len() {
            let faulty = without_flag(&program, FlagId(n as u32));
            let found = verify(&faulty, &small());
            assert!(matches!(found, Err(Violation::Hazard { .. })), "{}: flag {n}: {found:?}", kernel.name);
            removed += 1;
        }
    }
    assert!(removed > 20, "only {removed} flags");
}

#[test]
fn every_barrier_is_needed() {
    let barrier = |item: &Item| matches!(item, Item::Barrier(_));
    let mut removed = 0;
    for kernel in kernels() {
        let program = derive(&kernel, &small()).expect("the kernel is scheduled");
        for n in 0..count(&program, &barrier) {
            let found = verify(&without_nth(&program, n, &barrier), &small());
            assert!(
                matches!(found, Err(Violation::Hazard { .. })),
                "{}: barrier {n}: {found:?}",
                kernel.name
            );
            removed += 1;
        }
    }
    assert!(removed > 40, "only {removed} barriers");
}

#[test]
fn a_single_set_or_wait_taken_away_is_noticed() {
    let set = |item: &Item| matches!(item, Item::Set(..));
    let wait = |item: &Item| matches!(item, Item::Wait(..));
    for kernel in kernels() {
        let program = derive(&kernel, &small()).expect("the kernel is scheduled");
        for n in 0..count(&program, &set) {
            let found = verify(&without_nth(&program, n, &set), &small());
            assert!(matches!(found, Err(Violation::Deadlock(_))), "{}: set {n}: {found:?}", kernel.name);
        }
        for n in 0..count(&program, &wait) {
            let found = verify(&without_nth(&program, n, &wait), &small());
            // Left over, set again, or the missing order itself, whichever is met first.
            let noticed = matches!(
                found,
                Err(Violation::SetTwice(_) | Violation::LeftSet(_) | Violation::Hazard { .. })
            );
            assert!(noticed, "{}: wait {n}: {found:?}", kernel.name);
        }
    }
}

#[test]
fn too_many_slots_event_ids_and_tiles_are_noticed() {
    let kernel = &kernels()[0];
    let program = derive(kernel, &small()).expect("the kernel is scheduled");
    let mut large = program.clone();
    large.tiles[0].rows *= 100;
    assert!(matches!(verify(&large, &small()), Err(Violation::Memory { .. })));
    let mut ids = program.clone();
    ids.flags[0].id = 8;
    assert!(matches!(verify(&ids, &small()), Err(Violation::EventIds(_))));
    // One slot where the flags count on two.
    let mut slots = program.clone();
    slots.tiles.iter_mut().for_each(|t| t.slots = 1);
    assert!(matches!(verify(&slots, &small()), Err(Violation::Hazard { .. })));
    // Two flags that are set at the same time, with one event id.
    let mut shared = program;
    let flag = |slots| FlagDecl { unit: Unit::Aiv, src: Pipe::V, dst: Pipe::Mte2, slots, id: 0 };
    let first = FlagId(shared.flags.len() as u32);
    shared.flags.extend([flag(2), flag(1)]);
    let second = FlagId(first.0 + 1);
    let (one, other) = (Turn::Fixed(0), Turn::Fixed(1));
    let body = &mut shared.units[0].body;
    body.extend([Item::Set(first, other), Item::Set(second, one)]);
    body.extend([Item::Wait(first, other), Item::Wait(second, one)]);
    verify(&shared, &small()).expect("ids 1 and 0 are apart");
    shared.flags[second.0 as usize].id = 1;
    assert!(matches!(verify(&shared, &small()), Err(Violation::SetTwice(_))));
}

/// Runs a program's source in the emulator on random inputs.
fn emulate(group: &RowGroup, kernel: &Kernel, source: &str) -> Result<(), EmulateError> {
    let tensors = inputs(group, 5);
    let mut memory: Vec<Vec<u8>> = kernel
        .params
        .iter()
        .map(|p| match tensors.get(&p.name) {
            Some(tensor) => tensor.bytes.clone(),
            None => vec![0; (p.elements() * p.dtype.bytes()) as usize],
        })
        .collect();
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    Emulated::new(kernel, source, &small())?.run(&mut slices, &[])
}

/// The two checks share nothing: one executes the program abstractly, one its source on numbers.
#[test]
fn the_emulator_notices_what_the_verifier_notices() {
    // Seven tiles a block: both slots of every buffer are used again.
    let group = norms::add_rms_norm(61, 200, DType::BF16, 1e-5);
    let kernel = build_rows(&group, &small()).expect("the group builds").kernels.remove(0);
    let program = derive(&kernel, &small()).expect("the kernel is scheduled");
    emulate(&group, &kernel, &emit(&kernel, &small()).expect("a source")).expect("the correct source runs");
    let barrier = |item: &Item| matches!(item, Item::Barrier(_));
    let flags = (0..program.flags.len()).map(|n| without_flag(&program, FlagId(n as u32)));
    let barriers = (0..count(&program, &barrier)).step_by(8).map(|n| without_nth(&program, n, &barrier));
    for faulty in flags.chain(barriers) {
        let source = print(&faulty).expect("a source");
        let found = emulate(&group, &kernel, &source);
        assert!(matches!(found, Err(EmulateError::Rejected { code: 8, .. })), "{found:?}\n{source}");
    }
}

/// A cube core that hands tiles to a vector core through a workspace of two slots, and gets them back.
fn handing_over() -> Program {
    let l = LoopId(0);
    let tile = |name: &str, unit| Tile {
        name: name.to_owned(),
        unit,
        dtype: DType::F32,
        rows: 16,
        lanes: 16,
        pitch: 16,
        column: false,
        slots: 1,
        rotates: None,
        usage: TileUse::Computed,
    };
    let handover = |name: &str, from, to, id| Handover {
        name: name.to_owned(),
        from,
        to,
        id,
        dtype: DType::F32,
        shape: [16, 16],
        slots: 2,
    };
    let (scores, free) = (HandoverId(0), HandoverId(1));
    let workspace = Resource::Handover(scores, Turn::Of(l));
    let op = |name: &str, pipe, accesses: Vec<(Resource, bool)>| {
        let accesses = accesses.into_iter().map(|(resource, write)| Access { resource, write }).collect();
        Item::Op(Op::Opaque { name: name.to_owned(), pipe, accesses })
    };
    let [c, v] = [Resource::Tile(TileId(0)), Resource::Tile(TileId(1))];
    let repeat = |body| {
        let (start, end) = (Affine::zero(), Bound::at(8));
        Item::For(Loop { id: l, name: "keys".to_owned(), start, end, step: 1, body })
    };
    let flag = |unit, src, dst, id| FlagDecl { unit, src, dst, slots: 1, id };
    let at = Turn::Fixed(0);
    let cube = vec![
        Item::Set(FlagId(1), at),
        repeat(vec![
            Item::Wait(FlagId(1), at),
            op("mmad", Pipe::M, vec![(c.clone(), true)]),
            Item::Set(FlagId(0), at),
            Item::Wait(FlagId(0), at),
            Item::CrossWait(free, Pipe::Fix),
            op("fixpipe", Pipe::Fix, vec![(c, false), (workspace.clone(), true)]),
            Item::CrossSet(scores, Pipe::Fix),
            Item::Set(FlagId(1), at),
        ]),
        Item::Wait(FlagId(1), at),
        Item::CrossWait(free, Pipe::Fix),
        Item::CrossWait(free, Pipe::Fix),
    ];
    let vector = vec![
        Item::CrossSet(free, Pipe::Mte2),
        Item::CrossSet(free, Pipe::Mte2),
        Item::Set(FlagId(3), at),
        repeat(vec![
            Item::CrossWait(scores, Pipe::Mte2),
            Item::Wait(FlagId(3), at),
            op("load", Pipe::Mte2, vec![(workspace, false), (v.clone(), true)]),
            Item::CrossSet(free, Pipe::Mte2),
            Item::Set(FlagId(2), at),
            Item::Wait(FlagId(2), at),
            op("softmax", Pipe::V, vec![(v, false)]),
            Item::Set(FlagId(3), at),
        ]),
        Item::Wait(FlagId(3), at),
    ];
    Program {
        name: "attention".to_owned(),
        origin: String::new(),
        grid: Vec::new(),
        params: Vec::new(),
        scalars: Vec::new(),
        tiles: vec![tile("c", Unit::Aic), tile("v", Unit::Aiv)],
        flags: vec![
            flag(Unit::Aic, Pipe::M, Pipe::Fix, 0),
            flag(Unit::Aic, Pipe::Fix, Pipe::M, 0),
            flag(Unit::Aiv, Pipe::Mte2, Pipe::V, 0),
            flag(Unit::Aiv, Pipe::V, Pipe::Mte2, 0),
        ],
        handovers: vec![
            handover("scores", Unit::Aic, Unit::Aiv, 0),
            handover("free", Unit::Aiv, Unit::Aic, 1),
        ],
        units: vec![
            UnitProgram { unit: Unit::Aic, body: cube },
            UnitProgram { unit: Unit::Aiv, body: vector },
        ],
    }
}

#[test]
fn hand_overs_between_units_are_checked() {
    let program = handing_over();
    verify(&program, &small()).expect("the program is right");
    for n in 0..program.flags.len() {
        let found = verify(&without_flag(&program, FlagId(n as u32)), &small());
        assert!(matches!(found, Err(Violation::Hazard { .. })), "flag {n}: {found:?}");
    }
    for id in [HandoverId(0), HandoverId(1)] {
        let crossing = |item: &Item| match item {
            Item::CrossSet(h, _) | Item::CrossWait(h, _) => *h == id,
            _ => false,
        };
        // Without the signal in one direction the workspace is read or overwritten too early.
        let found = verify(&without(&program, &mut |item| crossing(item)), &small());
        assert!(matches!(found, Err(Violation::Hazard { .. })), "hand-over {id:?}: {found:?}");
        // With the waits alone, nothing moves.
        let set = |item: &Item| crossing(item) && matches!(item, Item::CrossSet(..));
        let found = verify(&without(&program, &mut |item| set(item)), &small());
        assert!(matches!(found, Err(Violation::Deadlock(_))), "hand-over {id:?}: {found:?}");
    }
}

/// What the row family builds for the real device can always be scheduled: scratch and event ids suffice.
#[test]
fn every_shape_is_scheduled() {
    let device = DeviceSpec::ascend_910b3();
    let mut doubled = 0;
    for rows in [1, 100, 65536] {
        for cols in [1, 63, 1003, 5120, 14336, 65536] {
            for dtype in [DType::F32, DType::BF16] {
                let groups = [
                    norms::rms_norm(rows, cols, dtype, 1e-5),
                    norms::add_rms_norm(rows, cols, dtype, 1e-5),
                    norms::rms_norm_grad(rows, cols, dtype, true),
                ];
                for group in groups {
                    for kernel in build_rows(&group, &device).expect("the group builds").kernels {
                        let program = derive(&kernel, &device);
                        let program = program.unwrap_or_else(|e| panic!("{rows}x{cols} {dtype}: {e}"));
                        doubled += usize::from(program.tiles.iter().any(|t| t.slots == 2));
                    }
                }
            }
        }
    }
    assert!(doubled > 50, "transfers overlap computation in only {doubled} kernels");
}
