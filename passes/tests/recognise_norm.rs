//! RMSNorm: spellings that are found, near misses that are not, values that stay available, cycles.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{Module, text};
use msc_passes::recognise::Report;
use recognised::{Bounds, sites};

/// PyTorch models through JAX: `power(x, 2)`, `rsqrt`, helper values of the backward next to the forward, the
/// residual gradient added before the second half of dx.
const TORCHAX: &str = r#"module @step

graph @main(%0: f32[2,3,8], %1: f32[8], %2: f32[2,3,8], %3: f32[2,3,8]) {
  %4 = constant {value = splat f32[2,3,8] 2.0} : f32[2,3,8]
  %5 = power %0, %4 : f32[2,3,8]
  %6 = constant {value = splat f32[2,3,8] 1.0} : f32[2,3,8]
  %7 = power %0, %6 : f32[2,3,8]
  %8 = multiply %4, %7 : f32[2,3,8]
  %9 = reduce %5 {dims = [2], monoid = sum} : f32[2,3]
  %10 = broadcast_in_dim %9 {dims = [0, 1], shape = [2, 3, 1]} : f32[2,3,1]
  %11 = constant {value = splat f32[2,3,1] 8.0} : f32[2,3,1]
  %12 = divide %10, %11 : f32[2,3,1]
  %13 = constant {value = splat f32[] 1e-6} : f32[]
  %14 = broadcast_in_dim %13 {dims = [], shape = [2, 3, 1]} : f32[2,3,1]
  %15 = add %12, %14 : f32[2,3,1]
  %16 = rsqrt %15 : f32[2,3,1]
  %17 = divide %16, %15 : f32[2,3,1]
  %18 = constant {value = splat f32[2,3,1] -0.5} : f32[2,3,1]
  %19 = multiply %18, %17 : f32[2,3,1]
  %20 = broadcast_in_dim %16 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %21 = multiply %0, %20 : f32[2,3,8]
  %22 = broadcast_in_dim %1 {dims = [2], shape = [1, 1, 8]} : f32[1,1,8]
  %23 = broadcast_in_dim %22 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %24 = multiply %23, %21 : f32[2,3,8]
  %25 = tanh %24 : f32[2,3,8]
  %26 = multiply %2, %25 : f32[2,3,8]
  %27 = broadcast_in_dim %22 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %28 = multiply %27, %26 : f32[2,3,8]
  %29 = multiply %26, %21 : f32[2,3,8]
  %30 = reduce %29 {dims = [0, 1], monoid = sum} : f32[8]
  %31 = reshape %30 {shape = [1, 1, 8]} : f32[1,1,8]
  %32 = reduce %31 {dims = [0, 1], monoid = sum} : f32[8]
  %33 = multiply %0, %28 : f32[2,3,8]
  %34 = reduce %33 {dims = [2], monoid = sum} : f32[2,3]
  %35 = reshape %34 {shape = [2, 3, 1]} : f32[2,3,1]
  %36 = broadcast_in_dim %16 {dims = [0, 1, 2], shape = [2, 3, 8]} : f32[2,3,8]
  %37 = multiply %28, %36 : f32[2,3,8]
  %38 = add %3, %37 : f32[2,3,8]
  %39 = multiply %35, %19 : f32[2,3,1]
  %40 = divide %39, %11 : f32[2,3,1]
  %41 = reduce %40 {dims = [2], monoid = sum} : f32[2,3]
  %42 = broadcast_in_dim %41 {dims = [0, 1], shape = [2, 3, 8]} : f32[2,3,8]
  %43 = multiply %42, %8 : f32[2,3,8]
  %44 = add %38, %43 : f32[2,3,8]
  return %24, %44, %32
}
"#;

/// Summation order in f32; literals rounded to f32 in wide mode.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 2e-6), (Mode::Wide, 2e-6)], replay: 4e-6 };

/// How often (rms_norm, rms_norm_grad) was found.
fn recognised(source: &str) -> ((usize, usize), Module, Report) {
    let (after, report) = recognised::recognised(source, BOUNDS);
    ((sites(&report, "rms_norm"), sites(&report, "rms_norm_grad")), after, report)
}

fn main_ops(m: &Module) -> Vec<&'static str> {
    use msc_ir::Operation;
    let g = m.graph(m.graph_by_name("main").expect("main"));
    g.ops().map(|(_, o)| o.op.name()).collect()
}

