//! Rotary embedding and softmax: spellings that are found, near misses that are not found wrongly.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{Module, text};
use msc_passes::recognise::Report;
use recognised::{Bounds, sites};

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Wide, 1e-12)], replay: 1e-12 };

fn recognised(source: &str) -> (Module, Report) {
    recognised::recognised(source, BOUNDS)
}

const X: &str = "f32[2,3,4,8]";
const HALF: &str = "f32[2,3,4,4]";

fn module(params: &str, body: &str) -> String {
    format!("module @m\n\ngraph @main({params}) {{\n{body}}}\n")
}

fn slice(v: &str, start: usize, limit: usize, ty: &str) -> String {
    format!(
        "slice {v} {{limit = [2, 3, 4, {limit}], start = [0, 0, 0, {start}], stride = [1, 1, 1, 1]}} : {ty}"
    )
}

fn table(v: &str) -> String {
    format!("broadcast_in_dim {v} {{dims = [2, 3], shape = [2, 3, 4, 8]}} : {X}")
}

/// `x∘cos + rot(x)∘sin` with `second` and `first` as the parts of rot(x).
fn rotated(first: &str, second: &str) -> String {
    let body = format!(
        "  %3 = {}\n  %4 = {}\n  %5 = {}\n  %6 = {}\n  %7 = negate %5 : {HALF}\n  %8 = negate %6 : {HALF}\n  \
         %9 = concatenate {first}, {second} {{dim = 3}} : {X}\n  %10 = multiply %0, %3 : {X}\n  \
         %11 = multiply %9, %4 : {X}\n  %12 = add %10, %11 : {X}\n  return %12\n",
        table("%1"),
        table("%2"),
        slice("%0", 0, 4, HALF),
        slice("%0", 4, 8, HALF),
    );
    module(&format!("%0: {X}, %1: f32[4,8], %2: f32[4,8]"), &body)
}

#[test]
fn halves_forward() {
    let (_, report) = recognised(&rotated("%8", "%5"));
    assert_eq!(
        (sites(&report, "rope"), sites(&report, "rope_grad")),
        (1, 0),
        "{:?}",
        report.regions[0].refused
    );
}

/// Other signs and orders are no rotation by tables whose halves may differ.
#[test]
fn other_signs_are_not_found() {
    for (first, second) in
        [("%6", "%5"), ("%6", "%7"), ("%8", "%7"), ("%5", "%6"), ("%7", "%6"), ("%5", "%8")]
    {
        let (_, report) = recognised(&rotated(first, second));
        let found = sites(&report, "rope") + sites(&report, "rope_grad");
        assert_eq!(found, 0, "concatenate {first}, {second}");
    }
}

/// JAX's transpose: both halves padded and added. `sign` is of the second half's part.
fn padded(negative: &str, low: usize) -> String {
    let pad = |v: &str, low: usize| {
        format!(
            "pad {v}, %5 {{high = [0, 0, 0, {}], interior = [0, 0, 0, 0], low = [0, 0, 0, {low}]}} : {X}",
            4 - low
        )
    };
    let body = format!(
        "  %3 = {}\n  %4 = {}\n  %5 = constant {{value = splat f32[] 0.0}} : f32[]\n  %6 = multiply %0, %4 : {X}\n  \
         %7 = {}\n  %8 = {}\n  %9 = negate {negative} : {HALF}\n  %10 = {}\n  %11 = {}\n  %12 = add %10, %11 : {X}\n  \
         %13 = multiply %0, %3 : {X}\n  %14 = add %12, %13 : {X}\n  return %14\n",
        table("%1"),
        table("%2"),
        slice("%6", 0, 4, HALF),
        slice("%6", 4, 8, HALF),
        pad(if negative == "%7" { "%8" } else { "%7" }, low),
        pad("%9", 4 - low),
    );
    module(&format!("%0: {X}, %1: f32[4,8], %2: f32[4,8]"), &body)
}

