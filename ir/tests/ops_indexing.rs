//! Ops that move or address elements, against values worked out by hand from the StableHLO specification.

use msc_ir::interp::Mode;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::pad::Pad;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::slice::Slice;
use msc_ir::testing::eval;
use msc_ir::{DType, Module, Monoid, Op, Tensor, TensorType};

fn i32s(shape: &[usize], v: &[i64]) -> Tensor {
    let v: Vec<f64> = v.iter().map(|&x| x as f64).collect();
    Tensor::from_f64s(&TensorType::new(DType::I32, shape.iter().copied()), &v)
}

/// 0, 1, 2, … in row-major order.
fn ramp(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>() as i64;
    i32s(shape, &(0..n).collect::<Vec<_>>())
}

fn run(op: impl Into<Op>, inputs: &[Tensor]) -> (Vec<usize>, Vec<i64>) {
    let t = eval(&Module::new("test"), op, inputs, Mode::Spec).expect("evaluates").remove(0);
    (t.shape.to_vec(), (0..t.len()).map(|i| t.data.get_i64(i)).collect())
}

#[test]
fn slices() {
    let x = ramp(&[3, 4]);
    let s = |v: &[usize]| v.iter().copied().collect();
    let op = Slice::Static { start: s(&[0, 1]), limit: s(&[3, 4]), stride: s(&[2, 2]) };
    assert_eq!(run(op, std::slice::from_ref(&x)), (vec![2, 2], vec![1, 3, 9, 11]));
    let op = Slice::Dynamic { sizes: s(&[2, 2]) };
    for (at, want) in
        [([0, 0], [0, 1, 4, 5]), ([-3, 1], [1, 2, 5, 6]), ([9, 9], [6, 7, 10, 11]), ([1, 2], [6, 7, 10, 11])]
    {
        let inputs = [x.clone(), i32s(&[], &at[..1]), i32s(&[], &at[1..])];
        assert_eq!(run(op.clone(), &inputs), (vec![2, 2], want.to_vec()), "start {at:?} is clamped");
    }
    let inputs = [x, i32s(&[1, 2], &[-1, -2]), i32s(&[], &[7]), i32s(&[], &[-7])];
    assert_eq!(run(Slice::Update, &inputs), (vec![3, 4], vec![0, 1, 2, 3, 4, 5, 6, 7, -1, -2, 10, 11]));
    let big = Tensor::from_f64s(&TensorType::scalar(DType::U32), &[4e9]);
    let inputs = [ramp(&[5]), big];
    assert_eq!(
        run(Slice::Dynamic { sizes: s(&[2]) }, &inputs).1,
        [3, 4],
        "an unsigned start is not negative"
    );
}

#[test]
fn padding() {
    let x = i32s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let pad = |low: &[i64], high: &[i64], interior: &[usize]| {
        let op = Pad { low: low.into(), high: high.into(), interior: interior.into() };
        run(op, &[x.clone(), i32s(&[], &[0])])
    };
    // The example of the specification's page of `pad`.
    assert_eq!(
        pad(&[0, 1], &[2, 1], &[1, 2]),
        (
            vec![5, 9],
            [[0, 1, 0, 0, 2, 0, 0, 3, 0], [0; 9], [0, 4, 0, 0, 5, 0, 0, 6, 0], [0; 9], [0; 9]].concat()
        )
    );
    assert_eq!(pad(&[0, -1], &[0, 0], &[0, 0]), (vec![2, 2], vec![2, 3, 5, 6]));
    assert_eq!(pad(&[-1, 0], &[0, -2], &[0, 1]), (vec![1, 3], vec![4, 0, 5]));
    assert_eq!(pad(&[-1, 2], &[1, -4], &[0, 0]), (vec![2, 1], vec![0, 0]));
}