#[test]
fn torchax() {
    let (found, after, report) = recognised(TORCHAX);
    assert_eq!(found, (1, 1));
    assert_eq!(main_ops(&after), ["rms_norm", "tanh", "multiply", "rms_norm_grad"]);
    assert_eq!(report.regions[0].reasons[1].inputs.len(), 5, "the residual gradient is an input");
}

/// Without a scale.
fn unscaled() -> String {
    TORCHAX
        .replace("%24 = multiply %23, %21", "%24 = multiply %0, %20")
        .replace("%28 = multiply %27, %26", "%28 = multiply %6, %26")
        .replace("return %24, %44, %32", "return %24, %44")
}

#[test]
fn no_scale() {
    let (found, after, _) = recognised(&unscaled());
    assert_eq!(found, (1, 1));
    assert_eq!(main_ops(&after), ["rms_norm", "tanh", "multiply", "rms_norm_grad"]);
    assert!(text::print(&after).contains("unscaled = true"));
    for (what, from, to, expected) in [
        ("the mean over 7 of 8", "splat f32[2,3,1] 8.0", "splat f32[2,3,1] 7.0", (0, 0)),
        ("x by the variance", "%16 = rsqrt %15", "%16 = negate %15", (0, 0)),
        ("another dy in the sum", "%33 = multiply %0, %28", "%33 = multiply %0, %2", (1, 0)),
        ("a wrong factor", "splat f32[2,3,1] -0.5", "splat f32[2,3,1] -0.25", (1, 0)),
    ] {
        assert_eq!(recognised(&unscaled().replace(from, to)).0, expected, "{what}");
    }
    // A scale that only one half of the gradient knows is none.
    let half = unscaled().replace("%37 = multiply %28, %36", "%37 = multiply %27, %36");
    assert_eq!(recognised(&half).0, (1, 0));
}

/// What comes back is multiplied by a number, or by a scalar of the program, before the norm's gradient.
#[test]
fn a_factor_of_what_comes_back() {
    let number = |source: &str| source.replace("%26 = multiply %2, %25", "%26 = multiply %4, %25");
    let scalar = |source: &str| {
        let source = source
            .replace("%3: f32[2,3,8])", "%3: f32[2,3,8], %45: f32[])")
            .replace("%26 = multiply %2, %25", "%26 = multiply %46, %25");
        renumber(&source, |line| {
            let before = "  %46 = broadcast_in_dim %45 {dims = [], shape = [2, 3, 8]} : f32[2,3,8]\n";
            line.starts_with("  %26 =").then(|| before.to_string())
        })
    };
    for source in [TORCHAX.to_string(), unscaled()] {
        assert_eq!(recognised(&number(&source)).0, (1, 1), "a number");
        assert_eq!(recognised(&scalar(&source)).0, (1, 1), "a scalar");
        // In one half only.
        let half = source.replace("%33 = multiply %0, %28", "%33 = multiply %8, %28");
        assert_eq!(recognised(&half).0, (1, 0), "twice in the sum");
        let half = source.replace("%37 = multiply %28, %36", "%37 = multiply %38, %36");
        let half =
            half.replace("%38 = add %3, %37", "%39 = add %3, %37").replace("add %38, %43", "add %39, %43");
        let half = half.replace("%39 = multiply %35, %19", "%45 = multiply %35, %19");
        let half = half.replace("%40 = divide %39, %11", "%40 = divide %45, %11");
        let half = half.replace("  %37 =", "  %38 = multiply %4, %28 : f32[2,3,8]\n  %37 =");
        assert_eq!(recognised(&recognised::numbered(&half)).0, (1, 0), "twice in the first half");
    }
}

#[test]
fn no_result_depends_on_the_run() {
    let print = || text::print(&recognised(TORCHAX).1);
    let first = print();
    for _ in 0..5 {
        assert_eq!(std::thread::spawn(print).join().expect("runs"), first);
    }
}

#[test]
fn inner_values_stay_available() {
    // x̂ and rstd are results of the program as well.
    let source = TORCHAX.replace("return %24, %44, %32", "return %24, %44, %32, %21, %16, %34");
    let (found, after, _) = recognised(&source);
    assert_eq!(found, (1, 1));
    assert!(main_ops(&after).contains(&"reduce"));
}

#[test]
fn a_scale_without_gradient() {
    let (found, after, _) = recognised(&TORCHAX.replace("return %24, %44, %32", "return %24, %44"));
    assert_eq!(found, (1, 1));
    assert_eq!(main_ops(&after), ["rms_norm", "tanh", "multiply", "rms_norm_grad"]);
}

