//! Parameters that lie in one tensor keep their names outside: set, run, gathered, saved, one by one.

mod support;

use msc_ir::text::parse;
use msc_ir::{DType, Tensor, TensorType};
use msc_runtime::data::shards::{Shards, placed, write_state};
use msc_runtime::exec::{NoKernels, Options, RunError, Session};
use msc_runtime::plan::{Plan, PlanSource, encode};
use std::path::Path;
use std::sync::Arc;
use support::{lower, meta, plan_of};

/// Four vectors, two on each rank; every step adds `x` to each.
const STEP: &str = r#"module @stacks mesh [ep = 2]

graph @main(%0: f32[2,3], %1: f32[3]) {
  %2 = broadcast_in_dim %1 {dims = [1], shape = [2, 3]} : f32[2,3]
  %3 = add %0, %2 : f32[2,3]
  %4 = reduce %3 {dims = [0, 1], monoid = sum} : f32[]
  %5 = all_reduce %4 {axes = [0], monoid = sum} : f32[]
  return %5, %3
}

entry "train" @main {
  param "w" alias 1 stack ["w.0" 0, "w.1" 1, "w.2" 3, "w.3" 4] sharding [[0], []]
  param "x"
  result "loss"
  result "w" stack ["w.0" 4, "w.1" 3, "w.2" 2, "w.3" 1] sharding [[0], []]
}
"#;

fn vector(of: f64) -> Tensor {
    Tensor::from_f64s(&TensorType::new(DType::F32, [3]), &[of, of + 0.25, of + 0.5])
}

fn plan() -> Arc<Plan> {
    let m = parse(STEP).expect("the text is right");
    plan_of(&m, &[lower(&m)], &[])
}

/// A session with `w.i` of 10·i, and `x` of 1.
fn session(plan: &Arc<Plan>) -> Session {
    let mut s = Session::new(plan.clone(), Arc::new(NoKernels), &Options::default()).expect("starts");
    for (n, of) in [(0, 0.0), (1, 10.0), (3, 20.0), (4, 30.0)] {
        s.set_input(n, vector(of)).expect("an input");
    }
    let ones = Tensor::from_f64s(&TensorType::new(DType::F32, [3]), &[1.0; 3]);
    s.set_input(2, ones).expect("an input");
    s
}

#[test]
fn the_outside_sees_each_by_itself() {
    let plan = plan();
    let e = plan.entry();
    let names: Vec<&str> = e.params.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["w.0", "w.1", "x", "w.2", "w.3"]);
    let aliases: Vec<Option<u32>> = e.params.iter().map(|p| p.alias).collect();
    assert_eq!(aliases, [Some(4), Some(3), None, Some(2), Some(1)]);
    let mut s = session(&plan);
    assert_eq!(s.input_type(3), Some(TensorType::new(DType::F32, [3])));
    for _ in 0..2 {
        s.step().expect("runs");
    }
    for (result, of) in [(4, 0.0), (3, 10.0), (2, 20.0), (1, 30.0)] {
        let (t, divergence) = s.output(result).expect("a result");
        assert_eq!((t, divergence), (vector(of + 2.0), None), "{}", e.results[result].name);
    }
    assert_eq!(s.output(0).expect("a loss").0.data.get_f64(0), 3.0 * (2.0 * 4.0 + 60.0) + 4.0 * 0.75);
    // One that is set in between changes nothing of those beside it.
    s.set_input(1, vector(-7.0)).expect("an input");
    s.step().expect("runs");
    assert_eq!(s.output(3).expect("a result").0, vector(-6.0));
    assert_eq!(s.output(4).expect("a result").0, vector(3.0));
}

#[test]
fn each_is_stored_by_the_rank_that_holds_it() {
    let plan = plan();
    let owner = |n: usize| -> Vec<usize> {
        placed(&plan, n, Path::new("plan")).expect("covered").blocks.iter().map(|b| b.0).collect()
    };
    assert_eq!([0, 1, 2, 3, 4].map(owner), [[0], [0], [0], [1], [1]]);
    let folder = tempfile::tempdir().expect("a folder");
    let (to, t) = (folder.path().join("state"), vector(5.0));
    let tensors = [("w.1", &t), ("w.3", &t)];
    std::fs::create_dir(&to).expect("a folder");
    write_state(&plan, &to, &tensors, Some(1)).expect("writes");
    let shards = Shards::open(&to).expect("opens");
    assert_eq!(shards.names(), ["w.1", "w.3"]);
    assert_eq!(shards.tensor("w.3").expect("there"), t);
    assert!(to.join("rank-00001.safetensors").is_file());
}

#[test]
fn what_lies_together_carries_over_together() {
    let m = parse(&STEP.replace(" alias 1", "")).expect("the text is right");
    let plan = plan_of(&m, &[lower(&m)], &[]);
    let open = |carry: &[(usize, usize)]| {
        let options = Options { carry: carry.to_vec(), ..Options::default() };
        Session::new(plan.clone(), Arc::new(NoKernels), &options).map(|_| ())
    };
    assert!(open(&[(4, 0), (3, 1), (2, 3), (1, 4)]).is_ok());
    let all_or_none = open(&[(4, 0), (3, 1)]);
    assert!(matches!(all_or_none, Err(RunError::Carry { .. })), "{all_or_none:?}");
    let crossed = open(&[(3, 0), (4, 1), (2, 3), (1, 4)]);
    assert!(matches!(crossed, Err(RunError::Carry { .. })), "{crossed:?}");
}

#[test]
fn plans_whose_stacks_contradict_each_other_are_refused() {
    let m = parse(STEP).expect("the text is right");
    let good = lower(&m);
    for change in 0..5 {
        let mut p = good.clone();
        let (params, results) = (&mut p.entry.params, &mut p.entry.results);
        match change {
            0 => params[0].stack[1].number = 0,
            1 => params[0].stack[1].number = u32::MAX,
            2 => params[0].stack.truncate(3),
            3 => results[1].stack.clear(),
            _ => params[1].stack = params[0].stack.clone(),
        }
        let programs = [p];
        let source = PlanSource { meta: &meta(), module: &m, programs: &programs, kernels: &[] };
        let refused = encode(&source).map(|_| ()).expect_err("contradicts itself").to_string();
        assert!(refused.starts_with("MSC-"), "{refused}");
    }
}
