//! Programs run on real ranks and agree with the interpreter; what fails is told once and hangs no one.

mod support;

use msc_ir::interp::{Mode, run_ranks};
use msc_ir::program::KernelId;
use msc_ir::text::parse;
use msc_ir::{Storage, Tensor};
use msc_runtime::exec::fault::{Fault, Kind};
use msc_runtime::exec::{
    KernelArg, KernelLauncher, LaunchContext, NoKernels, Options, RunError, Session, run,
};
use msc_runtime::layout::{Block, block_start};
use msc_runtime::plan::{Kernel, Plan};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{STEP, lower, lower_with, plan_of, step_inputs};

/// The step in the interpreter, all ranks in lockstep, state fed back: results of the last step, per rank.
fn reference(steps: usize) -> Vec<Vec<Tensor>> {
    let m = parse(STEP).expect("the text is right");
    let entry = m.entries[0].clone();
    let g = m.graph(entry.graph);
    let mut inputs: Vec<Vec<Tensor>> = (0..2)
        .map(|rank| {
            let local = |(n, t): (usize, Tensor)| {
                let ty = g.ty(g.params()[n]);
                t.block(&block_start(ty, &entry.params[n].sharding, &m.mesh, rank), &ty.shape)
            };
            step_inputs().into_iter().enumerate().map(local).collect()
        })
        .collect();
    let mut results = Vec::new();
    for _ in 0..steps {
        results = run_ranks(&m, entry.graph, &inputs, Mode::Spec).expect("the step runs");
        for (i, r) in inputs.iter_mut().zip(&results) {
            for (slot, info) in i.iter_mut().zip(&entry.params) {
                if let Some(a) = info.alias {
                    *slot = r[a as usize].clone();
                }
            }
        }
    }
    results
}

#[test]
fn two_ranks_train_as_the_interpreter_does() {
    let m = parse(STEP).expect("the text is right");
    let program = lower(&m);
    let plan = plan_of(&m, std::slice::from_ref(&program), &[]);
    let mut losses = Vec::new();
    let outcome = run(plan, Arc::new(NoKernels), step_inputs(), 3, &Options::default(), &mut |s, report| {
        assert_eq!(report.step + 1, s.steps());
        losses.push(s.output(0).expect("a loss").0.data.get_f64(0));
        ControlFlow::Continue(())
    })
    .expect("the steps run");
    assert_eq!((outcome.steps, losses.len()), (3, 3));
    assert!(losses[2] < losses[0], "{losses:?}");
    assert_eq!(outcome.divergences, []);
    let want = reference(3);
    for (n, got) in outcome.outputs.iter().enumerate() {
        for (rank, rank_want) in want.iter().enumerate() {
            let ty = rank_want[n].ty();
            let sharding = &m.entries[0].results[n].sharding;
            let mut block = vec![0; ty.bytes()];
            Block::of_rank(&ty, sharding, &m.mesh, rank).cut(got.data.bytes(), &mut block);
            assert_eq!(block, rank_want[n].data.bytes(), "result {n}, rank {rank}");
        }
    }
    assert_eq!(outcome.outputs[3].data, Storage::I32(vec![6]));
}

#[test]
fn inputs_can_change_and_the_run_can_end_between_steps() {
    let m = parse(STEP).expect("the text is right");
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let mut seen = Vec::new();
    let outcome = run(plan, Arc::new(NoKernels), step_inputs(), 9, &Options::default(), &mut |s, report| {
        // Results stay readable after an input is set, and the input's next value is what was set.
        s.set_input(4, Tensor::new([], Storage::I32(vec![100]))).expect("a count");
        seen.push(s.output(3).expect("a count").0.data.get_i64(0));
        assert_eq!(s.input(4).expect("set").data.get_i64(0), 100);
        assert_eq!(s.input(0).expect("state"), s.output(1).expect("state").0);
        assert_eq!(s.input(2).expect("x"), step_inputs()[2]);
        if report.step == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("the steps run");
    assert_eq!(seen, [4, 101, 101]);
    assert_eq!(outcome.steps, 3);
}

#[test]
fn carried_results_replace_parameters_without_an_alias() {
    let text = STEP.replace("param \"count\" alias 3", "param \"count\"");
    let m = parse(&text).expect("the text is right");
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let count = |options: &Options| {
        let mut last = 0;
        run(Arc::clone(&plan), Arc::new(NoKernels), step_inputs(), 3, options, &mut |s, _| {
            last = s.output(3).expect("a count").0.data.get_i64(0);
            ControlFlow::Continue(())
        })
        .map(|_| last)
    };
    assert_eq!(count(&Options::default()), Ok(4));
    assert_eq!(count(&Options { carry: vec![(3, 4)], ..Options::default() }), Ok(6));
    for wrong in [(0, 2), (1, 1), (9, 0), (0, 9)] {
        let e = count(&Options { carry: vec![wrong], ..Options::default() });
        assert!(matches!(e, Err(RunError::Carry { .. })), "{wrong:?}: {e:?}");
    }
}

#[test]
fn wrong_inputs_are_the_users() {
    let m = parse(STEP).expect("the text is right");
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let mut s = Session::new(plan, Arc::new(NoKernels), &Options::default()).expect("ranks start");
    let e = s.set_input(0, step_inputs()[2].clone()).expect_err("another shape");
    assert_eq!(e.to_string(), "MSC-R0001: input 0 (w) is f32[2,4], should be f32[4,6]");
    assert!(s.set_input(5, step_inputs()[2].clone()).is_err());
    let e = s.step().expect_err("nothing is set").to_string();
    assert!(e.contains("input 0 (w) is not set"), "{e}");
    assert!(matches!(s.output(0), Err(RunError::Order { .. })));
}

/// Runs kernel 0 as `out = in`, and does something bad at one place.
struct Faulty {
    rank: usize,
    step: usize,
    fault: fn() -> Result<(), String>,
}

impl KernelLauncher for Faulty {
    unsafe fn launch(&self, _: KernelId, args: &[KernelArg], cx: LaunchContext) -> Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(args[0].data, args[1].data, args[0].bytes) };
        if (cx.rank, cx.step) == (self.rank, self.step) { (self.fault)() } else { Ok(()) }
    }
}

