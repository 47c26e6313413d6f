//! Plan files: what is written is read; whatever else is read ends in a coded error, and nothing panics.

mod support;

use msc_ir::program::check::ProgramError;
use msc_ir::program::{Action, Placement, Program, RankClass};
use msc_ir::text::parse;
use msc_ir::{ConstId, Operation};
use msc_runtime::plan::{
    Kernel, Plan, PlanError, PlanSource, encode, fuzz_plan, fuzz_sections, print, write,
};
use support::{STEP, bytes_of, lower, lower_with, meta};

fn module() -> msc_ir::Module {
    parse(STEP).expect("the text is right")
}

fn bytes() -> Vec<u8> {
    let m = module();
    bytes_of(&m, &[lower_with(&m, true)], &[Kernel { name: "k".into(), payload: vec![1; 100] }])
}

fn code(r: Result<Plan, PlanError>) -> String {
    match r {
        Ok(_) => "read".into(),
        Err(e) => e.to_string().split(':').next().unwrap_or_default().to_string(),
    }
}

#[test]
fn what_is_written_is_read() {
    let m = module();
    let p = lower_with(&m, true);
    let plan = Plan::from_bytes(&bytes()).expect("the plan is right");
    assert_eq!(plan.meta, meta());
    assert_eq!((plan.kernels[0].name.as_str(), plan.kernels[0].payload.len()), ("k", 100));
    let q = &plan.programs[0];
    assert_eq!((&q.mesh, &q.class, q.arena_bytes), (&p.mesh, &p.class, p.arena_bytes));
    assert_eq!((&q.inputs, &q.outputs, &q.streams), (&p.inputs, &p.outputs, &p.streams));
    assert_eq!((&q.entry.params, &q.entry.results), (&p.entry.params, &p.entry.results));
    for (a, b) in p.instructions.iter().zip(&q.instructions) {
        assert_eq!((a.stream, &a.reads, &a.writes), (b.stream, &b.reads, &b.writes));
        assert_eq!(m.locations.describe(a.loc), plan.module.locations.describe(b.loc));
        match (&a.action, &b.action) {
            (Action::Interpret(f), Action::Interpret(g)) => assert_eq!(f.attrs(&m), g.attrs(&plan.module)),
            (f, g) => assert_eq!(f, g),
        }
    }
    // Only what instructions refer to is in the plan: the callee, and no entry graph.
    let graphs: Vec<&str> = plan.module.graphs().map(|(_, g)| g.name.as_str()).collect();
    assert_eq!(graphs, ["scaled"]);
    for (b, c) in p.buffers.iter().zip(&q.buffers) {
        assert_eq!((&b.ty, &b.name), (&c.ty, &c.name));
        if let (Placement::Constant(x), Placement::Constant(y)) = (b.placement, c.placement) {
            let data = plan.constant(y).expect("a constant");
            assert_eq!(m.constants.get(x).tensor().data.bytes(), &data[..]);
            // Dense constants are used where they are.
            if let std::borrow::Cow::Borrowed(d) = data {
                assert_eq!(d.as_ptr() as usize % 512, 0);
            }
        }
    }
    assert_eq!(plan.constant(ConstId(99)), None);
    let text = print(&plan);
    assert!(text.contains("communication.1 collective all_gather on communicator 0"), "{text}");
}

#[test]
fn the_same_plan_has_the_same_bytes() {
    assert_eq!(bytes(), bytes());
}

#[test]
fn files_are_mapped_and_replaced_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.bin");
    let m = module();
    let (meta, programs) = (meta(), [lower(&m)]);
    let source = PlanSource { meta: &meta, module: &m, programs: &programs, kernels: &[] };
    write(&source, &path).expect("it is written");
    let first = Plan::open(&path).expect("it is read");
    write(&source, &path).expect("it is replaced");
    assert_eq!(std::fs::read(&path).expect("bytes"), encode(&source).expect("bytes"));
    // The old file lives as long as its mapping.
    assert_eq!(print(&first), print(&Plan::open(&path).expect("it is read")));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    assert_eq!(code(Plan::open(&folder.path().join("none"))), "MSC-P0001");
    std::fs::write(&path, b"").expect("an empty file");
    assert_eq!(code(Plan::open(&path)), "MSC-P0002");
}

#[test]
fn every_flipped_bit_is_found() {
    let good = bytes();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let found = code(fuzz_plan(&bad));
        let want: &[&str] = match at {
            0..8 => &["MSC-P0002"],
            8..12 => &["MSC-P0003"],
            16..24 => &["MSC-P0004", "MSC-P0005"],
            _ => &["MSC-P0005"],
        };
        assert!(want.contains(&found.as_str()), "byte {at}: {found}");
    }
}