#[test]
fn halves_backward() {
    let (_, report) = recognised(&padded("%7", 0));
    assert_eq!(
        (sites(&report, "rope"), sites(&report, "rope_grad")),
        (0, 1),
        "{:?}",
        report.regions[0].refused
    );
    for (negative, low) in [("%8", 0), ("%7", 4), ("%8", 4)] {
        let (_, report) = recognised(&padded(negative, low));
        let found = sites(&report, "rope") + sites(&report, "rope_grad");
        assert_eq!(found, 0, "negated {negative}, padded from {low}");
    }
}

/// Tables of half the width, each half of the result by itself.
#[test]
fn half_tables() {
    let spread =
        |v: &str| format!("broadcast_in_dim {v} {{dims = [0, 2, 3], shape = [2, 3, 4, 4]}} : {HALF}");
    let source = |a: &str, b: &str| {
        let body = format!(
            "  %3 = {}\n  %4 = {}\n  %5 = {}\n  %6 = {}\n  %7 = multiply %5, %3 : {HALF}\n  \
             %8 = multiply %6, %4 : {HALF}\n  %9 = {a} %7, %8 : {HALF}\n  %10 = multiply %6, %3 : {HALF}\n  \
             %11 = multiply %5, %4 : {HALF}\n  %12 = {b} %10, %11 : {HALF}\n  \
             %13 = concatenate %9, %12 {{dim = 3}} : {X}\n  return %13\n",
            spread("%1"),
            spread("%2"),
            slice("%0", 0, 4, HALF),
            slice("%0", 4, 8, HALF),
        );
        module(&format!("%0: {X}, %1: f32[2,4,4], %2: f32[2,4,4]"), &body)
    };
    let (_, report) = recognised(&source("subtract", "add"));
    assert_eq!(sites(&report, "rope"), 1, "{:?}", report.regions[0].refused);
    let (_, report) = recognised(&source("add", "subtract"));
    assert_eq!(sites(&report, "rope_grad"), 1, "{:?}", report.regions[0].refused);
    for (a, b) in [("add", "add"), ("subtract", "subtract")] {
        let (_, report) = recognised(&source(a, b));
        assert_eq!(sites(&report, "rope") + sites(&report, "rope_grad"), 0, "{a}, {b}");
    }
}

/// Pairs of neighbours, and only the first half of a head.
#[test]
fn neighbours_and_parts() {
    let body = format!(
        "  %3 = broadcast_in_dim %1 {{dims = [2, 3], shape = [2, 3, 4, 4]}} : {HALF}\n  \
         %4 = broadcast_in_dim %2 {{dims = [2, 3], shape = [2, 3, 4, 4]}} : {HALF}\n  %5 = {}\n  %6 = {}\n  \
         %7 = reshape %5 {{shape = [2, 3, 4, 2, 2]}} : f32[2,3,4,2,2]\n  \
         %8 = slice %7 {{limit = [2, 3, 4, 2, 1], start = [0, 0, 0, 0, 0], stride = [1, 1, 1, 1, 1]}} : f32[2,3,4,2,1]\n  \
         %9 = slice %7 {{limit = [2, 3, 4, 2, 2], start = [0, 0, 0, 0, 1], stride = [1, 1, 1, 1, 1]}} : f32[2,3,4,2,1]\n  \
         %10 = negate %9 : f32[2,3,4,2,1]\n  %11 = concatenate %10, %8 {{dim = 4}} : f32[2,3,4,2,2]\n  \
         %12 = reshape %11 {{shape = [2, 3, 4, 4]}} : {HALF}\n  %13 = multiply %5, %3 : {HALF}\n  \
         %14 = multiply %12, %4 : {HALF}\n  %15 = add %13, %14 : {HALF}\n  \
         %16 = concatenate %15, %6 {{dim = 3}} : {X}\n  return %16\n",
        slice("%0", 0, 4, HALF),
        slice("%0", 4, 8, HALF),
    );
    let source = module(&format!("%0: {X}, %1: f32[4,4], %2: f32[4,4]"), &body);
    let (after, report) = recognised(&source);
    assert_eq!(sites(&report, "rope"), 1, "{:?}", report.regions[0].refused);
    assert!(text::print(&after).contains("interleaved = true"), "{}", text::print(&after));
}

