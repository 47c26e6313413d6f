//! Gates whose operands are kept within bounds, and what is rectified: spellings that are found, near misses that are
//! not.

mod recognised;

use msc_ir::interp::{Mode, run};
use msc_ir::{Module, Tensor, text};
use recognised::Bounds;
use std::collections::BTreeMap;

/// The gate at most 1.25, what is gated between −1.25 and 1.25 and one more, σ of 1.702 times the gate; the gradients of
/// bounds as those of a minimum and a maximum.
const CLAMPED: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6]) {
  %3 = constant {value = splat f32[4,6] 1.25} : f32[4,6]
  %4 = constant {value = splat f32[4,6] -1.25} : f32[4,6]
  %5 = constant {value = splat f32[4,6] 1.0} : f32[4,6]
  %6 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %7 = constant {value = splat f32[4,6] 2.0} : f32[4,6]
  %8 = constant {value = splat f32[4,6] 1.702} : f32[4,6]
  %9 = minimum %0, %3 : f32[4,6]
  %10 = maximum %4, %1 : f32[4,6]
  %11 = minimum %3, %10 : f32[4,6]
  %12 = multiply %9, %8 : f32[4,6]
  %13 = logistic %12 : f32[4,6]
  %14 = multiply %9, %13 : f32[4,6]
  %15 = add %11, %5 : f32[4,6]
  %16 = multiply %15, %14 : f32[4,6]
  %17 = tanh %16 : f32[4,6]
  %18 = multiply %2, %17 : f32[4,6]
  %19 = multiply %15, %18 : f32[4,6]
  %20 = multiply %18, %14 : f32[4,6]
  %21 = subtract %5, %13 : f32[4,6]
  %22 = multiply %13, %21 : f32[4,6]
  %23 = multiply %9, %19 : f32[4,6]
  %24 = multiply %19, %13 : f32[4,6]
  %25 = multiply %23, %22 : f32[4,6]
  %26 = multiply %25, %8 : f32[4,6]
  %27 = add %24, %26 : f32[4,6]
  %28 = compare %0, %9 {direction = EQ} : i1[4,6]
  %29 = select %28, %5, %6 : f32[4,6]
  %30 = compare %3, %9 {direction = EQ} : i1[4,6]
  %31 = select %30, %7, %5 : f32[4,6]
  %32 = divide %29, %31 : f32[4,6]
  %33 = multiply %27, %32 : f32[4,6]
  %34 = compare %10, %11 {direction = EQ} : i1[4,6]
  %35 = select %34, %5, %6 : f32[4,6]
  %36 = compare %3, %11 {direction = EQ} : i1[4,6]
  %37 = select %36, %7, %5 : f32[4,6]
  %38 = divide %35, %37 : f32[4,6]
  %39 = compare %1, %10 {direction = EQ} : i1[4,6]
  %40 = select %39, %5, %6 : f32[4,6]
  %41 = compare %4, %10 {direction = EQ} : i1[4,6]
  %42 = select %41, %7, %5 : f32[4,6]
  %43 = divide %40, %42 : f32[4,6]
  %44 = multiply %20, %38 : f32[4,6]
  %45 = multiply %44, %43 : f32[4,6]
  return %16, %33, %45
}
"#;

/// The same with gradients that pass between bounds only.
fn selected(below: &str, above: &str) -> String {
    let start = CLAMPED.find("  %28").expect("there");
    let masks = format!(
        r#"  %28 = compare %0, %3 {{direction = {below}}} : i1[4,6]
  %29 = select %28, %27, %6 : f32[4,6]
  %30 = compare %1, %4 {{direction = {above}}} : i1[4,6]
  %31 = compare %1, %3 {{direction = {below}}} : i1[4,6]
  %32 = and %30, %31 : i1[4,6]
  %33 = select %32, %20, %6 : f32[4,6]
  return %16, %29, %33
}}
"#
    );
    format!("{}{masks}", &CLAMPED[..start])
}

/// ReLU, and its gradient as a selection.
const RELU: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6]) {
  %3 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %4 = maximum %0, %3 : f32[4,6]
  %5 = tanh %4 : f32[4,6]
  %6 = multiply %1, %5 : f32[4,6]
  %7 = compare %0, %3 {direction = GT} : i1[4,6]
  %8 = select %7, %6, %3 : f32[4,6]
  return %4, %8
}
"#;

