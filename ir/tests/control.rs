//! Loops and branches: semantics, trip counts, factor rules by splitting, ranks that take different ways.

use msc_ir::factor::FactorKind;
use msc_ir::interp::{Mode, run, run_ranks};
use msc_ir::ops::while_loop::trip_count;
use msc_ir::testing::Rng;
use msc_ir::testing::split::{check, pieces, rule_of};
use msc_ir::{DType, Module, Op, Tensor, TensorType, text};

/// `x ← tanh(x)·w` four times; carries: counter, x, w (unchanged), and the sum of a vector nobody splits.
const LOOP: &str = "module @m
graph @cond(%0: i32[], %1: f32[5,3], %2: f32[3], %3: f32[2]) {
  %4 = constant {value = splat i32[] 4} : i32[]
  %5 = compare %0, %4 {direction = LT} : i1[]
  return %5
}
graph @body(%0: i32[], %1: f32[5,3], %2: f32[3], %3: f32[2]) {
  %4 = constant {value = splat i32[] 1} : i32[]
  %5 = add %0, %4 : i32[]
  %6 = tanh %1 : f32[5,3]
  %7 = broadcast_in_dim %2 {dims = [1], shape = [5, 3]} : f32[5,3]
  %8 = multiply %6, %7 : f32[5,3]
  %9 = reverse %3 {dims = [0]} : f32[2]
  return %5, %8, %2, %9
}
graph @main(%0: f32[5,3], %1: f32[3], %2: f32[2]) {
  %3 = constant {value = splat i32[] 0} : i32[]
  %4, %5, %6, %7 = while %3, %0, %1, %2 {body = @body, cond = @cond} : i32[], f32[5,3], f32[3], f32[2]
  return %4, %5, %6, %7
}";

fn main_of(source: &str) -> (Module, msc_ir::GraphId) {
    let m = text::parse(source).expect("parses");
    assert_eq!(text::parse(&text::print(&m)).map(|n| text::print(&n)), Ok(text::print(&m)));
    let g = m.graph_by_name("main").expect("has @main");
    (m, g)
}

fn find(m: &Module, g: msc_ir::GraphId, name: &str) -> (msc_ir::OpId, Op) {
    use msc_ir::Operation;
    let (id, data) = m.graph(g).ops().find(|(_, d)| d.op.name() == name).expect("has the op");
    (id, data.op.clone())
}

#[test]
fn a_loop_runs_its_body_as_long_as_the_condition_holds() {
    let (m, g) = main_of(LOOP);
    let mut r = Rng::new(1);
    let inputs = [r.tensor(DType::F32, &[5, 3]), r.tensor(DType::F32, &[3]), r.tensor(DType::F32, &[2])];
    let out = run(&m, g, &inputs, Mode::Wide).expect("runs");
    assert_eq!(out[0].data.get_i64(0), 4);
    for i in 0..15 {
        let w = inputs[1].data.get_f64(i % 3);
        let want = (0..4).fold(inputs[0].data.get_f64(i), |x, _| x.tanh() * w);
        assert!((out[1].data.get_f64(i) - want).abs() < 1e-14);
    }
    assert_eq!(out[3].data.to_f64s(), inputs[2].data.to_f64s(), "reversed an even number of times");
    assert_eq!(trip_count(&m, m.graph(g), find(&m, g, "while").0), Some(4));
}

