//! Collectives on a mesh of 2 × 3 ranks, against values worked out by hand.

use msc_ir::interp::{Mode, run_ranks};
use msc_ir::{DType, Tensor, TensorType, text};

/// Runs one op on six ranks (dp 2, tp 3); rank r's operand of shape `shape` is 10·r + 0, 1, 2, …
fn six(op: &str, shape: &[usize], result: &str) -> Vec<Vec<f64>> {
    let dims = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let source = format!(
        "module @m mesh [dp = 2, tp = 3]
graph @g(%0: f32[{dims}]) {{
  %1 = {op} : {result}
  return %1
}}"
    );
    let m = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    assert!(text::print(&m).contains(op), "{}", text::print(&m));
    let ty = TensorType::new(DType::F32, shape.iter().copied());
    let inputs: Vec<Vec<Tensor>> = (0..6)
        .map(|r| {
            let v: Vec<f64> = (0..ty.elements()).map(|i| (10 * r + i) as f64).collect();
            vec![Tensor::from_f64s(&ty, &v)]
        })
        .collect();
    let g = m.graph_by_name("g").expect("has @g");
    let out = run_ranks(&m, g, &inputs, Mode::Spec).expect("runs");
    out.into_iter().map(|row| row[0].data.to_f64s()).collect()
}

#[test]
fn reductions_and_gathers() {
    let sum = six("all_reduce %0 {axes = [1], monoid = sum}", &[2], "f32[2]");
    assert_eq!(sum[1], [30., 33.]);
    assert_eq!(sum[5], [120., 123.]);
    let max = six("all_reduce %0 {axes = [0, 1], monoid = max}", &[2], "f32[2]");
    assert_eq!(max[0], [50., 51.]);
    let gather = six("all_gather %0 {axes = [0], dim = 0}", &[2], "f32[4]");
    assert_eq!(gather[4], [10., 11., 40., 41.]);
    let scatter = six("reduce_scatter %0 {axes = [1], dim = 0, monoid = sum}", &[3], "f32[1]");
    assert_eq!([&scatter[0][..], &scatter[1], &scatter[2], &scatter[5]], [&[30.], &[33.], &[36.], &[126.]]);
}

#[test]
fn all_to_all_exchanges_blocks() {
    // Rank r of (0, 1, 2) holds rows r0 r1 r2 of one element; it gets element r of each.
    let out = six("all_to_all %0 {axes = [1], concat_dim = 1, split_dim = 0}", &[3, 2], "f32[1,6]");
    assert_eq!(out[0], [0., 1., 10., 11., 20., 21.]);
    assert_eq!(out[2], [4., 5., 14., 15., 24., 25.]);
    assert_eq!(out[4], [32., 33., 42., 43., 52., 53.]);
    let same = six("all_to_all %0 {axes = [0], concat_dim = 0, split_dim = 0}", &[2], "f32[2]");
    assert_eq!((&same[1][..], &same[4][..]), (&[10., 40.][..], &[11., 41.][..]));
}

#[test]
fn permutes_and_broadcasts() {
    let out = six("collective_permute %0 {axes = [1], pairs = [0, 1, 1, 2]}", &[1], "f32[1]");
    assert_eq!(out.concat(), [0., 0., 10., 0., 30., 40.]);
    let out = six("collective_broadcast %0 {axes = [0]}", &[1], "f32[1]");
    assert_eq!(out.concat(), [0., 10., 20., 0., 10., 20.]);
}

#[test]
fn a_rank_knows_its_place() {
    let m = text::parse(
        "module @m mesh [dp = 2, tp = 3]
graph @g() {
  %0 = partition_id : u32[]
  %1 = axis_index {axis = 1} : i32[]
  return %0, %1
}",
    )
    .expect("parses");
    let g = m.graph_by_name("g").expect("has @g");
    let out = run_ranks(&m, g, &vec![vec![]; 6], Mode::Spec).expect("runs");
    let places: Vec<(i64, i64)> =
        out.iter().map(|row| (row[0].data.get_i64(0), row[1].data.get_i64(0))).collect();
    assert_eq!(places, [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)]);
}

#[test]
fn malformed_collectives_are_refused() {
    for (op, result, says) in [
        ("collective_permute %0 {axes = [1], pairs = [0, 3]}", "f32[2]", "out of range"),
        ("collective_permute %0 {axes = [1], pairs = [0, 1, 0, 2]}", "f32[2]", "repetition"),
        ("all_to_all %0 {axes = [1], concat_dim = 0, split_dim = 0}", "f32[2]", "does not divide"),
        ("all_reduce %0 {axes = [2], monoid = sum}", "f32[2]", "not axes"),
        ("all_reduce %0 {axes = [0], monoid = and}", "f32[2]", "not defined"),
    ] {
        let source = format!(
            "module @m mesh [dp = 2, tp = 3] graph @g(%0: f32[2]) {{ %1 = {op} : {result} return %1 }}"
        );
        let e = text::parse(&source).expect_err(says);
        assert!(e.to_string().contains(says), "{e}");
    }
    let e = text::parse("module @m mesh [a = 1048576, b = 1048576]").expect_err("too many ranks");
    assert!(e.to_string().contains("ranks"), "{e}");
}
