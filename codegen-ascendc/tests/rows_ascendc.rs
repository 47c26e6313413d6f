//! The row family as Ascend C, compiled unchanged against the emulator, against a plain f64 evaluation and
//! the CPU back end.

mod common;

use std::collections::BTreeMap;

use common::{Tensor, error, evaluate, inputs, run};
use msc_codegen::ascendc::emit;
use msc_codegen::ascendc::emulate::Emulated;
use msc_codegen::tile::build::{RowGroup, RowKernels, RowShape, build_rows, norms};
use msc_codegen::tile::{BinaryOp, DType, DeviceSpec, ReduceOp, UnaryOp};

const SHAPES: [(i64, i64); 3] = [(32, 64), (7, 1003), (5, 5120)];
const EPS: f32 = 1e-5;

/// Bound of the error relative to the largest result, over the output type's own rounding: each f32
/// operation adds at most 2^-24 and a chain has about ten; sums over columns are trees of pairs within 64
/// lanes, of depth log2 H at most; sums over rows are sequential in a tile of at most 256 and behave like
/// a random walk of as many roundings, taken twice for safety.
fn tolerance(rows: i64, cols: i64) -> f64 {
    let (rows, cols) = (rows.min(256) as f64, cols as f64);
    f64::from(f32::EPSILON) / 2.0 * (10.0 + cols.log2() + 2.0 * rows.sqrt())
}

/// Distance of two results that are both rounded to the tensor's type, relative to the largest, beyond
/// what rounding alone may cause: values that differ in the last place of f32 may round to neighbours.
fn apart(found: &Tensor, other: &[f64]) -> f64 {
    if found.dtype == DType::F32 {
        return error(found, other);
    }
    let unit = if found.dtype == DType::BF16 { 2f64.powi(-7) } else { 2f64.powi(-10) };
    let scale = other.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    let pairs = found.values().into_iter().zip(other);
    pairs.fold(0.0, |worst: f64, (f, o)| {
        let e = (f - o).abs() - unit * o.abs();
        if e.is_nan() { f64::INFINITY } else { worst.max(e / scale) }
    })
}

/// Runs the kernels of a group in the emulator; gives all tensors afterwards.
fn emulate(
    built: &RowKernels,
    tensors: &BTreeMap<String, Tensor>,
    device: &DeviceSpec,
) -> BTreeMap<String, Tensor> {
    let mut tensors = tensors.clone();
    for kernel in &built.kernels {
        for p in &kernel.params {
            // What a kernel does not write must show: unwritten memory is NaN.
            let bytes = (p.elements() * p.dtype.bytes()) as usize;
            tensors.entry(p.name.clone()).or_insert(Tensor { dtype: p.dtype, bytes: vec![0xff; bytes] });
        }
        let source = emit(kernel, device).expect("the kernel has a source");
        let compiled = Emulated::new(kernel, &source, device).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let mut memory: Vec<Tensor> = kernel.params.iter().map(|p| tensors[&p.name].clone()).collect();
        let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(|t| t.bytes.as_mut_slice()).collect();
        compiled.run(&mut slices, &[]).unwrap_or_else(|e| panic!("{e}\n{source}"));
        for (tensor, p) in memory.into_iter().zip(&kernel.params) {
            tensors.insert(p.name.clone(), tensor);
        }
    }
    tensors
}

fn check(group: &RowGroup, seed: u64) {
    check_on(group, seed, &DeviceSpec::ascend_910b3());
}

fn check_on(group: &RowGroup, seed: u64, device: &DeviceSpec) {
    let built = build_rows(group, device).expect("the group builds");
    let tensors = inputs(group, seed);
    let emulated = emulate(&built, &tensors, device);
    let cpu = run(&built, &tensors, 1);
    let wanted = evaluate(group, &tensors);
    assert!(!wanted.is_empty());
    let limit = tolerance(group.rows, group.cols);
    for (name, wanted) in wanted {
        let what = format!("{} {}x{}: {name}", group.name, group.rows, group.cols);
        let e = apart(&emulated[&name], &wanted);
        assert!(e <= limit, "{what} off by {e:e} > {limit:e}");
        // The two back ends sum in different orders: each is within the limit of the true value.
        let e = apart(&emulated[&name], &cpu[&name].values());
        assert!(e <= 2.0 * limit, "{what} is {e:e} from the CPU's > {:e}", 2.0 * limit);
    }
}

