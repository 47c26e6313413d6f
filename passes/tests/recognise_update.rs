//! Gradient descent and Lion: what exporters write, with numbers read from the program, and near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use msc_passes::recognise::{Report, recognise_graph};
use recognised::{Bounds, numbered, sites};

/// Terms are added in another order than the program has.
const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-6), (Mode::Wide, 1e-6)], replay: 1e-6 };

/// A step of a weight `%0` with gradient `%1`, momentum `%2` and a scalar `%3`; `lines` give `%8` and `%9`, the new weight and
/// the new momentum.
fn step(lines: &str) -> String {
    let full = "f32[4,6]";
    let constants = [("%4", 0.9), ("%5", -0.1), ("%6", 0.01), ("%7", 0.1)]
        .map(|(name, value)| format!("  {name} = constant {{value = splat {full} {value}}} : {full}\n"))
        .concat();
    let lines: String = lines
        .split(';')
        .map(|l| l.trim())
        .filter(|l| !l.is_empty())
        .map(|l| if l.contains(": ") { format!("  {l}\n") } else { format!("  {l} : {full}\n") })
        .collect();
    format!(
        "module @update\n\ngraph @main(%0: {full}, %1: {full}, %2: {full}, %3: f32[]) {{\n{constants}{lines}  return %8, %9\n}}\n\n\
         entry \"train\" @main {{\n  param \"p\" alias 0\n  param \"g\"\n  param \"t\" alias 1\n  param \"s\"\n  \
         result \"p\"\n  result \"t\"\n}}\n"
    )
}

fn found(lines: &str, name: &str) -> (usize, Report, String) {
    let (after, report) = recognised::recognised(&numbered(&step(lines)), BOUNDS);
    (sites(&report, name), report, text::print(&after))
}

/// The momentum is not stepped.
const SAME: &str = "%9 = abs %2";

#[test]
fn descent() {
    for (lines, attributes) in [
        (format!("%10 = multiply %5, %1; %8 = add %0, %10; {SAME}"), "rate = -0.1000000"),
        // A learning rate of the program, subtracted.
        (
            format!("%10 = broadcast_in_dim %3 {{dims = [], shape = [4, 6]}}; %11 = multiply %10, %1; %8 = subtract %0, %11; {SAME}"),
            "scheduled = true",
        ),
        (format!("%10 = multiply %6, %0; %11 = add %1, %10; %12 = multiply %5, %11; %8 = add %0, %12; {SAME}"), "decay = 0.00999999977648258"),
        // optax's trace.
        ("%10 = multiply %4, %2; %9 = add %1, %10; %11 = multiply %5, %9; %8 = add %0, %11".into(), "keep = 0.8999999"),
        (
            "%10 = multiply %4, %2; %9 = add %1, %10; %11 = multiply %4, %9; %12 = add %1, %11; %13 = multiply %5, %12; \
             %8 = add %0, %13"
                .into(),
            "nesterov = true",
        ),
        // PyTorch: decay, dampening.
        (
            "%10 = multiply %6, %0; %11 = add %1, %10; %12 = multiply %2, %4; %13 = multiply %11, %7; %9 = add %12, %13; \
             %14 = multiply %9, %5; %8 = add %0, %14"
                .into(),
            "damp = 0.1000000",
        ),
        // Decay beside the momentum.
        (
            "%10 = multiply %4, %2; %9 = add %1, %10; %11 = multiply %6, %0; %12 = add %9, %11; %13 = multiply %5, %12; \
             %8 = add %0, %13"
                .into(),
            "decoupled = true",
        ),
    ] {
        let (n, report, printed) = found(&lines, "sgd");
        assert_eq!(n, 1, "{lines}: {:?}\n{printed}", report.regions[0].refused);
        assert!(printed.contains(attributes), "{attributes}: {printed}");
    }
}

