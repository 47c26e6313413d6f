//! LayerNorm: spellings that are found, near misses that are not.

mod recognised;

use msc_ir::Module;
use msc_ir::interp::Mode;
use msc_passes::recognise::Report;
use recognised::{Bounds, sites};

/// Both derivatives of a two-pass norm in the order in which PyTorch models come through JAX: a second copy of the
/// mean, the scale after the statistic, a mean of what has mean zero.
const TWO_PASS: &str = r#"module @step

graph @main(%0: f32[2,3,8], %1: f32[8], %2: f32[8], %3: f32[2,3,8], %4: f32[2,3,8]) {
  %5 = reduce %0 {dims = [2], monoid = sum} : f32[2,3]
  %6 = broadcast_in_dim %5 {dims = [0, 1], shape = [2, 3, 1]} : f32[2,3,1]
  %7 = constant {value = splat f32[2,3,1] 8.0} : f32[2,3,1]
  %8 = divide %6, %7 : f32[2,3,1]
  %9 = broadcast_in_dim %8 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %10 = subtract %0, %9 : f32[2,3,8]
  %11 = multiply %10, %10 : f32[2,3,8]
  %12 = reduce %11 {dims = [2], monoid = sum} : f32[2,3]
  %13 = broadcast_in_dim %12 {dims = [0, 1], shape = [2, 3, 1]} : f32[2,3,1]
  %14 = divide %13, %7 : f32[2,3,1]
  %15 = constant {value = splat f32[2,3,1] 1e-5} : f32[2,3,1]
  %16 = add %14, %15 : f32[2,3,1]
  %17 = rsqrt %16 : f32[2,3,1]
  %18 = divide %17, %16 : f32[2,3,1]
  %19 = constant {value = splat f32[2,3,1] -0.5} : f32[2,3,1]
  %20 = multiply %19, %18 : f32[2,3,1]
  %21 = broadcast_in_dim %17 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %22 = multiply %10, %21 : f32[2,3,8]
  %23 = broadcast_in_dim %1 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %24 = multiply %22, %23 : f32[2,3,8]
  %25 = broadcast_in_dim %2 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %26 = add %24, %25 : f32[2,3,8]
  %27 = tanh %26 : f32[2,3,8]
  %28 = multiply %3, %27 : f32[2,3,8]
  %29 = reduce %28 {dims = [0, 1], monoid = sum} : f32[8]
  %30 = multiply %22, %28 : f32[2,3,8]
  %31 = reduce %30 {dims = [0, 1], monoid = sum} : f32[8]
  %32 = multiply %28, %23 : f32[2,3,8]
  %33 = multiply %10, %32 : f32[2,3,8]
  %34 = reduce %33 {dims = [2], monoid = sum} : f32[2,3]
  %35 = reshape %34 {shape = [2, 3, 1]} : f32[2,3,1]
  %36 = multiply %32, %21 : f32[2,3,8]
  %37 = negate %36 : f32[2,3,8]
  %38 = reduce %37 {dims = [2], monoid = sum} : f32[2,3]
  %39 = reshape %38 {shape = [2, 3, 1]} : f32[2,3,1]
  %40 = divide %39, %7 : f32[2,3,1]
  %41 = multiply %35, %20 : f32[2,3,1]
  %42 = divide %41, %7 : f32[2,3,1]
  %43 = broadcast_in_dim %42 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %44 = constant {value = splat f32[2,3,8] 2.0} : f32[2,3,8]
  %45 = multiply %44, %10 : f32[2,3,8]
  %46 = multiply %43, %45 : f32[2,3,8]
  %47 = negate %46 : f32[2,3,8]
  %48 = reduce %47 {dims = [2], monoid = sum} : f32[2,3]
  %49 = reshape %48 {shape = [2, 3, 1]} : f32[2,3,1]
  %50 = divide %49, %7 : f32[2,3,1]
  %51 = broadcast_in_dim %50 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %52 = add %46, %51 : f32[2,3,8]
  %53 = add %4, %36 : f32[2,3,8]
  %54 = add %53, %52 : f32[2,3,8]
  %55 = broadcast_in_dim %40 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %56 = add %54, %55 : f32[2,3,8]
  return %26, %56, %31, %29
}
"#;

/// As Flax writes it: the variance from the mean of squares and kept from falling below 0, the scale folded into the
/// statistic, the gradient of the bound.
const ONE_PASS: &str = r#"module @step

