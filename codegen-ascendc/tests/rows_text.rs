//! Golden text of the row family: what the tiling looks like at characteristic shapes.

use msc_codegen::tile::build::{RowGroup, RowShape, build_rows, norms};
use msc_codegen::tile::{BinaryOp, DType, DeviceSpec, UnaryOp};

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

#[test]
fn elementwise_group() {
    let mut g = RowGroup::new("swiglu", 77, 1003);
    let gate = g.input("gate", RowShape::Full, DType::BF16);
    let up = g.input("up", RowShape::Full, DType::BF16);
    let gate = g.convert(gate, DType::F32);
    let weight = g.unary(UnaryOp::Logistic, gate);
    let silu = g.binary(BinaryOp::Mul, gate, weight);
    let up = g.convert(up, DType::F32);
    let y = g.binary(BinaryOp::Mul, silu, up);
    let y = g.convert(y, DType::BF16);
    g.store("y", y, DType::BF16);
    insta::assert_snapshot!(text(&g));
}
