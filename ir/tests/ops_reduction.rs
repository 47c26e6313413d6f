//! Reductions, windows, sorting and scatters by a graph, against values worked out by hand.

use msc_ir::interp::Mode;
use msc_ir::testing::run_text;
use msc_ir::{DType, Monoid, Storage, Tensor, TensorType};

fn f32s(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_f64s(&TensorType::new(DType::F32, shape.iter().copied()), v)
}

fn i32s(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_f64s(&TensorType::new(DType::I32, shape.iter().copied()), v)
}

/// Runs one op of a graph `@g`, with reducer graphs before it.
fn run(graphs: &str, params: &str, op: &str, results: &str, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let names: Vec<String> =
        (0..results.matches('[').count()).map(|i| format!("%{}", inputs.len() + i)).collect();
    let names = names.join(", ");
    let source = format!(
        "module @m\n{graphs}\ngraph @g({params}) {{\n  {names} = {op} : {results}\n  return {names}\n}}"
    );
    let out = run_text(&source, inputs, Mode::Spec).unwrap_or_else(|e| panic!("{e}\n{source}"));
    out.iter().map(|t| t.data.to_f64s()).collect()
}

const ADD: &str = "graph @add(%0: f32[], %1: f32[]) { %2 = add %0, %1 : f32[] return %2 }";
const GE: &str = "graph @ge(%0: f32[], %1: f32[]) { %2 = compare %0, %1 {direction = GE} : i1[] return %2 }";
const ARGMAX: &str = "graph @argmax(%0: f32[], %1: i32[], %2: f32[], %3: i32[]) {
  %4 = compare %0, %2 {direction = GE} : i1[]
  %5 = select %4, %0, %2 : f32[]
  %6 = select %4, %1, %3 : i32[]
  return %5, %6
}";

#[test]
fn integer_products_wrap_in_the_width_of_the_result() {
    let dot = |d: &str, x: Tensor, y: Tensor| {
        let dims = "lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]";
        let op = format!("dot_general %0, %1 {{dtype = {d}, {dims}}}");
        run("", &format!("%0: {d}[2], %1: {d}[2]"), &op, &format!("{d}[]"), &[x, y]).concat()
    };
    // 2³² − 21, and 2⁶⁴ + 15.
    assert_eq!(dot("i32", i32s(&[2], &[65536., 3.]), i32s(&[2], &[65536., -7.])), [-21.]);
    let u64s = |v: [u64; 2]| Tensor::new([2], Storage::U64(v.to_vec()));
    assert_eq!(dot("u64", u64s([1 << 63, 5]), u64s([2, 3])), [15.]);
}

#[test]
fn reduce_by_monoids() {
    let x = f32s(&[2, 3], &[1., 2., 3., 4., 5., -6.]);
    let red = |monoid: Monoid, dims: &str, result: &str| {
        let op = format!("reduce %0 {{dims = {dims}, monoid = {monoid}}}");
        run("", "%0: f32[2,3]", &op, result, std::slice::from_ref(&x)).concat()
    };
    assert_eq!(red(Monoid::Sum, "[1]", "f32[2]"), [6., 3.]);
    assert_eq!(red(Monoid::Product, "[0]", "f32[3]"), [4., 10., -18.]);
    assert_eq!(red(Monoid::Max, "[0, 1]", "f32[]"), [5.]);
    assert_eq!(red(Monoid::Min, "[]", "f32[2,3]"), [1., 2., 3., 4., 5., -6.]);
    let nan = f32s(&[2], &[f64::NAN, 1.]);
    for m in ["max", "min", "sum"] {
        let op = format!("reduce %0 {{dims = [0], monoid = {m}}}");
        assert!(run("", "%0: f32[2]", &op, "f32[]", std::slice::from_ref(&nan))[0][0].is_nan(), "{m}");
    }
    // Empty reductions give the identity, in the type's own range.
    for (ty, m, want) in [
        ("f32", "max", f64::NEG_INFINITY),
        ("i32", "min", f64::from(i32::MAX)),
        ("i32", "max", f64::from(i32::MIN)),
        ("u8", "min", 255.0),
        ("i32", "and", -1.0),
        ("i32", "product", 1.0),
        ("i1", "and", 1.0),
        ("i1", "or", 0.0),
    ] {
        let d = DType::from_name(ty).expect("a type");
        let none = Tensor::from_f64s(&TensorType::new(d, [0]), &[]);
        let op = format!("reduce %0 {{dims = [0], monoid = {m}}}");
        assert_eq!(
            run("", &format!("%0: {ty}[0]"), &op, &format!("{ty}[]"), &[none]).concat(),
            [want],
            "{m}"
        );
    }
    let wrap = i32s(&[2], &[f64::from(i32::MAX), 1.]);
    let sum = run("", "%0: i32[2]", "reduce %0 {dims = [0], monoid = sum}", "i32[]", &[wrap]);
    assert_eq!(sum.concat(), [f64::from(i32::MIN)]);
}

