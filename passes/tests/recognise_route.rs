//! The choice of experts: exporters' spellings with their gradient, near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use msc_passes::recognise::Report;
use recognised::{Bounds, numbered, sites};

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

/// Two of four experts by scores with a bias; weights are the scores without it, picked by rows and places, and their gradient
/// is added up there.
const APART: &str = r#"module @route

graph @descending(%a: f32[], %b: f32[], %c: i32[], %d: i32[]) {
  %e = compare %a, %b {direction = GT, total_order = true} : i1[]
  return %e
}

graph @main(%logits: f32[5,4], %bias: f32[4], %dw0: f32[5,2]) {
  %s = logistic %logits : f32[5,4]
  %wide = broadcast_in_dim %bias {dims = [1], shape = [5, 4]} : f32[5,4]
  %x = add %s, %wide : f32[5,4]
  %experts = iota {dim = 1, dtype = i32, shape = [5, 4]} : i32[5,4]
  %sorted, %order = sort %x, %experts {comparator = @descending, dim = 1, stable = true} : f32[5,4], i32[5,4]
  %i = slice %order {limit = [5, 2], start = [0, 0], stride = [1, 1]} : i32[5,2]
  %zero = constant {value = splat i32[5,2] 0} : i32[5,2]
  %negative = compare %i, %zero {direction = LT} : i1[5,2]
  %four = constant {value = splat i32[5,2] 4} : i32[5,2]
  %fromend = add %i, %four : i32[5,2]
  %at = select %negative, %fromend, %i : i32[5,2]
  %place = broadcast_in_dim %at {dims = [0, 1], shape = [5, 2, 1]} : i32[5,2,1]
  %row = iota {dim = 0, dtype = i32, shape = [5, 2, 1]} : i32[5,2,1]
  %vectors = concatenate %row, %place {dim = 2} : i32[5,2,2]
  %w = gather %s, %vectors {collapsed_slice_dims = [0, 1], index_vector_dim = 2, offset_dims = [], operand_batching_dims = [], slice_sizes = [1, 1], start_index_map = [0, 1], start_indices_batching_dims = []} : f32[5,2]
  %t = tanh %w : f32[5,2]
  %dw = multiply %t, %dw0 : f32[5,2]
  %none = constant {value = splat f32[5,4] 0.0} : f32[5,4]
  %ds = scatter %none, %vectors, %dw {combine = sum, index_vector_dim = 2, input_batching_dims = [], inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = []} : f32[5,4]
  return %w, %i, %ds
}
"#;

#[test]
fn weights_apart_from_what_chooses() {
    let apart = |changes: &[(&str, &str)]| {
        let source = changes.iter().fold(APART.to_string(), |s, (from, to)| {
            assert!(s.contains(from), "{from}");
            s.replace(from, to)
        });
        let (forward, backward, report, printed) = recognised(&numbered(&source));
        ((forward, backward), format!("{:?}\n{printed}", report.regions[0].refused))
    };
    let (found, printed) = apart(&[]);
    assert_eq!(found, (1, 1), "{printed}");
    assert!(printed.contains("apart = true"), "{printed}");
    // One dimension of the batch each for rows.
    let picked = [
        (
            "%w = gather %s, %vectors {collapsed_slice_dims = [0, 1], index_vector_dim = 2, offset_dims = [], operand_batching_dims = [], slice_sizes = [1, 1], start_index_map = [0, 1], start_indices_batching_dims = []}",
            "%w = gather %s, %place {collapsed_slice_dims = [1], index_vector_dim = 2, offset_dims = [], operand_batching_dims = [0], slice_sizes = [1, 1], start_index_map = [1], start_indices_batching_dims = [0]}",
        ),
        (
            "%ds = scatter %none, %vectors, %dw {combine = sum, index_vector_dim = 2, input_batching_dims = [], inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], scatter_indices_batching_dims = []",
            "%ds = scatter %none, %place, %dw {combine = sum, index_vector_dim = 2, input_batching_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], scatter_indices_batching_dims = [0]",
        ),
    ];
    assert_eq!(apart(&picked).0, (1, 1), "{}", apart(&picked).1);
    // Guarded by what always holds.
    let guard = "%three = constant {value = splat i32[5,2] 3} : i32[5,2]
  %above = compare %at, %zero {direction = GE} : i1[5,2]
  %below = compare %at, %three {direction = LE} : i1[5,2]
  %inside = and %above, %below : i1[5,2]
  %nan = constant {value = splat f32[5,2] 0x0000c07f} : f32[5,2]
  %w = select %inside, %w0, %nan : f32[5,2]
  %t = tanh";
    let (found, printed) = apart(&[("%w = gather", "%w0 = gather"), ("%t = tanh", guard)]);
    assert_eq!(found, (1, 1), "{printed}");
    for (what, change, want) in [
        ("the smallest", ("direction = GT", "direction = LT"), (0, 0)),
        (
            "the next expert's weight",
            ("select %negative, %fromend, %i", "select %negative, %i, %fromend"),
            (0, 0),
        ),
        ("the place before the row", ("concatenate %row, %place", "concatenate %place, %row"), (0, 0)),
        ("another row's weight", ("%row = iota {dim = 0", "%row = iota {dim = 1"), (0, 0)),
        ("added up elsewhere", ("scatter %none, %vectors, %dw", "scatter %none, %others, %dw"), (1, 0)),
        ("the last wins", ("{combine = sum", "{combine = replace"), (1, 0)),
        ("to something else", ("splat f32[5,4] 0.0", "splat f32[5,4] 1.0"), (1, 0)),
    ] {
        let others = ("%w = gather", "%others = reverse %vectors {dims = [0]} : i32[5,2,2]\n  %w = gather");
        let (found, printed) = apart(&[change, others]);
        assert_eq!(found, want, "{what} {printed}");
    }
}
