//! Clipping by the global norm: exporters' spellings, gradients in other graphs, near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{Module, text};
use recognised::{Bounds, numbered, sites};

/// optax: a select for every gradient; the norm is a result too.
const SELECTED: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[3]) {
  %2 = multiply %0, %0 : f32[4,6]
  %3 = reduce %2 {dims = [0, 1], monoid = sum} : f32[]
  %4 = multiply %1, %1 : f32[3]
  %5 = reduce %4 {dims = [0], monoid = sum} : f32[]
  %6 = constant {value = splat f32[] 0.0} : f32[]
  %7 = add %6, %3 : f32[]
  %8 = add %7, %5 : f32[]
  %9 = sqrt %8 : f32[]
  %10 = constant {value = splat f32[] 2.5} : f32[]
  %11 = compare %9, %10 {direction = LT} : i1[]
  %12 = broadcast_in_dim %9 {dims = [], shape = [4, 6]} : f32[4,6]
  %13 = divide %0, %12 : f32[4,6]
  %14 = constant {value = splat f32[4,6] 2.5} : f32[4,6]
  %15 = multiply %13, %14 : f32[4,6]
  %16 = select %11, %0, %15 : f32[4,6]
  %17 = broadcast_in_dim %9 {dims = [], shape = [3]} : f32[3]
  %18 = divide %1, %17 : f32[3]
  %19 = constant {value = splat f32[3] 2.5} : f32[3]
  %20 = multiply %18, %19 : f32[3]
  %21 = select %11, %1, %20 : f32[3]
  return %16, %21, %9
}
"#;

/// PyTorch: the norm of the norms, one factor for all.
const FACTOR: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[3]) {
  %2 = multiply %0, %0 : f32[4,6]
  %3 = reduce %2 {dims = [0, 1], monoid = sum} : f32[]
  %4 = sqrt %3 : f32[]
  %5 = reshape %4 {shape = [1]} : f32[1]
  %6 = multiply %1, %1 : f32[3]
  %7 = reduce %6 {dims = [0], monoid = sum} : f32[]
  %8 = sqrt %7 : f32[]
  %9 = reshape %8 {shape = [1]} : f32[1]
  %10 = concatenate %5, %9 {dim = 0} : f32[2]
  %11 = multiply %10, %10 : f32[2]
  %12 = reduce %11 {dims = [0], monoid = sum} : f32[]
  %13 = sqrt %12 : f32[]
  %14 = constant {value = splat f32[] 1e-6} : f32[]
  %15 = add %13, %14 : f32[]
  %16 = constant {value = splat f32[] 0.5} : f32[]
  %17 = divide %16, %15 : f32[]
  %18 = constant {value = splat f32[] 1.0} : f32[]
  %19 = minimum %17, %18 : f32[]
  %20 = broadcast_in_dim %19 {dims = [], shape = [4, 6]} : f32[4,6]
  %21 = multiply %0, %20 : f32[4,6]
  %22 = broadcast_in_dim %19 {dims = [], shape = [3]} : f32[3]
  %23 = multiply %1, %22 : f32[3]
  return %21, %23
}
"#;

/// Layers' gradients are squared and scaled in graphs that the step calls.
const CALLED: &str = r#"module @step

graph @squares(%0: f32[4,6]) {
  %1 = tanh %0 : f32[4,6]
  %2 = multiply %1, %1 : f32[4,6]
  %3 = reduce %2 {dims = [0, 1], monoid = sum} : f32[]
  return %1, %3
}

graph @scale(%0: f32[4,6], %1: f32[]) {
  %2 = broadcast_in_dim %1 {dims = [], shape = [4, 6]} : f32[4,6]
  %3 = multiply %0, %2 : f32[4,6]
  return %3
}

graph @main(%0: f32[4,6], %1: f32[4,6]) {
  %2, %3 = call %0 {graph = @squares} : f32[4,6], f32[]
  %4, %5 = call %1 {graph = @squares} : f32[4,6], f32[]
  %6 = add %3, %5 : f32[]
  %7 = sqrt %6 : f32[]
  %8 = constant {value = splat f32[] 0.5} : f32[]
  %9 = maximum %7, %8 : f32[]
  %10 = divide %8, %9 : f32[]
  %11 = call %2, %10 {graph = @scale} : f32[4,6]
  %12 = call %4, %10 {graph = @scale} : f32[4,6]
  return %11, %12
}
"#;

/// Factors are computed in another order than the program has.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-6), (Mode::Wide, 1e-9)], replay: 1e-6 };

fn recognised(source: &str) -> (usize, Module) {
    let (after, report) = recognised::recognised(&numbered(source), BOUNDS);
    (sites(&report, "clip"), after)
}

fn kind(module: &Module) -> String {
    use msc_ir::Operation;
    let main = module.graph(module.graph_by_name("main").expect("main"));
    let op = main.ops().find(|(_, d)| d.op.name() == "clip").expect("an op").1;
    format!("{:?}", op.op.attrs(module).iter().filter(|a| *a.0 != "definition").collect::<Vec<_>>())
}

