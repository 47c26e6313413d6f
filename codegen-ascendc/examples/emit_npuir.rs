//! Writes kernels of the row family, and the tests' hand-written ones, as AscendNPU IR modules into a directory, one file each:
//! `cargo run --example emit_npuir -- DIR`.

#[path = "../tests/common/kernels.rs"]
mod kernels;

use std::path::PathBuf;

use msc_codegen::npuir::{self, Spelling};
use msc_codegen::tile::build::{RowGroup, build_rows, losses, norms};
use msc_codegen::tile::{DType, DeviceSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("usage: emit_npuir DIR")?);
    std::fs::create_dir_all(&dir)?;
    for (n, group) in groups().into_iter().enumerate() {
        for kernel in build_rows(&group, &DeviceSpec::ascend_910b3())?.kernels {
            npuir::check(&kernel)?;
            let file = format!("{n:02}_{}_{}x{}.mlir", kernel.name, group.rows, group.cols);
            std::fs::write(dir.join(file), npuir::emit(&kernel, Spelling::Mlir19)?)?;
        }
    }
    let by_hand = [
        kernels::matmul_epilogue([256, 512, 256], [128, 64, 128]),
        kernels::matmul_epilogue([200, 300, 200], [64, 64, 64]),
        kernels::flash_attention([4, 512, 128], [64, 128]),
        kernels::flash_attention([4, 500, 64], [64, 64]),
        kernels::adamw(100_000, 4096, 2048),
    ];
    for (n, kernel) in by_hand.into_iter().enumerate() {
        let file = format!("by_hand_{n}_{}.mlir", kernel.name);
        npuir::check(&kernel)?;
        std::fs::write(dir.join(file), npuir::emit(&kernel, Spelling::Mlir19)?)?;
    }
    Ok(())
}

/// Groups at shapes that bring out every form: whole rows and chunks, full and partial tiles, one and
/// several rows a tile.
fn groups() -> Vec<RowGroup> {
    let mut groups = Vec::new();
    for hidden in [64, 1003, 5120] {
        for dtype in [DType::F32, DType::BF16] {
            for rows in [32, 4099] {
                groups.push(norms::rms_norm(rows, hidden, dtype, 1e-5));
                groups.push(norms::add_rms_norm(rows, hidden, dtype, 1e-5));
                groups.push(norms::rms_norm_grad(rows, hidden, dtype, true));
            }
        }
    }
    for cols in [65536, 100_003] {
        groups.push(norms::rms_norm(6, cols, DType::BF16, 1e-5));
        groups.push(norms::rms_norm_grad(6, cols, DType::BF16, true));
    }
    for cols in [100, 50_257] {
        groups.push(losses::cross_entropy(300, cols, DType::BF16));
    }
    groups
}