graph @main(%0: f32[2,3,8], %1: f32[8], %2: f32[8], %3: f32[2,3,8], %4: f32[2,3,8]) {
  %5 = reduce %0 {dims = [2], monoid = sum} : f32[2,3]
  %6 = constant {value = splat f32[2,3] 8.0} : f32[2,3]
  %7 = divide %5, %6 : f32[2,3]
  %8 = multiply %0, %0 : f32[2,3,8]
  %9 = reduce %8 {dims = [2], monoid = sum} : f32[2,3]
  %10 = divide %9, %6 : f32[2,3]
  %11 = multiply %7, %7 : f32[2,3]
  %12 = subtract %10, %11 : f32[2,3]
  %13 = constant {value = splat f32[2,3] 0.0} : f32[2,3]
  %14 = maximum %13, %12 : f32[2,3]
  %15 = compare %12, %14 {direction = EQ, total_order = false} : i1[2,3]
  %16 = constant {value = splat f32[2,3] 1.0} : f32[2,3]
  %17 = select %15, %16, %13 : f32[2,3]
  %18 = compare %13, %14 {direction = EQ, total_order = false} : i1[2,3]
  %19 = constant {value = splat f32[2,3] 2.0} : f32[2,3]
  %20 = select %18, %19, %16 : f32[2,3]
  %21 = divide %17, %20 : f32[2,3]
  %22 = broadcast_in_dim %7 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %23 = subtract %0, %22 : f32[2,3,8]
  %24 = constant {value = splat f32[2,3] 1e-5} : f32[2,3]
  %25 = add %14, %24 : f32[2,3]
  %26 = rsqrt %25 : f32[2,3]
  %27 = divide %26, %25 : f32[2,3]
  %28 = constant {value = splat f32[2,3] -0.5} : f32[2,3]
  %29 = multiply %28, %27 : f32[2,3]
  %30 = broadcast_in_dim %26 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %31 = broadcast_in_dim %1 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %32 = multiply %30, %31 : f32[2,3,8]
  %33 = multiply %23, %32 : f32[2,3,8]
  %34 = broadcast_in_dim %2 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]
  %35 = add %33, %34 : f32[2,3,8]
  %36 = tanh %35 : f32[2,3,8]
  %37 = multiply %3, %36 : f32[2,3,8]
  %38 = reduce %37 {dims = [0, 1], monoid = sum} : f32[8]
  %39 = multiply %23, %37 : f32[2,3,8]
  %40 = multiply %37, %32 : f32[2,3,8]
  %41 = multiply %30, %39 : f32[2,3,8]
  %42 = reduce %41 {dims = [0, 1], monoid = sum} : f32[8]
  %43 = multiply %39, %31 : f32[2,3,8]
  %44 = reduce %43 {dims = [2], monoid = sum} : f32[2,3]
  %45 = multiply %44, %29 : f32[2,3]
  %46 = negate %40 : f32[2,3,8]
  %47 = reduce %46 {dims = [2], monoid = sum} : f32[2,3]
  %48 = multiply %45, %21 : f32[2,3]
  %49 = negate %48 : f32[2,3]
  %50 = multiply %19, %7 : f32[2,3]
  %51 = multiply %49, %50 : f32[2,3]
  %52 = add %47, %51 : f32[2,3]
  %53 = divide %48, %6 : f32[2,3]
  %54 = broadcast_in_dim %53 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %55 = divide %52, %6 : f32[2,3]
  %56 = broadcast_in_dim %55 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %57 = add %4, %40 : f32[2,3,8]
  %58 = add %57, %56 : f32[2,3,8]
  %59 = constant {value = splat f32[2,3,8] 2.0} : f32[2,3,8]
  %60 = multiply %59, %0 : f32[2,3,8]
  %61 = multiply %54, %60 : f32[2,3,8]
  %62 = add %58, %61 : f32[2,3,8]
  return %35, %62, %42, %38
}
"#;

/// Summation order in f32; literals rounded to f32 in wide mode.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 4e-6), (Mode::Wide, 4e-6)], replay: 4e-6 };

fn recognised(source: &str) -> (Module, Report) {
    recognised::recognised(source, BOUNDS)
}

/// How often (layer_norm, layer_norm_grad) was found.
fn found(source: &str) -> (usize, usize) {
    let (_, report) = recognised(source);
    (sites(&report, "layer_norm"), sites(&report, "layer_norm_grad"))
}