/// The step with a kernel after its first op.
fn with_kernel() -> Arc<Plan> {
    let m = parse(STEP).expect("the text is right");
    let kernel = Kernel { name: "pass_on".into(), payload: vec![1, 2, 3] };
    plan_of(&m, &[lower_with(&m, true)], &[kernel])
}

/// Longer than a busy machine takes to print a panic's stack.
const LONG: Duration = Duration::from_secs(60);

fn faulty(
    rank: usize,
    step: usize,
    timeout: Duration,
    fault: fn() -> Result<(), String>,
) -> (String, Duration) {
    let options = Options { comm_timeout: timeout, ..Options::default() };
    let kernels = Arc::new(Faulty { rank, step, fault });
    let begun = Instant::now();
    let e = run(with_kernel(), kernels, step_inputs(), 3, &options, &mut |_, _| ControlFlow::Continue(()))
        .expect_err("the fault is seen");
    (e.to_string(), begun.elapsed())
}

#[test]
fn a_kernel_runs_between_ops() {
    let kernels = Arc::new(Faulty { rank: 9, step: 9, fault: || Ok(()) });
    let outcome = run(with_kernel(), kernels, step_inputs(), 2, &Options::default(), &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect("the steps run");
    let want = reference(2);
    assert_eq!(outcome.outputs[0], want[0][0]);
}

#[test]
fn a_failing_kernel_stops_all_ranks_with_one_message() {
    let (message, took) = faulty(1, 2, LONG, || Err("division by zero".into()));
    assert_eq!(
        message,
        "MSC-R0004: rank 1, step 2, instruction 1 (kernel pass_on), step.mlir:7:3 (hidden): division by zero"
    );
    assert!(took < LONG, "{took:?}");
}

#[test]
fn a_panic_is_caught_and_placed() {
    let (message, took) = faulty(0, 1, LONG, || panic!("seeded"));
    assert_eq!(
        message,
        "MSC-R0006: internal: rank 0, step 1, instruction 1 (kernel pass_on), step.mlir:7:3 (hidden): seeded"
    );
    assert!(took < LONG, "{took:?}");
}

#[test]
fn a_stalled_rank_is_named_by_those_that_wait() {
    let (message, took) = faulty(1, 1, Duration::from_millis(500), || {
        std::thread::sleep(Duration::from_secs(30));
        Ok(())
    });
    assert!(took < Duration::from_secs(10), "{took:?}");
    let want = "MSC-R0010: rank 1, step 1, instruction 1 (kernel pass_on), step.mlir:7:3 (hidden): it does not get \
                on; rank 0, step 1, instruction 3 (collective all_gather over tp, ranks 0 1), step.mlir:8:3 \
                (gathered) waited 0.5 s for it";
    assert_eq!(message, want);
}

/// After the last collective nobody waits for a rank but the end of the step.
#[test]
fn a_rank_that_does_not_end_its_step_is_named() {
    let m = parse(STEP).expect("the text is right");
    let program = lower(&m);
    let instruction = program.instructions.len() - 1;
    let fault = Some(Fault { kind: Kind::Stall, rank: 1, step: 1, instruction });
    let options = Options { comm_timeout: Duration::from_millis(500), fault, ..Options::default() };
    let plan = plan_of(&m, &[program], &[]);
    let begun = Instant::now();
    let e = run(plan, Arc::new(NoKernels), step_inputs(), 3, &options, &mut |_, _| ControlFlow::Continue(()))
        .expect_err("the fault is seen");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let (said, place) =
        (e.to_string(), format!("MSC-R0010: rank 1, step 1, instruction {instruction} (interpret add)"));
    assert!(said.starts_with(&place), "{said}");
    assert!(
        said.ends_with("it does not get on; rank 0, which has ended the step, waited 0.5 s for it"),
        "{said}"
    );
}

#[test]
fn a_session_that_failed_says_so() {
    let kernels = Arc::new(Faulty { rank: 0, step: 0, fault: || Err("no".into()) });
    let mut s = Session::new(with_kernel(), kernels, &Options::default()).expect("ranks start");
    for (n, t) in step_inputs().into_iter().enumerate() {
        s.set_input(n, t).expect("an input");
    }
    assert!(matches!(s.step(), Err(RunError::Kernel { .. })));
    assert!(matches!(s.step(), Err(RunError::Order { .. })));
    assert!(matches!(s.output(0), Err(RunError::Order { .. })));
}

#[test]
fn a_plan_without_its_kernels_is_refused_when_it_meets_one() {
    let e = run(with_kernel(), Arc::new(NoKernels), step_inputs(), 1, &Options::default(), &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect_err("no kernels");
    assert!(matches!(e, RunError::Kernel { .. }), "{e}");
}

#[test]
fn ranks_that_differ_in_a_common_result_are_reported() {
    // Each rank's own coordinate, declared to be the same on all.
    let text = "module @m mesh [dp = 2, tp = 2]\n\ngraph @main() {\n  %0 = axis_index {axis = 1} : i32[]\n  \
                return %0\n}\n\nentry \"e\" @main {\n  result \"which\"\n}\n";
    let m = parse(text).expect("the text is right");
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let outcome =
        run(plan, Arc::new(NoKernels), vec![], 1, &Options::default(), &mut |_, _| ControlFlow::Continue(()))
            .expect("the step runs");
    let told: Vec<String> = outcome.divergences.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["MSC-R0102: ranks 0 and 1 differ in which, element 0 of their common block"]);
}

/// Every collective, over each axis and both, along the first dimension and others.
const COLLECTIVES: &str = r#"module @all mesh [dp = 2, tp = 3]

graph @main(%0: f32[6,12]) {
  %1 = all_reduce %0 {axes = [0], monoid = sum} : f32[6,12]
  %2 = all_reduce %0 {axes = [0, 1], monoid = max} : f32[6,12]
  %3 = all_gather %0 {axes = [1], dim = 0} : f32[18,12]
  %4 = all_gather %0 {axes = [0, 1], dim = 1} : f32[6,72]
  %5 = reduce_scatter %0 {axes = [1], dim = 0, monoid = sum} : f32[2,12]
  %6 = reduce_scatter %0 {axes = [0, 1], dim = 1, monoid = sum} : f32[6,2]
  %7 = all_to_all %0 {axes = [1], concat_dim = 1, split_dim = 0} : f32[2,36]
  %8 = all_to_all %0 {axes = [0], concat_dim = 0, split_dim = 1} : f32[12,6]
  %9 = all_to_all %0 {axes = [0, 1], concat_dim = 1, split_dim = 1} : f32[6,12]
  %10 = collective_permute %0 {axes = [1], pairs = [0, 1, 1, 2]} : f32[6,12]
  %11 = collective_permute %0 {axes = [0, 1], pairs = [0, 3, 3, 0, 2, 2]} : f32[6,12]
  %12 = collective_broadcast %0 {axes = [1]} : f32[6,12]
  %13 = partition_id : u32[]
  %14 = reshape %13 {shape = [1]} : u32[1]
  return %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %14
}

entry "e" @main {
  param "x" sharding [[0, 1], []]
RESULTS}
"#;

#[test]
fn every_collective_gives_what_the_interpreter_does() {
    let results: String = (0..13)
        .map(|n| format!("  result \"r{n}\" sharding [[0, 1]{}]\n", if n < 12 { ", []" } else { "" }))
        .collect();
    let m = parse(&COLLECTIVES.replace("RESULTS", &results)).expect("the text is right");
    let local = |rank: usize| {
        let ty = msc_ir::TensorType::new(msc_ir::DType::F32, [6, 12]);
        let v: Vec<f64> = (0..72).map(|i| ((rank * 72 + i) as f64 * 0.7).sin()).collect();
        Tensor::from_f64s(&ty, &v)
    };
    let inputs: Vec<Vec<Tensor>> = (0..6).map(|r| vec![local(r)]).collect();
    let want = run_ranks(&m, m.entries[0].graph, &inputs, Mode::Spec).expect("it runs");
    let global = Tensor::new(
        [36, 12],
        Storage::F32(inputs.iter().flat_map(|r| r[0].data.to_f64s()).map(|x| x as f32).collect()),
    );
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let outcome = run(plan, Arc::new(NoKernels), vec![global], 2, &Options::default(), &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect("it runs");
    for (n, got) in outcome.outputs.iter().enumerate() {
        let bytes: Vec<u8> = want.iter().flat_map(|r| r[n].data.bytes().to_vec()).collect();
        assert_eq!(got.data.bytes(), bytes, "result {n}");
    }
}
