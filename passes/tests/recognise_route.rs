//! The choice of experts: exporters' spellings with their gradient, near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use msc_passes::recognise::Report;
use recognised::{Bounds, sites};

/// Two of four experts for each of five tokens, weights as shares of their sum, and the gradient by the quotient rule. The
/// scores are positive.
const SHARES: &str = r#"module @route

graph @descending(%0: f32[], %1: f32[], %2: i32[], %3: i32[]) {
  %4 = compare %0, %1 {direction = GT, total_order = true} : i1[]
  return %4
}

graph @main(%0: f32[5,4], %1: f32[5,2], %2: f32[5,3]) {
  %3 = exponential %0 : f32[5,4]
  %4 = iota {dim = 1, dtype = i32, shape = [5, 4]} : i32[5,4]
  %5, %6 = sort %3, %4 {comparator = @descending, dim = 1, stable = true} : f32[5,4], i32[5,4]
  %7 = slice %5 {limit = [5, 2], start = [0, 0], stride = [1, 1]} : f32[5,2]
  %8 = slice %6 {limit = [5, 2], start = [0, 0], stride = [1, 1]} : i32[5,2]
  %9 = reduce %7 {dims = [1], monoid = sum} : f32[5]
  %10 = broadcast_in_dim %9 {dims = [0], shape = [5, 2]} : f32[5,2]
  %11 = divide %7, %10 : f32[5,2]
  %12 = constant {value = splat i32[5,2] 1} : i32[5,2]
  %13 = compare %8, %12 {direction = EQ} : i1[5,2]
  %14 = convert %13 {dtype = f32} : f32[5,2]
  %15 = multiply %11, %14 : f32[5,2]
  %16 = reduce %15 {dims = [1], monoid = sum} : f32[5]
  %17 = tanh %1 : f32[5,2]
  %18 = multiply %9, %9 : f32[5]
  %19 = broadcast_in_dim %18 {dims = [0], shape = [5, 2]} : f32[5,2]
  %20 = divide %17, %19 : f32[5,2]
  %21 = multiply %20, %7 : f32[5,2]
  %22 = reduce %21 {dims = [1], monoid = sum} : f32[5]
  %23 = negate %22 : f32[5]
  %24 = broadcast_in_dim %23 {dims = [0], shape = [5, 2]} : f32[5,2]
  %25 = divide %17, %10 : f32[5,2]
  %26 = add %25, %24 : f32[5,2]
  %27 = constant {value = splat f32[5,4] 0.0} : f32[5,4]
  %28 = reshape %8 {shape = [5, 2, 1]} : i32[5,2,1]
  %29 = scatter %27, %28, %26 {combine = sum, index_vector_dim = 2, input_batching_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], scatter_indices_batching_dims = [0], unique_indices = false, update_window_dims = []} : f32[5,4]
  return %16, %29
}
"#;

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

fn recognised(source: &str) -> (usize, usize, Report, String) {
    let (after, report) = recognised::recognised(source, BOUNDS);
    (sites(&report, "moe_route"), sites(&report, "moe_route_grad"), report, text::print(&after))
}

fn replaced(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(SHARES.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    })
}

#[test]
fn shares_with_their_gradient() {
    let (forward, backward, report, printed) = recognised(SHARES);
    assert_eq!((forward, backward), (1, 1), "{:?}\n{printed}", report.regions[0].refused);
    assert!(printed.contains("moe_route %3 {chosen = 2") && printed.contains("shares = true"), "{printed}");
}

#[test]
fn the_scores_themselves() {
    // Their gradient is added up where they were chosen.
    let plain =
        replaced(&[("%15 = multiply %11, %14", "%15 = multiply %7, %14"), ("%28, %26 {", "%28, %17 {")]);
    let (forward, backward, report, printed) = recognised(&plain);
    assert_eq!((forward, backward), (1, 1), "{:?}\n{printed}", report.regions[0].refused);
    assert!(printed.contains("shares = false"), "{printed}");
}

#[test]
fn near_misses() {
    for (what, changes, want) in [
        ("the smallest scores", vec![("direction = GT", "direction = LT")], (0, 0)),
        ("another order of ties is the same order", vec![("stable = true", "stable = false")], (1, 1)),
        (
            "shares of another sum",
            vec![("%9 = reduce %7 {dims = [1], monoid = sum}", "%9 = reduce %7 {dims = [1], monoid = max}")],
            (1, 1),
        ),
        ("the second quotient left out", vec![("%26 = add %25, %24", "%26 = add %25, %25")], (1, 0)),
        ("added up elsewhere", vec![("%28 = reshape %8", "%28 = reshape %12")], (1, 0)),
        (
            "places that nothing uses",
            vec![
                ("%13 = compare %8, %12", "%13 = compare %12, %12"),
                ("%28 = reshape %8", "%28 = reshape %12"),
            ],
            (0, 0),
        ),
    ] {
        let (forward, backward, _, printed) = recognised(&replaced(&changes));
        assert_eq!((forward, backward), want, "{what}\n{printed}");
    }
}