#[test]
fn trip_counts() {
    // (start, step op, step, direction, bound, bound on the left)
    for (start, op, step, direction, bound, left, want) in [
        (0, "add", 1, "LT", 8, false, Some(8)),
        (0, "add", 3, "LT", 8, false, Some(3)),
        (0, "add", 1, "LE", 8, false, Some(9)),
        (8, "subtract", 1, "GT", 0, false, Some(8)),
        (8, "add", -3, "GE", 0, false, Some(3)),
        (0, "add", 2, "NE", 8, false, Some(4)),
        (0, "add", 3, "NE", 8, false, None),
        (0, "add", 1, "GT", 8, true, Some(8)),
        (5, "add", 1, "LT", 5, false, Some(0)),
        (0, "add", 0, "LT", 5, false, None),
        (0, "subtract", 1, "LT", 5, false, None),
        (0, "multiply", 2, "LT", 5, false, None),
    ] {
        let (a, b) = if left { ("%1", "%0") } else { ("%0", "%1") };
        let (m, g) = main_of(&format!(
            "module @m
graph @c(%0: i32[], %1: i32[]) {{
  %2 = compare {a}, {b} {{direction = {direction}}} : i1[]
  return %2
}}
graph @b(%0: i32[], %1: i32[]) {{
  %2 = constant {{value = splat i32[] {step}}} : i32[]
  %3 = {op} %0, %2 : i32[]
  return %3, %1
}}
graph @main() {{
  %0 = constant {{value = splat i32[] {start}}} : i32[]
  %1 = constant {{value = splat i32[] {bound}}} : i32[]
  %2, %3 = while %0, %1 {{body = @b, cond = @c}} : i32[], i32[]
  return %2
}}"
        ));
        let got = trip_count(&m, m.graph(g), find(&m, g, "while").0);
        assert_eq!(got, want, "{start} {op} {step} {direction} {bound}");
        if let Some(n) = want {
            let out = run(&m, g, &[], Mode::Spec).expect("runs");
            let by = if op == "add" { step } else { -step };
            assert_eq!(out[0].data.get_i64(0), start + n as i64 * by, "the interpreter counts the same");
        }
    }
}

#[test]
fn a_loop_splits_where_its_carries_keep_their_layout() {
    let (m, g) = main_of(LOOP);
    let (_, op) = find(&m, g, "while");
    let mut r = Rng::new(2);
    let inputs = [
        Tensor::scalar(DType::I32, 0.0),
        r.tensor(DType::F32, &[5, 3]),
        r.tensor(DType::F32, &[3]),
        r.tensor(DType::F32, &[2]),
    ];
    let rule = rule_of(&m, &op, &inputs).expect("infers");
    let kinds: Vec<_> = rule.factors.iter().map(|f| (f.size, f.kind)).collect();
    assert_eq!(kinds, [(5, FactorKind::Pass), (3, FactorKind::Pass), (2, FactorKind::Whole)]);
    for f in [0, 1] {
        let p = pieces(rule.factors[f].size, 2, 1).expect("two shards");
        check(&m, &op, &inputs, &rule, &[(f, p)]).expect("splits");
    }
    let mut wrong = rule.clone();
    wrong.factors[2].kind = FactorKind::Pass;
    assert!(check(&m, &op, &inputs, &wrong, &[(2, vec![1, 1])]).is_err());
}

/// Carries a and b are exchanged and the sum of a feeds the scalar: their dimensions are one factor, and whole.
#[test]
fn carries_are_solved_to_a_fix_point() {
    let (m, g) = main_of(
        "module @m
graph @c(%0: f32[4], %1: f32[4], %2: f32[4], %3: f32[]) {
  %4 = constant {value = splat f32[] 9.0} : f32[]
  %5 = compare %3, %4 {direction = LT} : i1[]
  return %5
}
graph @b(%0: f32[4], %1: f32[4], %2: f32[4], %3: f32[]) {
  %4 = reduce %0 {dims = [0], monoid = sum} : f32[]
  %5 = add %3, %4 : f32[]
  %6 = negate %2 : f32[4]
  return %1, %0, %6, %5
}
graph @main(%0: f32[4], %1: f32[4], %2: f32[4], %3: f32[]) {
  %4, %5, %6, %7 = while %0, %1, %2, %3 {body = @b, cond = @c} : f32[4], f32[4], f32[4], f32[]
  return %4, %5, %6, %7
}",
    );
    let (_, op) = find(&m, g, "while");
    let one = Tensor::splat(&TensorType::new(DType::F32, [4]), 1.0);
    let inputs = [one.clone(), one.clone(), one, Tensor::scalar(DType::F32, 0.0)];
    let rule = rule_of(&m, &op, &inputs).expect("infers");
    assert_eq!(rule.operands[0], rule.operands[1]);
    assert_ne!(rule.operands[0], rule.operands[2]);
    let kinds: Vec<_> = rule.factors.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FactorKind::Whole, FactorKind::Pass]);
    check(&m, &op, &inputs, &rule, &[(1, vec![1, 3])]).expect("splits");
}