#[test]
fn from_centred_squares() {
    assert_eq!(found(TWO_PASS), (1, 1));
    let (_, report) = recognised(TWO_PASS);
    let gradient = report.regions[0].reasons.iter().find(|r| r.rule == "layer-norm-grad");
    let gradient = gradient.expect("the gradient's reason");
    let names = |v: &[msc_passes::recognise::engine::run::CutValue]| -> Vec<&str> {
        v.iter().map(|c| c.name).collect()
    };
    assert_eq!(names(&gradient.inputs), ["dy", "x", "gamma", "rstd", "r"]);
    assert_eq!(names(&gradient.outputs), ["dx", "dgamma", "dbeta"]);
}

#[test]
fn from_the_mean_of_squares() {
    assert_eq!(found(ONE_PASS), (1, 1));
}

#[test]
fn weights_without_gradients() {
    for source in [TWO_PASS, ONE_PASS] {
        let at = source.find("  return").expect("a return");
        let kept: Vec<&str> = source[at..].trim().trim_end_matches("\n}").split(", ").collect();
        let frozen = format!("{}  {}, {}\n}}\n", &source[..at], kept[0], kept[1]);
        assert_eq!(found(&frozen), (1, 1));
        let no_shift = format!("{}  {}, {}, {}\n}}\n", &source[..at], kept[0], kept[1], kept[2]);
        assert_eq!(found(&no_shift), (1, 1));
    }
}

#[test]
fn no_norm_is_an_rms_norm() {
    for source in [TWO_PASS, ONE_PASS] {
        let (_, report) = recognised(source);
        assert_eq!((sites(&report, "rms_norm"), sites(&report, "rms_norm_grad")), (0, 0));
    }
}

/// What is zero is no part of the residual gradient, also where its share of a mean is added beside it.
#[test]
fn a_gradient_of_zeros_is_no_residual() {
    const ZEROS: &str = "  %57 = constant {value = splat f32[2,3,8] 0.0} : f32[2,3,8]
  %58 = multiply %57, %3 : f32[2,3,8]
  %59 = negate %58 : f32[2,3,8]
  %60 = reduce %59 {dims = [2], monoid = sum} : f32[2,3]
  %61 = constant {value = splat f32[2,3] 8.0} : f32[2,3]
  %62 = divide %60, %61 : f32[2,3]
  %63 = broadcast_in_dim %62 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %64 = add %56, %58 : f32[2,3,8]
  %65 = add %64, %63 : f32[2,3,8]
  return %26, %65, %31, %29";
    let (_, report) = recognised(&TWO_PASS.replace("  return %26, %56, %31, %29", ZEROS));
    let gradients = report.regions[0].reasons.iter().chain(&report.regions[0].unused);
    let gradients: Vec<_> = gradients.filter(|r| r.rule == "layer-norm-grad").collect();
    assert!(!gradients.is_empty());
    for g in gradients {
        let r = g.inputs.iter().find(|i| i.name == "r").expect("a residual gradient");
        assert!(r.values.iter().all(|v| v.value.0 == 4) && r.made_of.is_none(), "{r:?}");
    }
}

/// A residual gradient of many terms, added up between the parts of dx: no value of the program is their sum, and the
/// op's operand is made of all of them.
#[test]
fn a_residual_gradient_of_many_terms() {
    for terms in [16, 64] {
        let more: String = (1..terms).map(|i| format!(", %r{i}: f32[2,3,8]")).collect();
        let add = |i: usize| {
            let before = if i == 1 { "%53".to_string() } else { format!("%s{}", i - 1) };
            format!("  %s{i} = add {before}, %r{i} : f32[2,3,8]\n")
        };
        let sums: String = (1..terms).map(add).collect();
        let source = TWO_PASS
            .replace("%4: f32[2,3,8])", &format!("%4: f32[2,3,8]{more})"))
            .replace("  %54 = add %53,", &format!("{sums}  %54 = add %s{},", terms - 1));
        let (_, report) = recognised(&recognised::numbered(&source));
        assert_eq!(sites(&report, "layer_norm_grad"), 1, "{terms} terms");
        let gradient = report.regions[0].reasons.iter().find(|r| r.rule == "layer-norm-grad");
        let r = gradient.and_then(|g| g.inputs.iter().find(|i| i.name == "r")).expect("a residual gradient");
        assert!(r.made_of.is_some() && r.values.is_empty(), "{r:?}");
    }
}