/// A bf16 sum of 1 and 256 halves of its ulp: accumulated in bf16 it would stay 1.
#[test]
fn narrow_sums_are_rounded_once() {
    let mut v = vec![2f64.powi(-9); 257];
    v[0] = 1.0;
    let x = Tensor::from_f64s(&TensorType::new(DType::BF16, [257]), &v);
    let op = "reduce %0 {dims = [0], monoid = sum}";
    assert_eq!(run("", "%0: bf16[257]", op, "bf16[]", &[x]).concat(), [1.5]);
}

#[test]
fn argmax_by_a_graph() {
    let x = f32s(&[2, 3], &[1., 7., 7., 4., -1., 0.]);
    let i = i32s(&[2, 3], &[0., 1., 2., 0., 1., 2.]);
    let inits = [f32s(&[], &[f64::NEG_INFINITY]), i32s(&[], &[0.])];
    let inputs = [x, i, inits[0].clone(), inits[1].clone()];
    let out = run(
        ARGMAX,
        "%0: f32[2,3], %1: i32[2,3], %2: f32[], %3: i32[]",
        "reduce %0, %1, %2, %3 {body = @argmax, dims = [1]}",
        "f32[2], i32[2]",
        &inputs,
    );
    assert_eq!(out, [vec![7., 4.], vec![1., 0.]], "the first of equal values");
}

const PLAIN: &str = "base_dilation = [1, 1], dilation = [1, 1]";

#[test]
fn windows() {
    let x = f32s(&[1, 6], &[1., 2., 3., 4., 5., 6.]);
    let window = |attrs: &str, result: &str| {
        let op = format!("reduce_window %0 {{{attrs}}}");
        run("", "%0: f32[1,6]", &op, result, std::slice::from_ref(&x)).concat()
    };
    let at = |w: &str, s: &str, pad: &str, m: &str| {
        format!("{PLAIN}, {pad}, monoid = {m}, stride = {s}, window = {w}")
    };
    let none = "high = [0, 0], low = [0, 0]";
    assert_eq!(window(&at("[1, 2]", "[1, 2]", none, "sum"), "f32[1,3]"), [3., 7., 11.]);
    assert_eq!(window(&at("[1, 3]", "[1, 1]", none, "max"), "f32[1,4]"), [3., 4., 5., 6.]);
    // A cumulative sum: five elements of padding before.
    let before = "high = [0, 0], low = [0, 5]";
    assert_eq!(window(&at("[1, 6]", "[1, 1]", before, "sum"), "f32[1,6]"), [1., 3., 6., 10., 15., 21.]);
    // Negative padding removes 1 and 6.
    let less = "high = [0, -1], low = [0, -1]";
    assert_eq!(window(&at("[1, 2]", "[1, 2]", less, "product"), "f32[1,2]"), [6., 20.]);
    // Base dilation 2: 1 _ 2 _ 3 _ 4 _ 5 _ 6; window dilation 2 with stride 3.
    let dilated = "base_dilation = [1, 2], dilation = [1, 2], high = [0, 0], low = [0, 0], monoid = sum, \
                   stride = [1, 3], window = [1, 2]";
    assert_eq!(window(dilated, "f32[1,3]"), [3., 0., 9.]);
    // The specification's padding counts as the initial value, given here with a graph.
    let inputs = [x.clone(), f32s(&[], &[100.])];
    let op = format!(
        "reduce_window %0, %1 {{{PLAIN}, body = @add, high = [0, 1], low = [0, 0], stride = [1, 3], window = [1, 3]}}"
    );
    let out = run(ADD, "%0: f32[1,6], %1: f32[]", &op, "f32[1,2]", &inputs).concat();
    assert_eq!(out, [106., 115.]);
}