/// The square of ReLU.
const SQUARED: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6]) {
  %3 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %4 = maximum %0, %3 : f32[4,6]
  %5 = multiply %4, %4 : f32[4,6]
  %6 = tanh %5 : f32[4,6]
  %7 = multiply %1, %6 : f32[4,6]
  %8 = constant {value = splat f32[4,6] 2.0} : f32[4,6]
  %9 = multiply %8, %4 : f32[4,6]
  %10 = multiply %7, %9 : f32[4,6]
  %11 = compare %0, %3 {direction = GT} : i1[4,6]
  %12 = select %11, %10, %3 : f32[4,6]
  return %5, %12
}
"#;

/// ReLU as a gate.
const REGLU: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6], %2: f32[4,6]) {
  %3 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %4 = maximum %0, %3 : f32[4,6]
  %5 = multiply %4, %2 : f32[4,6]
  %6 = tanh %5 : f32[4,6]
  %7 = multiply %1, %6 : f32[4,6]
  %8 = multiply %7, %4 : f32[4,6]
  %9 = multiply %7, %2 : f32[4,6]
  %10 = compare %0, %3 {direction = GT} : i1[4,6]
  %11 = select %10, %9, %3 : f32[4,6]
  return %5, %8, %11
}
"#;

/// A few roundings in f32; literals rounded to f32 in wide mode.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 2e-6), (Mode::Wide, 2e-6)], replay: 1e-6 };

/// How often each op was found, and the text.
fn recognised(source: &str) -> (BTreeMap<String, usize>, String) {
    let (module, report) = recognised::recognised(source, BOUNDS);
    at_bounds(source, &module);
    (report.fusions.into_iter().map(|(name, f)| (name, f.sites)).collect(), text::print(&module))
}

/// The same numbers where operands are at their bounds.
fn at_bounds(source: &str, after: &Module) {
    let before = text::parse(source).expect("parses");
    let main = before.graph_by_name("main").expect("main");
    let types = before.graph(main).param_types();
    let corners = [-2.0, -1.25, 0.0, 1.0, 1.25, 2.0];
    let inputs: Vec<Tensor> = types
        .iter()
        .enumerate()
        .map(|(k, t)| {
            let data: Vec<f64> = (0..t.elements()).map(|i| corners[(i * (k + 1) + i / 6) % 6]).collect();
            Tensor::from_f64s(t, &data)
        })
        .collect();
    let (a, b) = (run(&before, main, &inputs, Mode::Wide), run(after, main, &inputs, Mode::Wide));
    for (x, y) in a.expect("runs").iter().zip(&b.expect("runs")) {
        assert!(msc_passes::recognise::check::difference(x, y) < 2e-6, "{source}");
    }
}

fn expect(source: &str, what: &str, ops: &[(&str, usize)]) -> String {
    let (found, printed) = recognised(source);
    let want: BTreeMap<String, usize> = ops.iter().map(|&(n, k)| (n.to_string(), k)).collect();
    assert_eq!(found, want, "{what}: {printed}");
    printed
}

/// The text of the step itself.
fn main(printed: &str) -> &str {
    let start = printed.find("graph @main").unwrap_or(0);
    let text = &printed[start..];
    &text[..text.find("\n}").unwrap_or(text.len())]
}

const BOTH: &[(&str, usize)] = &[("swiglu", 1), ("swiglu_grad", 1)];

/// The attributes of the operation of a name.
fn attributes<'t>(printed: &'t str, name: &str) -> &'t str {
    let line = printed.lines().find(|l| l.contains(&format!("= {name} "))).unwrap_or("");
    let start = line.find('{').unwrap_or(0);
    &line[start..line.find('}').unwrap_or(line.len())]
}

#[test]
fn operands_within_bounds() {
    for (source, passes) in
        [(CLAMPED.to_string(), "half"), (selected("LT", "GT"), "nothing"), (selected("LE", "GE"), "all")]
    {
        let printed = expect(&source, passes, BOTH);
        for (name, last) in [("swiglu", String::new()), ("swiglu_grad", format!("at_bound = {passes}"))] {
            let found = attributes(&printed, name);
            for part in
                ["alpha = 1.702", "bias = 1", "gate_most = 1.25", "up_least = -1.25", "up_most = 1.25"]
            {
                assert!(found.contains(part), "{name} without {part}: {printed}");
            }
            assert!(found.contains(&last) && !found.contains("gate_least"), "{printed}");
        }
        assert!(!main(&printed).contains("select"), "{printed}");
    }
    // As one op.
    let clamp = CLAMPED.replace("%11 = minimum %3, %10", "%11 = clamp %4, %1, %3");
    expect(&clamp, "clamped at once", BOTH);
}