/// Near misses: what changes, and what may still be found.
#[test]
fn near_misses_from_centred_squares() {
    let cases: &[(&str, &str, &str, (usize, usize))] = &[
        ("the mean over 7 of 8", "splat f32[2,3,1] 8.0", "splat f32[2,3,1] 7.0", (0, 0)),
        ("the sum for the mean", "%8 = divide %6, %7", "%8 = add %6, %7", (0, 0)),
        ("|x − μ| for its square", "%11 = multiply %10, %10", "%11 = abs %10", (0, 0)),
        ("(x − μ)·μ for its square", "%11 = multiply %10, %10", "%11 = multiply %10, %9", (0, 0)),
        ("eps outside the root", "%17 = rsqrt %16", "%17 = rsqrt %14", (0, 0)),
        ("√ for 1/√", "%17 = rsqrt %16", "%17 = sqrt %16", (0, 0)),
        ("eps negative", "splat f32[2,3,1] 1e-5", "splat f32[2,3,1] -1e-5", (0, 0)),
        ("x̂ of the rows themselves", "%22 = multiply %10, %21", "%22 = multiply %0, %21", (0, 1)),
        ("the other sign of the third part", "splat f32[2,3,1] -0.5", "splat f32[2,3,1] 0.5", (1, 0)),
        ("half of the third part", "splat f32[2,3,1] -0.5", "splat f32[2,3,1] -0.25", (1, 0)),
        ("rstd for rstd³", "%18 = divide %17, %16", "%18 = add %17, %16", (1, 0)),
        ("the mean of g without rstd", "%37 = negate %36", "%37 = negate %32", (1, 0)),
        ("|g·rstd| for −g·rstd", "%37 = negate %36", "%37 = abs %36", (1, 0)),
        ("dy without the scale", "%33 = multiply %10, %32", "%33 = multiply %10, %28", (1, 0)),
        ("another x in the sum", "%33 = multiply %10, %32", "%33 = multiply %3, %32", (1, 0)),
        ("another x in the third part", "%45 = multiply %44, %10", "%45 = multiply %44, %3", (1, 0)),
        ("dx without the mean of g", "%56 = add %54, %55", "%56 = add %54, %4", (1, 0)),
        ("dx subtracted from the residual", "%53 = add %4, %36", "%53 = subtract %4, %36", (1, 0)),
    ];
    for (what, from, to, expected) in cases {
        assert!(TWO_PASS.contains(from), "{what}");
        assert_eq!(found(&TWO_PASS.replace(from, to)), *expected, "{what}");
    }
}

#[test]
fn near_misses_from_the_mean_of_squares() {
    let cases: &[(&str, &str, &str, (usize, usize))] = &[
        ("the mean not squared", "%11 = multiply %7, %7", "%11 = multiply %7, %6", (0, 0)),
        ("the mean's square added", "%12 = subtract %10, %11", "%12 = add %10, %11", (0, 0)),
        ("at least 1", "%14 = maximum %13, %12", "%14 = maximum %24, %12", (0, 0)),
        ("at most 0", "%14 = maximum %13, %12", "%14 = minimum %13, %12", (0, 0)),
        ("a third of the gradient at the bound", "splat f32[2,3] -0.5", "splat f32[2,3] -0.4", (1, 0)),
        (
            "the gradient where they differ",
            "{direction = EQ, total_order = false}",
            "{direction = NE, total_order = false}",
            (1, 0),
        ),
        ("the mean of x once", "%50 = multiply %19, %7", "%50 = multiply %16, %7", (1, 0)),
        ("γ in the sum twice", "%43 = multiply %39, %31", "%43 = multiply %41, %31", (1, 0)),
        ("the bound's gradient on the wrong part", "%48 = multiply %45, %21", "%48 = add %45, %21", (1, 0)),
        ("x̂ for x in the third part", "%60 = multiply %59, %0", "%60 = multiply %59, %33", (1, 0)),
    ];
    for (what, from, to, expected) in cases {
        assert!(ONE_PASS.contains(from), "{what}");
        // A bound of 1 must come before its use.
        let changed = match *what {
            "at least 1" => ONE_PASS.replace("splat f32[2,3] 0.0", "splat f32[2,3] 1.0"),
            _ => ONE_PASS.replace(from, to),
        };
        assert_eq!(found(&changed), *expected, "{what}");
    }
}

/// The same text in every run: other threads, other addresses, other seeds of hash maps.
#[test]
fn no_result_depends_on_the_run() {
    let print = |source: &'static str| move || msc_ir::text::print(&recognised(source).0);
    for source in [TWO_PASS, ONE_PASS] {
        let first = print(source)();
        for _ in 0..20 {
            let keep: Vec<u8> = Vec::with_capacity(4096);
            assert_eq!(std::thread::spawn(print(source)).join().expect("runs"), first);
            drop(keep);
        }
    }
}