/// Near misses: what changes, and what may still be found.
#[test]
fn near_misses() {
    let cases: &[(&str, &str, &str, (usize, usize))] = &[
        ("|x| for x²", "%5 = power %0, %4", "%5 = abs %0", (0, 0)),
        ("√x for x²", "%5 = power %0, %4", "%5 = sqrt %0", (0, 0)),
        ("the mean over 7 of 8", "splat f32[2,3,1] 8.0", "splat f32[2,3,1] 7.0", (0, 0)),
        ("√ for 1/√", "%16 = rsqrt %15", "%16 = sqrt %15", (0, 0)),
        ("eps outside the root", "%16 = rsqrt %15", "%16 = rsqrt %12", (0, 0)),
        ("eps negative", "splat f32[] 1e-6", "splat f32[] -1e-6", (0, 0)),
        ("eps differs between rows", "%15 = add %12, %14", "%15 = add %12, %10", (0, 0)),
        ("the other sign of the second half", "splat f32[2,3,1] -0.5", "splat f32[2,3,1] 0.5", (1, 0)),
        ("a wrong factor in the second half", "splat f32[2,3,1] -0.5", "splat f32[2,3,1] -0.25", (1, 0)),
        ("rstd for rstd³", "%17 = divide %16, %15", "%17 = add %16, %15", (1, 0)),
        ("dy without the scale", "%33 = multiply %0, %28", "%33 = multiply %0, %26", (1, 0)),
        ("another x in the sum", "%33 = multiply %0, %28", "%33 = multiply %2, %28", (1, 0)),
        ("another x in the second half", "%43 = multiply %42, %8", "%43 = multiply %42, %2", (1, 0)),
        ("dγ of x instead of x̂", "%29 = multiply %26, %21", "%29 = multiply %26, %0", (1, 1)),
        ("dx subtracted from the residual", "%38 = add %3, %37", "%38 = subtract %3, %37", (1, 0)),
    ];
    for (what, from, to, expected) in cases {
        assert!(TORCHAX.contains(from), "{what}");
        assert_eq!(recognised(&TORCHAX.replace(from, to)).0, *expected, "{what}");
    }
}

#[test]
fn the_scale_of_another_layer() {
    // The backward's two halves use different scales.
    let source = TORCHAX
        .replace("%3: f32[2,3,8])", "%3: f32[2,3,8], %45: f32[8])")
        .replace("%33 = multiply %0, %28", "%33 = multiply %0, %47");
    let source = renumber(&source, |line| {
        line.starts_with("  %33 =").then(|| {
            "  %46 = broadcast_in_dim %45 {dims = [2], shape = [2, 3, 8]} : f32[2,3,8]\n  \
             %47 = multiply %46, %26 : f32[2,3,8]\n"
                .to_string()
        })
    });
    assert_eq!(recognised(&source).0, (1, 0));
}

/// Inserts lines before others and numbers values in order of definition again.
fn renumber(source: &str, insert: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::new();
    for line in source.lines() {
        text.push_str(&insert(line).unwrap_or_default());
        text.push_str(line);
        text.push('\n');
    }
    let mut names: Vec<String> = Vec::new();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let digits = rest[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at - 1);
        let name = &rest[at + 1..at + 1 + digits];
        let index = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_string());
            names.len() - 1
        });
        out.push_str(&format!("%{index}"));
        rest = &rest[at + 1 + digits..];
    }
    out.push_str(rest);
    out
}

/// The mean over another axis than the scale's, on a cube so that shapes fit.
#[test]
fn the_mean_over_another_axis() {
    let norm = |reduced: usize, dims: &str, gamma: usize| {
        format!(
            "module @m\n\ngraph @main(%0: f32[4,4,4], %1: f32[4]) {{
  %2 = multiply %0, %0 : f32[4,4,4]
  %3 = reduce %2 {{dims = [{reduced}], monoid = sum}} : f32[4,4]
  %4 = constant {{value = splat f32[4,4] 4.0}} : f32[4,4]
  %5 = divide %3, %4 : f32[4,4]
  %6 = constant {{value = splat f32[4,4] 1e-5}} : f32[4,4]
  %7 = add %5, %6 : f32[4,4]
  %8 = sqrt %7 : f32[4,4]
  %9 = broadcast_in_dim %8 {{dims = [{dims}], shape = [4, 4, 4]}} : f32[4,4,4]
  %10 = divide %0, %9 : f32[4,4,4]
  %11 = broadcast_in_dim %1 {{dims = [{gamma}], shape = [4, 4, 4]}} : f32[4,4,4]
  %12 = multiply %10, %11 : f32[4,4,4]
  return %12
}}
"
        )
    };
    assert_eq!(recognised(&norm(2, "0, 1", 2)).0, (1, 0), "the norm itself");
    assert_eq!(recognised(&norm(1, "0, 2", 2)).0, (0, 0), "mean over another axis");
    // A norm without a scale: what it is multiplied by afterwards is none.
    let (found, after, _) = recognised(&norm(2, "0, 1", 1));
    assert_eq!(found, (1, 0), "scale over another axis");
    assert!(main_ops(&after).contains(&"multiply"), "{}", text::print(&after));
    assert_eq!(recognised(&norm(2, "0, 2", 2)).0, (0, 0), "statistics of other rows");
    assert_eq!(recognised(&norm(2, "1, 0", 2)).0, (0, 0), "statistics of other rows, transposed");
}

