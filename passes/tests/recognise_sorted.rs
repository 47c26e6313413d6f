//! Tokens sorted by the experts that they choose, and back: exporters' spellings, and near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use msc_passes::recognise::Report;
use recognised::{Bounds, numbered, sites};

/// Six tokens `%x` choose two of four experts by `%s`; what experts give is `tanh`. With the gradients of tokens and of
/// weights, and how many choices each expert has.
const STEP: &str = r#"module @sorted

graph @descending(%a: f32[], %b: f32[], %c: i32[], %d: i32[]) {
  %e = compare %a, %b {direction = GT, total_order = true} : i1[]
  return %e
}

graph @ascending(%a: i32[], %b: i32[], %c: i32[], %d: i32[]) {
  %e = compare %a, %b {direction = LT} : i1[]
  return %e
}

graph @main(%s: f32[6,4], %x: f32[6,3], %dy: f32[6,3]) {
  %experts = iota {dim = 1, dtype = i32, shape = [6, 4]} : i32[6,4]
  %most, %expert = sort %s, %experts {comparator = @descending, dim = 1, stable = true} : f32[6,4], i32[6,4]
  %w = slice %most {limit = [6, 2], start = [0, 0], stride = [1, 1]} : f32[6,2]
  %which = slice %expert {limit = [6, 2], start = [0, 0], stride = [1, 1]} : i32[6,2]
  %flat = reshape %which {shape = [12]} : i32[12]
  %counted = iota {dim = 0, dtype = i32, shape = [12]} : i32[12]
  %byexpert, %order = sort %flat, %counted {comparator = @ascending, dim = 0, stable = true} : i32[12], i32[12]
  %two = constant {value = splat i32[12] 2} : i32[12]
  %token = divide %order, %two : i32[12]
  %none = constant {value = splat i32[12] 0} : i32[12]
  %before = compare %token, %none {direction = LT} : i1[12]
  %six = constant {value = splat i32[12] 6} : i32[12]
  %after = add %token, %six : i32[12]
  %at0 = select %before, %after, %token : i32[12]
  %at = reshape %at0 {shape = [12, 1]} : i32[12,1]
  %rows = gather %x, %at {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 3], start_index_map = [0], start_indices_batching_dims = []} : f32[12,3]
  %out = tanh %rows : f32[12,3]
  %bychoice, %place = sort %order, %counted {comparator = @ascending, dim = 0, stable = true} : i32[12], i32[12]
  %back = gather %out, %place {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 3], start_index_map = [0], start_indices_batching_dims = []} : f32[12,3]
  %each = reshape %back {shape = [6, 2, 3]} : f32[6,2,3]
  %y = dot_general %each, %w {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[6,3]
  %dw = dot_general %dy, %each {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [2]} : f32[6,2]
  %deach0 = dot_general %dy, %w {dtype = f32, lhs_batch = [0], lhs_contract = [], rhs_batch = [0], rhs_contract = []} : f32[6,3,2]
  %deach1 = transpose %deach0 {permutation = [0, 2, 1]} : f32[6,2,3]
  %deach = reshape %deach1 {shape = [12, 3]} : f32[12,3]
  %zeros = constant {value = splat f32[12,3] 0.0} : f32[12,3]
  %dout = scatter %zeros, %place, %deach {combine = sum, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = [1]} : f32[12,3]
  %drows = multiply %dout, %out : f32[12,3]
  %tokens = constant {value = splat f32[6,3] 0.0} : f32[6,3]
  %dx = scatter %tokens, %at, %drows {combine = sum, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = [1]} : f32[6,3]
  %ones = constant {value = splat i32[12] 1} : i32[12]
  %nobody = constant {value = splat i32[4] 0} : i32[4]
  %sizes = scatter %nobody, %flat, %ones {combine = sum, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = []} : i32[4]
  return %y, %dx, %dw, %sizes
}
"#;

const ALL: [&str; 5] = ["moe_sort", "moe_permute", "moe_permute_grad", "moe_unpermute", "moe_unpermute_grad"];

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

const ROWS: &str = "{collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 3], start_index_map = [0], start_indices_batching_dims = []} : f32[12,3]";

fn counts(changes: &[(&str, &str)]) -> ([usize; 5], Report, String) {
    let source = changes.iter().fold(STEP.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    });
    let (after, report) = recognised::recognised(&numbered(&source), BOUNDS);
    (ALL.map(|name| sites(&report, name)), report, text::print(&after))
}

fn expect(what: &str, changes: &[(&str, &str)], want: [usize; 5]) -> String {
    let (all, report, printed) = counts(changes);
    assert_eq!(all, want, "{what} {:?}\n{printed}", report.regions[0].refused);
    printed
}

