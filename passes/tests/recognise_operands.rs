//! Numbers that are operands: steps that take their literals as arguments, as traces of lazy tensors do.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{Module, Op, Operation, text};
use msc_passes::recognise::Report;
use recognised::{Bounds, numbered, sites};

/// An RMSNorm with its gradient: epsilon, and −½, 2 and the width in the gradient, are arguments.
const NORM: &str = r#"module @step

graph @main(%x: f32[2,3,8], %g: f32[8], %dy: f32[2,3,8], %r: f32[2,3,8], %eps: f32[], %half: f32[], %two: f32[], %d: f32[]) {
  %1 = multiply %x, %x : f32[2,3,8]
  %2 = reduce %1 {dims = [2], monoid = sum} : f32[2,3]
  %3 = constant {value = splat f32[2,3] 0.125} : f32[2,3]
  %4 = multiply %2, %3 : f32[2,3]
  %5 = broadcast_in_dim %eps {dims = [], shape = [2, 3]} : f32[2,3]
  %6 = add %4, %5 : f32[2,3]
  %7 = rsqrt %6 : f32[2,3]
  %8 = broadcast_in_dim %7 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %9 = multiply %x, %8 : f32[2,3,8]
  %10 = broadcast_in_dim %g {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %11 = multiply %9, %10 : f32[2,3,8]
  %12 = multiply %dy, %10 : f32[2,3,8]
  %13 = multiply %12, %8 : f32[2,3,8]
  %14 = multiply %12, %x : f32[2,3,8]
  %15 = reduce %14 {dims = [2], monoid = sum} : f32[2,3]
  %16 = broadcast_in_dim %half {dims = [], shape = [2, 3]} : f32[2,3]
  %17 = multiply %15, %16 : f32[2,3]
  %18 = constant {value = splat f32[2,3] 3.0} : f32[2,3]
  %19 = power %7, %18 : f32[2,3]
  %20 = multiply %17, %19 : f32[2,3]
  %21 = broadcast_in_dim %20 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %22 = broadcast_in_dim %d {dims = [], shape = [2, 3, 8]} : f32[2,3,8]
  %23 = divide %21, %22 : f32[2,3,8]
  %24 = broadcast_in_dim %two {dims = [], shape = [2, 3, 8]} : f32[2,3,8]
  %25 = multiply %x, %24 : f32[2,3,8]
  %26 = multiply %23, %25 : f32[2,3,8]
  %27 = add %r, %13 : f32[2,3,8]
  %28 = add %27, %26 : f32[2,3,8]
  %29 = multiply %dy, %9 : f32[2,3,8]
  %30 = reduce %29 {dims = [0, 1], monoid = sum} : f32[8]
  return %11, %28, %30
}
"#;

/// A LayerNorm whose epsilon is an argument.
const LAYER: &str = r#"module @step

graph @main(%x: f32[3,8], %g: f32[8], %b: f32[8], %eps: f32[]) {
  %1 = constant {value = splat f32[3] 8.0} : f32[3]
  %2 = reduce %x {dims = [1], monoid = sum} : f32[3]
  %3 = divide %2, %1 : f32[3]
  %4 = broadcast_in_dim %3 {dims = [0], shape = [3, 8]} : f32[3,8]
  %5 = subtract %x, %4 : f32[3,8]
  %6 = multiply %5, %5 : f32[3,8]
  %7 = reduce %6 {dims = [1], monoid = sum} : f32[3]
  %8 = divide %7, %1 : f32[3]
  %9 = broadcast_in_dim %eps {dims = [], shape = [3]} : f32[3]
  %10 = add %8, %9 : f32[3]
  %11 = rsqrt %10 : f32[3]
  %12 = broadcast_in_dim %11 {dims = [0], shape = [3, 8]} : f32[3,8]
  %13 = multiply %5, %12 : f32[3,8]
  %14 = broadcast_in_dim %g {dims = [1], shape = [3, 8]} : f32[3,8]
  %15 = multiply %13, %14 : f32[3,8]
  %16 = broadcast_in_dim %b {dims = [1], shape = [3, 8]} : f32[3,8]
  %17 = add %15, %16 : f32[3,8]
  return %17
}
"#;

/// PyTorch's AdamW: decay, rates and their complements are arguments.
const ADAMW: &str = r#"module @update

graph @main(%p: f32[4,6], %g: f32[4,6], %m: f32[4,6], %v: f32[4,6], %c: f32[], %d: f32[], %keep: f32[], %r1: f32[], %b2: f32[], %r2: f32[]) {
  %1 = broadcast_in_dim %keep {dims = [], shape = [4, 6]} : f32[4,6]
  %2 = multiply %p, %1 : f32[4,6]
  %3 = subtract %g, %m : f32[4,6]
  %4 = broadcast_in_dim %r1 {dims = [], shape = [4, 6]} : f32[4,6]
  %5 = multiply %4, %3 : f32[4,6]
  %6 = add %m, %5 : f32[4,6]
  %7 = broadcast_in_dim %b2 {dims = [], shape = [4, 6]} : f32[4,6]
  %8 = multiply %v, %7 : f32[4,6]
  %9 = multiply %g, %g : f32[4,6]
  %10 = broadcast_in_dim %r2 {dims = [], shape = [4, 6]} : f32[4,6]
  %11 = multiply %9, %10 : f32[4,6]
  %12 = add %8, %11 : f32[4,6]
  %13 = sqrt %12 : f32[4,6]
  %14 = broadcast_in_dim %c {dims = [], shape = [4, 6]} : f32[4,6]
  %15 = divide %13, %14 : f32[4,6]
  %16 = broadcast_in_dim %d {dims = [], shape = [4, 6]} : f32[4,6]
  %17 = add %15, %16 : f32[4,6]
  %18 = divide %6, %17 : f32[4,6]
  %19 = add %2, %18 : f32[4,6]
  return %19, %6, %12
}
"#;

/// PyTorch's clipping: threshold and epsilon are arguments.
const CLIP: &str = r#"module @step

graph @main(%0: f32[4,6], %1: f32[3], %max: f32[], %eps: f32[]) {
  %2 = multiply %0, %0 : f32[4,6]
  %3 = reduce %2 {dims = [0, 1], monoid = sum} : f32[]
  %4 = multiply %1, %1 : f32[3]
  %5 = reduce %4 {dims = [0], monoid = sum} : f32[]
  %6 = add %3, %5 : f32[]
  %7 = sqrt %6 : f32[]
  %8 = add %7, %eps : f32[]
  %9 = divide %max, %8 : f32[]
  %10 = constant {value = splat f32[] 1.0} : f32[]
  %11 = minimum %9, %10 : f32[]
  %12 = broadcast_in_dim %11 {dims = [], shape = [4, 6]} : f32[4,6]
  %13 = multiply %0, %12 : f32[4,6]
  %14 = broadcast_in_dim %11 {dims = [], shape = [3]} : f32[3]
  %15 = multiply %1, %14 : f32[3]
  return %13, %15
}
"#;

/// Scalars are multiplied together before they scale.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 2e-5), (Mode::Wide, 1e-9)], replay: 1e-6 };

fn recognised(source: &str) -> (Module, Report) {
    recognised::recognised(&numbered(source), BOUNDS)
}

/// Attributes of the first op of a name, and how many operands it has.
fn op(m: &Module, name: &str) -> (String, usize) {
    let main = m.graph(m.graph_by_name("main").expect("main"));
    let op = main.ops().find(|(_, d)| d.op.name() == name).expect("an op").1;
    assert!(matches!(op.op, Op::Fused(_)));
    let attrs = op.op.attrs(m);
    let shown = attrs.iter().filter(|a| *a.0 != "definition").map(|(n, v)| format!("{n}={v:?}"));
    (shown.collect::<Vec<_>>().join(" "), op.operands.len())
}

#[test]
fn norms() {
    let (after, report) = recognised(NORM);
    assert_eq!(
        (sites(&report, "rms_norm"), sites(&report, "rms_norm_grad")),
        (1, 1),
        "{:?}",
        report.regions[0].refusals
    );
    let (attrs, operands) = op(&after, "rms_norm");
    assert!(attrs.contains("eps=Word(\"operand\")") && operands == 3, "{attrs}");
    let (attrs, operands) = op(&after, "rms_norm_grad");
    assert!(attrs.contains("factor=Bool(true)") && operands == 6, "{attrs}");
    let (after, report) = recognised(LAYER);
    assert_eq!(sites(&report, "layer_norm"), 1);
    let (attrs, operands) = op(&after, "layer_norm");
    assert!(attrs.contains("eps=Word(\"operand\")") && operands == 4, "{attrs}");
}

/// What differs in one number is another op of the same kind: a known epsilon is an attribute beside an operand.
#[test]
fn known_numbers_stay_attributes() {
    let known = NORM.replace(
        "%5 = broadcast_in_dim %eps {dims = [], shape = [2, 3]}",
        "%5 = constant {value = splat f32[2,3] 1e-5}",
    );
    let (after, report) = recognised(&known);
    assert_eq!((sites(&report, "rms_norm"), sites(&report, "rms_norm_grad")), (1, 1));
    assert!(op(&after, "rms_norm").0.contains("eps=Float"));
    let known = ADAMW.replace(
        "%7 = broadcast_in_dim %b2 {dims = [], shape = [4, 6]}",
        "%7 = constant {value = splat f32[4,6] 0.95}",
    );
    let (after, report) = recognised(&known);
    assert_eq!(sites(&report, "adamw"), 1);
    let (attrs, operands) = op(&after, "adamw");
    assert!(attrs.contains("b2=Float") && attrs.contains("r2=Word") && operands == 9, "{attrs}");
}

#[test]
fn updates_and_clipping() {
    let (after, report) = recognised(ADAMW);
    assert_eq!(sites(&report, "adamw"), 1);
    let (attrs, operands) = op(&after, "adamw");
    assert!(attrs.matches("operand").count() == 4 && operands == 10, "{attrs}");
    let (after, report) = recognised(CLIP);
    assert_eq!(sites(&report, "clip"), 1, "{:?}", report.regions[0].refusals);
    let (attrs, operands) = op(&after, "clip");
    assert!(attrs.matches("operand").count() == 2 && operands == 3, "{attrs}");
}

/// The gradient divides the statistic by the variance, as programs do whose epsilon differs from layer to layer: a replay
/// must not draw the statistic apart from the epsilon.
#[test]
fn a_statistic_follows_its_epsilon() {
    let source = NORM.replace("%19 = power %7, %18 : f32[2,3]", "%19 = divide %7, %6 : f32[2,3]");
    let (after, report) = recognised(&source);
    assert_eq!(sites(&report, "rms_norm_grad"), 1, "{}", text::print(&after));
    let gradient = report.regions[0].reasons.iter().find(|r| r.rule.contains("grad")).expect("a gradient");
    let compared = msc_passes::recognise::Replayer::new(&after, &report.regions[0]).fresh(gradient, 1);
    let compared = compared.expect("executes");
    assert!(compared.iter().all(msc_passes::recognise::Compared::agrees), "{compared:?}");
}

/// Near misses: the source, what changes, and how many of a kind are still found.
#[test]
fn near_misses() {
    let cases: &[(&str, &str, &str, &str, &str, usize)] = &[
        (
            "an epsilon for each row",
            NORM,
            "%5 = broadcast_in_dim %eps {dims = [], shape = [2, 3]}",
            "%5 = reduce %dy {dims = [2], monoid = sum}",
            "rms_norm",
            0,
        ),
        ("eps outside the root", NORM, "%7 = rsqrt %6", "%7 = rsqrt %4", "rms_norm", 0),
        // Its epsilon is the negative one.
        ("eps subtracted", NORM, "%6 = add %4, %5", "%6 = subtract %4, %5", "rms_norm", 1),
        ("rstd for rstd³", NORM, "%20 = multiply %17, %19", "%20 = multiply %17, %7", "rms_norm_grad", 0),
        (
            "a factor for each row",
            NORM,
            "%17 = multiply %15, %16",
            "%17 = multiply %15, %4",
            "rms_norm_grad",
            0,
        ),
        (
            "both halves scaled",
            NORM,
            "%27 = add %r, %13",
            "%31 = multiply %13, %24 : f32[2,3,8]\n  %27 = add %r, %31",
            "rms_norm_grad",
            0,
        ),
        ("another x", NORM, "%25 = multiply %x, %24", "%25 = multiply %dy, %24", "rms_norm_grad", 0),
        (
            "an epsilon for each row of a LayerNorm",
            LAYER,
            "%9 = broadcast_in_dim %eps {dims = [], shape = [3]}",
            "%9 = reduce %x {dims = [1], monoid = max}",
            "layer_norm",
            0,
        ),
        ("a decay rate for each element", ADAMW, "%8 = multiply %v, %7", "%8 = multiply %v, %g", "adamw", 0),
        ("g·m for g²", ADAMW, "%9 = multiply %g, %g", "%9 = multiply %g, %m", "adamw", 0),
        ("decay of the gradient", ADAMW, "%2 = multiply %p, %1", "%2 = divide %1, %p", "adamw", 1),
        ("the squared norm", CLIP, "%8 = add %7, %eps", "%8 = add %6, %eps", "clip", 0),
        ("epsilon in the numerator", CLIP, "%9 = divide %max, %8", "%9 = divide %8, %max", "clip", 0),
        ("the larger factor", CLIP, "minimum %9, %10", "maximum %9, %10", "clip", 0),
        ("one gradient by the threshold", CLIP, "%15 = multiply %1, %14", "%15 = divide %1, %14", "clip", 0),
    ];
    for (what, source, from, to, kind, expected) in cases {
        assert!(source.contains(from), "{what}");
        let (after, report) = recognised(&source.replace(from, to));
        assert_eq!(sites(&report, kind), *expected, "{what}: {}", text::print(&after));
    }
}
