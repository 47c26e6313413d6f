//! Times kernels of the row family on this machine: `cargo run --release --example bench_rows`.

use std::time::Instant;

use msc_codegen::llvm::{Arg, CompiledKernel};
use msc_codegen::tile::build::{RowGroup, build_rows, norms};
use msc_codegen::tile::{DType, DeviceSpec};

fn time(group: &RowGroup, threads: usize) -> Result<(), Box<dyn std::error::Error>> {
    for kernel in &build_rows(group, &DeviceSpec::ascend_910b3())?.kernels {
        let start = Instant::now();
        let compiled = CompiledKernel::compile(kernel)?;
        let compile = start.elapsed();
        let bytes = |p: &msc_codegen::tile::Param| (p.elements() * p.dtype.bytes()) as usize;
        let mut memory: Vec<Vec<u8>> = kernel.params.iter().map(|p| vec![0x3f; bytes(p)]).collect();
        let total: usize = memory.iter().map(Vec::len).sum();
        let mut best = f64::MAX;
        for _ in 0..7 {
            let mut args: Vec<Arg> = memory
                .iter_mut()
                .zip(&kernel.params)
                .map(|(m, p)| if p.role.writable() { Arg::Out(m) } else { Arg::In(m) })
                .collect();
            let start = Instant::now();
            compiled.run(&mut args, &[], threads)?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        let dtype = kernel.params[0].dtype;
        println!(
            "{:<20} {}x{} {dtype} {threads}T: compile {:.1?}, {:.2} ms, {:.1} GB/s",
            kernel.name,
            group.rows,
            group.cols,
            compile,
            best * 1e3,
            total as f64 / best / 1e9
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for threads in [1, 2] {
        for dtype in [DType::F32, DType::BF16] {
            time(&norms::rms_norm(4096, 4096, dtype, 1e-5), threads)?;
            time(&norms::add_rms_norm(4096, 4096, dtype, 1e-5), threads)?;
            time(&norms::rms_norm_grad(4096, 4096, dtype, true), threads)?;
        }
    }
    Ok(())
}
