//! The row family on the CPU against a plain f64 evaluation.

mod common;

use std::collections::BTreeMap;

use common::{Tensor, error, evaluate, inputs, run};
use msc_codegen::tile::build::{RowGroup, build_rows, norms};
use msc_codegen::tile::{DType, DeviceSpec};

const SHAPES: [(i64, i64); 4] = [(32, 64), (7, 1003), (5, 5120), (3, 65536)];
const EPS: f32 = 1e-5;

/// Bound of the error relative to the largest result, over the output type's own rounding: each f32
/// operation adds at most 2^-24 and a chain has about ten; a sum of H terms in 16 lanes behaves like a
/// random walk of H / 16 roundings, taken twice for safety.
fn tolerance(cols: i64) -> f64 {
    f64::from(f32::EPSILON) / 2.0 * (10.0 + 2.0 * (cols as f64 / 16.0).sqrt())
}

fn check(group: &RowGroup, wanted: &BTreeMap<String, Vec<f64>>, tensors: &BTreeMap<String, Tensor>) {
    let built = build_rows(group, &DeviceSpec::ascend_910b3()).expect("the group builds");
    let one = run(&built, tensors, 1);
    let three = run(&built, tensors, 3);
    assert!(!wanted.is_empty());
    for (name, wanted) in wanted {
        let e = error(&one[name], wanted);
        let limit = tolerance(group.cols);
        assert!(e <= limit, "{} {}x{}: {name} off by {e:e} > {limit:e}", group.name, group.rows, group.cols);
        assert!(one[name].bytes == three[name].bytes, "{name} depends on the number of threads");
    }
}

/// The textbook formulas, row by row.
fn rms_norm(x: &[f64], gamma: &[f64], cols: usize) -> (Vec<f64>, Vec<f64>) {
    let mut y = Vec::new();
    let mut rstds = Vec::new();
    for row in x.chunks(cols) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / cols as f64;
        let rstd = 1.0 / (mean + f64::from(EPS)).sqrt();
        rstds.push(rstd);
        y.extend(row.iter().zip(gamma).map(|(v, g)| v * rstd * g));
    }
    (y, rstds)
}

#[test]
fn rms_norm_forward() {
    for (rows, cols) in SHAPES {
        for dtype in [DType::F32, DType::BF16] {
            let group = norms::rms_norm(rows, cols, dtype, EPS);
            let tensors = inputs(&group, 1);
            let (y, rstd) = rms_norm(&tensors["x"].values(), &tensors["gamma"].values(), cols as usize);
            let wanted = BTreeMap::from([("y".to_owned(), y), ("rstd".to_owned(), rstd)]);
            check(&group, &wanted, &tensors);
        }
    }
}

#[test]
fn add_rms_norm_forward() {
    for (rows, cols) in SHAPES {
        for dtype in [DType::F32, DType::BF16] {
            let group = norms::add_rms_norm(rows, cols, dtype, EPS);
            let tensors = inputs(&group, 2);
            let (a, b) = (tensors["a"].values(), tensors["b"].values());
            let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            // The norm is of the sum as it is stored.
            let rounded = Tensor::new(dtype, &sum).values();
            let (y, rstd) = rms_norm(&rounded, &tensors["gamma"].values(), cols as usize);
            let wanted =
                BTreeMap::from([("sum".to_owned(), sum), ("y".to_owned(), y), ("rstd".to_owned(), rstd)]);
            check(&group, &wanted, &tensors);
        }
    }
}

#[test]
fn rms_norm_backward() {
    for (rows, cols) in SHAPES {
        for (dtype, residual) in [(DType::F32, true), (DType::BF16, true), (DType::BF16, false)] {
            let group = norms::rms_norm_grad(rows, cols, dtype, residual);
            let tensors = inputs(&group, 3);
            let get = |name: &str| tensors[name].values();
            let (dy, x, rstd, gamma) = (get("dy"), get("x"), get("rstd"), get("gamma"));
            let (rows, cols) = (rows as usize, cols as usize);
            let mut dx = vec![0.0; rows * cols];
            let mut dgamma = vec![0.0; cols];
            for (r, rstd) in rstd.into_iter().enumerate() {
                let at = |c: usize| r * cols + c;
                let dot: f64 = (0..cols).map(|c| dy[at(c)] * gamma[c] * x[at(c)]).sum();
                for c in 0..cols {
                    let along = x[at(c)] * rstd.powi(2) * dot / cols as f64;
                    dx[at(c)] = rstd * (dy[at(c)] * gamma[c] - along);
                    dgamma[c] += dy[at(c)] * x[at(c)] * rstd;
                }
            }
            if residual {
                dx.iter_mut().zip(get("r")).for_each(|(d, r)| *d += r);
            }
            let wanted = BTreeMap::from([("dx".to_owned(), dx), ("dgamma".to_owned(), dgamma)]);
            check(&group, &wanted, &tensors);
        }
    }
}

#[test]
fn evaluation_agrees_with_the_formulas() {
    let group = norms::rms_norm(7, 1003, DType::F32, EPS);
    let tensors = inputs(&group, 4);
    let (y, _) = rms_norm(&tensors["x"].values(), &tensors["gamma"].values(), 1003);
    let evaluated = evaluate(&group, &tensors);
    let worst = y.iter().zip(&evaluated["y"]).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst < 1e-12, "{worst}");
}
