//! The loss that keeps a router's logits small: exporters' spellings, and near misses.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::text;
use recognised::{Bounds, numbered, recognised, sites};

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

/// Six tokens with four experts, a router that chooses two, the loss, and its gradient beside another.
const STEP: &str = r#"module @z

graph @descending(%a: f32[], %b: f32[], %c: i32[], %d: i32[]) {
  %e = compare %a, %b {direction = GT, total_order = true} : i1[]
  return %e
}

graph @main(%x: f32[6,4], %other: f32[6,4], %seed: f32[]) {
  %experts = iota {dim = 1, dtype = i32, shape = [6, 4]} : i32[6,4]
  %sorted, %order = sort %x, %experts {comparator = @descending, dim = 1, stable = true} : f32[6,4], i32[6,4]
  %w = slice %sorted {limit = [6, 2], start = [0, 0], stride = [1, 1]} : f32[6,2]
  %which = slice %order {limit = [6, 2], start = [0, 0], stride = [1, 1]} : i32[6,2]
  %ids = convert %which {dtype = f32} : f32[6,2]
  %weighed = multiply %w, %ids : f32[6,2]
  %most = reduce %x {dims = [1], monoid = max} : f32[6]
  %mosts = broadcast_in_dim %most {dims = [0], shape = [6, 4]} : f32[6,4]
  %less = subtract %x, %mosts : f32[6,4]
  %e = exponential %less : f32[6,4]
  %sum = reduce %e {dims = [1], monoid = sum} : f32[6]
  %log = log %sum : f32[6]
  %lse = add %log, %most : f32[6]
  %square = multiply %lse, %lse : f32[6]
  %total = reduce %square {dims = [0], monoid = sum} : f32[]
  %six = constant {value = splat f32[] 6.0} : f32[]
  %mean = divide %total, %six : f32[]
  %share = constant {value = splat f32[] 0.001} : f32[]
  %loss = multiply %mean, %share : f32[]
  %third = constant {value = splat f32[6] 0.000333333333} : f32[6]
  %by = multiply %lse, %third : f32[6]
  %each = divide %by, %sum : f32[6]
  %eachs = broadcast_in_dim %each {dims = [0], shape = [6, 4]} : f32[6,4]
  %dz = multiply %e, %eachs : f32[6,4]
  %dx = add %dz, %other : f32[6,4]
  return %which, %weighed, %loss, %dx
}
"#;

fn expect(what: &str, changes: &[(&str, &str)], want: [usize; 2]) -> String {
    let source = changes.iter().fold(STEP.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    });
    let (after, report) = recognised(&numbered(&source), BOUNDS);
    let all = ["moe_z_loss", "moe_z_loss_grad"].map(|name| sites(&report, name));
    let printed = text::print(&after);
    assert_eq!(all, want, "{what} {:?}\n{printed}", report.regions[0].refused);
    printed
}

#[test]
fn a_loss_with_its_gradient() {
    let printed = expect("the step", &[], [1, 1]);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(!main.contains("exponential") && !main.contains("= log"), "{printed}");
    assert!(main.contains("scale = 0.000166666") && main.contains("scale = 0.00033333"), "{printed}");
}

/// The gradient of the loss is a number that the step computes.
#[test]
fn a_seed() {
    let by = "%seeds = broadcast_in_dim %seed {dims = [], shape = [6]} : f32[6]
  %by0 = multiply %lse, %third : f32[6]
  %by = multiply %by0, %seeds : f32[6]";
    let printed = expect("a seed", &[("%by = multiply %lse, %third : f32[6]", by)], [1, 1]);
    assert!(printed.contains("seeded = true"), "{printed}");
}

#[test]
fn other_spellings() {
    let power = "%two = constant {value = splat f32[6] 2.0} : f32[6]\n  %square = power %lse, %two : f32[6]";
    expect("a power", &[("%square = multiply %lse, %lse : f32[6]", power)], [1, 1]);
    let shares = "%sums = broadcast_in_dim %sum {dims = [0], shape = [6, 4]} : f32[6,4]
  %p = divide %e, %sums : f32[6,4]
  %eachs = broadcast_in_dim %by {dims = [0], shape = [6, 4]} : f32[6,4]
  %dz = multiply %p, %eachs : f32[6,4]";
    let dz = "%eachs = broadcast_in_dim %each {dims = [0], shape = [6, 4]} : f32[6,4]
  %dz = multiply %e, %eachs : f32[6,4]";
    expect("of the softmax", &[(dz, shares)], [1, 1]);
    // Without the maximum.
    expect(
        "as it is",
        &[
            ("%less = subtract %x, %mosts : f32[6,4]\n", ""),
            ("%e = exponential %less", "%e = exponential %x"),
            ("%lse = add %log, %most : f32[6]\n", ""),
            ("%lse", "%log"),
        ],
        [1, 1],
    );
    expect(
        "of probabilities",
        &[
            ("sort %x, %experts", "sort %p, %experts"),
            ("  %log = log", "  %log = log"),
            ("  %experts = iota", "  %px = logistic %x : f32[6,4]\n  %experts = iota"),
            ("sort %p,", "sort %px,"),
        ],
        [1, 1],
    );
}

#[test]
fn near_misses() {
    expect("another router's logits", &[("sort %x, %experts", "sort %other, %experts")], [0, 0]);
    expect(
        "cubes",
        &[("%total = reduce %square", "%cube = multiply %square, %lse : f32[6]\n  %total = reduce %cube")],
        [0, 0],
    );
    expect(
        "the maximum missing",
        &[("%square = multiply %lse, %lse", "%square = multiply %log, %log")],
        [0, 0],
    );
    expect(
        "the largest",
        &[(
            "%total = reduce %square {dims = [0], monoid = sum}",
            "%total = reduce %square {dims = [0], monoid = max}",
        )],
        [0, 0],
    );
    expect(
        "a sum over tokens inside",
        &[("%sum = reduce %e {dims = [1], monoid = sum}", "%sum = reduce %e {dims = [1], monoid = max}")],
        [0, 0],
    );
    expect(
        "a gradient without the logarithm",
        &[("%by = multiply %lse, %third", "%by = multiply %sum, %third")],
        [1, 0],
    );
    expect(
        "a gradient that is not normalised",
        &[("%each = divide %by, %sum", "%each = multiply %by, %sum")],
        [1, 0],
    );
}