#[test]
fn every_spelling() {
    for (source, form) in [(SELECTED, "within"), (FACTOR, "minimum"), (CALLED, "minimum")] {
        let (found, after) = recognised(source);
        assert_eq!(found, 1, "{}", text::print(&after));
        assert!(kind(&after).contains(form), "{}", kind(&after));
    }
    // Where the factor is not below 1, or no number, it is 1.
    let below = FACTOR.replace(
        "%19 = minimum %17, %18 : f32[]",
        "%30 = compare %17, %18 {direction = LT} : i1[]\n  %19 = select %30, %17, %18 : f32[]",
    );
    let (found, after) = recognised(&below);
    assert!(found == 1 && kind(&after).contains("below"), "{}", text::print(&after));
    let power = SELECTED.replace(
        "%9 = sqrt %8 : f32[]",
        "%30 = constant {value = splat f32[] 0.5} : f32[]\n  %9 = power %8, %30 : f32[]",
    );
    assert_eq!(recognised(&power).0, 1);
}

#[test]
fn near_misses() {
    for (what, source, from, to) in [
        ("no root", SELECTED, "%9 = sqrt %8", "%9 = abs %8"),
        ("the larger factor", FACTOR, "minimum %17, %18", "maximum %17, %18"),
        (
            "cubes",
            SELECTED,
            "%2 = multiply %0, %0 : f32[4,6]",
            "%30 = multiply %0, %0 : f32[4,6]\n  %2 = multiply %30, %0 : f32[4,6]",
        ),
        ("a part of the gradients", SELECTED, "%21 = select %11, %1, %20", "%21 = add %1, %1"),
        ("a tensor beside the gradients", SELECTED, "%8 = add %7, %5", "%8 = add %7, %7"),
        ("a gradient twice", SELECTED, "%7 = add %6, %3", "%7 = add %5, %3"),
        (
            "another threshold",
            SELECTED,
            "%19 = constant {value = splat f32[3] 2.5}",
            "%19 = constant {value = splat f32[3] 2.0}",
        ),
        ("the other branch", SELECTED, "%21 = select %11, %1, %20", "%21 = select %11, %20, %1"),
        ("the squared norm", FACTOR, "%15 = add %13, %14", "%15 = add %12, %14"),
        (
            "a part of a called gradient",
            CALLED,
            "%12 = call %4, %10 {graph = @scale} : f32[4,6]",
            "%12 = negate %4 : f32[4,6]",
        ),
        ("a sum over one dimension", SELECTED, "%4 = multiply %1, %1 : f32[3]", "%4 = abs %1 : f32[3]"),
    ] {
        assert!(source.contains(from), "{what}");
        assert_eq!(recognised(&source.replace(from, to)).0, 0, "{what}");
    }
}

/// A gradient of two parameters counts twice, and is used twice.
#[test]
fn a_gradient_of_two_parameters() {
    let counted = SELECTED.replace("%8 = add %7, %5", "%30 = add %7, %5 : f32[]\n  %8 = add %30, %5");
    assert_ne!(counted, SELECTED);
    assert_eq!(recognised(&counted).0, 0, "no second parameter");
    let used = counted.replace(
        "  return %16, %21, %9",
        "  %31 = subtract %22, %21 : f32[3]\n  %32 = subtract %23, %21 : f32[3]\n  return %16, %31, %32, %9",
    );
    let used =
        used.replace("(%0: f32[4,6], %1: f32[3])", "(%0: f32[4,6], %1: f32[3], %22: f32[3], %23: f32[3])");
    assert_eq!(recognised(&used).0, 1);
}

/// Norms that are only reported clip nothing.
#[test]
fn a_logged_norm_is_none() {
    let (norm, rest) = SELECTED.split_once("  %10 =").expect("the threshold");
    assert!(rest.contains("return"));
    let logged = format!("{norm}  return %0, %1, %9\n}}\n");
    assert_eq!(recognised(&logged).0, 0);
}

/// The norm's terms are ops of their own; what is nearly one is none.
#[test]
fn sums_of_squares() {
    let terms = |source: &str| {
        let (_, report) = recognised::recognised(&numbered(source), BOUNDS);
        sites(&report, "sum_of_squares")
    };
    assert_eq!(terms(SELECTED), 2);
    let power = "%c = constant {value = splat f32[4,6] 2.0} : f32[4,6]\n  %2 = power %0, %c";
    assert_eq!(terms(&SELECTED.replace("%2 = multiply %0, %0", power)), 2);
    for (from, to) in [
        ("%2 = multiply %0, %0", "%2 = abs %0"),
        ("%2 = multiply %0, %0", "%t = tanh %0 : f32[4,6]\n  %2 = multiply %0, %t"),
        ("%3 = reduce %2 {dims = [0, 1], monoid = sum}", "%3 = reduce %2 {dims = [0, 1], monoid = max}"),
    ] {
        assert!(SELECTED.contains(from), "{from}");
        assert_eq!(terms(&SELECTED.replace(from, to)), 1, "{to}");
    }
}