#[test]
fn every_truncation_and_extension_is_found() {
    let good = bytes();
    for length in 0..good.len() {
        let found = code(fuzz_plan(&good[..length]));
        assert!(found == "MSC-P0004" || (length < 8 && found == "MSC-P0002"), "{length}: {found}");
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(code(fuzz_plan(&longer)), "MSC-P0005");
    let mut newer = good;
    newer[8] = 3;
    let message = fuzz_plan(&newer).expect_err("a newer plan").to_string();
    assert_eq!(message, "MSC-P0003: the plan has format 3, this msc reads format 2: use a newer msc");
}

/// Mutations behind the hashes: bytes flipped, inserted, removed, and pieces moved, in every section.
#[test]
fn no_mutated_section_panics() {
    let good = bytes();
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n.max(1)
    };
    let (mut refused, mut rounds) = (0, 0);
    for round in 0..12_000 {
        let target = round % 6;
        let mutate = |n: usize, b: &mut Vec<u8>| {
            if n != target || b.is_empty() {
                return;
            }
            for _ in 0..1 + random(3) {
                let at = random(b.len());
                match random(6) {
                    0 => b[at] ^= 1 << random(8),
                    1 => b[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                    2 => b.insert(at, random(256) as u8),
                    3 if b.len() > 1 => drop(b.remove(at)),
                    4 => b.truncate(at.max(1)),
                    _ => {
                        let piece = b[at..(at + random(16)).min(b.len())].to_vec();
                        let to = random(b.len());
                        b.splice(to..to, piece);
                    }
                }
            }
        };
        match fuzz_sections(&good, mutate) {
            Ok(_) => {}
            Err(e) => {
                assert!(e.to_string().starts_with("MSC-P"), "{e}");
                refused += 1;
            }
        }
        rounds += 1;
    }
    // Names and locations may change freely; most else may not.
    assert!(refused * 2 > rounds, "{refused} of {rounds}");
}

fn refused(change: impl FnOnce(&mut Vec<Program>)) -> PlanError {
    let m = module();
    let mut programs = vec![lower(&m)];
    change(&mut programs);
    let meta = meta();
    encode(&PlanSource { meta: &meta, module: &m, programs: &programs, kernels: &[] })
        .expect_err("the program is wrong")
}

fn class(fixed: &[usize]) -> RankClass {
    RankClass { fixed: fixed.iter().map(|&c| (msc_ir::module::AxisId(0), c)).collect() }
}

#[test]
fn wrong_programs_are_not_written() {
    let program = |e: PlanError| match e {
        PlanError::Program { error, .. } => error,
        e => panic!("{e}"),
    };
    // A rank in no class, a rank in two, no program at all.
    let e = refused(|p| p[0].class = class(&[1]));
    assert!(matches!(program(e), ProgramError::Coverage { .. }));
    let e = refused(|p| {
        let mut second = p[0].clone();
        second.class = class(&[1]);
        p.push(second);
    });
    assert!(matches!(program(e), ProgramError::Coverage { .. }));
    let e = refused(|p| p.clear());
    assert!(matches!(program(e), ProgramError::Coverage { .. }));
    // An op whose buffers have other types; a kernel, a constant that do not exist.
    let e = refused(|p| {
        let i = p[0].instructions.iter_mut().find(|i| i.reads.len() == 2).expect("a binary op");
        i.reads.swap(0, 1);
    });
    assert!(matches!(program(e), ProgramError::Form { .. }));
    let e = refused(|p| {
        p[0].instructions[0].action = Action::Kernel(msc_ir::program::KernelId(0));
    });
    assert!(matches!(program(e), ProgramError::Dangling { .. }));
    let e = refused(|p| {
        let b = p[0].buffers.iter_mut().find(|b| matches!(b.placement, Placement::Constant(_)));
        b.expect("a constant").placement = Placement::Constant(ConstId(77));
    });
    assert!(matches!(program(e), ProgramError::Entry { .. }));
}

#[test]
fn rank_classes_have_programs_of_their_own() {
    let m = module();
    let mut programs = vec![lower(&m), lower(&m)];
    for (n, p) in programs.iter_mut().enumerate() {
        p.class = class(&[n]);
    }
    // The second class has its memory in other places.
    for b in &mut programs[1].buffers {
        if let Placement::Arena(at) = &mut b.placement {
            *at += 512;
        }
    }
    programs[1].arena_bytes += 512;
    let plan = Plan::from_bytes(&bytes_of(&m, &programs, &[])).expect("the plan is right");
    assert_eq!(plan.program_of(1).arena_bytes, programs[1].arena_bytes);
    assert_eq!(plan.program_of(0).class, programs[0].class);
}
