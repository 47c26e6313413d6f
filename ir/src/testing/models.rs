//! Random instances of the larger op families: normalisation, convolution, random bits.

use super::cases::{Case, shape};
use super::{Generator, Rng};
use crate::dtype::DType;
use crate::ops::batch_norm::{BatchNorm, BatchNormKind};
use crate::ops::convolution::Convolution;
use crate::ops::fused::Scalar;
use crate::ops::rng::{Algorithm, RngBitGenerator};
use crate::ops::triangular::{Transpose, Triangular};
use crate::tensor::{Storage, Tensor};
use crate::types::{Shape, TensorType};

/// Families of this file, by name.
pub const FAMILIES: &[(&str, Generator)] = &[
    ("batch_norm", batch_norm),
    ("convolution", convolution),
    ("rng_bit_generator", rng_bit_generator),
    ("triangular", triangular),
];

fn batch_norm(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let feature = r.below(0, shape.len());
    let kind = r.pick(&[BatchNormKind::Training, BatchNormKind::Inference, BatchNormKind::Grad]);
    let f = [shape[feature]];
    let d = DType::F32;
    let mut inputs = vec![r.tensor(d, &shape), r.tensor(d, &f), r.tensor(d, &f)];
    if kind != BatchNormKind::Training {
        // A variance is not negative.
        let n = f[0];
        let v: Vec<f64> = (0..n).map(|_| r.float().abs()).collect();
        let variance = Tensor::new(f, Storage::from_f64s(d, &v));
        inputs.push(variance.clone());
        match kind {
            BatchNormKind::Grad => inputs.push(r.tensor(d, &shape)),
            _ => inputs.push(variance),
        }
    }
    Case::new(BatchNorm { kind, epsilon: Scalar::new(0.125), feature }, inputs)
}

fn convolution(r: &mut Rng) -> Case {
    let spatial = r.below(0, 3);
    let rank = spatial + 2;
    let (feature_groups, batch_groups) = match r.below(0, 3) {
        0 => (2, 1),
        1 => (1, 2),
        _ => (1, 1),
    };
    let (batch, kernel_in, out) =
        (r.below(1, 4) * batch_groups, r.below(1, 4), r.below(1, 4) * feature_groups * batch_groups);
    let place = |r: &mut Rng, sizes: &[usize]| -> (Shape, Shape) {
        // Dimension `at[i]` has size `sizes[i]`.
        let at = r.permutation(rank);
        let mut shape: Shape = (0..rank).collect();
        for (i, &d) in at.iter().enumerate() {
            shape[d] = sizes[i];
        }
        (at, shape)
    };
    let image: Vec<usize> = (0..spatial).map(|_| r.below(3, 6)).collect();
    let window: Vec<usize> = (0..spatial).map(|_| r.below(1, 4)).collect();
    let lhs = [&[batch, kernel_in * feature_groups], &image[..]].concat();
    let rhs = [&[kernel_in, out], &window[..]].concat();
    let (l, ls) = place(r, &lhs);
    let (k, ks) = place(r, &rhs);
    let o = r.permutation(rank);
    let plain = r.coin();
    let mut per = |low: i64, high: i64, unit: i64| -> Vec<i64> {
        (0..spatial).map(|_| if plain { unit } else { r.int(low, high) }).collect()
    };
    let (low, high) = (per(-1, 2, 0), per(-1, 2, 0));
    let count = |v: Vec<i64>| -> Shape { v.into_iter().map(|x| x as usize).collect() };
    let op = Convolution {
        lhs_batch: l[0],
        lhs_feature: l[1],
        lhs_spatial: l[2..].into(),
        rhs_in: k[0],
        rhs_out: k[1],
        rhs_spatial: k[2..].into(),
        out_batch: o[0],
        out_feature: o[1],
        out_spatial: o[2..].into(),
        stride: count(per(1, 2, 1)),
        low: low.into(),
        high: high.into(),
        lhs_dilation: count(per(1, 2, 1)),
        rhs_dilation: count(per(1, 2, 1)),
        reversed: (0..spatial).map(|d| !plain && d == 0).collect(),
        feature_groups,
        batch_groups,
        dtype: DType::F32,
    };
    Case::new(op, vec![r.tensor(DType::F32, &ls), r.tensor(DType::F32, &ks)])
}

fn rng_bit_generator(r: &mut Rng) -> Case {
    let algorithm = r.pick(&[Algorithm::ThreeFry, Algorithm::Philox]);
    let shape = shape(r, 0, 3);
    let d = r.pick(&[DType::U32, DType::U64, DType::U8, DType::I32]);
    let state = Tensor::new([2], Storage::U64(vec![r.bits(), r.bits()]));
    Case::new(RngBitGenerator { algorithm, ty: TensorType::new(d, shape) }, vec![state])
}

/// A factorisation of a matrix with a heavy diagonal, or a solve with ones on the diagonal.
fn triangular(r: &mut Rng) -> Case {
    let (n, m, batch) = (r.below(1, 4), r.below(1, 5), r.below(1, 5));
    let mut a = r.tensor(DType::F32, &[batch, n, n]);
    if r.coin() {
        let values = a.data.to_f64s().into_iter().enumerate();
        let heavy = values.map(|(e, x)| if e / n % n == e % n { x.abs() + 8.0 } else { x });
        a = Tensor::from_f64s(&a.ty(), &heavy.collect::<Vec<_>>());
        return Case::new(Triangular::Cholesky { lower: r.coin() }, vec![a]);
    }
    let left_side = r.coin();
    let transpose_a = r.pick(&[Transpose::NoTranspose, Transpose::Transpose]);
    let op = Triangular::Solve { left_side, lower: r.coin(), unit_diagonal: true, transpose_a };
    let b = if left_side { [batch, n, m] } else { [batch, m, n] };
    Case::new(op, vec![a, r.tensor(DType::F32, &b)])
}
