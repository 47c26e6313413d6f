//! Complex numbers as pairs of floats, against arithmetic on pairs.

use msc_frontends::read_stablehlo_text;
use msc_ir::interp::{Mode, run};
use msc_ir::{DType, Storage, Tensor};

fn eval(text: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let i = read_stablehlo_text("m.mlir", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    msc_ir::verify::verify(&i.module).unwrap();
    run(&i.module, i.module.entry().unwrap().graph, inputs, Mode::Spec).unwrap()
}

fn tensor(shape: &[usize], x: &[f64]) -> Tensor {
    Tensor::new(shape.iter().copied(), Storage::from_f64s(DType::F64, x))
}

/// What `body` makes of the complex numbers `%a` and `%b`, lists of three.
fn of_two(body: &str, a: &[(f64, f64)], b: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let part = |x: &[(f64, f64)], at: usize| {
        tensor(&[3], &x.iter().map(|x| if at == 0 { x.0 } else { x.1 }).collect::<Vec<_>>())
    };
    let text = format!(
        "func.func @main(%ar: tensor<3xf64>, %ai: tensor<3xf64>, %br: tensor<3xf64>, %bi: tensor<3xf64>) -> (tensor<3xf64>, tensor<3xf64>) {{
  %a = stablehlo.complex %ar, %ai : tensor<3xcomplex<f64>>
  %b = stablehlo.complex %br, %bi : tensor<3xcomplex<f64>>
  {body}
  %re = stablehlo.real %y : (tensor<3xcomplex<f64>>) -> tensor<3xf64>
  %im = stablehlo.imag %y : (tensor<3xcomplex<f64>>) -> tensor<3xf64>
  return %re, %im : tensor<3xf64>, tensor<3xf64>
}}"
    );
    let out = eval(&text, &[part(a, 0), part(a, 1), part(b, 0), part(b, 1)]);
    out[0].data.to_f64s().into_iter().zip(out[1].data.to_f64s()).collect()
}

const A: [(f64, f64); 3] = [(1.5, -2.0), (0.0, 1.0), (-0.25, 3.0)];
const B: [(f64, f64); 3] = [(0.5, 4.0), (2.0, 0.0), (-1.0, -1.0)];

#[test]
fn functions_of_complex_numbers() {
    type F = fn((f64, f64), (f64, f64)) -> (f64, f64);
    let ty = "tensor<3xcomplex<f64>>";
    let binary = |op: &str| format!("%y = stablehlo.{op} %a, %b : {ty}");
    let cases: [(String, F); 8] = [
        (binary("add"), |a, b| (a.0 + b.0, a.1 + b.1)),
        (binary("subtract"), |a, b| (a.0 - b.0, a.1 - b.1)),
        (binary("multiply"), |a, b| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)),
        (binary("divide"), |a, b| {
            let n = b.0 * b.0 + b.1 * b.1;
            ((a.0 * b.0 + a.1 * b.1) / n, (a.1 * b.0 - a.0 * b.1) / n)
        }),
        (format!("%y = stablehlo.negate %a : {ty}"), |a, _| (-a.0, -a.1)),
        (format!("%y = stablehlo.exponential %a : {ty}"), |a, _| {
            (a.0.exp() * a.1.cos(), a.0.exp() * a.1.sin())
        }),
        (format!("%y = chlo.conj %a : {ty} -> {ty}"), |a, _| (a.0, -a.1)),
        (
            format!(
                "%z = stablehlo.constant dense<(2.0, -0.5)> : {ty}\n  %c = stablehlo.constant dense<[(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)]> : {ty}
  %s = stablehlo.subtract %c, %c : {ty}\n  %t = stablehlo.add %a, %s : {ty}\n  %y = stablehlo.multiply %t, %z : {ty}"
            ),
            |a, _| (2.0 * a.0 + 0.5 * a.1, 2.0 * a.1 - 0.5 * a.0),
        ),
    ];
    for (body, f) in cases {
        for (i, got) in of_two(&body, &A, &B).into_iter().enumerate() {
            let want = f(A[i], B[i]);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-14 * b.abs().max(1.0);
            assert!(near(got.0, want.0) && near(got.1, want.1), "{body}: {got:?}, not {want:?}");
        }
    }
}

