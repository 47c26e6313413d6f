//! CHLO's ops against their definitions, and ops with shape operands against their static forms.

use msc_frontends::read_stablehlo_text;
use msc_ir::interp::{Mode, run};
use msc_ir::{DType, Storage, Tensor};

fn eval(text: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let i = read_stablehlo_text("m.mlir", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    msc_ir::verify::verify(&i.module).unwrap();
    run(&i.module, i.module.entry().unwrap().graph, inputs, Mode::Spec).unwrap()
}

/// One op of one operand on a list of numbers.
fn apply(op: &str, x: &[f64], dtype: DType) -> Vec<f64> {
    let ty = format!("tensor<{}x{dtype}>", x.len());
    let text =
        format!("func.func @main(%x: {ty}) -> {ty} {{ %0 = {op} %x : {ty} -> {ty} \n return %0 : {ty} }}");
    eval(&text, &[Tensor::new([x.len()], Storage::from_f64s(dtype, x))])[0].data.to_f64s()
}

#[test]
fn functions_are_near_their_definitions() {
    let inside: &[f64] = &[-0.999, -0.75, -0.5, -1e-3, -1e-7, 0.0, 1e-8, 0.01, 0.3, 0.6, 0.99, 0.99999];
    let everywhere: &[f64] = &[-80.0, -10.0, -1.5, -1.0, -0.5, -1e-6, 0.0, 1e-6, 0.7, 1.0, 2.0, 30.0, 85.0];
    let above: &[f64] = &[1.0, 1.0001, 1.5, 3.0, 1e3, 1e10, 1e16, 1e30];
    let huge: &[f64] = &[-1e30, -1e16, -1e3, 1e14, 1e20, 3e38];
    type F = fn(f64) -> f64;
    let cases: [(&str, F, &[f64]); 12] = [
        ("chlo.square", |x| x * x, everywhere),
        ("chlo.sinh", f64::sinh, everywhere),
        ("chlo.cosh", f64::cosh, everywhere),
        ("chlo.tan", f64::tan, &[-1.5, -0.3, 0.0, 1.0, 1.5]),
        ("chlo.asin", f64::asin, inside),
        ("chlo.acos", f64::acos, inside),
        ("chlo.acos", f64::acos, &[-1.0, 1.0]),
        ("chlo.atan", f64::atan, everywhere),
        ("chlo.asinh", f64::asinh, everywhere),
        ("chlo.asinh", f64::asinh, huge),
        ("chlo.acosh", f64::acosh, above),
        ("chlo.atanh", f64::atanh, inside),
    ];
    for (op, f, xs) in cases {
        let xs: Vec<f64> = xs.iter().map(|&x| f64::from(x as f32)).collect();
        for (x, got) in xs.iter().zip(apply(op, &xs, DType::F32)) {
            let want = f(*x);
            // A dozen roundings to f32 of 6e-8; eˣ multiplies the rounding of its argument (up to 85).
            let tolerance = if op.ends_with("nh") || op.ends_with("sh") { 1e-5 } else { 1e-6 };
            assert!((got - want).abs() <= tolerance * want.abs().max(1e-30), "{op}({x}) = {got}, not {want}");
        }
    }
    assert!(apply("chlo.acosh", &[0.5], DType::F32)[0].is_nan());
}

#[test]
fn erf_inv_inverts_erf() {
    let xs: Vec<f64> = (-99..100).map(|i| f64::from(i as f32 / 100.0)).collect();
    for (x, y) in xs.iter().zip(apply("chlo.erf_inv", &xs, DType::F32)) {
        let back = msc_ir::ops::unary::erf(y);
        assert!((back - x).abs() <= 1e-6, "erf(erf_inv({x})) = {back}");
    }
    assert_eq!(apply("chlo.erf_inv", &[-1.0, 1.0], DType::F32), [f64::NEG_INFINITY, f64::INFINITY]);
}

#[test]
fn narrow_types_round_once() {
    let x = 0.301_f64;
    let x = half::bf16::from_f64(x).to_f64();
    let want = half::bf16::from_f64(x.sinh()).to_f64();
    assert_eq!(apply("chlo.sinh", &[x], DType::BF16), [want]);
}

#[test]
fn infinities() {
    let ty = "tensor<4xf32>";
    let x = Tensor::new([4], Storage::F32(vec![f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0]));
    let of = |op: &str| {
        let text = format!(
            "func.func @main(%x: {ty}) -> tensor<4xi1> {{ %0 = chlo.{op} %x : {ty} -> tensor<4xi1> \n return %0 : tensor<4xi1> }}"
        );
        eval(&text, std::slice::from_ref(&x))[0].data.clone()
    };
    assert_eq!(of("is_inf"), Storage::I1(vec![1, 1, 0, 0]));
    assert_eq!(of("is_pos_inf"), Storage::I1(vec![1, 0, 0, 0]));
    assert_eq!(of("is_neg_inf"), Storage::I1(vec![0, 1, 0, 0]));
}

#[test]
fn top_k_is_stable() {
    let text = "func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
        %v, %i = chlo.top_k(%x, k = 3) : tensor<2x4xf32> -> (tensor<2x3xf32>, tensor<2x3xi32>)
        return %v, %i : tensor<2x3xf32>, tensor<2x3xi32> }";
    let x = Tensor::new([2, 4], Storage::F32(vec![1.0, 3.0, 3.0, -1.0, 0.0, 0.0, 5.0, 0.0]));
    let out = eval(text, &[x]);
    assert_eq!(out[0].data, Storage::F32(vec![3.0, 3.0, 1.0, 5.0, 0.0, 0.0]));
    assert_eq!(out[1].data, Storage::I32(vec![1, 2, 0, 2, 0, 1]));
}

