//! `cholesky`, `triangular_solve` and `bitcast_convert` against what defines them.

use msc_ir::interp::Mode;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::triangular::{Transpose, Triangular};
use msc_ir::testing::{Rng, eval};
use msc_ir::{DType, Module, Storage, Tensor};

fn random(r: &mut Rng, shape: &[usize]) -> Tensor {
    let n = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|_| r.float()).collect();
    Tensor::new(shape.iter().copied(), Storage::from_f64s(DType::F64, &values))
}

/// `Σₖ x(i,k)·y(k,j)` of square matrices.
fn product(n: usize, x: impl Fn(usize, usize) -> f64, y: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..n * n).map(|e| (0..n).map(|k| x(e / n, k) * y(k, e % n)).sum()).collect()
}

#[test]
fn a_factor_times_its_transpose_is_the_matrix() {
    let mut r = Rng::new(1);
    for n in 1..6 {
        for lower in [true, false] {
            let half = random(&mut r, &[n, n]).data.to_f64s();
            let mut a = product(n, |i, k| half[i * n + k], |k, j| half[j * n + k]);
            (0..n).for_each(|i| a[i * n + i] += 1.0);
            // The other triangle is not read.
            let mut given = a.clone();
            for (e, x) in given.iter_mut().enumerate() {
                if (e / n < e % n) == lower && e / n != e % n {
                    *x = f64::NAN;
                }
            }
            let input = Tensor::new([1, n, n], Storage::from_f64s(DType::F64, &given));
            let op = Triangular::Cholesky { lower };
            let l = eval(&Module::new("m"), op, &[input], Mode::Spec).expect("runs")[0].data.to_f64s();
            let back = match lower {
                true => product(n, |i, k| l[i * n + k], |k, j| l[j * n + k]),
                false => product(n, |i, k| l[k * n + i], |k, j| l[k * n + j]),
            };
            assert!(back.iter().zip(&a).all(|(x, y)| (x - y).abs() < 1e-12), "{n} {lower}: {back:?} {a:?}");
            let outside = (0..n * n).filter(|e| (e / n < e % n) == lower && e / n != e % n);
            assert!(outside.map(|e| l[e]).all(|x| x == 0.0));
        }
    }
    let bad = Tensor::new([1, 1], Storage::from_f64s(DType::F64, &[-1.0]));
    let op = Triangular::Cholesky { lower: true };
    let l = eval(&Module::new("m"), op, &[bad], Mode::Spec).expect("runs");
    assert!(l[0].data.get_f64(0).is_nan(), "not positive definite");
}

#[test]
fn a_solution_times_the_matrix_is_the_right_hand_side() {
    let mut r = Rng::new(2);
    let (n, m) = (4, 3);
    for bits in 0..16 {
        let bit = |i: usize| bits >> i & 1 == 1;
        let (left_side, lower, unit_diagonal, transposed) = (bit(0), bit(1), bit(2), bit(3));
        let mut a = random(&mut r, &[2, n, n]).data.to_f64s();
        let read = |i: usize, j: usize| i != j && (i > j) == lower || i == j && !unit_diagonal;
        for (e, x) in a.iter_mut().enumerate() {
            let (i, j) = (e / n % n, e % n);
            match (i == j, read(i, j)) {
                (true, true) => *x = 2.0 + x.abs(),
                (_, false) => *x = f64::NAN,
                _ => {}
            }
        }
        let shape = if left_side { [2, n, m] } else { [2, m, n] };
        let b = random(&mut r, &shape);
        let transpose_a = if transposed { Transpose::Transpose } else { Transpose::NoTranspose };
        let op = Triangular::Solve { left_side, lower, unit_diagonal, transpose_a };
        let matrix = Tensor::new([2, n, n], Storage::from_f64s(DType::F64, &a));
        let x = eval(&Module::new("m"), op, &[matrix, b.clone()], Mode::Spec).expect("runs");
        let (x, b) = (x[0].data.to_f64s(), b.data.to_f64s());
        let full = |g: usize, i: usize, j: usize| match (i == j, read(i, j)) {
            (_, true) => a[g * n * n + i * n + j],
            (true, false) => 1.0,
            _ => 0.0,
        };
        let op_a = |g, i, j| if transposed { full(g, j, i) } else { full(g, i, j) };
        for g in 0..2 {
            for (i, k) in (0..n).flat_map(|i| (0..m).map(move |k| (i, k))) {
                let at = |i: usize, k: usize| g * n * m + if left_side { i * m + k } else { k * n + i };
                let got: f64 =
                    (0..n).map(|j| if left_side { op_a(g, i, j) } else { op_a(g, j, i) } * x[at(j, k)]).sum();
                assert!((got - b[at(i, k)]).abs() < 1e-10, "{op:?}: {got} is not {}", b[at(i, k)]);
            }
        }
    }
}

