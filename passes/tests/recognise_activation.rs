//! SiLU and GELU, gated or not: spellings that are found, near misses that are not.

mod recognised;

use msc_ir::interp::Mode;
use recognised::Bounds;
use std::collections::BTreeMap;

/// JAX: σ spelled out, its slope saved beside the forward, the product rule as it stands.
const SWIGLU: &str = r#"module @step

graph @main(%0: f32[2,3,8], %1: f32[2,3,8], %2: f32[2,3,8]) {
  %3 = negate %0 : f32[2,3,8]
  %4 = exponential %3 : f32[2,3,8]
  %5 = constant {value = splat f32[2,3,8] 1.0} : f32[2,3,8]
  %6 = add %5, %4 : f32[2,3,8]
  %7 = divide %5, %6 : f32[2,3,8]
  %8 = subtract %5, %7 : f32[2,3,8]
  %9 = multiply %7, %8 : f32[2,3,8]
  %10 = multiply %0, %7 : f32[2,3,8]
  %11 = multiply %10, %1 : f32[2,3,8]
  %12 = tanh %11 : f32[2,3,8]
  %13 = multiply %2, %12 : f32[2,3,8]
  %14 = multiply %13, %10 : f32[2,3,8]
  %15 = multiply %13, %1 : f32[2,3,8]
  %16 = multiply %15, %7 : f32[2,3,8]
  %17 = multiply %0, %15 : f32[2,3,8]
  %18 = multiply %17, %9 : f32[2,3,8]
  %19 = add %16, %18 : f32[2,3,8]
  return %11, %14, %19
}
"#;

/// The tanh form, its gradient with the cube's derivative saved, and dy a sum that depends on y itself, as a norm's
/// gradient is.
const GELU: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6]) {
  %2 = multiply %0, %0 : f32[4,6]
  %3 = multiply %2, %0 : f32[4,6]
  %4 = constant {value = splat f32[4,6] 3.0} : f32[4,6]
  %5 = multiply %4, %2 : f32[4,6]
  %6 = constant {value = splat f32[4,6] 0.044715} : f32[4,6]
  %7 = multiply %6, %3 : f32[4,6]
  %8 = add %0, %7 : f32[4,6]
  %9 = constant {value = splat f32[4,6] 0.797884583} : f32[4,6]
  %10 = multiply %9, %8 : f32[4,6]
  %11 = tanh %10 : f32[4,6]
  %12 = constant {value = splat f32[4,6] 1.0} : f32[4,6]
  %13 = subtract %12, %11 : f32[4,6]
  %14 = add %12, %11 : f32[4,6]
  %15 = constant {value = splat f32[4,6] 0.5} : f32[4,6]
  %16 = multiply %15, %14 : f32[4,6]
  %17 = multiply %0, %16 : f32[4,6]
  %18 = subtract %1, %17 : f32[4,6]
  %19 = add %18, %1 : f32[4,6]
  %20 = multiply %0, %19 : f32[4,6]
  %21 = multiply %19, %16 : f32[4,6]
  %22 = multiply %15, %20 : f32[4,6]
  %23 = multiply %22, %13 : f32[4,6]
  %24 = multiply %23, %11 : f32[4,6]
  %25 = add %23, %24 : f32[4,6]
  %26 = multiply %9, %25 : f32[4,6]
  %27 = add %21, %26 : f32[4,6]
  %28 = multiply %6, %26 : f32[4,6]
  %29 = multiply %28, %5 : f32[4,6]
  %30 = add %27, %29 : f32[4,6]
  return %17, %30
}
"#;

/// The tanh form with x outside the sum, as Bloom has it, and no gradient.
const GELU_FACTORED: &str = r#"module @step

graph @main(%0: f32[4,6]) {
  %1 = constant {value = splat f32[4,6] 0.5} : f32[4,6]
  %2 = multiply %0, %1 : f32[4,6]
  %3 = constant {value = splat f32[4,6] 0.79788456} : f32[4,6]
  %4 = multiply %3, %0 : f32[4,6]
  %5 = constant {value = splat f32[4,6] 0.044715} : f32[4,6]
  %6 = multiply %5, %0 : f32[4,6]
  %7 = multiply %6, %0 : f32[4,6]
  %8 = constant {value = splat f32[4,6] 1.0} : f32[4,6]
  %9 = add %8, %7 : f32[4,6]
  %10 = multiply %4, %9 : f32[4,6]
  %11 = tanh %10 : f32[4,6]
  %12 = add %8, %11 : f32[4,6]
  %13 = multiply %2, %12 : f32[4,6]
  return %13
}
"#;