#[test]
fn broadcasting_ops() {
    let text = "func.func @main(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %z: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
        %0 = chlo.broadcast_subtract %y, %x : (tensor<3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
        %1 = chlo.broadcast_compare %x, %z {broadcast_dimensions = array<i64: 0>, comparison_direction = #chlo<comparison_direction LT>} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xi1>
        return %0, %1 : tensor<2x3xf32>, tensor<2x3xi1> }";
    let x = Tensor::new([2, 3], Storage::F32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let y = Tensor::new([3], Storage::F32(vec![10.0, 20.0, 30.0]));
    let z = Tensor::new([2], Storage::F32(vec![2.0, 6.0]));
    let out = eval(text, &[x, y, z]);
    assert_eq!(out[0].data, Storage::F32(vec![9.0, 18.0, 27.0, 6.0, 15.0, 24.0]));
    assert_eq!(out[1].data, Storage::I1(vec![1, 0, 0, 1, 1, 0]));
}

/// Groups of 2, 0 and 3 rows.
const SIZES: [usize; 3] = [2, 0, 3];

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::new(shape.iter().copied(), Storage::F32((0..n).map(|i| (i * 7 % 11) as f32 - 4.0).collect()))
}

fn at(t: &Tensor, ix: &[usize]) -> f64 {
    let flat = ix.iter().zip(&t.shape).fold(0, |a, (i, n)| a * n + i);
    t.data.get_f64(flat)
}

fn sizes() -> Tensor {
    Tensor::new([3], Storage::I32(SIZES.map(|n| n as i32).to_vec()))
}

/// The group of each row.
fn groups() -> Vec<usize> {
    SIZES.iter().enumerate().flat_map(|(g, &n)| std::iter::repeat_n(g, n)).collect()
}

#[test]
fn ragged_rows_meet_their_group() {
    let text = r#"func.func @main(%x: tensor<5x2xf32>, %w: tensor<3x2x4xf32>, %n: tensor<3xi32>) -> tensor<5x4xf32> {
        %0 = "chlo.ragged_dot"(%x, %w, %n) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<5x2xf32>, tensor<3x2x4xf32>, tensor<3xi32>) -> tensor<5x4xf32>
        return %0 : tensor<5x4xf32> }"#;
    let (x, w) = (ramp(&[5, 2]), ramp(&[3, 2, 4]));
    let out = eval(text, &[x.clone(), w.clone(), sizes()]);
    for (m, g) in groups().into_iter().enumerate() {
        for n in 0..4 {
            let want: f64 = (0..2).map(|k| at(&x, &[m, k]) * at(&w, &[g, k, n])).sum();
            assert_eq!(at(&out[0], &[m, n]), want);
        }
    }
}