/// The example of the specification's page of `select_and_scatter`.
#[test]
fn the_gradient_of_a_maximum_pool() {
    let x = f32s(&[4, 2], &[1., 5., 2., 5., 3., 6., 4., 4.]);
    let source = f32s(&[2, 1], &[5., 6.]);
    let inputs = [x, source, f32s(&[], &[0.])];
    let op = format!(
        "select_and_scatter %0, %1, %2 {{{PLAIN}, high = [1, 0], low = [0, 0], scatter = @add, select = @ge, \
         stride = [2, 1], window = [3, 2]}}"
    );
    let graphs = format!("{ADD}\n{GE}");
    let params = "%0: f32[4,2], %1: f32[2,1], %2: f32[]";
    let out = run(&graphs, params, &op, "f32[4,2]", &inputs).concat();
    // Windows are rows 0–2 and 2–3 (and one of padding): both select the 6 of row 2.
    assert_eq!(out, [0., 0., 0., 0., 0., 11., 0., 0.]);
}

#[test]
fn sorting_keeps_equal_elements_in_order() {
    let lt = "graph @lt(%0: f32[], %1: f32[], %2: i32[], %3: i32[]) {
  %4 = compare %0, %1 {direction = LT, total_order = true} : i1[]
  return %4
}";
    let key = f32s(&[2, 5], &[3., 1., 2., 1., 3., f64::NAN, 0., -0., -1., f64::INFINITY]);
    let index = i32s(&[2, 5], &[0., 1., 2., 3., 4., 0., 1., 2., 3., 4.]);
    let op = "sort %0, %1 {comparator = @lt, dim = 1, stable = true}";
    let params = "%0: f32[2,5], %1: i32[2,5]";
    let out = run(lt, params, op, "f32[2,5], i32[2,5]", &[key.clone(), index.clone()]);
    assert_eq!(out[0][..9], [1., 1., 2., 3., 3., -1., -0., 0., f64::INFINITY]);
    assert!(out[0][9].is_nan());
    assert_eq!(out[1], [1., 3., 2., 0., 4., 3., 2., 1., 4., 0.]);
    let down = lt.replace("LT, total_order = true", "GT");
    let op = "sort %0, %1 {comparator = @lt, dim = 0, stable = true}";
    let small = [f32s(&[3, 1], &[1., 2., 2.]), i32s(&[3, 1], &[0., 1., 2.])];
    let out = run(&down, "%0: f32[3,1], %1: i32[3,1]", op, "f32[3,1], i32[3,1]", &small);
    assert_eq!(out, [vec![2., 2., 1.], vec![1., 2., 0.]]);
}

/// Every length up to 40, against a sort of another making.
#[test]
fn sorting_networks_of_every_length() {
    let lt = "graph @lt(%0: i32[], %1: i32[]) { %2 = compare %0, %1 {direction = LT} : i1[] return %2 }";
    let mut r = msc_ir::testing::Rng::new(5);
    for n in 0..40 {
        let x = r.ints(DType::I32, &[n], -20, 20);
        let mut want = x.data.to_f64s();
        want.sort_by(f64::total_cmp);
        let ty = format!("i32[{n}]");
        let op = "sort %0 {comparator = @lt, dim = 0, stable = false}";
        assert_eq!(run(lt, &format!("%0: {ty}"), op, &ty, &[x]).concat(), want);
    }
}

#[test]
fn scattering_by_a_graph_takes_updates_in_order() {
    // x ← 2x + u, not commutative in its updates: ((1·2 + 10)·2 + 20) at index 1.
    let body = "graph @b(%0: f32[], %1: f32[]) { %2 = add %0, %0 : f32[] %3 = add %2, %1 : f32[] return %3 }";
    let op = "scatter %0, %1, %2 {body = @b, index_vector_dim = 1, input_batching_dims = [], \
              inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], \
              unique_indices = false, update_window_dims = []}";
    let inputs = [f32s(&[3], &[1., 1., 1.]), i32s(&[4], &[1., 2., 1., 7.]), f32s(&[4], &[10., 5., 20., 9.])];
    let out = run(body, "%0: f32[3], %1: i32[4], %2: f32[4]", op, "f32[3]", &inputs).concat();
    assert_eq!(out, [1., 44., 7.]);
}

#[test]
fn mapping_a_graph() {
    let body = "graph @b(%0: f32[], %1: f32[]) {
  %2 = constant {value = splat f32[] 2.0} : f32[]
  %3 = multiply %0, %2 : f32[]
  %4 = compare %3, %1 {direction = GT} : i1[]
  return %4
}";
    let inputs = [f32s(&[3], &[1., 2., 3.]), f32s(&[3], &[3., 3., 6.])];
    let out = run(body, "%0: f32[3], %1: f32[3]", "map %0, %1 {body = @b}", "i1[3]", &inputs).concat();
    assert_eq!(out, [0., 1., 0.]);
}
