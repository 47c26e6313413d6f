//! `simplify` keeps every bit, and does what its module says.

mod graphs;

use graphs::{Random, assert_same, inputs, random_module, tensor};
use msc_ir::text;
use msc_ir::verify::verify;
use msc_passes::simplify::simplify;

/// Simplifies `text`, checks bits on special values, and returns the entry's ops as printed.
fn simplified(source: &str) -> String {
    let before = text::parse(source).expect("parses");
    let mut after = before.clone();
    simplify(&mut after).expect("simplifies");
    verify(&after).expect("verifies");
    for seed in 0..20 {
        assert_same(&before, &after, &inputs(&before, &mut Random::new(seed), tensor));
    }
    let g = after.graph(after.entry().expect("entry").graph);
    text::print_graph(&after, g, text::PrintOptions::default())
}

fn entry(params: usize, results: usize) -> String {
    let p: String = (0..params).map(|i| format!("  param \"p{i}\"\n")).collect();
    let r: String = (0..results).map(|i| format!("  result \"r{i}\"\n")).collect();
    format!("entry \"main\" @main {{\n{p}{r}}}\n")
}

/// One op on `%0: ty`, with constants `%1 = value`; is the result `%0` itself?
fn is_identity(ty: &str, value: &str, op: &str) -> bool {
    let source = format!(
        "module @m\n\ngraph @main(%0: {ty}) {{\n  %1 = constant {{value = splat {ty} {value}}} : {ty}\n  %2 = {op} : {ty}\n  return %2\n}}\n\n{}",
        entry(1, 1)
    );
    let out = simplified(&source);
    out.contains("return %0") && out.lines().count() == 3
}

#[test]
fn exact_identities_fire_and_inexact_ones_do_not() {
    for (ty, value, op) in [
        ("f32[4]", "1.0", "multiply %0, %1"),
        ("bf16[4]", "1.0", "multiply %1, %0"),
        ("f16[4]", "1.0", "divide %0, %1"),
        ("f32[4]", "1.0", "power %0, %1"),
        ("f32[4]", "-0.0", "add %0, %1"),
        ("f32[4]", "0.0", "subtract %0, %1"),
        ("f32[4]", "-inf", "maximum %1, %0"),
        ("f64[4]", "inf", "minimum %0, %1"),
        ("i32[4]", "0", "add %0, %1"),
        ("u8[4]", "255", "and %0, %1"),
        ("i1[4]", "1", "and %1, %0"),
        ("i1[4]", "0", "or %1, %0"),
        ("i32[4]", "0", "shift_left %0, %1"),
    ] {
        // ±infinity is written by its bytes.
        let value = match (ty, value) {
            ("f32[4]", "-inf") => "0x000080ff",
            ("f64[4]", "inf") => "0x000000000000f07f",
            (_, v) => v,
        };
        assert!(is_identity(ty, value, op), "{op} on {ty} with {value}");
    }
    for (ty, value, op) in [
        ("f32[4]", "0.0", "add %0, %1"),
        ("f32[4]", "-0.0", "subtract %0, %1"),
        ("f32[4]", "1.0", "divide %1, %0"),
        ("f32[4]", "0.0", "maximum %0, %1"),
        ("i32[4]", "1", "power %1, %0"),
        ("i32[4]", "0", "subtract %1, %0"),
    ] {
        assert!(!is_identity(ty, value, op), "{op} on {ty} with {value}");
    }
}