#[test]
fn lion() {
    let lines = "%10 = multiply %4, %2; %11 = multiply %7, %1; %12 = add %10, %11; %13 = sign %12; %14 = multiply %6, %0; \
                 %15 = add %13, %14; %16 = multiply %5, %15; %8 = add %0, %16; %17 = multiply %6, %1; %9 = add %10, %17";
    let (n, report, printed) = found(lines, "lion");
    assert_eq!(n, 1, "{:?}\n{printed}", report.regions[0].refused);
    // Without the sign it is no Lion.
    assert_eq!(found(&lines.replace("sign", "tanh"), "lion").0, 0);
}

#[test]
fn near_misses() {
    for (what, lines) in [
        ("another weight", format!("%10 = multiply %5, %1; %8 = add %2, %10; {SAME}")),
        ("the weight times itself", format!("%10 = multiply %0, %1; %8 = add %0, %10; {SAME}")),
        ("another trace than the step's", "%10 = multiply %4, %2; %11 = add %1, %10; %12 = multiply %5, %11; %8 = add %0, %12; %9 = subtract %1, %10".into()),
        ("the old trace ahead", "%10 = multiply %4, %2; %9 = add %1, %10; %11 = multiply %6, %2; %12 = add %1, %11; %13 = multiply %5, %12; %8 = add %0, %13".into()),
        ("preconditioned by a state", format!("%10 = multiply %1, %2; %11 = multiply %5, %10; %8 = add %0, %11; {SAME}")),
        ("half of the weight", format!("%10 = multiply %7, %0; %11 = multiply %5, %1; %12 = multiply %0, %1; %8 = add %11, %12; {SAME}")),
    ] {
        let (n, _, printed) = found(&lines, "sgd");
        assert_eq!(n, 0, "{what}\n{printed}");
    }
    // The same sum of what is no state.
    let step = step(&format!("%10 = multiply %5, %1; %8 = add %0, %10; {SAME}")).replace(" alias 0", "");
    let (_, report) = recognised::recognised(&numbered(&step), BOUNDS);
    assert_eq!(sites(&report, "sgd"), 0);
}

/// Steps of gradient descent found in a layer that an entry calls.
fn of_layer(entry: &str) -> usize {
    let layer = "module @update

graph @layer(%0: f32[4], %1: f32[4]) {
  %2 = constant {value = splat f32[4] -0.5} : f32[4]
  %3 = multiply %2, %1 : f32[4]
  %4 = add %0, %3 : f32[4]
  return %4
}

";
    let mut module = text::parse(&format!("{layer}{entry}")).expect("parses");
    let layer = module.graph_by_name("layer").expect("the layer");
    sites(&recognise_graph(&mut module, layer).expect("recognises"), "sgd")
}

/// Layers' weights are stepped in a graph that the entry calls, if every call gives back what it took.
#[test]
fn called_for_every_layer() {
    let source = r#"graph @main(%0: f32[4], %1: f32[4], %2: f32[4]) {
  %3 = call %0, %2 {graph = @layer} : f32[4]
  %4 = call %1, %2 {graph = @layer} : f32[4]
  return %3, %4
}

entry "train" @main {
  param "a" alias 0
  param "b" alias 1
  param "g"
  result "a"
  result "b"
}
"#;
    assert_eq!(of_layer(source), 1);
    assert_eq!(of_layer(&source.replace(" alias 1", "")), 0);
}

/// What a layer's graph takes for a gradient is none if the entry makes it of state: the step is another optimizer's, of
/// which the layer has the end.
#[test]
fn a_gradient_made_of_state_outside_is_none() {
    let source = r#"graph @main(%0: f32[4], %1: f32[4], %2: f32[4], %3: f32[4]) {
  %4 = add %2, %3 : f32[4]
  %5 = call %0, %4 {graph = @layer} : f32[4]
  %6 = call %1, %4 {graph = @layer} : f32[4]
  return %5, %6, %4
}

entry "train" @main {
  param "a" alias 0
  param "b" alias 1
  param "g"
  param "m" alias 2
  result "a"
  result "b"
  result "m"
}
"#;
    assert_eq!(of_layer(source), 0);
    assert_eq!(of_layer(&source.replace(" alias 2", "")), 1);
}