/// The form with erfc, and exp(−x²/2) in the gradient.
const GELU_ERF: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[4,6]) {
  %2 = constant {value = splat f32[4,6] 0.5} : f32[4,6]
  %3 = multiply %2, %0 : f32[4,6]
  %4 = negate %0 : f32[4,6]
  %5 = constant {value = splat f32[4,6] 0.707106769} : f32[4,6]
  %6 = multiply %4, %5 : f32[4,6]
  %7 = erfc %6 : f32[4,6]
  %8 = multiply %6, %6 : f32[4,6]
  %9 = negate %8 : f32[4,6]
  %10 = exponential %9 : f32[4,6]
  %11 = multiply %3, %7 : f32[4,6]
  %12 = multiply %3, %1 : f32[4,6]
  %13 = multiply %1, %7 : f32[4,6]
  %14 = constant {value = splat f32[4,6] -1.12837923} : f32[4,6]
  %15 = multiply %14, %12 : f32[4,6]
  %16 = multiply %15, %10 : f32[4,6]
  %17 = multiply %16, %5 : f32[4,6]
  %18 = negate %17 : f32[4,6]
  %19 = multiply %13, %2 : f32[4,6]
  %20 = add %18, %19 : f32[4,6]
  return %11, %20
}
"#;

/// A few roundings in f32; literals rounded to f32 in wide mode.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 2e-6), (Mode::Wide, 2e-6)], replay: 1e-6 };

/// How often each op was found.
fn recognised(source: &str) -> BTreeMap<String, usize> {
    let (_, report) = recognised::recognised(source, BOUNDS);
    report.fusions.into_iter().map(|(name, f)| (name, f.sites)).collect()
}

fn expect(source: &str, what: &str, ops: &[(&str, usize)]) {
    let found = recognised(source);
    let want: BTreeMap<String, usize> = ops.iter().map(|&(n, k)| (n.to_string(), k)).collect();
    assert_eq!(found, want, "{what}");
}

/// What it is about, a text and what replaces it, and what is then found.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, usize)]);

/// Each case changes one line; what is then still found is equal for every input.
fn cases(source: &str, all: &[Case]) {
    for (what, from, to, ops) in all {
        assert!(source.contains(from), "{what}");
        expect(&source.replace(from, to), what, ops);
    }
}

#[test]
fn swiglu() {
    expect(SWIGLU, "as written", &[("swiglu", 1), ("swiglu_grad", 1)]);
    // PyTorch: σ·(1 + x·(1 − σ)).
    let torch = SWIGLU
        .replace("%9 = multiply %7, %8", "%9 = multiply %0, %8")
        .replace("%17 = multiply %0, %15", "%17 = add %9, %5")
        .replace("%18 = multiply %17, %9", "%18 = multiply %17, %7")
        .replace("%19 = add %16, %18", "%19 = multiply %15, %18");
    expect(&torch, "as PyTorch writes it", &[("swiglu", 1), ("swiglu_grad", 1)]);
}

#[test]
fn values_stay_available() {
    let source = SWIGLU.replace("return %11, %14, %19", "return %11, %14, %19, %7, %10");
    let found = recognised(&source);
    assert_eq!((found["swiglu"], found["swiglu_grad"], found["silu"]), (1, 1, 1));
}

#[test]
fn near_misses_of_swiglu() {
    let forward: &[(&str, usize)] = &[("swiglu", 2)];
    cases(
        SWIGLU,
        &[
            ("|x| for −x", "%3 = negate %0", "%3 = abs %0", &[]),
            ("2e⁻ˣ for 1 + e⁻ˣ", "%6 = add %5, %4", "%6 = add %4, %4", &[]),
            ("the root of σ", "%7 = divide %5, %6", "%7 = rsqrt %6", &[]),
            // x·σ(gate) is gone, its slope is there.
            ("another x", "%10 = multiply %0, %7", "%10 = multiply %1, %7", &[("silu_grad", 1)]),
            ("the other sign in the slope", "%19 = add %16, %18", "%19 = subtract %16, %18", forward),
            ("σ² for σ(1 − σ)", "%9 = multiply %7, %8", "%9 = multiply %7, %7", forward),
            ("1 − x for 1 − σ", "%8 = subtract %5, %7", "%8 = subtract %5, %0", forward),
            ("another gate in the slope", "%17 = multiply %0, %15", "%17 = multiply %1, %15", forward),
            (
                "another gradient for the operand",
                "%14 = multiply %13, %10",
                "%14 = multiply %2, %10",
                &[("silu_grad", 1), ("swiglu", 2)],
            ),
        ],
    );
}