fn line(name: &str) -> &'static str {
    STEP.lines().find(|l| l.starts_with(&format!("  %{name} = "))).expect("is there")
}

/// All of it, and nothing that works with indices is left.
#[test]
fn tokens_to_the_order_and_back() {
    let printed = expect("the step", &[], [1; 5]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    for left in ["gather", "scatter", " sort ", "iota", "divide", "compare"] {
        assert!(!main.contains(left), "{left} is left\n{printed}");
    }
}

/// With gathers by the inverse for scatters, as gradients written by hand have it; tokens repeated before they are sorted.
#[test]
fn gathers_alone() {
    let rows = "%wide = broadcast_in_dim %x {dims = [0, 2], shape = [6, 2, 3]} : f32[6,2,3]
  %twice = reshape %wide {shape = [12, 3]} : f32[12,3]
  %rows = gather %twice, %order ";
    let dout = format!(
        "  %again, %order3 = sort %place, %counted {{comparator = @ascending, dim = 0, stable = true}} : i32[12], i32[12]\n  %dout = gather %deach, %order3 {ROWS}"
    );
    let dx = format!(
        "  %dback0 = gather %drows, %place {ROWS}\n  %dback = reshape %dback0 {{shape = [6, 2, 3]}} : f32[6,2,3]\n  %dx = reduce %dback {{dims = [1], monoid = sum}} : f32[6,3]"
    );
    let changes = [("%rows = gather %x, %at ", rows), (line("dout"), &dout), (line("dx"), &dx)];
    let printed = expect("gathers", &changes, [1; 5]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(!main.contains("gather") && !main.contains(" sort %"), "{printed}");
}

/// The inverse as places that are put where the order says; weights that are multiplied, and summed.
#[test]
fn other_spellings() {
    let place = "%unset = constant {value = splat i32[12] 0} : i32[12]
  %place = scatter %unset, %order, %counted {combine = replace, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = true, update_window_dims = []} : i32[12]";
    expect(
        "an inverse that is scattered",
        &[(STEP.lines().find(|l| l.contains("%bychoice")).expect("is there").trim(), place)],
        [1; 5],
    );
    let y = "%wwide = broadcast_in_dim %w {dims = [0, 1], shape = [6, 2, 3]} : f32[6,2,3]
  %weighed = multiply %wwide, %each : f32[6,2,3]
  %y = reduce %weighed {dims = [1], monoid = sum} : f32[6,3]";
    expect("products and sums", &[(line("y").trim(), y)], [1; 5]);
    // Rows outside of the tokens would be no numbers.
    let rows = "%rows0 = gather %x, %at ";
    let guard = "%last = constant {value = splat i32[12] 5} : i32[12]
  %inside0 = compare %at0, %none {direction = GE} : i1[12]
  %inside1 = compare %at0, %last {direction = LE} : i1[12]
  %inside = and %inside0, %inside1 : i1[12]
  %insides = broadcast_in_dim %inside {dims = [0], shape = [12, 3]} : i1[12,3]
  %nan = constant {value = splat f32[12,3] 0x0000c07f} : f32[12,3]
  %rows = select %insides, %rows0, %nan : f32[12,3]
  %out = tanh";
    let printed = expect("guarded", &[("%rows = gather %x, %at ", rows), ("%out = tanh", guard)], [1; 5]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(!main.contains("select"), "{printed}");
}

/// Experts that compute in fewer bits than the weights have: rows become wider before they are weighed, gradients narrower after.
#[test]
fn narrow_rows() {
    let narrow = |name: &str| line(name).replace("f32[12,3]", "bf16[12,3]");
    let (back, zeros, dout) = (narrow("back"), narrow("zeros"), narrow("dout"));
    let each = "  %each0 = reshape %back {shape = [6, 2, 3]} : bf16[6,2,3]
  %each = convert %each0 {dtype = f32} : f32[6,2,3]";
    let deach = "  %deach2 = reshape %deach1 {shape = [12, 3]} : f32[12,3]
  %deach = convert %deach2 {dtype = bf16} : bf16[12,3]";
    let out = "  %out0 = tanh %rows : f32[12,3]\n  %out = convert %out0 {dtype = bf16} : bf16[12,3]";
    let drows =
        "  %dout0 = convert %dout {dtype = f32} : f32[12,3]\n  %drows = multiply %dout0, %out0 : f32[12,3]";
    let changes = [
        (line("back"), back.as_str()),
        (line("zeros"), &zeros),
        (line("dout"), &dout),
        (line("each"), each),
        (line("deach"), deach),
        (line("out"), out),
        (line("drows"), drows),
    ];
    expect("narrow rows", &changes, [1; 5]);
    // Weighed in few bits, and wider only then: another rounding.
    let early = "  %wn = convert %w {dtype = bf16} : bf16[6,2]
  %yn = dot_general %each0, %wn {dtype = bf16, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : bf16[6,3]
  %y = convert %yn {dtype = f32} : f32[6,3]";
    let printed = expect("rounded before", &[&changes[..], &[(line("y"), early)]].concat(), [1; 5]);
    assert!(printed.contains("= moe_unpermute %") && printed.contains("bf16[6,3]"), "{printed}");
}

#[test]
fn near_misses() {
    let none = [0; 5];
    // Another sort is no order of choices.
    expect(
        "not stable",
        &[(
            "%flat, %counted {comparator = @ascending, dim = 0, stable = true}",
            "%flat, %counted {comparator = @ascending, dim = 0, stable = false}",
        )],
        none,
    );
    expect(
        "the last expert first",
        &[("compare %a, %b {direction = LT}", "compare %a, %b {direction = GT}")],
        none,
    );
    expect(
        "all first choices before all second ones",
        &[(
            "%flat = reshape %which {shape = [12]} : i32[12]",
            "%turned = transpose %which {permutation = [1, 0]} : i32[2,6]\n  %flat = reshape %turned {shape = [12]} : i32[12]",
        )],
        none,
    );
    expect(
        "experts that are no choice",
        &[("%flat = reshape %which", "%others = add %which, %which : i32[6,2]\n  %flat = reshape %others")],
        none,
    );
    // Tokens of another number of choices, or shifted by one: rows of other tokens.
    expect(
        "three choices",
        &[("%two = constant {value = splat i32[12] 2}", "%two = constant {value = splat i32[12] 3}")],
        [1, 0, 0, 1, 1],
    );
    let next = "%one = constant {value = splat i32[12] 1} : i32[12]\n  %token0 = divide %order, %two : i32[12]\n  %token = add %token0, %one : i32[12]";
    expect("the next token", &[(line("token").trim(), next)], [1, 0, 0, 1, 1]);
    // Back by the order, which is not its own inverse.
    expect(
        "back by the order",
        &[("%back = gather %out, %place ", "%back = gather %out, %order ")],
        [1, 1, 1, 0, 0],
    );
    expect(
        "its gradient by the order",
        &[("%dout = scatter %zeros, %place,", "%dout = scatter %zeros, %order,")],
        [1, 1, 1, 1, 0],
    );
    expect(
        "places reversed",
        &[(
            "%back = gather %out, %place ",
            "%esalp = reverse %place {dims = [0]} : i32[12]\n  %back = gather %out, %esalp ",
        )],
        [1, 1, 1, 0, 0],
    );
    expect(
        "the last row there wins",
        &[(
            "%dx = scatter %tokens, %at, %drows {combine = sum",
            "%dx = scatter %tokens, %at, %drows {combine = replace",
        )],
        [1, 1, 0, 1, 1],
    );
    let most = "%wwide = broadcast_in_dim %w {dims = [0, 1], shape = [6, 2, 3]} : f32[6,2,3]
  %weighed = multiply %wwide, %each : f32[6,2,3]
  %y = reduce %weighed {dims = [1], monoid = max} : f32[6,3]";
    expect("the largest", &[(line("y").trim(), most)], [1, 1, 1, 0, 1]);
    // Weights of the choices the other way round are weights too: of other numbers.
    let turned = "%wr = reverse %w {dims = [1]} : f32[6,2]\n  %y = dot_general %each, %wr ";
    expect("other weights", &[("%y = dot_general %each, %w ", turned)], [1; 5]);
    // Weights of each choice's neighbour, by halves that were exchanged.
    let halves = "%halves = reshape %back {shape = [2, 6, 3]} : f32[2,6,3]\n  %each = transpose %halves {permutation = [1, 0, 2]} : f32[6,2,3]";
    expect("rows by choice, not by token", &[(line("each").trim(), halves)], [1, 1, 1, 0, 0]);
}

/// How many choices each expert has is a result of the sort where that is what is counted.
#[test]
fn sizes_are_counted() {
    let printed = expect("counted", &[], [1; 5]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(!main.contains("scatter"), "{printed}");
    for (what, from, to) in [
        ("from one on", "splat i32[4] 0}", "splat i32[4] 1}"),
        ("twice", "%ones = constant {value = splat i32[12] 1}", "%ones = constant {value = splat i32[12] 2}"),
    ] {
        let printed = expect(what, &[(from, to)], [1; 5]);
        let main = &printed[printed.find("graph @main").expect("main")..];
        assert!(main.contains("scatter"), "{what}\n{printed}");
    }
}