const CASE: &str = "module @m
graph @zero(%0: f32[5]) {
  %1 = negate %0 : f32[5]
  return %1
}
graph @one(%0: f32[5]) {
  %1 = multiply %0, %0 : f32[5]
  return %1
}
graph @main(%0: i32[], %1: i1[], %2: f32[5]) {
  %3 = case %0, %2 {branches = [@zero, @one]} : f32[5]
  %4 = if %1, %2 {else = @one, then = @zero} : f32[5]
  return %3, %4
}";

#[test]
fn a_branch_out_of_range_is_the_last() {
    let (m, g) = main_of(CASE);
    let x = Tensor::from_f64s(&TensorType::new(DType::F32, [5]), &[1., 2., 3., 4., 5.]);
    for (index, pred, square, square_if) in
        [(0, 1., false, false), (1, 0., true, true), (7, 1., true, false), (-1, 1., true, false)]
    {
        let inputs =
            [Tensor::scalar(DType::I32, f64::from(index)), Tensor::scalar(DType::I1, pred), x.clone()];
        let out = run(&m, g, &inputs, Mode::Spec).expect("runs");
        let want = |s: bool| if s { 9.0 } else { -3.0 };
        assert_eq!(out[0].data.get_f64(2), want(square), "index {index}");
        assert_eq!(out[1].data.get_f64(2), want(square_if), "predicate {pred}");
    }
    let (_, op) = find(&m, g, "case");
    let inputs = [Tensor::scalar(DType::I32, 1.0), x];
    let rule = rule_of(&m, &op, &inputs).expect("infers");
    check(&m, &op, &inputs, &rule, &[(0, vec![2, 3])]).expect("splits");
}

const RANKS: &str = "module @m mesh [tp = 2]
graph @alone(%0: f32[]) {
  %1 = negate %0 : f32[]
  return %1
}
graph @together(%0: f32[]) {
  %1 = all_reduce %0 {axes = [0], monoid = sum} : f32[]
  return %1
}
graph @main(%0: i1[], %1: f32[]) {
  %2 = if %0, %1 {else = @together, then = @alone} : f32[]
  return %2
}";

#[test]
fn ranks_that_part_cannot_meet_in_a_collective() {
    let (m, g) = main_of(RANKS);
    let rank = |p: f64, x: f64| vec![Tensor::scalar(DType::I1, p), Tensor::scalar(DType::F32, x)];
    let both = run_ranks(&m, g, &[rank(0., 1.), rank(0., 2.)], Mode::Spec).expect("all ranks are there");
    assert_eq!(both[1][0].data.get_f64(0), 3.0);
    let none = run_ranks(&m, g, &[rank(1., 1.), rank(1., 2.)], Mode::Spec).expect("no rank is there");
    assert_eq!(none[1][0].data.get_f64(0), -2.0);
    let e = run_ranks(&m, g, &[rank(1., 1.), rank(0., 2.)], Mode::Spec).expect_err("rank 0 is missing");
    assert!(e.to_string().starts_with("MSC-I0004: all_reduce"), "{e}");
}

#[test]
fn malformed_loops_and_branches_are_refused() {
    for (from, to, says) in [
        ("direction = LT} : i1[]\n  return %5", "direction = LT} : i1[]\n  return %0", "the condition gives"),
        ("return %5, %8, %2, %9", "return %5, %8, %9, %2", "the body gives"),
        ("body = @body", "body = @nobody", "there is no graph @nobody"),
    ] {
        let e = text::parse(&LOOP.replace(from, to)).expect_err(says);
        assert!(e.to_string().contains(says), "{e}");
    }
    for (from, to, says) in [
        ("[@zero, @one]", "[]", "branches"),
        ("case %0", "case %1", "decided by"),
        ("multiply %0, %0 : f32[5]\n  return %1", "is_finite %0 : i1[5]\n  return %1", "branches give"),
    ] {
        let e = text::parse(&CASE.replace(from, to)).expect_err(says);
        assert!(e.to_string().contains(says), "{e}");
    }
}