#[test]
fn bits_are_taken_apart_and_put_together() {
    let words = Tensor::new([2], Storage::U32(vec![0x0403_0201, 0xff00_8040]));
    let m = Module::new("m");
    let bytes = eval(&m, Convert::Bits(DType::U8), std::slice::from_ref(&words), Mode::Spec).expect("runs");
    assert_eq!(bytes[0].shape[..], [2, 4]);
    assert_eq!(bytes[0].data.bytes(), [1, 2, 3, 4, 0x40, 0x80, 0, 0xff], "least significant first");
    let back = eval(&m, Convert::Bits(DType::U32), &bytes, Mode::Spec).expect("runs");
    assert_eq!(back[0], words);
    let floats = eval(&m, Convert::Bits(DType::BF16), &[words], Mode::Spec).expect("runs");
    assert_eq!(floats[0].shape[..], [2, 2]);
    let odd = Tensor::new([3], Storage::U8(vec![1, 2, 3]));
    let error = eval(&m, Convert::Bits(DType::U16), &[odd], Mode::Spec).expect_err("3 is not 2");
    assert!(error.to_string().contains("the last dimension should be 2"), "{error}");
    let truth = Tensor::new([8], Storage::from_bytes(DType::I1, &[1; 8]));
    assert!(eval(&m, Convert::Bits(DType::U8), &[truth], Mode::Spec).is_err(), "an i1 has one bit");
}

/// Graphs of scalars are run on many elements at once: floats sorted by their bits.
#[test]
fn bits_in_a_comparator() {
    let key = |v: usize, at: usize| {
        format!(
            "  %{a} = bitcast_convert %{v} {{dtype = i32}} : i32[]\n  %{b} = constant {{value = splat i32[] 0}} : i32[]\n  \
             %{c} = compare %{a}, %{b} {{direction = LT}} : i1[]\n  %{d} = constant {{value = splat i32[] 2147483647}} : i32[]\n  \
             %{e} = subtract %{d}, %{a} : i32[]\n  %{f} = select %{c}, %{e}, %{a} : i32[]\n",
            a = at,
            b = at + 1,
            c = at + 2,
            d = at + 3,
            e = at + 4,
            f = at + 5
        )
    };
    let source = format!(
        "module @m\n\ngraph @before(%0: f32[], %1: f32[]) {{\n{}{}  %14 = compare %7, %13 {{direction = LT}} : i1[]\n  \
         return %14\n}}\n\ngraph @main(%0: f32[4]) {{\n  %1 = sort %0 {{comparator = @before, dim = 0, stable = true}} : \
         f32[4]\n  return %1\n}}\n",
        key(0, 2),
        key(1, 8)
    );
    let x = Tensor::new([4], Storage::F32(vec![-1.0, 2.0, -3.0, 4.0]));
    let sorted = msc_ir::testing::run_text(&source, &[x], Mode::Spec).expect("runs");
    // Complemented, negative floats are ordered like their magnitudes: every one of them has its own sign.
    let key = |v: f32| {
        if v.to_bits() as i32 >= 0 { v.to_bits() as i32 } else { i32::MAX.wrapping_sub(v.to_bits() as i32) }
    };
    let mut want = vec![-1.0f32, 2.0, -3.0, 4.0];
    want.sort_by_key(|&v| key(v));
    assert_eq!(sorted[0].data, Storage::F32(want));
}
