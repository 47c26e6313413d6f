//! Tile kernels written by hand: what later kernel families must be able to say.

use msc_codegen::tile::{
    Affine, BinaryOp, Bound, BufferId, CompareOp, DType, Kernel, Loop, LoopId, Num, Operand, Over, ReduceOp,
    Role, ScalarId, Space, Span, Step, UnaryOp, View,
};

fn binary(op: BinaryOp, dst: BufferId, a: impl Into<Operand>, b: impl Into<Operand>) -> Step {
    Step::Binary { op, dst, a: a.into(), b: b.into() }
}

fn unary(op: UnaryOp, dst: BufferId, src: impl Into<Operand>) -> Step {
    Step::Unary { op, dst, src: src.into() }
}

fn load(dst: BufferId, from: View) -> Step {
    Step::Load { dst, from, fill: Num::ZERO }
}

fn reduce(op: ReduceOp, dst: BufferId, src: BufferId) -> Step {
    Step::Reduce { op, over: Over::Cols, dst, src, valid: None, accumulate: false }
}

fn counted(id: u32, name: &str, end: i64, step: i64, carries: Vec<BufferId>, body: Vec<Step>) -> Step {
    let (start, end) = (Affine::zero(), Bound::at(end));
    Step::For(Loop { id: LoopId(id), name: name.to_owned(), start, end, step, carries, body })
}

/// `c = silu(a · b + bias)`: a [m, k], b [k, n] in bf16, bias [n] f32, c [m, n] bf16; any sizes.
pub fn matmul_epilogue([m, k, n]: [i64; 3], [bm, bk, bn]: [i64; 3]) -> Kernel {
    let mut kernel = Kernel { name: "matmul_bias_silu".to_owned(), ..Kernel::default() };
    let gm = kernel.add_grid("rows", (m + bm - 1) / bm);
    let gn = kernel.add_grid("columns", (n + bn - 1) / bn);
    let a = kernel.add_param("a", DType::BF16, [m, k], Role::In);
    let b = kernel.add_param("b", DType::BF16, [k, n], Role::In);
    let bias = kernel.add_param("bias", DType::F32, [n], Role::In);
    let c = kernel.add_param("c", DType::BF16, [m, n], Role::Out);
    let left = kernel.add_buffer("left", DType::BF16, [bm, bk], Space::Operand);
    let right = kernel.add_buffer("right", DType::BF16, [bk, bn], Space::Operand);
    let sum = kernel.add_buffer("sum", DType::F32, [bm, bn], Space::Accumulator);
    let row = kernel.add_buffer("row", DType::F32, [1, bn], Space::Vector);
    let x = kernel.add_buffer("x", DType::F32, [bm, bn], Space::Vector);
    let gate = kernel.add_buffer("gate", DType::F32, [bm, bn], Space::Vector);
    let out = kernel.add_buffer("out", DType::BF16, [bm, bn], Space::Vector);
    let rows = Span::new(Affine::grid(gm).times(bm), Bound::at(m));
    let cols = Span::new(Affine::grid(gn).times(bn), Bound::at(n));
    let inner = Span::new(Affine::loop_var(LoopId(0)), Bound::at(k));
    let product = Step::Matmul {
        dst: sum,
        a: left,
        b: right,
        transpose_a: false,
        transpose_b: false,
        accumulate: true,
    };
    kernel.body = vec![
        Step::Fill { dst: sum, value: Num::ZERO },
        counted(
            0,
            "inner",
            k,
            bk,
            vec![sum],
            vec![
                load(left, View::matrix(a, rows.clone(), inner.clone())),
                load(right, View::matrix(b, inner, cols.clone())),
                product,
            ],
        ),
        Step::Copy { dst: x, src: sum },
        load(row, View::row(bias, cols.clone())),
        binary(BinaryOp::Add, x, x, row),
        unary(UnaryOp::Logistic, gate, x),
        binary(BinaryOp::Mul, x, x, gate),
        Step::Convert { dst: out, src: x },
        Step::Store { src: out, to: View::matrix(c, rows, cols) },
    ];
    kernel
}

