//! Pretty and generic spelling of single ops give one raw form.

use msc_frontends::raw::{Attr, RawModule, RawOp};
use msc_frontends::stablehlo_text::parse;

/// Arguments for the ops: `%f`, `%g`: f32[4,8]; `%v`: f32[8]; `%s`, `%z`: f32[]; `%i`, `%j`: i32[]; `%n`: i64[2];
/// `%x`: f32[1,9,9,2]; `%w`: f32[3,3,2,4]; `%k`: ui64[2]; `%p`: i1[4,8]; `%c`: complex<f32>[4]; `%t`: token.
const ARGS: &str = "%f: tensor<4x8xf32>, %g: tensor<4x8xf32>, %v: tensor<8xf32>, %s: tensor<f32>, %z: tensor<f32>, \
    %i: tensor<i32>, %j: tensor<i32>, %n: tensor<2xi64>, %x: tensor<1x9x9x2xf32>, %w: tensor<3x3x2x4xf32>, \
    %k: tensor<2xui64>, %p: tensor<4x8xi1>, %c: tensor<4xcomplex<f32>>, %t: !stablehlo.token";

const CASES: &[[&str; 2]] = &[
    ["stablehlo.add %f, %g : tensor<4x8xf32>", r#""stablehlo.add"(%f, %g) : (F, F) -> F"#],
    [
        "stablehlo.exponential %f {result_accuracy = #stablehlo.result_accuracy<ulps = 1, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : F",
        r#""stablehlo.exponential"(%f) <{result_accuracy = #stablehlo.result_accuracy<ulps = 1, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}> : (F) -> F"#,
    ],
    ["stablehlo.is_finite %f : (F) -> P", r#""stablehlo.is_finite"(%f) : (F) -> P"#],
    [
        "stablehlo.compare LT, %f, %g : (F, F) -> P",
        r#""stablehlo.compare"(%f, %g) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (F, F) -> P"#,
    ],
    [
        "stablehlo.compare  EQ, %f, %g,  TOTALORDER : (F, F) -> P",
        r#""stablehlo.compare"(%f, %g) <{comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type TOTALORDER>}> : (F, F) -> P"#,
    ],
    ["stablehlo.select %p, %f, %g : P, F", r#""stablehlo.select"(%p, %f, %g) : (P, F, F) -> F"#],
    ["stablehlo.select %p, %f, %g : (P, F, F) -> F", r#""stablehlo.select"(%p, %f, %g) : (P, F, F) -> F"#],
    ["stablehlo.clamp %s, %f, %z : (S, F, S) -> F", r#""stablehlo.clamp"(%s, %f, %z) : (S, F, S) -> F"#],
    ["stablehlo.clamp %f, %g, %f : F", r#""stablehlo.clamp"(%f, %g, %f) : (F, F, F) -> F"#],
    [
        "stablehlo.constant dense<[1, 2]> : tensor<2xi32>",
        r#""stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>"#,
    ],
    [
        "stablehlo.constant() {value = dense<1> : tensor<2xi32>} : () -> tensor<2xi32>",
        r#""stablehlo.constant"() {value = dense<1> : tensor<2xi32>} : () -> tensor<2xi32>"#,
    ],
    [
        "stablehlo.constant dense_resource<blob> : tensor<2xi32>",
        r#""stablehlo.constant"() <{value = dense_resource<blob> : tensor<2xi32>}> : () -> tensor<2xi32>"#,
    ],
    ["stablehlo.iota dim = 1 : F", r#""stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> F"#],
    [
        "stablehlo.dynamic_iota %n, dim = 0 : (N) -> F",
        r#""stablehlo.dynamic_iota"(%n) <{iota_dimension = 0 : i64}> : (N) -> F"#,
    ],
    [
        "stablehlo.broadcast %v, sizes = [4] : (V) -> F",
        r#""stablehlo.broadcast"(%v) <{broadcast_sizes = array<i64: 4>}> : (V) -> F"#,
    ],
    [
        "stablehlo.broadcast_in_dim %s, dims = [] : (S) -> F",
        r#""stablehlo.broadcast_in_dim"(%s) <{broadcast_dimensions = array<i64>}> : (S) -> F"#,
    ],
    [
        "stablehlo.dynamic_broadcast_in_dim %v, %n, dims = [1] : (V, N) -> F",
        r#""stablehlo.dynamic_broadcast_in_dim"(%v, %n) <{broadcast_dimensions = array<i64: 1>}> : (V, N) -> F"#,
    ],
    [
        "stablehlo.dynamic_reshape %f, %n : (F, N) -> tensor<8x4xf32>",
        r#""stablehlo.dynamic_reshape"(%f, %n) : (F, N) -> tensor<8x4xf32>"#,
    ],
    [
        "stablehlo.reverse %f, dims = [0, 1] : F",
        r#""stablehlo.reverse"(%f) <{dimensions = array<i64: 0, 1>}> : (F) -> F"#,
    ],
    [
        "stablehlo.slice %f [0:4, 1:8:2] : (F) -> tensor<4x4xf32>",
        r#""stablehlo.slice"(%f) <{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 4, 8>, strides = array<i64: 1, 2>}> : (F) -> tensor<4x4xf32>"#,
    ],
    [
        "stablehlo.real_dynamic_slice %f, %n, %n, %n : (F, N, N, N) -> F",
        r#""stablehlo.real_dynamic_slice"(%f, %n, %n, %n) : (F, N, N, N) -> F"#,
    ],
    [
        "stablehlo.dynamic_slice %f, %i, %j, sizes = [2, 2] : (F, I, I) -> tensor<2x2xf32>",
        r#""stablehlo.dynamic_slice"(%f, %i, %j) <{slice_sizes = array<i64: 2, 2>}> : (F, I, I) -> tensor<2x2xf32>"#,
    ],
    [
        "stablehlo.pad %f, %s, low = [0, -1], high = [0, 2], interior = [0, 0] : (F, S) -> tensor<4x9xf32>",
        r#""stablehlo.pad"(%f, %s) <{edge_padding_low = array<i64: 0, -1>, edge_padding_high = array<i64: 0, 2>, interior_padding = array<i64: 0, 0>}> : (F, S) -> tensor<4x9xf32>"#,
    ],
    [
        "stablehlo.dynamic_pad %f, %s, %n, %n, %n : (F, S, N, N, N) -> F",
        r#""stablehlo.dynamic_pad"(%f, %s, %n, %n, %n) : (F, S, N, N, N) -> F"#,
    ],
    [
        "stablehlo.concatenate %f, %g, dim = 0 : (F, F) -> tensor<8x8xf32>",
        r#""stablehlo.concatenate"(%f, %g) <{dimension = 0 : i64}> : (F, F) -> tensor<8x8xf32>"#,
    ],
    [
        "stablehlo.dot_general %f, %g, contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT] : (F, F) -> tensor<4x4xf32>",
        r#""stablehlo.dot_general"(%f, %g) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]}> : (F, F) -> tensor<4x4xf32>"#,
    ],
    [
        "stablehlo.dot_general %f, %g, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (F, F) -> tensor<4xf32>",
        r#""stablehlo.dot_general"(%f, %g) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (F, F) -> tensor<4xf32>"#,
    ],
    [
        "stablehlo.dot %f, %v, precision = [DEFAULT, DEFAULT] : (F, V) -> tensor<4xf32>",
        r#""stablehlo.dot"(%f, %v) <{precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (F, V) -> tensor<4xf32>"#,
    ],
    [
        "stablehlo.reduce_precision %f, format = e5m10 : F",
        r#""stablehlo.reduce_precision"(%f) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (F) -> F"#,
    ],
    [
        "stablehlo.rng_bit_generator %k, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)",
        r#""stablehlo.rng_bit_generator"(%k) <{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}> : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)"#,
    ],
    [
        "stablehlo.rng %s, %z, %n, distribution = UNIFORM : (S, S, N) -> F",
        r#""stablehlo.rng"(%s, %z, %n) <{rng_distribution = #stablehlo<rng_distribution UNIFORM>}> : (S, S, N) -> F"#,
    ],
    [
        "stablehlo.fft %c, type = FFT, length = [4] : (C) -> C",
        r#""stablehlo.fft"(%c) <{fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 4>}> : (C) -> C"#,
    ],
    ["stablehlo.cholesky %f, lower = true : F", r#""stablehlo.cholesky"(%f) <{lower = true}> : (F) -> F"#],
    ["stablehlo.real %c : (C) -> tensor<4xf32>", r#""stablehlo.real"(%c) : (C) -> tensor<4xf32>"#],
    ["stablehlo.tuple %f, %i : tuple<F, I>", r#""stablehlo.tuple"(%f, %i) : (F, I) -> tuple<F, I>"#],
    ["stablehlo.create_token : !stablehlo.token", r#""stablehlo.create_token"() : () -> !stablehlo.token"#],
    [
        "stablehlo.after_all %t, %t : !stablehlo.token",
        r#""stablehlo.after_all"(%t, %t) : (!stablehlo.token, !stablehlo.token) -> !stablehlo.token"#,
    ],
    ["stablehlo.partition_id : tensor<ui32>", r#""stablehlo.partition_id"() : () -> tensor<ui32>"#],
    [
        "stablehlo.get_dimension_size %f, dim = 1 : (F) -> I",
        r#""stablehlo.get_dimension_size"(%f) <{dimension = 1 : i64}> : (F) -> I"#,
    ],
    [
        "stablehlo.optimization_barrier %f, %i : F, I",
        r#""stablehlo.optimization_barrier"(%f, %i) : (F, I) -> (F, I)"#,
    ],
    [
        "stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (X, W) -> tensor<1x5x4x4xf32>",
        r#""stablehlo.convolution"(%x, %w) <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, window_strides = array<i64: 2, 2>, padding = [array<i64: 1, 1>, array<i64: 0, 0>], lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, true>, batch_group_count = 1 : i64, feature_group_count = 1 : i64}> : (X, W) -> tensor<1x5x4x4xf32>"#,
    ],
    [
        r#"stablehlo.custom_call @Sharding(%f) {backend_config = "", mhlo.sharding = "{replicated}"} : (F) -> F"#,
        r#""stablehlo.custom_call"(%f) <{call_target_name = "Sharding", backend_config = ""}> {mhlo.sharding = "{replicated}"} : (F) -> F"#,
    ],
    [
        r#"stablehlo.custom_call @"a b"() : () -> I"#,
        r#""stablehlo.custom_call"() <{call_target_name = "a b"}> : () -> I"#,
    ],
    [
        r#"stablehlo.composite "chlo.top_k" %f {composite_attributes = {k = 2 : i64}, decomposition = @pretty, version = 1 : i32} : (F) -> F"#,
        r#""stablehlo.composite"(%f) <{name = "chlo.top_k", composite_attributes = {k = 2 : i64}, decomposition = @pretty, version = 1 : i32}> : (F) -> F"#,
    ],
    ["chlo.erf %f : F -> F", r#""chlo.erf"(%f) : (F) -> F"#],
    [
        "chlo.top_k(%f, k = 3) : F -> (tensor<4x3xf32>, tensor<4x3xi32>)",
        r#""chlo.top_k"(%f) <{k = 3 : i64}> : (F) -> (tensor<4x3xf32>, tensor<4x3xi32>)"#,
    ],
    ["chlo.broadcast_add %f, %s : (F, S) -> F", r#""chlo.broadcast_add"(%f, %s) : (F, S) -> F"#],
    ["chlo.next_after %f, %g : F, F -> F", r#""chlo.next_after"(%f, %g) : (F, F) -> F"#],
    [
        r#"sdy.sharding_constraint %f <@mesh, [{"a", ?}p1, {"b":(2)4}], replicated={"c"}> : F"#,
        r#""sdy.sharding_constraint"(%f) <{sharding = #sdy.sharding<@mesh, [{"a", ?}p1, {"b":(2)4}], replicated={"c"}>}> : (F) -> F"#,
    ],
    ["call @callee(%f) : (F) -> F", r#""func.call"(%f) <{callee = @callee}> : (F) -> F"#],
    ["func.call @callee() : () -> ()", r#""func.call"() <{callee = @callee}> : () -> ()"#],
    [
        "stablehlo.reduce(%f init: %s) applies stablehlo.add across dimensions = [1] : (F, S) -> tensor<4xf32>",
        r#""stablehlo.reduce"(%f, %s) <{dimensions = array<i64: 1>}> ({
        ^bb0(%a: S, %b: S):
          %r = "stablehlo.add"(%a, %b) : (S, S) -> S
          "stablehlo.return"(%r) : (S) -> ()
        }) : (F, S) -> tensor<4xf32>"#,
    ],
    [
        "stablehlo.reduce(%f init: %s), (%g init: %z) across dimensions = [0, 1] : (F, F, S, S) -> (S, S)
        reducer(%a: S, %b: S) (%d: S, %e: S) {
          %r = stablehlo.maximum %a, %b : S
          stablehlo.return %r, %d : S, S
        }",
        r#""stablehlo.reduce"(%f, %g, %s, %z) <{dimensions = array<i64: 0, 1>}> ({
        ^bb0(%a: S, %d: S, %b: S, %e: S):
          %r = stablehlo.maximum %a, %b : S
          stablehlo.return %r, %d : S, S
        }) : (F, F, S, S) -> (S, S)"#,
    ],
    [
        "stablehlo.while(%a = %i, %b = %f) : I, F attributes {mhlo.frontend_attributes = {}} cond {
          %r = stablehlo.compare LT, %a, %j : (I, I) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
        } do {
          stablehlo.return %a, %b : I, F
        }",
        r#""stablehlo.while"(%i, %f) ({
        ^bb0(%a: I, %b: F):
          %r = stablehlo.compare LT, %a, %j : (I, I) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
        }, {
        ^bb0(%a: I, %b: F):
          stablehlo.return %a, %b : I, F
        }) {mhlo.frontend_attributes = {}} : (I, F) -> (I, F)"#,
    ],
    [
        r#"sdy.manual_computation(%f) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{"a"}, {}]>] manual_axes={"a"} (%a: F) {
          sdy.return %a : F
        } : (F) -> F"#,
        r#""sdy.manual_computation"(%f) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>, manual_axes = ["a"]}> ({
        ^bb0(%a: F):
          "sdy.return"(%a) : (F) -> ()
        }) : (F) -> F"#,
    ],
];

#[test]
fn pretty_and_generic_ops_agree() {
    for [pretty, generic] in CASES {
        let text = format!(
            "!F = tensor<4x8xf32> !S = tensor<f32>\nfunc.func @pretty({ARGS}) {{ {} \n return }}\n\
             func.func @generic({ARGS}) {{ {} \n return }}",
            expand(pretty),
            expand(generic)
        );
        let m = parse("case.mlir", text.as_bytes()).unwrap_or_else(|e| panic!("{pretty}\n{e}"));
        let op = |i: usize| &m.body[i].regions[0].blocks[0].ops[0];
        let (p, g) = (show(&m, op(0), base(&m, 0)), show(&m, op(1), base(&m, 1)));
        assert_eq!(p, g, "{pretty}");
        assert_eq!(m.body[0].regions[0].blocks[0].ops.len(), 2, "{pretty}: one op and the return");
    }
}

/// The first value of a function: its arguments come first.
fn base(m: &RawModule<'_>, function: usize) -> u32 {
    m.body[function].regions[0].blocks[0].args.first
}

/// Types are written as one letter in the cases.
fn expand(case: &str) -> String {
    let types = [
        ("F", "tensor<4x8xf32>"),
        ("S", "tensor<f32>"),
        ("V", "tensor<8xf32>"),
        ("I", "tensor<i32>"),
        ("N", "tensor<2xi64>"),
        ("P", "tensor<4x8xi1>"),
        ("X", "tensor<1x9x9x2xf32>"),
        ("W", "tensor<3x3x2x4xf32>"),
        ("C", "tensor<4xcomplex<f32>>"),
    ];
    let mut out = String::new();
    let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    let chars: Vec<char> = case.chars().collect();
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        let ty = types.iter().find(|(n, _)| n.starts_with(c) && c.is_uppercase());
        match ty {
            Some((_, t)) if boundary(before) && boundary(chars.get(i + 1).copied()) => out.push_str(t),
            _ => out.push(c),
        }
    }
    out
}

/// An op with values numbered by where they are defined, attributes in name order, no places.
fn show(m: &RawModule<'_>, op: &RawOp<'_>, base: u32) -> String {
    let mut inner = Vec::new();
    let mut numbers: Vec<u32> = Vec::new();
    walk(m, op, base, &mut numbers, &mut inner);
    inner.join("\n")
}

fn walk(m: &RawModule<'_>, op: &RawOp<'_>, base: u32, numbers: &mut Vec<u32>, out: &mut Vec<String>) {
    let name = |v: u32, numbers: &[u32]| match numbers.iter().position(|&n| n == v) {
        Some(i) => format!("local {i}"),
        None => format!("argument {}", v - base),
    };
    let operands: Vec<String> = op.operands.iter().map(|v| name(v.0, numbers)).collect();
    let types: Vec<_> = op.results.iter().map(|v| m.value_type(v)).collect();
    let mut attrs: Vec<(String, &Attr<'_>)> = op.attrs.iter().map(|(k, v)| (k.to_string(), v)).collect();
    attrs.sort_by(|a, b| a.0.cmp(&b.0));
    // Lists of integers have two spellings.
    let attrs: Vec<String> =
        attrs.into_iter().map(|(k, v)| format!("{k} = {v:?}").replace("Symbol(", "Str(")).collect();
    out.push(format!("{} {operands:?} {attrs:?} -> {types:?}", op.name));
    for block in op.regions.iter().flat_map(|r| &r.blocks) {
        numbers.extend(block.args.iter().map(|v| v.0));
        for inner in &block.ops {
            walk(m, inner, base, numbers, out);
        }
    }
    numbers.extend(op.results.iter().map(|v| v.0));
}
