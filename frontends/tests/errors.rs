//! What is refused: with which code, where, and in which words.

use msc_frontends::{Code, FrontendError, read_stablehlo_text};

fn error(text: &str) -> FrontendError {
    match read_stablehlo_text("step.mlir", text.as_bytes()) {
        Ok(_) => panic!("this should be refused:\n{text}"),
        Err(e) => e,
    }
}

/// The error for a function with one statement over `%a: f32[2,3]`, `%s: f32[]`.
fn statement(s: &str) -> FrontendError {
    error(&format!(
        "func.func @main(%a: tensor<2x3xf32>, %s: tensor<f32>) -> tensor<2x3xf32> {{\n  {s}\n  return %a : tensor<2x3xf32>\n}}"
    ))
}

#[test]
fn a_message_has_place_excerpt_and_advice() {
    let e = statement(
        "%r = stablehlo.add %a, %a : tensor<2x3xf32>\n  %u = stablehlo.custom_call @flash(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
    );
    assert_eq!(
        e.to_string(),
        "MSC-F0012: custom_call of unknown target flash
 --> step.mlir:3:8
  |
3 |   %u = stablehlo.custom_call @flash(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  |        ^
help: export without the library or kernel behind this call (for a CPU, or with its plain form)"
    );
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let long = "%a, ".repeat(400);
    let e = statement(&format!("%r = stablehlo.concatenate {long}%b, dim = 0 : () -> tensor<2x3xf32>"));
    let text = e.to_string();
    assert!(text.lines().all(|l| l.chars().count() < 140), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let caret = lines[4].chars().position(|c| c == '^').unwrap();
    assert_eq!(lines[3].chars().skip(caret).take(2).collect::<String>(), "%b");
}

#[test]
fn every_kind_of_refusal_has_its_code() {
    let f = "tensor<2x3xf32>";
    let cases = [
        (format!("%r = stablehlo.frobnicate %a : {f}"), Code::UnknownOp),
        (format!("%r = stablehlo.add %a, %nope : {f}"), Code::Name),
        (format!("%a = stablehlo.negate %a : {f}"), Code::Name),
        (format!("%r = stablehlo.negate %a#1 : {f}"), Code::Name),
        (format!("%r = call @nowhere(%a) : ({f}) -> {f}"), Code::Name),
        (format!("%r = stablehlo.constant #alias : {f}"), Code::Name),
        (format!("%r = stablehlo.constant dense_resource<blob> : {f}"), Code::Name),
        (format!("%r = stablehlo.negate %a : ({f}) -> tensor<3x2xf32>"), Code::Type),
        (format!("%r = stablehlo.negate %a : (tensor<2x3xf64>) -> {f}"), Code::Type),
        (format!("%r:2 = stablehlo.negate %a : {f}"), Code::Type),
        (format!("%r = \"stablehlo.transpose\"(%a) : ({f}) -> tensor<3x2xf32>"), Code::Attribute),
        (
            format!("%r = \"stablehlo.transpose\"(%a) <{{permutation = \"x\"}}> : ({f}) -> tensor<3x2xf32>"),
            Code::Attribute,
        ),
        (format!("%r = stablehlo.constant dense_resource<__elided__> : {f}"), Code::Constant),
        (format!("%r = stablehlo.constant dense<[1.0, 2.0]> : {f}"), Code::Constant),
        (format!("%r = stablehlo.constant dense<\"0x00\"> : {f}"), Code::Constant),
        (format!("%r = stablehlo.constant dense<\"0x0000000G\"> : {f}"), Code::Constant),
        (format!("%r = stablehlo.constant dense<x> : {f}"), Code::Constant),
        ("%r = stablehlo.iota dim = 0 : tensor<?xf32>".to_string(), Code::UnsupportedType),
        ("%r = stablehlo.iota dim = 0 : tensor<4xf8E4M3FN>".to_string(), Code::UnsupportedType),
        (
            "%r = stablehlo.iota dim = 0 : tensor<99999999999x99999999999xf32>".to_string(),
            Code::UnsupportedType,
        ),
        (format!("%r = stablehlo.add %a, %s : ({f}, tensor<f32>) -> {f}"), Code::Invalid),
        (format!("%r = stablehlo.transpose %a, dims = [0, 2] : ({f}) -> {f}"), Code::Invalid),
        (format!("%r = \"stablehlo.add\"(%a) : ({f}) -> {f}"), Code::Invalid),
        (
            format!(
                "%k = stablehlo.negate %s : tensor<f32>\n %r = stablehlo.reduce(%a init: %s) across dimensions = [0, 1] : ({f}, tensor<f32>) -> tensor<f32> reducer(%x: tensor<f32>, %y: tensor<f32>) {{ stablehlo.return %k : tensor<f32> }}"
            ),
            Code::UnsupportedForm,
        ),
        ("\"cf.br\"()[^bb1] : () -> ()".to_string(), Code::UnsupportedForm),
        (format!("%r = stablehlo.custom_call @cublas(%a) : ({f}) -> {f}"), Code::CustomCall),
        (format!("%r = stablehlo.negate %a {f}"), Code::Syntax),
        (format!("%r = stablehlo.negate %a : {f} loc(\"a\""), Code::Syntax),
        ("%r = stablehlo.constant dense<1.0".to_string(), Code::Syntax),
        ("%r = \"stablehlo.neg".to_string(), Code::Syntax),
        (format!("%r = stablehlo.negate %a : {}", "tuple<".repeat(1000)), Code::Limit),
        (
            "%r = call @main(%a, %s) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>".to_string(),
            Code::Program,
        ),
    ];
    for (s, code) in cases {
        let e = statement(&s);
        assert_eq!(e.code(), code, "{s}\n{e}");
        assert!(e.diagnostic().place.is_some(), "{s}\n{e}");
    }
}

#[test]
fn programs_that_do_not_fit_together() {
    let cases = [
        ("", Code::Program),
        ("module { }", Code::Program),
        ("func.func @a() { return }\nfunc.func @b() { return }", Code::Program),
        ("func.func @main() { return }\nfunc.func @main() { return }", Code::Name),
        ("func.func private @main(tensor<f32>) -> tensor<f32>", Code::Program),
        ("func.func @main(%a: tensor<f32>) -> tensor<f64> { return %a : tensor<f32> }", Code::Type),
        ("func.func @main(%a: tensor<f32>) -> tensor<f32> { return }", Code::Type),
        ("func.func @main(%a: tensor<f32>) -> tensor<f32> { }", Code::Invalid),
        ("func.func @main(%a: !stablehlo.token) { return }", Code::UnsupportedType),
        (
            "func.func @main(%a: tensor<f32> {tf.aliasing_output = 0 : i32}) -> tensor<f64> { %0 = stablehlo.convert %a : (tensor<f32>) -> tensor<f64>\n return %0 : tensor<f64> }",
            Code::Program,
        ),
        (
            "func.func @main(%a: tensor<f32> {tf.aliasing_output = 7 : i32}) -> tensor<f32> { return %a : tensor<f32> }",
            Code::Program,
        ),
        ("not mlir at all", Code::Syntax),
        ("\u{1}", Code::Syntax),
    ];
    for (text, code) in cases {
        let e = error(text);
        assert_eq!(e.code(), code, "{text}\n{e}");
    }
    let e = read_stablehlo_text("x", b"module \xFF").unwrap_err();
    assert_eq!(e.code(), Code::Syntax);
}

#[test]
fn other_formats_are_named() {
    for bytes in [
        &[0x1F, 0x8B, 8, 0][..],
        b"PK\x03\x04",
        &[0x08, 0x08, 0x12, 0x07],
        b"HloModule jit_step, entry_computation_layout={(f32[2]{0})->f32[2]{0}}",
    ] {
        let e = msc_frontends::read_bytes("file", bytes).unwrap_err();
        assert_eq!(e.code(), Code::Format, "{e}");
    }
}

#[test]
fn every_code_has_a_page() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors");
    for code in Code::ALL {
        let path = format!("{dir}/{}.md", code.id());
        let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(page.starts_with(&format!("# {}: ", code.id())), "{path}");
    }
}