#[test]
fn bounds_of_some() {
    // What is gated as it is.
    let free = selected("LT", "GT").replace("%15 = add %11, %5", "%15 = multiply %1, %1");
    let free = free.replace("return %16, %29, %33", "return %16, %29, %20");
    let printed = expect(&free, "one operand", BOTH);
    assert!(!attributes(&printed, "swiglu").contains("up_"), "{printed}");
    assert!(attributes(&printed, "swiglu").contains("gate_most"), "{printed}");
    // A bias alone.
    let biased = selected("LT", "GT").replace("%15 = add %11, %5", "%15 = add %1, %5");
    let biased = biased.replace("return %16, %29, %33", "return %16, %29, %20");
    let printed = expect(&biased, "a bias", BOTH);
    assert!(attributes(&printed, "swiglu_grad").contains("bias = 1"), "{printed}");
    // Without a mask the gradient is that of what is within bounds.
    let masks = CLAMPED.find("  %28").expect("there");
    let inside = format!("{}  return %16, %27, %20\n}}\n", &CLAMPED[..masks]);
    let printed = expect(&inside, "no masks", BOTH);
    assert!(attributes(&printed, "swiglu").contains("up_most"), "{printed}");
    assert!(!attributes(&printed, "swiglu_grad").contains("most"), "{printed}");
}

/// What it is about, a text and what replaces it, and whether the gradient's operation has bounds then.
type Case<'a> = (&'a str, &'a str, &'a str);

#[test]
fn near_misses_of_bounds() {
    let cases: [Case; 6] = [
        ("another bound in a mask", "%30 = compare %3, %9", "%30 = compare %7, %9"),
        ("a mask of the other operand", "%28 = compare %0, %9", "%28 = compare %1, %9"),
        ("a third at a bound", "%31 = select %30, %7, %5", "%31 = select %30, %8, %5"),
        ("out of bounds instead", "%29 = select %28, %5, %6", "%29 = select %28, %6, %5"),
        ("one mask twice", "%45 = multiply %44, %43", "%45 = multiply %44, %38"),
        ("one mask only", "%45 = multiply %44, %43", "%45 = multiply %44, %5"),
    ];
    for (what, from, to) in cases {
        assert!(CLAMPED.contains(from), "{what}");
        let (found, printed) = recognised(&CLAMPED.replace(from, to));
        let gradient = attributes(&printed, "swiglu_grad");
        let both = gradient.contains("gate_most") && gradient.contains("up_least");
        assert!(!both && found["swiglu_grad"] == 1, "{what}: {printed}");
    }
    // Where bounds leave nothing, they are none.
    let (_, printed) = recognised(&CLAMPED.replace("splat f32[4,6] -1.25", "splat f32[4,6] 1.5"));
    assert!(!attributes(&printed, "swiglu").contains("up_least"), "{printed}");
    // Another factor in the slope.
    let (found, printed) = recognised(&CLAMPED.replace("%26 = multiply %25, %8", "%26 = multiply %25, %7"));
    assert!(!found.contains_key("swiglu_grad"), "{printed}");
    // σ of something else.
    let (found, printed) = recognised(&CLAMPED.replace("%12 = multiply %9, %8", "%12 = multiply %0, %8"));
    assert!(!attributes(&printed, "swiglu").contains("gate_most"), "{found:?} {printed}");
}

#[test]
fn a_factor_in_the_argument() {
    let swish = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6]) {
  %2 = constant {value = splat f32[4,6] 1.702} : f32[4,6]
  %3 = multiply %2, %0 : f32[4,6]
  %4 = logistic %3 : f32[4,6]
  %5 = multiply %0, %4 : f32[4,6]
  %6 = constant {value = splat f32[4,6] 1.0} : f32[4,6]
  %7 = subtract %6, %4 : f32[4,6]
  %8 = multiply %4, %7 : f32[4,6]
  %9 = multiply %1, %4 : f32[4,6]
  %10 = multiply %0, %1 : f32[4,6]
  %11 = multiply %10, %8 : f32[4,6]
  %12 = multiply %2, %11 : f32[4,6]
  %13 = add %9, %12 : f32[4,6]
  return %5, %13
}
"#;
    expect(swish, "1.702", &[("swish", 1), ("swish_grad", 1)]);
    let one = swish.replace("splat f32[4,6] 1.702", "splat f32[4,6] 1.0");
    expect(&one, "1", &[("silu", 1), ("silu_grad", 1)]);
    expect(&swish.replace("%12 = multiply %2, %11", "%12 = add %6, %11"), "no slope", &[("swish", 1)]);
}