/// Halves of a sum that was split into heads, and of a value that is spread over a batch of one.
#[test]
fn what_is_rotated_may_be_anything() {
    let half = "f32[1,3,4,4]";
    let x = "f32[1,3,4,8]";
    let cut = |from: usize, to: usize| {
        format!(
            "slice %5 {{limit = [1, 3, 4, {to}], start = [0, 0, 0, {from}], stride = [1, 1, 1, 1]}} : {half}"
        )
    };
    let source = |made: &str, params: &str| {
        let body = format!(
            "{made}  %6 = {}\n  %7 = {}\n  %8 = broadcast_in_dim %2 {{dims = [2, 3], shape = [1, 3, 4, 4]}} : {half}\n  \
             %9 = broadcast_in_dim %3 {{dims = [2, 3], shape = [1, 3, 4, 4]}} : {half}\n  %10 = multiply %6, %8 : {half}\n  \
             %11 = multiply %7, %9 : {half}\n  %12 = subtract %10, %11 : {half}\n  %13 = multiply %7, %8 : {half}\n  \
             %14 = multiply %6, %9 : {half}\n  %15 = add %13, %14 : {half}\n  \
             %16 = concatenate %12, %15 {{dim = 3}} : {x}\n  return %16\n",
            cut(0, 4),
            cut(4, 8),
        );
        module(params, &body)
    };
    let tables = "%2: f32[4,4], %3: f32[4,4]";
    let sum = source(
        &format!("  %4 = add %0, %1 : f32[3,4,8]\n  %5 = reshape %4 {{shape = [1, 3, 4, 8]}} : {x}\n"),
        &format!("%0: f32[3,4,8], %1: f32[3,4,8], {tables}"),
    );
    let spread = source(
        &format!(
            "  %4 = multiply %0, %1 : f32[3,4,8]\n  %5 = broadcast_in_dim %4 {{dims = [1, 2, 3], shape = [1, 3, 4, 8]}} : {x}\n"
        ),
        &format!("%0: f32[3,4,8], %1: f32[3,4,8], {tables}"),
    );
    for source in [sum, spread] {
        let (_, report) = recognised(&source);
        assert_eq!(sites(&report, "rope"), 1, "{:?}", report.regions[0].refused);
    }
}

/// A narrow value by tables in f32: rounded once forward, each product in the gradient. Rounded elsewhere it is none.
#[test]
fn wider_tables() {
    let x = "bf16[2,3,4,8]";
    let forward = |early: bool| {
        let sum = match early {
            false => {
                "  %13 = add %10, %12 : f32[2,3,4,8]\n  %14 = convert %13 {dtype = bf16} : bf16[2,3,4,8]\n"
            }
            true => {
                "  %13 = convert %10 {dtype = bf16} : bf16[2,3,4,8]\n  %14 = convert %12 {dtype = bf16} : bf16[2,3,4,8]\n  %15 = add %13, %14 : bf16[2,3,4,8]\n"
            }
        };
        let last = if early { "%15" } else { "%14" };
        let body = format!(
            "  %3 = {}\n  %4 = {}\n  %5 = {}\n  %6 = {}\n  %7 = negate %6 : bf16[2,3,4,4]\n  \
             %8 = concatenate %7, %5 {{dim = 3}} : {x}\n  %9 = convert %0 {{dtype = f32}} : {X}\n  \
             %10 = multiply %9, %3 : {X}\n  %11 = convert %8 {{dtype = f32}} : {X}\n  %12 = multiply %11, %4 : {X}\n  \
{sum}  return {last}\n",
            table("%1"),
            table("%2"),
            slice("%0", 0, 4, "bf16[2,3,4,4]"),
            slice("%0", 4, 8, "bf16[2,3,4,4]"),
        );
        module(&format!("%0: {x}, %1: f32[4,8], %2: f32[4,8]"), &body)
    };
    let (_, report) = recognised(&forward(false));
    assert_eq!(sites(&report, "rope"), 1, "{:?}", report.regions[0].refused);
    let (_, report) = recognised(&forward(true));
    assert_eq!(sites(&report, "rope"), 0, "it is rounded twice");
}

