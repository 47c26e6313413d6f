//! Products of runs of rows with matrices of their own: spellings with their gradients, and products that are none.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use recognised::{Bounds, numbered, recognised, sites};

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

/// Nine rows in four runs; `%y`, `%dx` and `%dw` of three products.
const STEP: &str = r#"module @ragged

graph @plus(%a: i32[], %b: i32[]) {
  %c = add %a, %b : i32[]
  return %c
}

graph @main(%x0: f32[9,3], %w: f32[4,3,5], %sizes: i32[4], %dy0: f32[9,5]) {
  %x = tanh %x0 : f32[9,3]
  %none = constant {value = splat i32[] 0} : i32[]
  %ends = reduce_window %sizes, %none {base_dilation = [1], body = @plus, dilation = [1], high = [0], low = [3], stride = [1], window = [4]} : i32[4]
  %starts = subtract %ends, %sizes : i32[4]
  %row = iota {dim = 1, dtype = i32, shape = [4, 9]} : i32[4,9]
  %from = broadcast_in_dim %starts {dims = [0], shape = [4, 9]} : i32[4,9]
  %to = broadcast_in_dim %ends {dims = [0], shape = [4, 9]} : i32[4,9]
  %after = compare %from, %row {direction = LE} : i1[4,9]
  %before = compare %row, %to {direction = LT} : i1[4,9]
  %in = and %after, %before : i1[4,9]
  %inx = broadcast_in_dim %in {dims = [0, 1], shape = [4, 9, 3]} : i1[4,9,3]
  %zx = constant {value = splat f32[4,9,3] 0.0} : f32[4,9,3]
  %xs = broadcast_in_dim %x {dims = [1, 2], shape = [4, 9, 3]} : f32[4,9,3]
  %xr = select %inx, %xs, %zx : f32[4,9,3]
  %y = dot_general %xr, %w {dtype = f32, lhs_batch = [], lhs_contract = [2, 0], rhs_batch = [], rhs_contract = [1, 0]} : f32[9,5]
  %ty = tanh %y : f32[9,5]
  %dy = multiply %dy0, %ty : f32[9,5]
  %iny = broadcast_in_dim %in {dims = [0, 1], shape = [4, 9, 5]} : i1[4,9,5]
  %zy = constant {value = splat f32[4,9,5] 0.0} : f32[4,9,5]
  %dys = broadcast_in_dim %dy {dims = [1, 2], shape = [4, 9, 5]} : f32[4,9,5]
  %dyr = select %iny, %dys, %zy : f32[4,9,5]
  %dx = dot_general %dyr, %w {dtype = f32, lhs_batch = [], lhs_contract = [2, 0], rhs_batch = [], rhs_contract = [2, 0]} : f32[9,3]
  %dw = dot_general %xr, %dyr {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,3,5]
  return %y, %dx, %dw
}
"#;

fn counts(changes: &[(&str, &str)]) -> ([usize; 2], String) {
    let source = changes.iter().fold(STEP.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    });
    let (after, report) = recognised(&numbered(&source), BOUNDS);
    let all = ["grouped_matmul", "grouped_matmul_grad"].map(|name| sites(&report, name));
    (all, format!("{:?}\n{}", report.regions[0].refused, text::print(&after)))
}

fn expect(what: &str, changes: &[(&str, &str)], want: [usize; 2]) -> String {
    let (all, printed) = counts(changes);
    assert_eq!(all, want, "{what} {printed}");
    printed
}

fn line(name: &str) -> &'static str {
    STEP.lines().find(|l| l.starts_with(&format!("  %{name} = "))).expect("is there").trim()
}