/// Attention forward by online softmax: q, k, v, o [heads, tokens, dim] in bf16; any number of tokens.
pub fn flash_attention([heads, tokens, dim]: [i64; 3], [bq, bk]: [i64; 2]) -> Kernel {
    let mut kernel = Kernel { name: "flash_attention".to_owned(), ..Kernel::default() };
    let head = kernel.add_grid("heads", heads);
    let block = kernel.add_grid("queries", (tokens + bq - 1) / bq);
    let shape = [heads, tokens, dim];
    let q = kernel.add_param("q", DType::BF16, shape, Role::In);
    let k = kernel.add_param("k", DType::BF16, shape, Role::In);
    let v = kernel.add_param("v", DType::BF16, shape, Role::In);
    let o = kernel.add_param("o", DType::BF16, shape, Role::Out);
    let qt = kernel.add_buffer("q", DType::BF16, [bq, dim], Space::Operand);
    let kt = kernel.add_buffer("k", DType::BF16, [bk, dim], Space::Operand);
    let vt = kernel.add_buffer("v", DType::BF16, [bk, dim], Space::Operand);
    let weights = kernel.add_buffer("weights", DType::BF16, [bq, bk], Space::Operand);
    let scores = kernel.add_buffer("scores", DType::F32, [bq, bk], Space::Accumulator);
    let product = kernel.add_buffer("product", DType::F32, [bq, dim], Space::Accumulator);
    let mut vector = |name: &str, dtype, shape| kernel.add_buffer(name, dtype, shape, Space::Vector);
    let s = vector("s", DType::F32, [bq, bk]);
    let key = vector("key", DType::I32, [1, bk]);
    let half = vector("half", DType::BF16, [bq, bk]);
    let [max, old, new, sum, part, scale] =
        ["max", "old", "new", "sum", "part", "scale"].map(|name| vector(name, DType::F32, [bq, 1]));
    let pv = vector("pv", DType::F32, [bq, dim]);
    let acc = vector("acc", DType::F32, [bq, dim]);
    let out = vector("out", DType::BF16, [bq, dim]);

    let queries = Span::new(Affine::grid(block).times(bq), Bound::at(tokens));
    let keys = Span::new(Affine::loop_var(LoopId(0)), Bound::at(tokens));
    let view = |param, rows: Span| View {
        param,
        origin: vec![Affine::grid(head), Affine::zero(), Affine::zero()],
        rows: Some((1, rows)),
        cols: Some((2, Span::exact(0, dim))),
    };
    let dot = |dst, a, b, transpose_b| Step::Matmul {
        dst,
        a,
        b,
        transpose_a: false,
        transpose_b,
        accumulate: false,
    };
    let least = Operand::Num(Num::new(f32::NEG_INFINITY));
    let mask = Step::Select {
        op: CompareOp::Lt,
        dst: s,
        a: Operand::Tile(key),
        b: Operand::Int(i32::try_from(tokens).unwrap_or(i32::MAX)),
        on_true: Operand::Tile(s),
        on_false: least,
    };
    let body = vec![
        load(kt, view(k, keys.clone())),
        load(vt, view(v, keys.clone())),
        dot(scores, qt, kt, true),
        Step::Copy { dst: s, src: scores },
        binary(BinaryOp::Mul, s, s, 1.0 / (dim as f32).sqrt()),
        Step::Index { dst: key, along: Over::Cols, start: keys.start.clone() },
        mask,
        reduce(ReduceOp::Max, new, s),
        binary(BinaryOp::Max, new, new, max),
        binary(BinaryOp::Sub, s, s, new),
        unary(UnaryOp::Exp, s, s),
        binary(BinaryOp::Sub, old, max, new),
        unary(UnaryOp::Exp, scale, old),
        unary(UnaryOp::Copy, max, new),
        reduce(ReduceOp::Sum, part, s),
        binary(BinaryOp::Mul, sum, sum, scale),
        binary(BinaryOp::Add, sum, sum, part),
        Step::Convert { dst: half, src: s },
        Step::Copy { dst: weights, src: half },
        dot(product, weights, vt, false),
        Step::Copy { dst: pv, src: product },
        binary(BinaryOp::Mul, acc, acc, scale),
        binary(BinaryOp::Add, acc, acc, pv),
    ];
    kernel.body = vec![
        load(qt, view(q, queries.clone())),
        Step::Fill { dst: max, value: Num::new(f32::NEG_INFINITY) },
        Step::Fill { dst: sum, value: Num::ZERO },
        Step::Fill { dst: acc, value: Num::ZERO },
        counted(0, "keys", tokens, bk, vec![max, sum, acc], body),
        binary(BinaryOp::Div, acc, acc, sum),
        Step::Convert { dst: out, src: acc },
        Step::Store { src: out, to: view(o, queries) },
    ];
    kernel
}