/// Parameters and results of a function, sums, products of matrices, comparisons, sizes.
#[test]
fn complex_numbers_pass_through_programs() {
    let text = "
func.func private @twice(%x: tensor<2x2xcomplex<f64>>) -> tensor<2x2xcomplex<f64>> {
  %y = stablehlo.add %x, %x : tensor<2x2xcomplex<f64>>
  return %y : tensor<2x2xcomplex<f64>>
}
func.func @main(%x: tensor<2x2xcomplex<f64>>, %r: tensor<2x2xf64>) -> (tensor<2xcomplex<f64>>, tensor<2x2xcomplex<f64>>, tensor<2x2xf64>, tensor<2x2xi1>) {
  %t = func.call @twice(%x) : (tensor<2x2xcomplex<f64>>) -> tensor<2x2xcomplex<f64>>
  %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f64>>
  %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x2xcomplex<f64>>, tensor<complex<f64>>) -> tensor<2xcomplex<f64>>
  %u = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x2xcomplex<f64>>) -> tensor<2x2xcomplex<f64>>
  %c = stablehlo.convert %r : (tensor<2x2xf64>) -> tensor<2x2xcomplex<f64>>
  %d = stablehlo.dot_general %u, %c, contracting_dims = [1] x [0] : (tensor<2x2xcomplex<f64>>, tensor<2x2xcomplex<f64>>) -> tensor<2x2xcomplex<f64>>
  %a = stablehlo.abs %x : (tensor<2x2xcomplex<f64>>) -> tensor<2x2xf64>
  %e = stablehlo.compare EQ, %x, %u : (tensor<2x2xcomplex<f64>>, tensor<2x2xcomplex<f64>>) -> tensor<2x2xi1>
  return %s, %d, %a, %e : tensor<2xcomplex<f64>>, tensor<2x2xcomplex<f64>>, tensor<2x2xf64>, tensor<2x2xi1>
}";
    // [[3+4i, 1], [2-i, -5i]]
    let x = tensor(&[2, 2, 2], &[3.0, 4.0, 1.0, 0.0, 2.0, -1.0, 0.0, -5.0]);
    let out = eval(text, &[x, tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(out[0].data.to_f64s(), [8.0, 8.0, 4.0, -12.0]);
    assert_eq!(out[0].shape[..], [2, 2]);
    assert_eq!(out[1].data.to_f64s(), [9.0, 1.0, 14.0, 4.0, 1.0, -15.0, 2.0, -20.0]);
    assert_eq!(out[2].data.to_f64s(), [5.0, 1.0, 5f64.sqrt(), 5.0]);
    assert_eq!(out[3].data.to_f64s(), [1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn what_is_not_held_is_refused() {
    let ty = "tensor<2xcomplex<f32>>";
    for op in ["sine", "tanh", "power"] {
        let operands = if op == "power" { "%x, %x" } else { "%x" };
        let text = format!(
            "func.func @main(%x: {ty}) -> {ty} {{\n  %y = stablehlo.{op} {operands} : {ty}\n  return %y : {ty}\n}}"
        );
        let said = read_stablehlo_text("m.mlir", text.as_bytes()).expect_err(op).to_string();
        assert!(said.contains("MSC-F0009") && said.contains("m.mlir:2") && said.contains(op), "{said}");
    }
    // A product of all elements is not done part by part.
    let text = format!(
        "func.func @main(%x: {ty}) -> tensor<complex<f32>> {{
  %one = stablehlo.constant dense<(1.0, 0.0)> : tensor<complex<f32>>
  %y = stablehlo.reduce(%x init: %one) applies stablehlo.multiply across dimensions = [0] : ({ty}, tensor<complex<f32>>) -> tensor<complex<f32>>
  return %y : tensor<complex<f32>>
}}"
    );
    let said = read_stablehlo_text("m.mlir", text.as_bytes()).expect_err("a product").to_string();
    assert!(said.contains("MSC-F0009") && said.contains("m.mlir:3"), "{said}");
}