#[test]
fn rectified() {
    let both: &[(&str, usize)] = &[("relu", 1), ("relu_grad", 1)];
    expect(RELU, "where the operand is above zero", both);
    expect(&RELU.replace("compare %0, %3", "compare %4, %3"), "where the result is", both);
    let at_most = RELU.replace("{direction = GT}", "{direction = LE}").replace("%7, %6, %3", "%7, %3, %6");
    expect(&at_most, "zero where it is not", both);
    let printed = expect(&RELU.replace("{direction = GT}", "{direction = GE}"), "at zero too", both);
    assert!(attributes(&printed, "relu_grad").contains("at_bound = all"), "{printed}");
    let half = RELU.replace(
        "%7 = compare %0, %3 {direction = GT} : i1[4,6]\n  %8 = select %7, %6, %3",
        "%7 = compare %0, %4 {direction = EQ} : i1[4,6]
  %9 = constant {value = splat f32[4,6] 1.0} : f32[4,6]
  %10 = select %7, %9, %3 : f32[4,6]
  %11 = compare %3, %4 {direction = EQ} : i1[4,6]
  %12 = constant {value = splat f32[4,6] 2.0} : f32[4,6]
  %13 = select %11, %12, %9 : f32[4,6]
  %14 = divide %10, %13 : f32[4,6]
  %8 = multiply %6, %14",
    );
    let printed = expect(&recognised::numbered(&half), "as a maximum", both);
    assert!(attributes(&printed, "relu_grad").contains("at_bound = half"), "{printed}");
    expect(REGLU, "gated", &[("reglu", 1), ("reglu_grad", 1)]);
    let squared: &[(&str, usize)] = &[("squared_relu", 1), ("squared_relu_grad", 1)];
    expect(SQUARED, "squared", squared);
    expect(&SQUARED.replace("return %5, %12", "return %5, %10"), "squared, no mask", squared);
    let powers = SQUARED.replace("%5 = multiply %4, %4", "%5 = power %4, %8");
    let powers = powers
        .replace("  %5 = power", "  %8 = constant {value = splat f32[4,6] 2.0} : f32[4,6]\n  %5 = power");
    let powers = powers.replacen("  %8 = constant {value = splat f32[4,6] 2.0} : f32[4,6]\n  %9", "  %9", 1);
    expect(&recognised::numbered(&powers), "a power", squared);
}

#[test]
fn near_misses_of_what_is_rectified() {
    let forward: &[(&str, usize)] = &[("relu", 1)];
    for (what, from, to, ops) in [
        ("another threshold", "splat f32[4,6] 0.0", "splat f32[4,6] 0.1", &[][..]),
        ("below zero", "%4 = maximum %0, %3", "%4 = minimum %0, %3", &[]),
        ("where it is below", "{direction = GT}", "{direction = LT}", forward),
        ("where another is above", "%7 = compare %0, %3", "%7 = compare %1, %3", forward),
        ("something else below", "%8 = select %7, %6, %3", "%8 = select %7, %6, %1", forward),
    ] {
        assert!(RELU.contains(from), "{what}");
        expect(&RELU.replace(from, to), what, ops);
    }
    for (what, from, to) in [
        ("three times", "splat f32[4,6] 2.0", "splat f32[4,6] 3.0"),
        ("of x", "%9 = multiply %8, %4", "%9 = multiply %8, %0"),
    ] {
        let (found, printed) = recognised(&SQUARED.replace(from, to));
        assert!(!found.contains_key("squared_relu_grad") && found["squared_relu"] == 1, "{what}: {printed}");
    }
    // A variance that is kept from falling below zero.
    let variance = r#"module @step

graph @main(%0: f32[4,6,5]) {
  %1 = multiply %0, %0 : f32[4,6,5]
  %2 = reduce %1 {dims = [2], monoid = sum} : f32[4,6]
  %3 = reduce %0 {dims = [2], monoid = sum} : f32[4,6]
  %4 = multiply %3, %3 : f32[4,6]
  %5 = subtract %2, %4 : f32[4,6]
  %6 = constant {value = splat f32[4,6] 0.0} : f32[4,6]
  %7 = maximum %5, %6 : f32[4,6]
  return %7
}
"#;
    expect(variance, "a statistic", &[]);
}