#[test]
fn rms_norm_forward() {
    for (rows, cols) in SHAPES {
        for dtype in [DType::F32, DType::BF16] {
            check(&norms::rms_norm(rows, cols, dtype, EPS), 1);
        }
    }
}

#[test]
fn add_rms_norm_forward() {
    for (rows, cols) in SHAPES {
        for dtype in [DType::F32, DType::BF16] {
            check(&norms::add_rms_norm(rows, cols, dtype, EPS), 2);
        }
    }
}

#[test]
fn rms_norm_backward() {
    for (rows, cols) in SHAPES {
        for (dtype, residual) in [(DType::F32, true), (DType::BF16, false)] {
            check(&norms::rms_norm_grad(rows, cols, dtype, residual), 3);
        }
    }
}

/// With little memory and few cores every block walks several tiles, through both slots of each buffer;
/// long rows are walked in chunks, the last one shorter.
#[test]
fn many_tiles_and_chunks() {
    let device = DeviceSpec { vector_cores: 2, vector_bytes: 48 << 10, ..DeviceSpec::ascend_910b3() };
    for (rows, cols, dtype) in [(61, 200, DType::BF16), (23, 9, DType::F32), (5, 9000, DType::BF16)] {
        check_on(&norms::add_rms_norm(rows, cols, dtype, EPS), 4, &device);
        check_on(&norms::rms_norm_grad(rows, cols, dtype, true), 5, &device);
    }
}

/// Row maximum, exponential, division by a row sum; a gate with logistic and the other functions.
#[test]
fn softmax_and_gates() {
    for (rows, cols) in [(40, 100), (3, 5120)] {
        let mut g = RowGroup::new("softmax", rows, cols);
        let x = g.input("x", RowShape::Full, DType::F32);
        let top = g.reduce(ReduceOp::Max, x);
        let x = g.binary(BinaryOp::Sub, x, top);
        let e = g.unary(UnaryOp::Exp, x);
        let sum = g.reduce(ReduceOp::Sum, e);
        let y = g.binary(BinaryOp::Div, e, sum);
        g.store("y", y, DType::F32);
        check(&g, 6);
    }
    let mut g = RowGroup::new("gate", 40, 100);
    let (a, b) = (g.input("a", RowShape::Full, DType::F16), g.input("b", RowShape::Column, DType::F32));
    let (a, two) = (g.convert(a, DType::F32), g.num(2.0));
    let c = g.input("c", RowShape::Row, DType::F32);
    let gate = g.unary(UnaryOp::Logistic, a);
    let tanh = g.unary(UnaryOp::Tanh, b);
    let outer = g.binary(BinaryOp::Mul, tanh, c);
    let bent = g.binary(BinaryOp::Sub, two, gate);
    let down = g.binary(BinaryOp::Div, two, bent);
    let most = g.binary(BinaryOp::Max, down, outer);
    let least = g.binary(BinaryOp::Min, most, two);
    let size = g.unary(UnaryOp::Abs, least);
    let back = g.unary(UnaryOp::Neg, size);
    let y = g.convert(back, DType::F16);
    g.store("y", y, DType::F16);
    check(&g, 7);
}

/// The whole source of one kernel, for reading and for noticing changes.
#[test]
fn source_of_add_rms_norm() {
    let device = DeviceSpec::ascend_910b3();
    let mut group = norms::add_rms_norm(4096, 1003, DType::BF16, EPS);
    group.origin = "residual addition and RMSNorm".to_owned();
    let kernel = build_rows(&group, &device).expect("the group builds").kernels.remove(0);
    insta::assert_snapshot!(emit(&kernel, &device).expect("the kernel has a source"));
}

/// More repeats than an instruction takes: rows of over 255 runs of 64 lanes, tiles of over 255 rows.
#[test]
fn beyond_the_repeat_limit() {
    let mut wide = RowGroup::new("wide", 2, 20000);
    let x = wide.input("x", RowShape::Full, DType::F32);
    let (sum, top) = (wide.reduce(ReduceOp::Sum, x), wide.reduce(ReduceOp::Max, x));
    wide.store("sum", sum, DType::F32);
    wide.store("top", top, DType::F32);
    check(&wide, 8);
    let mut tall = RowGroup::new("tall", 10240, 8);
    let x = tall.input("x", RowShape::Full, DType::F32);
    let sum = tall.reduce(ReduceOp::Sum, x);
    let spread = tall.binary(BinaryOp::Sub, x, sum);
    tall.reduce_rows("total", ReduceOp::Sum, spread, DType::F32);
    check(&tall, 9);
}
