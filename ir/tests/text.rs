//! The text form survives a round trip, and malformed text is refused where it is wrong.

use msc_ir::{interp, text};

const STEP: &str = r#"module @step mesh [tp = 2]

graph @rms_norm(%0: f32[2,4], %1: f32[4]) {
  %2 = multiply %0, %0 : f32[2,4]
  %3 = reduce %2 {dims = [1], monoid = sum} : f32[2]
  %4 = constant {value = splat f32[2] 4.0} : f32[2]
  %5 = divide %3, %4 : f32[2]
  %6 = constant {value = splat f32[2] 1e-6} : f32[2]
  %7 = add %5, %6 : f32[2]
  %8 = rsqrt %7 : f32[2]
  %9 = broadcast_in_dim %8 {dims = [0], shape = [2, 4]} : f32[2,4]
  %10 = multiply %0, %9 : f32[2,4]
  %11 = broadcast_in_dim %1 {dims = [1], shape = [2, 4]} : f32[2,4]
  %12 = multiply %11, %10 : f32[2,4]
  return %12, %8
}

graph @main(%0: f32[2,4], %1: f32[4]) {
  %2, %3 = rms_norm %0, %1 {definition = @rms_norm, eps = 1e-6} : f32[2,4], f32[2]
  %4 = all_reduce %2 {axes = [0], monoid = sum} : f32[2,4]
  %5 = constant {value = dense f32[2] 0x0000803f00000040} : f32[2]
  %6 = compare %3, %5 {direction = LT} : i1[2]
  return %4, %6
}

entry "train" @main {
  param "x" sharding [[0], []]
  param "norm.weight" alias 0
  result "y"
  result "flag"
}
"#;

#[test]
fn print_inverts_parse() {
    let text = STEP.replace(" alias 0", "");
    let m = text::parse(&text).expect("parses");
    assert_eq!(text::print(&m), text);
}

/// MLIR's symbols may be any text.
#[test]
fn names_of_any_text() {
    for name in ["f$1", "a b", "\"quoted\"", "\\\n\u{7f}", "größe", "@", "%0", "a::b"] {
        let quoted = format!("@{name:?}");
        let text = STEP.replace(" alias 0", "").replace("@main", &quoted);
        let m = text::parse(&text).unwrap_or_else(|e| panic!("{quoted}: {e}"));
        assert_eq!(m.graph(m.entries[0].graph).name, name);
        assert_eq!(text::print(&m), text);
    }
}

#[test]
fn donated_state_must_keep_its_type() {
    let e = text::parse(STEP).expect_err("the result is f32[2,4]");
    assert!(e.to_string().contains("norm.weight"), "{e}");
}

#[test]
fn a_fused_op_runs_through_its_definition_on_all_ranks() {
    let m = text::parse(&STEP.replace(" alias 0", "")).expect("parses");
    let x = msc_ir::Tensor::from_f64s(
        &msc_ir::TensorType::new(msc_ir::DType::F32, [2, 4]),
        &[3., 3., 3., 3., 0., 0., 0., 8.],
    );
    let g = msc_ir::Tensor::splat(&msc_ir::TensorType::new(msc_ir::DType::F32, [4]), 1.0);
    let ranks = vec![vec![x.clone(), g.clone()], vec![x, g]];
    let out = interp::run_ranks(&m, m.graph_by_name("main").expect("main"), &ranks, interp::Mode::Spec)
        .expect("runs");
    let y = out[1][0].data.to_f64s();
    assert!((y[0] - 2.0).abs() < 1e-6 && (y[7] - 4.0).abs() < 1e-6, "{y:?}");
}

#[test]
fn errors_point_at_the_line() {
    let e = text::parse(&STEP.replace("%8 = rsqrt %7", "%8 = rsqrtt %7")).expect_err("unknown op");
    assert!(e.to_string().contains("line 10, column 8"), "{e}");
    for cut in 0..STEP.len() {
        if STEP.is_char_boundary(cut) {
            let _ = text::parse(&STEP[..cut]);
        }
    }
}