#[test]
fn a_product_of_runs_with_its_gradient() {
    let printed = expect("the step", &[], [1, 1]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    for left in ["select", "iota", "compare", "dot_general", "reduce_window"] {
        assert!(!main.contains(left), "{left} is left\n{printed}");
    }
}

#[test]
fn other_spellings() {
    // Results and operands the other way round.
    let y = "%yt = dot_general %w, %xr {dtype = f32, lhs_batch = [], lhs_contract = [0, 1], rhs_batch = [], rhs_contract = [0, 2]} : f32[5,9]
  %y = transpose %yt {permutation = [1, 0]} : f32[9,5]";
    expect("matrices first", &[(line("y"), y)], [1, 1]);
    let dw = "%dwt = dot_general %dyr, %xr {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,5,3]
  %dw = transpose %dwt {permutation = [0, 2, 1]} : f32[4,3,5]";
    expect("gradients first", &[(line("dw"), dw)], [1, 1]);
    // Zeros on one side are enough.
    let dw = "%dw = dot_general %xr, %dy {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,3,5]";
    expect("one side", &[(line("dw"), dw)], [1, 1]);
    // The mask as a factor; bounds that are said otherwise.
    let xr = "%one = convert %inx {dtype = f32} : f32[4,9,3]\n  %xr = multiply %one, %xs : f32[4,9,3]";
    expect("a factor", &[(line("xr"), xr)], [1, 1]);
    let after = "%ones = constant {value = splat i32[4] 1} : i32[4]
  %before1 = subtract %starts, %ones : i32[4]
  %from1 = broadcast_in_dim %before1 {dims = [0], shape = [4, 9]} : i32[4,9]
  %after = compare %row, %from1 {direction = GT} : i1[4,9]";
    expect("behind the row before", &[(line("after"), after)], [1, 1]);
    let starts = "%first = constant {value = splat i32[1] 0} : i32[1]
  %rest = slice %ends {limit = [3], start = [0], stride = [1]} : i32[3]
  %starts = concatenate %first, %rest {dim = 0} : i32[4]";
    expect("starts are the ends before", &[(line("starts"), starts)], [1, 1]);
}

/// Rows that are filled up with zeros before the product, and cut off after it.
#[test]
fn rows_that_are_padded() {
    let padded = STEP.replace("[4,9", "[4,16").replace("[4, 9", "[4, 16");
    let padded = padded
        .replace("%xs = broadcast_in_dim %x ", "%zero = constant {value = splat f32[] 0.0} : f32[]\n  %xp = pad %x, %zero {high = [7, 0], interior = [0, 0], low = [0, 0]} : f32[16,3]\n  %xs = broadcast_in_dim %xp ")
        .replace("%y = dot_general", "%yp = dot_general")
        .replace("rhs_contract = [1, 0]} : f32[9,5]", "rhs_contract = [1, 0]} : f32[16,5]\n  %y = slice %yp {limit = [9, 5], start = [0, 0], stride = [1, 1]} : f32[9,5]")
        .replace("%dys = broadcast_in_dim %dy ", "%dyp = pad %dy, %zero {high = [7, 0], interior = [0, 0], low = [0, 0]} : f32[16,5]\n  %dys = broadcast_in_dim %dyp ")
        .replace("%dx = dot_general", "%dxp = dot_general")
        .replace("rhs_contract = [2, 0]} : f32[9,3]", "rhs_contract = [2, 0]} : f32[16,3]\n  %dx = pad %dxp, %zero {high = [-7, 0], interior = [0, 0], low = [0, 0]} : f32[9,3]");
    let (after, report) = recognised(&numbered(&padded), BOUNDS);
    let printed = text::print(&after);
    assert_eq!(["grouped_matmul", "grouped_matmul_grad"].map(|n| sites(&report, n)), [1, 1], "{printed}");
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(!main.contains("pad") && !main.contains("slice"), "{printed}");
    // Filled up with something else, or in front, it is another product.
    for (from, to) in [
        ("%xp = pad %x, %zero", "%two = constant {value = splat f32[] 2.0} : f32[]\n  %xp = pad %x, %two"),
        (
            "%xp = pad %x, %zero {high = [7, 0], interior = [0, 0], low = [0, 0]}",
            "%xp = pad %x, %zero {high = [0, 0], interior = [0, 0], low = [7, 0]}",
        ),
    ] {
        let (after, _) = recognised(&numbered(&padded.replace(from, to)), BOUNDS);
        let printed = text::print(&after);
        let main = &printed[printed.find("graph @main").expect("main")..];
        assert!(main.contains("pad"), "{printed}");
    }
}

/// A loop that computes the forward again may not need its last product.
#[test]
fn a_gradient_without_its_forward() {
    let dy = "%dy = tanh %dy0 : f32[9,5]";
    expect("no forward", &[(line("dy"), dy), ("return %y, %dx, %dw", "return %dx, %dw")], [0, 1]);
}

#[test]
fn near_misses() {
    for (what, changes) in [
        (
            "the row behind each run",
            vec![(
                "%before = compare %row, %to {direction = LT}",
                "%before = compare %row, %to {direction = LE}",
            )],
        ),
        (
            "without each run's first row",
            vec![(
                "%after = compare %from, %row {direction = LE}",
                "%after = compare %from, %row {direction = LT}",
            )],
        ),
        ("either", vec![("%in = and %after, %before", "%in = or %after, %before")]),
        (
            "lengths shifted by one run",
            vec![(
                "%starts = subtract %ends, %sizes",
                "%other = reverse %sizes {dims = [0]} : i32[4]\n  %starts = subtract %ends, %other",
            )],
        ),
        (
            "runs from the end",
            vec![
                ("low = [3], stride", "low = [0], stride"),
                ("high = [0], low = [0]", "high = [3], low = [0]"),
            ],
        ),
        (
            "rows outside are not zero",
            vec![
                (
                    "%zx = constant {value = splat f32[4,9,3] 0.0}",
                    "%zx = constant {value = splat f32[4,9,3] 1.0}",
                ),
                (
                    "%zy = constant {value = splat f32[4,9,5] 0.0}",
                    "%zy = constant {value = splat f32[4,9,5] 1.0}",
                ),
            ],
        ),
    ] {
        let (all, printed) = counts(&changes);
        assert_eq!(all, [0, 0], "{what} {printed}");
    }
    // Of other matrices or rows: the products stay, and are no gradient.
    expect(
        "dw of other rows",
        &[(
            "%dw = dot_general %xr, %dyr",
            "%xo = broadcast_in_dim %x0 {dims = [1, 2], shape = [4, 9, 3]} : f32[4,9,3]\n  %xz = select %inx, %xo, %zx : f32[4,9,3]\n  %dw = dot_general %xz, %dyr",
        )],
        [1, 1],
    );
    expect(
        "dx of other matrices",
        &[(
            "%dx = dot_general %dyr, %w ",
            "%v = reverse %w {dims = [0]} : f32[4,3,5]\n  %dx = dot_general %dyr, %v ",
        )],
        [1, 1],
    );
}