/// A norm whose scale depends on its own statistic: as one op it would need itself.
#[test]
fn a_cycle_is_refused() {
    let (found, _, report) = recognised(
        r#"module @m

graph @main(%0: f32[3,4], %1: f32[4]) {
  %2 = multiply %0, %0 : f32[3,4]
  %3 = reduce %2 {dims = [1], monoid = sum} : f32[3]
  %4 = constant {value = splat f32[3] 0.25} : f32[3]
  %5 = multiply %3, %4 : f32[3]
  %6 = constant {value = splat f32[3] 1e-5} : f32[3]
  %7 = add %5, %6 : f32[3]
  %8 = rsqrt %7 : f32[3]
  %9 = reduce %8 {dims = [0], monoid = max} : f32[]
  %10 = broadcast_in_dim %9 {dims = [], shape = [4]} : f32[4]
  %11 = subtract %1, %10 : f32[4]
  %12 = broadcast_in_dim %8 {dims = [0], shape = [3, 4]} : f32[3,4]
  %13 = multiply %0, %12 : f32[3,4]
  %14 = broadcast_in_dim %11 {dims = [1], shape = [3, 4]} : f32[3,4]
  %15 = multiply %13, %14 : f32[3,4]
  return %15
}
"#,
    );
    assert_eq!(found, (0, 0));
    let why: Vec<&String> = report.regions[0].refused["rms-norm"].keys().collect();
    assert_eq!(why, ["rstd is needed to compute gamma"]);
}

/// Two norms each of whose scales depends on the other's statistic: either may be one op, both may not.
#[test]
fn two_ops_that_need_each_other() {
    let half = |x: usize, base: usize| {
        format!(
            "  %{a} = multiply %{x}, %{x} : f32[3,4]
  %{b} = reduce %{a} {{dims = [1], monoid = sum}} : f32[3]
  %{c} = constant {{value = splat f32[3] 4.0}} : f32[3]
  %{d} = divide %{b}, %{c} : f32[3]
  %{e} = constant {{value = splat f32[3] 1e-5}} : f32[3]
  %{f} = add %{d}, %{e} : f32[3]
  %{g} = rsqrt %{f} : f32[3]
  %{h} = reduce %{g} {{dims = [0], monoid = max}} : f32[]
  %{i} = broadcast_in_dim %{h} {{dims = [], shape = [4]}} : f32[4]
  %{j} = subtract %2, %{i} : f32[4]
  %{k} = broadcast_in_dim %{g} {{dims = [0], shape = [3, 4]}} : f32[3,4]
  %{l} = multiply %{x}, %{k} : f32[3,4]
",
            a = base,
            b = base + 1,
            c = base + 2,
            d = base + 3,
            e = base + 4,
            f = base + 5,
            g = base + 6,
            h = base + 7,
            i = base + 8,
            j = base + 9,
            k = base + 10,
            l = base + 11
        )
    };
    let source = format!(
        "module @m\n\ngraph @main(%0: f32[3,4], %1: f32[3,4], %2: f32[4]) {{\n{}{}
  %27 = broadcast_in_dim %24 {{dims = [1], shape = [3, 4]}} : f32[3,4]
  %28 = multiply %27, %14 : f32[3,4]
  %29 = broadcast_in_dim %12 {{dims = [1], shape = [3, 4]}} : f32[3,4]
  %30 = multiply %29, %26 : f32[3,4]
  return %28, %30
}}
",
        half(0, 3),
        half(1, 15)
    );
    let (found, _, report) = recognised(&source);
    assert_eq!(found, (1, 0));
    assert_eq!(report.regions[0].unused.len(), 1);
}