#[test]
fn transposing_and_reversing() {
    let x = ramp(&[2, 3]);
    let p = Permute::Transpose([1, 0].into_iter().collect());
    assert_eq!(run(p, std::slice::from_ref(&x)), (vec![3, 2], vec![0, 3, 1, 4, 2, 5]));
    let r = Permute::Reverse([1].into_iter().collect());
    assert_eq!(run(r, std::slice::from_ref(&x)), (vec![2, 3], vec![2, 1, 0, 5, 4, 3]));
    let c = Permute::Transpose([2, 0, 1].into_iter().collect());
    assert_eq!(run(c, &[ramp(&[2, 1, 2])]), (vec![2, 2, 1], vec![0, 2, 1, 3]));
}

fn dims(v: &[usize]) -> msc_ir::types::Shape {
    v.iter().copied().collect()
}

#[test]
fn rows_of_a_table() {
    let op = Gather {
        offset_dims: dims(&[1]),
        collapsed_slice_dims: dims(&[0]),
        operand_batching_dims: dims(&[]),
        start_indices_batching_dims: dims(&[]),
        start_index_map: dims(&[0]),
        index_vector_dim: 1,
        slice_sizes: dims(&[1, 2]),
    };
    let inputs = [ramp(&[3, 2]), i32s(&[4], &[2, 0, -1, 9])];
    // Indices out of range are clamped, never dropped.
    assert_eq!(run(op, &inputs), (vec![4, 2], vec![4, 5, 0, 1, 0, 1, 4, 5]));
}

/// Index vectors of two components in dimension 0, addressing dimensions 2 and 0 of the operand; dimension 1 is a
/// batch of both; slices of 1 × 1 × 2 in front of the batch.
#[test]
fn gathering_with_index_vectors_and_batches() {
    let op = Gather {
        offset_dims: dims(&[0]),
        collapsed_slice_dims: dims(&[0]),
        operand_batching_dims: dims(&[1]),
        start_indices_batching_dims: dims(&[2]),
        start_index_map: dims(&[2, 0]),
        index_vector_dim: 0,
        slice_sizes: dims(&[1, 1, 2]),
    };
    // x[i, b, j] = 6i + 3b + j for 2 × 2 × 3; indices[c, n, b] for n < 1.
    let inputs = [ramp(&[2, 2, 3]), i32s(&[2, 1, 2], &[1, 5, 0, 1])];
    // b = 0: j from 1, i = 0 → 1, 2. b = 1: j clamped to 1, i = 1 → 10, 11.
    assert_eq!(run(op, &inputs), (vec![2, 1, 2], vec![1, 10, 2, 11]));
}

fn scatter(combine: Option<Monoid>) -> Scatter {
    Scatter {
        update_window_dims: dims(&[1]),
        inserted_window_dims: dims(&[0]),
        input_batching_dims: dims(&[]),
        scatter_indices_batching_dims: dims(&[]),
        scatter_dims_to_operand_dims: dims(&[0]),
        index_vector_dim: 1,
        combine,
        unique_indices: false,
    }
}

#[test]
fn scattering_rows() {
    let inputs = [
        i32s(&[3, 2], &[1, 1, 1, 1, 1, 1]),
        i32s(&[4], &[2, 0, 2, 3]),
        i32s(&[4, 2], &[10, 20, 30, 40, 50, 60, 70, 80]),
    ];
    // Index 3 is out of range: the update is dropped, not clamped.
    assert_eq!(run(scatter(Some(Monoid::Sum)), &inputs).1, [31, 41, 1, 1, 61, 81]);
    assert_eq!(run(scatter(None), &inputs).1, [30, 40, 1, 1, 50, 60], "the last update stands");
    assert_eq!(run(scatter(Some(Monoid::Max)), &inputs).1, [30, 40, 1, 1, 50, 60]);
    assert_eq!(run(scatter(Some(Monoid::Product)), &inputs).1, [30, 40, 1, 1, 500, 1200]);
}