#[test]
fn ragged_contraction_keeps_groups_apart() {
    let text = r#"func.func @main(%x: tensor<2x5x3xf32>, %y: tensor<2x5x4xf32>, %n: tensor<3xi32>) -> tensor<3x2x3x4xf32> {
        %0 = "chlo.ragged_dot"(%x, %y, %n) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [1], rhs_group_dimensions = []>}> : (tensor<2x5x3xf32>, tensor<2x5x4xf32>, tensor<3xi32>) -> tensor<3x2x3x4xf32>
        return %0 : tensor<3x2x3x4xf32> }"#;
    let (x, y) = (ramp(&[2, 5, 3]), ramp(&[2, 5, 4]));
    let out = eval(text, &[x.clone(), y.clone(), sizes()]);
    for (g, b, m, n) in (0..72).map(|i| (i / 24, i / 12 % 2, i / 4 % 3, i % 4)) {
        let rows = groups().into_iter().enumerate().filter(|(_, of)| *of == g);
        let want: f64 = rows.map(|(k, _)| at(&x, &[b, k, m]) * at(&y, &[b, k, n])).sum();
        assert_eq!(at(&out[0], &[g, b, m, n]), want, "group {g}");
    }
}

#[test]
fn shape_operands_of_static_results() {
    let text = "func.func @main(%x: tensor<2x3xf32>, %s: tensor<2xi32>) -> (tensor<3x2xf32>, tensor<4x3xf32>, tensor<3xi32>, tensor<1x2xf32>, tensor<3x3xf32>, tensor<i32>) {
        %v = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %lo = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
        %hi = stablehlo.constant dense<[1, 3]> : tensor<2xi64>
        %one = stablehlo.constant dense<1> : tensor<2xi64>
        %zero = stablehlo.constant dense<0> : tensor<2xi64>
        %down = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
        %0 = stablehlo.dynamic_reshape %x, %s : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>
        %1 = stablehlo.dynamic_broadcast_in_dim %v, %s, dims = [1] : (tensor<3xf32>, tensor<2xi32>) -> tensor<4x3xf32>
        %2 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<2xi32>) -> tensor<3xi32>
        %3 = stablehlo.real_dynamic_slice %x, %lo, %hi, %one : (tensor<2x3xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x2xf32>
        %4 = stablehlo.dynamic_pad %x, %z, %down, %zero, %zero : (tensor<2x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<3x3xf32>
        %5 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<2x3xf32>) -> tensor<i32>
        return %0, %1, %2, %3, %4, %5 : tensor<3x2xf32>, tensor<4x3xf32>, tensor<3xi32>, tensor<1x2xf32>, tensor<3x3xf32>, tensor<i32> }";
    let x = Tensor::new([2, 3], Storage::F32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let out = eval(text, &[x.clone(), Tensor::new([2], Storage::I32(vec![0, 0]))]);
    assert_eq!(out[0].data, x.data);
    assert_eq!(out[1].data, Storage::F32([1.0, 2.0, 3.0].repeat(4)));
    assert_eq!(out[2].data, Storage::I32(vec![0, 1, 2]));
    assert_eq!(out[3].data, Storage::F32(vec![2.0, 3.0]));
    assert_eq!(out[4].data, Storage::F32(vec![0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(out[5].data, Storage::I32(vec![3]));
}

#[test]
fn convolution_and_windows() {
    let text = r#"func.func @main(%x: tensor<1x4x1xf32>, %w: tensor<2x1x1xf32>) -> (tensor<1x4x1xf32>, tensor<1x2x1xf32>) {
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x4x1xf32>
        %1 = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }) : (tensor<1x4x1xf32>, tensor<f32>) -> tensor<1x2x1xf32>
        return %0, %1 : tensor<1x4x1xf32>, tensor<1x2x1xf32> }"#;
    let x = Tensor::new([1, 4, 1], Storage::F32(vec![1.0, 2.0, 3.0, 4.0]));
    let w = Tensor::new([2, 1, 1], Storage::F32(vec![10.0, 1.0]));
    let out = eval(text, &[x, w]);
    assert_eq!(out[0].data, Storage::F32(vec![1.0, 12.0, 23.0, 34.0]));
    assert_eq!(out[1].data, Storage::F32(vec![3.0, 7.0]));
}