/// Pairs put together by a dimension that a broadcast adds.
#[test]
fn neighbours_stacked() {
    let part = "f32[2,3,4,4]";
    let pairs = "f32[2,3,4,4,1]";
    let cut = |start: usize| {
        format!(
            "slice %0 {{limit = [2, 3, 4, 8], start = [0, 0, 0, {start}], stride = [1, 1, 1, 2]}} : {part}"
        )
    };
    let source = |first: &str, second: &str| {
        let stack = |v: &str| {
            format!("broadcast_in_dim {v} {{dims = [0, 1, 2, 3], shape = [2, 3, 4, 4, 1]}} : {pairs}")
        };
        let body = format!(
            "  %3 = {}\n  %4 = {}\n  %5 = {}\n  %6 = {}\n  %7 = negate %6 : {part}\n  %8 = {}\n  %9 = {}\n  \
             %10 = concatenate %8, %9 {{dim = 4}} : f32[2,3,4,4,2]\n  %11 = reshape %10 {{shape = [2, 3, 4, 8]}} : {X}\n  \
             %12 = multiply %0, %3 : {X}\n  %13 = multiply %11, %4 : {X}\n  %14 = add %12, %13 : {X}\n  return %14\n",
            table("%1"),
            table("%2"),
            cut(0),
            cut(1),
            stack(first),
            stack(second),
        );
        module(&format!("%0: {X}, %1: f32[4,8], %2: f32[4,8]"), &body)
    };
    let (after, report) = recognised(&source("%7", "%5"));
    assert_eq!(sites(&report, "rope"), 1, "{:?}", report.regions[0].refused);
    assert!(text::print(&after).contains("interleaved = true"), "{}", text::print(&after));
    for (first, second) in [("%5", "%7"), ("%6", "%5"), ("%7", "%6")] {
        let (_, report) = recognised(&source(first, second));
        assert_eq!(sites(&report, "rope") + sites(&report, "rope_grad"), 0, "{first}, {second}");
    }
}

/// The gradient of a value that is itself cut from a wider one: it starts at the cut.
#[test]
fn the_gradient_of_a_part() {
    let whole = "f32[2,3,4,12]";
    let source = |sum: &str| {
        let body = format!(
            "  %3 = slice %0 {{limit = [2, 3, 4, 12], start = [0, 0, 0, 4], stride = [1, 1, 1, 1]}} : {X}\n  \
             %4 = {}\n  %5 = {}\n  %6 = constant {{value = splat f32[] 0.0}} : f32[]\n  %7 = multiply %3, %5 : {X}\n  \
             %8 = {}\n  %9 = {}\n  %10 = negate %8 : {HALF}\n  \
             %11 = pad %9, %6 {{high = [0, 0, 0, 4], interior = [0, 0, 0, 0], low = [0, 0, 0, 0]}} : {X}\n  \
             %12 = pad %10, %6 {{high = [0, 0, 0, 0], interior = [0, 0, 0, 0], low = [0, 0, 0, 4]}} : {X}\n  \
             %13 = {sum} %11, %12 : {X}\n  %14 = multiply %3, %4 : {X}\n  %15 = add %13, %14 : {X}\n  return %15\n",
            table("%1"),
            table("%2"),
            slice("%7", 0, 4, HALF),
            slice("%7", 4, 8, HALF),
        );
        module(&format!("%0: {whole}, %1: f32[4,8], %2: f32[4,8]"), &body)
    };
    let (_, report) = recognised(&source("add"));
    assert_eq!(sites(&report, "rope_grad"), 1, "{:?}", report.regions[0].refused);
    let (_, report) = recognised(&source("subtract"));
    assert_eq!(sites(&report, "rope") + sites(&report, "rope_grad"), 0, "one half with the other sign");
}