#[test]
fn scattering_lets_nan_win() {
    let f = |v: &[f64]| Tensor::from_f64s(&TensorType::new(DType::F32, [v.len()]), v);
    let op = Scatter { update_window_dims: dims(&[]), ..scatter(Some(Monoid::Max)) };
    let inputs = [f(&[1., f64::NAN, 3.]), i32s(&[2], &[0, 1]), f(&[f64::NAN, 5.])];
    let out = eval(&Module::new("test"), op, &inputs, Mode::Spec).expect("evaluates").remove(0);
    let v = out.data.to_f64s();
    assert!(v[0].is_nan() && v[1].is_nan() && v[2] == 3.0, "{v:?}");
}

/// A window that hangs over the edge is written in part: out of range is judged element by element.
#[test]
fn scattering_windows() {
    let op = Scatter {
        update_window_dims: dims(&[0]),
        inserted_window_dims: dims(&[]),
        index_vector_dim: 0,
        ..scatter(Some(Monoid::Sum))
    };
    let at = |i: i64| run(op.clone(), &[i32s(&[4], &[0; 4]), i32s(&[1], &[i]), i32s(&[2], &[5, 6])]).1;
    assert_eq!(at(1), [0, 5, 6, 0]);
    assert_eq!(at(3), [0, 0, 0, 5]);
    assert_eq!(at(-1), [6, 0, 0, 0]);
    assert_eq!(at(i64::from(i32::MAX)), [0; 4]);
}

#[test]
fn scattering_with_batches() {
    let op = Scatter {
        update_window_dims: dims(&[]),
        inserted_window_dims: dims(&[1]),
        input_batching_dims: dims(&[0]),
        scatter_indices_batching_dims: dims(&[0]),
        scatter_dims_to_operand_dims: dims(&[1]),
        index_vector_dim: 2,
        combine: Some(Monoid::Sum),
        unique_indices: false,
    };
    let inputs = [i32s(&[2, 3], &[0; 6]), i32s(&[2, 2, 1], &[0, 2, 1, 1]), i32s(&[2, 2], &[1, 2, 3, 4])];
    assert_eq!(run(op, &inputs).1, [1, 0, 2, 0, 7, 0]);
}

#[test]
fn malformed_indexing_is_refused() {
    let m = Module::new("test");
    let (x, ix) = (TensorType::new(DType::F32, [3, 2]), TensorType::new(DType::I32, [4, 2]));
    let good = Gather {
        offset_dims: dims(&[]),
        collapsed_slice_dims: dims(&[0, 1]),
        operand_batching_dims: dims(&[]),
        start_indices_batching_dims: dims(&[]),
        start_index_map: dims(&[0, 1]),
        index_vector_dim: 1,
        slice_sizes: dims(&[1, 1]),
    };
    use msc_ir::Operation;
    assert!(good.infer(&[&x, &ix], &m).is_ok());
    let bad = [
        Gather { slice_sizes: dims(&[2, 1]), ..good.clone() },
        Gather { slice_sizes: dims(&[1, 3]), ..good.clone() },
        Gather { start_index_map: dims(&[0, 0]), ..good.clone() },
        Gather { start_index_map: dims(&[0, 2]), ..good.clone() },
        Gather { index_vector_dim: 3, ..good.clone() },
        Gather { offset_dims: dims(&[0]), ..good.clone() },
        Gather { operand_batching_dims: dims(&[0]), start_indices_batching_dims: dims(&[0]), ..good.clone() },
    ];
    for g in bad {
        assert!(g.infer(&[&x, &ix], &m).is_err(), "{g:?}");
    }
    for (low, interior) in [(i64::MIN, 0), (i64::MAX, 0), (0, usize::MAX)] {
        let p =
            Pad { low: [low].as_slice().into(), high: [0].as_slice().into(), interior: dims(&[interior]) };
        let one = [&TensorType::new(DType::F32, [1]), &TensorType::scalar(DType::F32)];
        assert!(p.infer(&one, &m).is_err(), "{p:?}");
    }
}
