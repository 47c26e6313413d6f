//! Golden text of the row family: what the tiling looks like at characteristic shapes.

use msc_codegen::tile::build::{RowGroup, build_rows, norms};
use msc_codegen::tile::{DType, DeviceSpec};

fn text(group: &RowGroup) -> String {
    let built = build_rows(group, &DeviceSpec::ascend_910b3()).expect("the group builds");
    built.kernels.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn rms_norm_small_rows() {
    insta::assert_snapshot!(text(&norms::rms_norm(4096, 64, DType::BF16, 1e-5)));
}

#[test]
fn add_rms_norm_odd_hidden() {
    insta::assert_snapshot!(text(&norms::add_rms_norm(7, 1003, DType::F32, 1e-5)));
}

#[test]
fn rms_norm_grad_resident_with_partials() {
    insta::assert_snapshot!(text(&norms::rms_norm_grad(4096, 5120, DType::BF16, true)));
}

#[test]
fn rms_norm_grad_chunked() {
    insta::assert_snapshot!(text(&norms::rms_norm_grad(3, 65536, DType::BF16, true)));
}