#[test]
fn gelu() {
    expect(GELU, "tanh", &[("gelu", 1), ("gelu_grad", 1)]);
    let power = GELU
        .replace("%3 = multiply %2, %0 : f32[4,6]\n", "")
        .replace(
            "%4 = constant {value = splat f32[4,6] 3.0} : f32[4,6]",
            "%3 = constant {value = splat f32[4,6] 3.0} : f32[4,6]\n  %4 = power %0, %3 : f32[4,6]",
        )
        .replace("%5 = multiply %4, %2", "%5 = multiply %3, %2")
        .replace("%7 = multiply %6, %3", "%7 = multiply %6, %4");
    expect(&power, "the cube as a power", &[("gelu", 1), ("gelu_grad", 1)]);
    expect(GELU_ERF, "erf", &[("gelu", 1), ("gelu_grad", 1)]);
    expect(GELU_FACTORED, "x outside the sum", &[("gelu", 1)]);
}

/// What it is of is one of two matrices that one product gives, with the dimension of size 1 taken out.
#[test]
fn gelu_of_a_part() {
    let part = GELU.replace("(%0: f32[4,6], %1: f32[4,6])", "(%90: f32[2,4,6], %1: f32[4,6])").replace(
        "  %2 = multiply %0, %0",
        "  %91 = slice %90 {limit = [1, 4, 6], start = [0, 0, 0], stride = [1, 1, 1]} : f32[1,4,6]\n  \
             %0 = reshape %91 {shape = [4, 6]} : f32[4,6]\n  %2 = multiply %0, %0",
    );
    assert_ne!(part, GELU);
    expect(&recognised::numbered(&part), "a part of a stack", &[("gelu", 1), ("gelu_grad", 1)]);
}

#[test]
fn near_misses_of_gelu() {
    let forward: &[(&str, usize)] = &[("gelu", 1)];
    cases(
        GELU,
        &[
            ("another cubic term", "splat f32[4,6] 0.044715", "splat f32[4,6] 0.05", &[]),
            ("another scale", "splat f32[4,6] 0.797884583", "splat f32[4,6] 0.8", &[]),
            ("x² + x for x³", "%3 = multiply %2, %0", "%3 = add %2, %0", &[]),
            ("a quarter", "splat f32[4,6] 0.5", "splat f32[4,6] 0.25", &[]),
            ("1 − t for 1 + t", "%14 = add %12, %11", "%14 = subtract %12, %11", &[]),
            ("t³ for 1 − t²", "%25 = add %23, %24", "%25 = multiply %23, %24", forward),
            ("the cube's slope left out", "%30 = add %27, %29", "%30 = add %27, %27", forward),
            ("2x² for 3x²", "%5 = multiply %4, %2", "%5 = add %2, %2", forward),
        ],
    );
    cases(
        GELU_FACTORED,
        &[
            ("another cubic term", "splat f32[4,6] 0.044715", "splat f32[4,6] 0.05", &[]),
            ("a sum for x²", "%7 = multiply %6, %0", "%7 = add %6, %0", &[]),
            ("x³ for x²", "%6 = multiply %5, %0", "%6 = multiply %4, %4", &[]),
            ("another x outside", "%4 = multiply %3, %0", "%4 = multiply %3, %2", &[]),
            ("none outside", "%4 = multiply %3, %0", "%4 = multiply %3, %3", &[]),
        ],
    );
    cases(
        GELU_ERF,
        &[
            ("x for x/√2", "splat f32[4,6] 0.707106769", "splat f32[4,6] 0.7", &[]),
            ("erf for erfc", "%7 = erfc %6", "%7 = erf %6", &[]),
            ("exp(x²/2)", "%9 = negate %8", "%9 = abs %8", forward),
            ("another slope", "-1.12837923", "-1.128", forward),
        ],
    );
}
