//! Damaged and hostile text: a message, never a panic, in bounded memory and stack.

use msc_frontends::{Code, fuzz_text, read_stablehlo_text};

const SMALL: &str = include_str!("small.mlir");

#[test]
fn the_undamaged_text_is_read() {
    let i = read_stablehlo_text("small.mlir", SMALL.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    msc_ir::verify::verify(&i.module).unwrap();
}

#[test]
fn truncated_anywhere() {
    let bytes = SMALL.as_bytes();
    let end = SMALL.find("{-#").unwrap();
    for n in 0..bytes.len() {
        let r = read_stablehlo_text("cut.mlir", &bytes[..n]);
        assert!(r.is_err() || n >= end, "cut at {n}");
    }
}

#[test]
fn every_byte_replaced() {
    let mut bytes = SMALL.as_bytes().to_vec();
    for i in 0..bytes.len() {
        let old = bytes[i];
        for new in
            [0, b' ', b'"', b'<', b'>', b'{', b'(', b'0', b'9', b'-', b'%', b'#', b'x', b'?', b'\n', 0xFF]
        {
            bytes[i] = new;
            fuzz_text(&bytes);
        }
        bytes[i] = old;
    }
}

#[test]
fn tokens_removed_doubled_and_swapped() {
    let tokens: Vec<&str> =
        SMALL.split_inclusive([' ', ',', '(', ')', '<', '>', '{', '}', '[', ']']).collect();
    let join = |t: &[&str]| fuzz_text(t.concat().as_bytes());
    for i in 0..tokens.len() {
        let mut t = tokens.clone();
        t.remove(i);
        join(&t);
        t = tokens.clone();
        t.insert(i, tokens[i]);
        join(&t);
        t = tokens.clone();
        let j = (i * 7919 + 13) % tokens.len();
        t.swap(i, j);
        join(&t);
    }
}

#[test]
fn a_real_step_truncated_and_flipped() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/stablehlo/llama_torchax_tiny/model.mlir");
    let bytes = std::fs::read(path).unwrap();
    for n in (0..bytes.len()).step_by(2999) {
        assert!(read_stablehlo_text("cut.mlir", &bytes[..n]).is_err(), "cut at {n}");
    }
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..3 {
            let at = next() % damaged.len();
            damaged[at] ^= 1 << (next() % 8);
        }
        fuzz_text(&damaged);
    }
}

fn refused(text: &str, code: Code) {
    let e = read_stablehlo_text("hostile.mlir", text.as_bytes()).expect_err("should be refused");
    assert_eq!(e.code(), code, "{e}");
}

/// In a function with one argument.
fn body(text: &str) -> String {
    format!("func.func @main(%a: tensor<f32>) -> tensor<f32> {{ {text}\n return %a : tensor<f32> }}")
}

#[test]
fn nesting_is_bounded() {
    let n = 200_000;
    let deep = |open: &str| open.repeat(n);
    refused(&format!("module attributes {{x = {}", deep("[")), Code::Limit);
    refused(&format!("module attributes {{x = {}", deep("{a = ")), Code::Limit);
    refused(&body(&format!("%r = stablehlo.negate %a : {}", deep("("))), Code::Limit);
    refused(&body(&format!("%r = stablehlo.negate %a : {}", deep("tuple<"))), Code::Limit);
    refused(&body(&format!("%r = stablehlo.iota dim = 0 : tensor<{}", deep("complex<"))), Code::Limit);
    refused(&body(&format!("%r = stablehlo.negate %a : tensor<f32> loc({}", deep("\"a\"("))), Code::Limit);
    refused(&body(&format!("%r = stablehlo.negate %a : tensor<f32> loc({}", deep("fused["))), Code::Limit);
    refused(&deep("module { "), Code::Limit);
    refused(&body(&deep("\"a.b\"() ({ ")), Code::Limit);
    refused(&body(&deep("stablehlo.while() cond { ")), Code::Limit);
}

#[test]
fn unclosed_brackets_are_found_without_recursion() {
    refused(&format!("module attributes {{x = affine_map{}", "<".repeat(200_000)), Code::Syntax);
    refused(&body(&format!("%r = stablehlo.negate %a : !x.y{}", "<".repeat(200_000))), Code::Syntax);
}

#[test]
fn aliases_do_not_explode() {
    let mut text = "#a0 = [1, 2, 3, 4]\n".to_string();
    for i in 1..60 {
        let p = i - 1;
        text.push_str(&format!("#a{i} = [#a{p}, #a{p}, #a{p}, #a{p}]\n"));
    }
    refused(&text, Code::Limit);
}

#[test]
fn long_chains_of_calls_end() {
    let mut text = String::new();
    for i in 0..5000 {
        text.push_str(&format!(
            "func.func private @f{i}(%a: tensor<f32>) -> tensor<f32> {{ %0 = call @f{}(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }}\n",
            i + 1
        ));
    }
    text.push_str("func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n");
    text.push_str("func.func private @f5000(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }\n");
    refused(&text, Code::Limit);
}

#[test]
fn counts_and_sizes_do_not_allocate() {
    refused(&body("%r:4294967295 = stablehlo.negate %a : tensor<f32>"), Code::Type);
    refused(&body("%r:-1 = stablehlo.negate %a : tensor<f32>"), Code::Syntax);
    refused(&body("%r = stablehlo.constant dense<[1.0]> : tensor<1000000000000xf32>"), Code::Constant);
    refused(&body("%r = stablehlo.constant dense<[true]> : tensor<1000000000000xi1>"), Code::Constant);
    refused(&body("%r = stablehlo.constant dense<\"0x0000\"> : tensor<1000000000000xi1>"), Code::Constant);
    // A splat may stand for any number of elements.
    let big = body("%r = stablehlo.constant dense<1.0> : tensor<1000000000000xf32>");
    assert!(read_stablehlo_text("big.mlir", big.as_bytes()).is_ok());
    let list = body(
        "%r = \"stablehlo.transpose\"(%a) <{permutation = dense<0> : tensor<1000000000000xi64>}> : (tensor<f32>) -> tensor<f32>",
    );
    refused(&list, Code::Attribute);
}