/// AdamW in place: p, m, v, g [n] in f32; the step's learning rate and the two bias corrections
/// `1 / (1 - beta^t)` at run time.
pub fn adamw(n: i64, block: i64, tile: i64) -> Kernel {
    const BETA1: f32 = 0.9;
    const BETA2: f32 = 0.95;
    let mut kernel = Kernel { name: "adamw".to_owned(), ..Kernel::default() };
    let grid = kernel.add_grid("elements", (n + block - 1) / block);
    let [p, m, v] = ["p", "m", "v"].map(|name| kernel.add_param(name, DType::F32, [n], Role::InOut));
    let g = kernel.add_param("g", DType::F32, [n], Role::In);
    let [rate, fix1, fix2]: [ScalarId; 3] = ["rate", "fix1", "fix2"].map(|name| kernel.add_scalar(name));
    let [pt, mt, vt, gt, t, u] = ["p", "m", "v", "g", "t", "u"]
        .map(|name| kernel.add_buffer(name, DType::F32, [1, tile], Space::Vector));
    let start = Affine::grid(grid).times(block);
    let end = Bound::at(start.plus_const(block)).or(n);
    let span = Span::new(Affine::loop_var(LoopId(0)), end.clone());
    let view = |param| View::row(param, span.clone());
    let body = vec![
        load(gt, view(g)),
        load(mt, view(m)),
        binary(BinaryOp::Mul, mt, mt, BETA1),
        binary(BinaryOp::Mul, t, gt, 1.0 - BETA1),
        binary(BinaryOp::Add, mt, mt, t),
        Step::Store { src: mt, to: view(m) },
        load(vt, view(v)),
        binary(BinaryOp::Mul, vt, vt, BETA2),
        binary(BinaryOp::Mul, t, gt, gt),
        binary(BinaryOp::Mul, t, t, 1.0 - BETA2),
        binary(BinaryOp::Add, vt, vt, t),
        Step::Store { src: vt, to: view(v) },
        binary(BinaryOp::Mul, t, mt, Operand::Scalar(fix1)),
        binary(BinaryOp::Mul, u, vt, Operand::Scalar(fix2)),
        unary(UnaryOp::Sqrt, u, u),
        binary(BinaryOp::Add, u, u, 1e-8),
        binary(BinaryOp::Div, t, t, u),
        load(pt, view(p)),
        binary(BinaryOp::Mul, u, pt, 0.1),
        binary(BinaryOp::Add, t, t, u),
        binary(BinaryOp::Mul, t, t, Operand::Scalar(rate)),
        binary(BinaryOp::Sub, pt, pt, t),
        Step::Store { src: pt, to: view(p) },
    ];
    let (id, name, step) = (LoopId(0), "elements".to_owned(), tile);
    kernel.body = vec![Step::For(Loop { id, name, start, end, step, carries: Vec::new(), body })];
    kernel
}
