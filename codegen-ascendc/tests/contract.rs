//! The kernel IR carries more than the row family: matrix products with epilogue, attention on both kinds
//! of core, an optimizer in place. Each kernel verifies, runs on the CPU, and has an AscendNPU IR module.

mod common;
#[path = "common/kernels.rs"]
mod kernels;

use common::{Random, Tensor, error};
use msc_codegen::llvm::{Arg, CompiledKernel};
use msc_codegen::npuir;
use msc_codegen::tile::{DType, DeviceSpec, Kernel, verify};

fn run(kernel: &Kernel, memory: &mut [Tensor], scalars: &[f32]) {
    verify(kernel, &DeviceSpec::ascend_910b3()).expect("the kernel is sound");
    npuir::check(kernel).expect("MLIR takes the module");
    let compiled = CompiledKernel::compile(kernel).expect("the kernel compiles");
    let mut args: Vec<Arg> = memory
        .iter_mut()
        .zip(&kernel.params)
        .map(|(t, p)| if p.role.writable() { Arg::Out(&mut t.bytes) } else { Arg::In(&t.bytes) })
        .collect();
    compiled.run(&mut args, scalars, 2).expect("the arguments fit");
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn matmul_with_epilogue() {
    for (size, tile) in
        [([64, 96, 32], [32, 32, 32]), ([45, 70, 50], [32, 48, 16]), ([1, 5, 3], [16, 16, 16])]
    {
        let [m, k, n] = size;
        let mut random = Random::new(1);
        let (a, b) = (random.tensor(DType::BF16, m * k), random.tensor(DType::BF16, k * n));
        let bias = random.tensor(DType::F32, n);
        let mut memory = [a, b, bias, random.tensor(DType::BF16, m * n)];
        let [a, b, bias] = [0, 1, 2].map(|t: usize| memory[t].values());
        let (k, n) = (k as usize, n as usize);
        let mut wanted = Vec::new();
        for row in a.chunks(k) {
            for c in 0..n {
                let dot: f64 = row.iter().enumerate().map(|(i, x)| x * b[i * n + c]).sum();
                wanted.push(silu(dot + bias[c]));
            }
        }
        run(&kernels::matmul_epilogue(size, tile), &mut memory, &[]);
        let e = error(&memory[3], &wanted);
        assert!(e < 2e-6, "{size:?}: {e:e}"); // k roundings of f32 sums, at most 96 · 2^-24 = 6e-6 if all agree
    }
}

#[test]
fn attention_on_cube_and_vector_cores() {
    for (heads, tokens, dim) in [(2, 128, 64), (3, 100, 32)] {
        let mut random = Random::new(2);
        let shape = heads * tokens * dim;
        let mut memory: Vec<Tensor> = (0..4).map(|_| random.tensor(DType::BF16, shape)).collect();
        let [q, k, v] = [0, 1, 2].map(|t: usize| memory[t].values());
        let mut wanted = Vec::new();
        for head in 0..heads as usize {
            let of = |x: &[f64]| -> Vec<Vec<f64>> {
                let per_head = (tokens * dim) as usize;
                let rows = x[head * per_head..][..per_head].chunks(dim as usize);
                rows.map(<[f64]>::to_vec).collect()
            };
            let (q, k, v) = (of(&q), of(&k), of(&v));
            for q in &q {
                let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>();
                let scores: Vec<f64> = k.iter().map(|k| dot(k) / (dim as f64).sqrt()).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..dim as usize {
                    wanted.push(weights.iter().zip(&v).map(|(w, v)| w * v[d]).sum::<f64>() / sum);
                }
            }
        }
        run(&kernels::flash_attention([heads, tokens, dim], [64, 48]), &mut memory, &[]);
        let e = error(&memory[3], &wanted);
        // Weights are rounded to bf16 before the second product: each is off by up to 2^-9 of itself.
        assert!(e < 4e-3, "{tokens}: {e:e}");
    }
}

#[test]
fn optimizer_in_place() {
    let n = 10_007;
    let mut random = Random::new(3);
    let mut memory: Vec<Tensor> = (0..4).map(|_| random.tensor(DType::F32, n)).collect();
    let positive: Vec<f64> = memory[2].values().iter().map(|v| v.abs()).collect();
    memory[2] = Tensor::new(DType::F32, &positive);
    let [p, m, v, g] = [0, 1, 2, 3].map(|t: usize| memory[t].values());
    let (rate, fix1, fix2) = (1e-3f32, 10.0f32, 20.0f32);
    let (b1, b2) = (f64::from(0.9f32), f64::from(0.95f32));
    let mut wanted = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..n as usize {
        let m = b1 * m[i] + (1.0 - b1) * g[i];
        let v = b2 * v[i] + (1.0 - b2) * g[i] * g[i];
        let step = m * f64::from(fix1) / ((v * f64::from(fix2)).sqrt() + 1e-8) + 0.1 * p[i];
        wanted[0].push(p[i] - f64::from(rate) * step);
        wanted[1].push(m);
        wanted[2].push(v);
    }
    run(&kernels::adamw(n, 256, 100), &mut memory, &[rate, fix1, fix2]);
    for (n, wanted) in wanted.iter().enumerate() {
        let e = error(&memory[n], wanted);
        assert!(e < 3e-7, "{}: {e:e}", ["p", "m", "v"][n]); // a handful of f32 roundings
    }
}
