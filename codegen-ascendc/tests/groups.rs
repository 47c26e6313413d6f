//! Row groups beyond the norms, on the CPU: softmax with loss, and random groups, against a plain f64
//! evaluation; launches with wrong arguments.

mod common;

use common::{Random, error, evaluate, inputs, run};
use msc_codegen::llvm::{Arg, CompiledKernel, LaunchError, LlvmError, cache_key, compile_object};
use msc_codegen::tile::build::{RowDef, RowGroup, RowShape, RowValueId, build_rows, losses, norms};
use msc_codegen::tile::{BinaryOp, CompareOp, DType, DeviceSpec, Over, ReduceOp, UnaryOp};

fn check(group: &RowGroup, seed: u64, limit: f64) {
    let tensors = inputs(group, seed);
    let built = build_rows(group, &DeviceSpec::ascend_910b3()).expect("the group builds");
    let found = run(&built, &tensors, 2);
    for (name, wanted) in evaluate(group, &tensors) {
        let e = error(&found[&name], &wanted);
        let text: Vec<String> = built.kernels.iter().map(ToString::to_string).collect();
        assert!(e <= limit, "{name} off by {e:e} > {limit:e} (seed {seed}) in\n{}", text.join("\n"));
    }
}

#[test]
fn softmax_and_loss() {
    for (rows, cols) in [(300, 100), (5, 1003), (3, 50_257)] {
        for dtype in [DType::F32, DType::F16] {
            // exp adds two units to the few roundings of the row family's bound; a long sum its walk. f16
            // results below the normal range lose up to 2^-25 of 1, which is more of a small largest
            // result than the relative part of the bound covers.
            let subnormal = if dtype == DType::F16 { 2f64.powi(-25) / 1e-3 } else { 0.0 };
            check(&losses::cross_entropy(rows, cols, dtype), 5, 1e-5 + subnormal);
        }
    }
}

#[test]
fn elementwise_groups() {
    for (rows, cols) in [(1, 1), (1, 100_003), (77, 1003), (9, 64)] {
        let mut g = RowGroup::new("elementwise", rows, cols);
        let a = g.input("a", RowShape::Full, DType::BF16);
        let b = g.input("b", RowShape::Full, DType::BF16);
        let (two, three) = (g.num(2.0), g.num(3.0));
        let six = g.binary(BinaryOp::Mul, two, three);
        let sum = g.binary(BinaryOp::Add, a, b);
        g.store("sum", sum, DType::BF16);
        let wide = g.convert(sum, DType::F32);
        let scaled = g.binary(BinaryOp::Mul, wide, six);
        let y = g.unary(UnaryOp::Tanh, scaled);
        g.store("y", y, DType::F32);
        g.store("copy", a, DType::BF16);
        // Three units of tanh.
        check(&g, 6, 4e-7);
    }
}

/// A random group whose values stay moderate, so that errors do too: f32 throughout, every shape class,
/// up to three levels of reductions, several outputs of each kind.
fn random_group(seed: u64) -> RowGroup {
    let mut random = Random::new(seed);
    let mut pick = |n: usize| (random.next() >> 20) as usize % n;
    let (rows, cols) = ([1, 5, 41, 160, 1000][pick(5)], [1, 3, 16, 17, 250, 4096, 40_000][pick(7)]);
    let rows = rows.min(100_000 / cols).max(1);
    let mut g = RowGroup::new("random", rows, cols);
    let mut values: Vec<RowValueId> = Vec::new();
    for (n, shape) in
        [RowShape::Full, RowShape::Full, RowShape::Row, RowShape::Column].into_iter().enumerate()
    {
        let dtype = [DType::F32, DType::BF16, DType::F16][pick(3)];
        let input = g.input(format!("x{n}"), shape, dtype);
        values.push(g.convert(input, DType::F32));
    }
    let half = g.num(0.5);
    values.push(half);
    for _ in 0..6 + pick(10) {
        let types = g.infer().expect("a valid group");
        let recent = |k: usize| values[values.len() - 1 - k % values.len()];
        let (a, b) = (recent(pick(4)), values[pick(values.len())]);
        let level = |v: RowValueId| types[v.0 as usize].level;
        let full = |v: RowValueId| types[v.0 as usize].shape == RowShape::Full;
        let new = match pick(9) {
            0 => g.unary(UnaryOp::Tanh, a),
            1 => g.unary(UnaryOp::Neg, a),
            2 | 3 if full(a) && level(a) < 3 => {
                let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min][pick(3)];
                let sum = g.reduce(op, a);
                let scale = g.num(if op == ReduceOp::Sum { 1.0 / cols as f32 } else { 1.0 });
                g.binary(BinaryOp::Mul, sum, scale)
            }
            4 => g.binary(BinaryOp::Sub, a, b),
            5 => {
                let product = g.binary(BinaryOp::Mul, a, b);
                g.unary(UnaryOp::Tanh, product)
            }
            6 => {
                let along = [Over::Rows, Over::Cols][pick(2)];
                let position = g.push(RowDef::Position(along));
                let limit = g.push(RowDef::Int(3));
                g.push(RowDef::Select { op: CompareOp::Lt, a: position, b: limit, on_true: a, on_false: b })
            }
            7 => g.binary(BinaryOp::Max, a, b),
            _ => g.binary(BinaryOp::Add, a, b),
        };
        // Keep values from growing.
        let limited = g.unary(UnaryOp::Logistic, new);
        values.push(if pick(3) == 0 { limited } else { new });
    }
    let types = g.infer().expect("a valid group");
    for (n, id) in values.iter().copied().enumerate() {
        let ty = types[id.0 as usize];
        let chosen = n + 3 > values.len() || pick(3) == 0;
        if chosen && matches!(ty.shape, RowShape::Full | RowShape::Column) {
            g.store(format!("y{n}"), id, DType::F32);
        }
        if ty.shape == RowShape::Full && pick(4) == 0 {
            let op = [ReduceOp::Sum, ReduceOp::Max][pick(2)];
            g.reduce_rows(format!("s{n}"), op, id, DType::F32);
        }
    }
    if g.outputs.is_empty() {
        g.store("y", values[0], DType::F32);
    }
    g
}