#[test]
fn calls_are_inlined_and_helpers_dropped() {
    let out = simplified(&format!(
        r#"module @m

graph @half(%0: f32[4]) {{
  %1 = constant {{value = splat f32[4] 0.5}} : f32[4]
  %2 = multiply %0, %1 : f32[4]
  return %2, %0
}}

graph @quarter(%0: f32[4]) {{
  %1, %2 = call %0 {{graph = @half}} : f32[4], f32[4]
  %3, %4 = call %1 {{graph = @half}} : f32[4], f32[4]
  return %3, %2
}}

graph @main(%0: f32[4]) {{
  %1, %2 = call %0 {{graph = @quarter}} : f32[4], f32[4]
  %3 = sine %0 : f32[4]
  return %1, %2
}}

{}"#,
        entry(1, 2)
    ));
    insta::assert_snapshot!(out, @r#"
    graph @main(%0: f32[4]) {
      %1 = constant {value = splat f32[4] 0.5} : f32[4]
      %2 = multiply %0, %1 : f32[4]
      %3 = multiply %2, %1 : f32[4]
      return %3, %0
    }
    "#);
}

#[test]
fn movement_is_composed_and_constants_are_folded_once() {
    let out = simplified(&format!(
        r#"module @m

graph @main(%0: f32[4], %1: i1[2,4]) {{
  %2 = broadcast_in_dim %0 {{dims = [2], shape = [1, 1, 4]}} : f32[1,1,4]
  %3 = broadcast_in_dim %2 {{dims = [0, 1, 2], shape = [2, 3, 4]}} : f32[2,3,4]
  %4 = transpose %3 {{permutation = [1, 0, 2]}} : f32[3,2,4]
  %5 = transpose %4 {{permutation = [1, 0, 2]}} : f32[2,3,4]
  %6 = constant {{value = splat f32[] 2.0}} : f32[]
  %7 = constant {{value = splat f32[] 1.0}} : f32[]
  %8 = subtract %6, %7 : f32[]
  %9 = broadcast_in_dim %8 {{dims = [], shape = [2, 3, 4]}} : f32[2,3,4]
  %10 = power %5, %9 : f32[2,3,4]
  %11 = reduce %10 {{dims = [0], monoid = sum}} : f32[3,4]
  %12 = reshape %11 {{shape = [1, 3, 4]}} : f32[1,3,4]
  %13 = reduce %12 {{dims = [0], monoid = sum}} : f32[3,4]
  %14 = convert %1 {{dtype = f32}} : f32[2,4]
  %15 = constant {{value = splat f32[2,4] 0.0}} : f32[2,4]
  %16 = compare %14, %15 {{direction = NE}} : i1[2,4]
  return %13, %16
}}

{}"#,
        entry(2, 2)
    ));
    insta::assert_snapshot!(out, @r#"
    graph @main(%0: f32[4], %1: i1[2,4]) {
      %2 = broadcast_in_dim %0 {dims = [2], shape = [2, 3, 4]} : f32[2,3,4]
      %3 = reduce %2 {dims = [0], monoid = sum} : f32[3,4]
      return %3, %1
    }
    "#);
}

#[test]
fn a_barrier_is_opaque_and_keeps_only_what_is_needed() {
    let out = simplified(&format!(
        r#"module @m

graph @main(%0: f32[4], %1: f32[4]) {{
  %2 = sine %0 : f32[4]
  %3 = cosine %1 : f32[4]
  %4, %5 = optimization_barrier %2, %3 : f32[4], f32[4]
  %6 = negate %4 : f32[4]
  %7 = negate %2 : f32[4]
  %8 = add %6, %7 : f32[4]
  return %8
}}

{}"#,
        entry(2, 1)
    ));
    insta::assert_snapshot!(out, @r#"
    graph @main(%0: f32[4], %1: f32[4]) {
      %2 = sine %0 : f32[4]
      %3 = optimization_barrier %2 : f32[4]
      %4 = negate %3 : f32[4]
      %5 = negate %2 : f32[4]
      %6 = add %4, %5 : f32[4]
      return %6
    }
    "#);
}

#[test]
fn random_graphs_keep_every_bit() {
    let (mut folded, mut rewritten) = (0, 0);
    for seed in 0..300 {
        let before = random_module(seed, 60);
        let mut after = before.clone();
        let done = simplify(&mut after).expect("simplifies");
        folded += done.folded;
        rewritten += done.rewritten;
        verify(&after).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for round in 0..2 {
            let x = inputs(&before, &mut Random::new(seed ^ round << 32), tensor);
            assert_same(&before, &after, &x);
        }
        let mut again = after.clone();
        simplify(&mut again).expect("simplifies");
        assert_eq!(text::print(&after), text::print(&again), "seed {seed}: a second run changes the module");
    }
    // Otherwise the test shows nothing.
    assert!(folded > 300 && rewritten > 300, "{folded} folded, {rewritten} rewritten");
}

#[test]
fn exponential_inlining_is_refused() {
    let mut source =
        String::from("module @m\n\ngraph @f0(%0: f32[]) {\n  %1 = sine %0 : f32[]\n  return %1\n}\n");
    for i in 1..40 {
        source += &format!(
            "\ngraph @f{i}(%0: f32[]) {{\n  %1 = call %0 {{graph = @f{p}}} : f32[]\n  %2 = call %1 {{graph = @f{p}}} : f32[]\n  return %2\n}}\n",
            p = i - 1
        );
    }
    source += "\nentry \"main\" @f39 {\n  param \"x\"\n  result \"y\"\n}\n";
    let mut m = text::parse(&source).expect("parses");
    let e = simplify(&mut m).expect_err("is too large");
    assert!(e.to_string().starts_with("MSC-C0003"), "{e}");
}

/// A splat's bits in parts are no splat, and parts of one element are no elements.
#[test]
fn bits_of_another_width_are_folded_as_a_whole() {
    for (from, value, to) in [("i32[2]", "1", "u8[2,4]"), ("u16[4,2]", "1", "i32[4]")] {
        let dtype = to.split('[').next().expect("a type");
        let source = format!(
            "module @m\n\ngraph @main(%0: {to}) {{\n  %1 = constant {{value = splat {from} {value}}} : {from}\n  \
             %2 = bitcast_convert %1 {{dtype = {dtype}}} : {to}\n  %3 = add %2, %0 : {to}\n  return %3\n}}\n\n{}",
            entry(1, 1)
        );
        simplified(&source);
    }
}

/// A padded value where a mask keeps all of it, zero elsewhere.
#[test]
fn a_mask_over_what_was_padded_with_the_same_is_gone() {
    // Rows are two of zeros, three of x.
    let step = |mask: &str, fill: &str, swap: bool| {
        let (a, b) = if swap { ("%4", "%3") } else { ("%3", "%4") };
        let source = format!(
            "module @m\n\ngraph @main(%0: f32[2,3]) {{\n  %1 = constant {{value = dense i1[2,5] {mask}}} : i1[2,5]\n  \
             %2 = constant {{value = splat f32[] 0.0}} : f32[]\n  %3 = pad %0, %2 {{high = [0, 0], interior = [0, 0], \
             low = [0, 2]}} : f32[2,5]\n  %4 = constant {{value = splat f32[2,5] {fill}}} : f32[2,5]\n  %5 = select %1, \
             {a}, {b} : f32[2,5]\n  return %5\n}}\n\n{}",
            entry(1, 1)
        );
        simplified(&source).contains("select")
    };
    assert!(!step("0x00000101010000010101", "0.0", false));
    assert!(!step("0x00010101010000010101", "0.0", false), "more than x is kept");
    assert!(!step("0x01010000000101000000", "0.0", true), "the other way round");
    assert!(step("0x00000001010000010101", "0.0", false), "x is not kept whole");
    assert!(step("0x00000101010000010101", "1.0", false), "something else is filled in");
    assert!(step("0x00000101010000010101", "0.0", true), "what is dropped is x");
}

/// Carries that start alike and never change are one; others are not, whatever they start as.
#[test]
fn equal_carries_are_one() {
    let source = |last: &str, start: &str| {
        format!(
            "module @m\n\ngraph @cond(%0: i32[], %1: f32[3], %2: f32[3], %3: f32[3]) {{\n  \
             %4 = constant {{value = splat i32[] 3}} : i32[]\n  %5 = compare %0, %4 {{direction = LT}} : i1[]\n  return %5\n}}\n\n\
             graph @body(%0: i32[], %1: f32[3], %2: f32[3], %3: f32[3]) {{\n  %4 = constant {{value = splat i32[] 1}} : i32[]\n  \
             %5 = add %0, %4 : i32[]\n  %6 = multiply %3, %1 : f32[3]\n  %7 = add %6, %2 : f32[3]\n  return %5, %1, {last}, %7\n}}\n\n\
             graph @main(%0: f32[3], %1: f32[3]) {{\n  %2 = constant {{value = splat i32[] 0}} : i32[]\n  %3 = cosine %0 : f32[3]\n  \
             %4 = cosine {start} : f32[3]\n  %5, %6, %7, %8 = while %2, %3, %4, %1 {{body = @body, cond = @cond}} : i32[], f32[3], f32[3], f32[3]\n  \
             return %8\n}}\n\n{}",
            entry(2, 1)
        )
    };
    let body = |source: &str| {
        let mut module = text::parse(source).expect("parses");
        simplified(source);
        simplify(&mut module).expect("simplifies");
        let g = module.graph(module.graph_by_name("body").expect("a body"));
        text::print_graph(&module, g, text::PrintOptions::default())
    };
    assert!(body(&source("%2", "%0")).contains("add %6, %1"), "{}", body(&source("%2", "%0")));
    // It changes, or starts as something else.
    assert!(body(&source("%7", "%0")).contains("add %6, %2"), "{}", body(&source("%7", "%0")));
    assert!(body(&source("%2", "%1")).contains("add %6, %2"), "{}", body(&source("%2", "%1")));
}

/// Rows and places in them: rows that are counted are paired with the operand's, by whatever is looked up.
#[test]
fn lookups_in_counted_rows() {
    let source = |rows: &str, from: &str, concatenated: &str| {
        format!(
            "module @m

graph @main(%0: f32[4,8], %1: i32[4], %2: f32[4,1]) {{
  %3 = iota {{dim = 0, dtype = i32, shape = [{rows}]}} : i32[{rows}]
  %4 = reshape %3 {{shape = [4, 1]}} : i32[4,1]
  %5 = constant {{value = splat i32[4,1] 0}} : i32[4,1]
  %6 = compare %4, %5 {{direction = LT}} : i1[4,1]
  %7 = constant {{value = splat i32[4,1] 4}} : i32[4,1]
  %8 = add %4, %7 : i32[4,1]
  %9 = select %6, %8, {from} : i32[4,1]
  %10 = broadcast_in_dim %9 {{dims = [0, 1], shape = [4, 1, 1]}} : i32[4,1,1]
  %11 = reshape %1 {{shape = [4, 1, 1]}} : i32[4,1,1]
  %12 = concatenate {concatenated} {{dim = 2}} : i32[4,1,2]
  %13 = gather %0, %12 {{collapsed_slice_dims = [0, 1], index_vector_dim = 2, offset_dims = [], operand_batching_dims = [], slice_sizes = [1, 1], start_index_map = [0, 1], start_indices_batching_dims = []}} : f32[4,1]
  %14 = scatter %0, %12, %2 {{combine = sum, index_vector_dim = 2, input_batching_dims = [], inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = []}} : f32[4,8]
  return %13, %14
}}

{}",
            entry(3, 2)
        )
    };
    let out = simplified(&source("4", "%4", "%10, %11"));
    assert!(!out.contains("concatenate") && out.contains("operand_batching_dims = [0]"), "{out}");
    assert!(out.contains("input_batching_dims = [0]"), "{out}");
    // The other component first, and rows that are not counted.
    for (from, concatenated) in [("%4", "%11, %10"), ("%5", "%10, %11")] {
        let out = simplified(&source("4", from, concatenated));
        assert!(out.contains("concatenate"), "{out}");
    }
}