#[test]
fn random_groups() {
    for seed in 0..40 {
        // About twenty roundings, and functions with slopes up to ten on the way.
        check(&random_group(seed), seed, 2e-5);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let built = build_rows(&norms::rms_norm(4, 8, DType::F32, 1e-5), &DeviceSpec::ascend_910b3());
    let kernel = &built.expect("it builds").kernels[0];
    let compiled = CompiledKernel::compile(kernel).expect("it compiles");
    let names: Vec<&str> = kernel.params.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["x", "gamma", "rstd", "y"]);
    let x = vec![0u32; 40];
    let mut out = vec![0u32; 40];
    let x: &[u8] = bytes(&x);
    let (rstd, y) = bytes_mut(&mut out).split_at_mut(16);
    let go = |args: &mut [Arg]| compiled.run(args, &[], 1).expect_err("refused");
    let e = go(&mut [Arg::In(x)]);
    assert!(matches!(e, LaunchError::Count { wanted: 4, found: 1, .. }), "{e}");
    let e = go(&mut [Arg::In(&x[..128]), Arg::In(&x[..32]), Arg::In(&x[..16]), Arg::In(&x[..128])]);
    assert!(matches!(e, LaunchError::ReadOnly { .. }), "{e}");
    let e = go(&mut [Arg::In(&x[..128]), Arg::In(&x[..32]), Arg::Out(rstd), Arg::Out(&mut y[..127])]);
    assert!(matches!(e, LaunchError::Size { wanted: 128, found: 127, .. }), "{e}");
    let e = go(&mut [Arg::In(&x[1..129]), Arg::In(&x[..32]), Arg::Out(rstd), Arg::Out(&mut y[..128])]);
    assert!(matches!(e, LaunchError::Alignment { .. }), "{e}");
    let mut args = [Arg::In(&x[..128]), Arg::In(&x[..32]), Arg::Out(rstd), Arg::Out(&mut y[..128])];
    let e = compiled.run(&mut args, &[1.0], 1).expect_err("refused");
    assert!(matches!(e, LaunchError::Count { wanted: 0, found: 1, .. }), "{e}");
    compiled.run(&mut args, &[], 1).expect("these fit");
}

/// The bytes of 32-bit values, aligned to them.
fn bytes(values: &[u32]) -> &[u8] {
    // SAFETY: any u32 is four bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len() * 4) }
}

fn bytes_mut(values: &mut [u32]) -> &mut [u8] {
    // SAFETY: any u32 is four bytes, and any four bytes are a u32.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len() * 4) }
}

#[test]
fn object_code_is_cacheable() {
    let kernels = |rows| {
        let built = build_rows(&norms::rms_norm(rows, 8, DType::F32, 1e-5), &DeviceSpec::ascend_910b3());
        built.expect("it builds").kernels.remove(0)
    };
    let (a, b) = (kernels(4), kernels(5));
    assert_eq!(compile_object(&a), compile_object(&a));
    assert_eq!(cache_key(&a), cache_key(&a));
    assert_ne!(cache_key(&a), cache_key(&b));
    let object = compile_object(&a).expect("it compiles");
    assert!(CompiledKernel::from_object(&a, &object).is_ok());
    let damaged = CompiledKernel::from_object(&a, &object[..object.len() / 2]);
    assert!(matches!(damaged, Err(LlvmError::Link(_))), "{:?}", damaged.err());
    assert!(matches!(CompiledKernel::from_object(&a, b"not object code"), Err(LlvmError::Link(_))));
}

#[test]
fn kernels_survive_serialisation() {
    let built = build_rows(&losses::cross_entropy(3, 50_257, DType::F16), &DeviceSpec::ascend_910b3());
    let built = built.expect("it builds");
    let text = serde_json::to_string(&built).expect("it serialises");
    let back: msc_codegen::tile::build::RowKernels = serde_json::from_str(&text).expect("it reads back");
    assert_eq!(back, built);
}
