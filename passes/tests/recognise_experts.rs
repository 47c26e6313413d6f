//! Products of experts: spellings with their gradients, and products that are none.

mod recognised;

use msc_ir::interp::Mode;
use msc_ir::{FactorKind, text};
use recognised::{Bounds, numbered, recognised, sites};

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

/// A router over four experts, whose choice is used, and rows `[4,2,3]` of four groups with a layer `[4,3,6]` that ends in a
/// sum with `%dy`. `%y`, `%dx` and `%dw` are what a test says.
fn step(products: &str) -> String {
    numbered(&format!(
        r#"module @experts

graph @descending(%a: f32[], %b: f32[], %c: i32[], %d: i32[]) {{
  %e = compare %a, %b {{direction = GT, total_order = true}} : i1[]
  return %e
}}

graph @main(%s: f32[5,4], %x0: f32[4,2,3], %w: f32[4,3,6], %dy0: f32[4,2,6], %wt: f32[4,6,3]) {{
  %places = iota {{dim = 1, dtype = i32, shape = [5, 4]}} : i32[5,4]
  %sorted, %order = sort %s, %places {{comparator = @descending, dim = 1, stable = true}} : f32[5,4], i32[5,4]
  %best = slice %sorted {{limit = [5, 2], start = [0, 0], stride = [1, 1]}} : f32[5,2]
  %which = slice %order {{limit = [5, 2], start = [0, 0], stride = [1, 1]}} : i32[5,2]
  %one = constant {{value = splat i32[5,2] 1}} : i32[5,2]
  %is = compare %which, %one {{direction = EQ}} : i1[5,2]
  %counted = convert %is {{dtype = f32}} : f32[5,2]
  %weighed = multiply %best, %counted : f32[5,2]
  %total = reduce %weighed {{dims = [0, 1], monoid = sum}} : f32[]
  %spread = broadcast_in_dim %total {{dims = [], shape = [4, 2, 3]}} : f32[4,2,3]
  %x1 = multiply %x0, %spread : f32[4,2,3]
  %x = tanh %x1 : f32[4,2,3]
{products}}}
"#
    ))
}

const FORWARD: &str = "  %y = dot_general %x, %w {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : f32[4,2,6]\n";
const DY: &str = "  %ty = tanh %y : f32[4,2,6]\n  %dy = multiply %dy0, %ty : f32[4,2,6]\n";
const DX: &str = "  %dx = dot_general %dy, %w {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : f32[4,2,3]\n";
const DW: &str = "  %dw = dot_general %dy, %x {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,6,3]\n";
const RETURN: &str = "  return %which, %y, %dx, %dw\n";

fn counts(source: &str) -> (usize, usize) {
    let (_, report) = recognised(source, BOUNDS);
    assert_eq!(sites(&report, "moe_route"), 1, "{source}");
    (sites(&report, "grouped_matmul"), sites(&report, "grouped_matmul_grad"))
}

#[test]
fn products_with_their_gradient() {
    assert_eq!(counts(&step(&[FORWARD, DY, DX, DW, RETURN].concat())), (1, 1));
    // The gradient of the rows before the forward, which a loop that computes the latter again may have.
    let early = "  %rows = reduce %x {dims = [2], monoid = sum} : f32[4,2]
  %wide = broadcast_in_dim %rows {dims = [0, 1], shape = [4, 2, 6]} : f32[4,2,6]
  %dy = multiply %dy0, %wide : f32[4,2,6]\n";
    let (after, report) = recognised(&step(&[early, DX, FORWARD, DW, RETURN].concat()), BOUNDS);
    let mut reasons = report.regions.iter().flat_map(|r| &r.reasons);
    let gradient = reasons.find(|r| r.rule == "grouped-matmul-grad");
    let gradient = gradient.unwrap_or_else(|| panic!("{}", text::print(&after)));
    let shapes: Vec<&[usize]> = gradient.inputs.iter().map(|i| i.ty.shape.as_slice()).collect();
    assert_eq!(shapes, [&[4, 2, 6][..], &[4, 2, 3], &[4, 3, 6]], "dy, x, w");
    // Weights on the left.
    let left = "  %t = dot_general %w, %x {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [2]} : f32[4,6,2]\n  %y = transpose %t {permutation = [0, 2, 1]} : f32[4,2,6]\n";
    assert_eq!(counts(&step(&[left, DY, DX, DW, RETURN].concat())), (1, 1));
    // Weights that are stored the other way round.
    let turned = FORWARD.replace("%w {", "%wt {").replace("rhs_contract = [1]", "rhs_contract = [2]");
    let dx = DX.replace("%w {", "%wt {").replace("rhs_contract = [2]", "rhs_contract = [1]");
    assert_eq!(counts(&step(&[&turned, DY, &dx, DW, RETURN].concat())), (1, 1));
    // Without a gradient.
    assert_eq!(counts(&step(&[FORWARD, "  return %which, %y\n"].concat())), (1, 0));
}

#[test]
fn products_that_do_not_belong_together() {
    // The weights' gradient is of other rows.
    let other = DW.replace("%dy, %x {", "%dy, %x1 {");
    assert_eq!(counts(&step(&[FORWARD, DY, DX, &other, RETURN].concat())), (2, 0));
    // Of another gradient.
    let other = DW.replace("%dy, %x {", "%ty, %x {");
    assert_eq!(counts(&step(&[FORWARD, DY, DX, &other, RETURN].concat())), (2, 0));
    // The rows' gradient goes through other weights.
    let other = DX.replace("%w {", "%wt {").replace("rhs_contract = [2]", "rhs_contract = [1]");
    assert_eq!(counts(&step(&[FORWARD, DY, &other, DW, RETURN].concat())), (2, 0));
}

#[test]
fn a_batch_without_experts_is_none() {
    // A router over five: what has a batch of four are not its experts.
    let source = step(&[FORWARD, DY, DX, DW, RETURN].concat());
    let five = source.replace("[5, 4]", "[4, 5]").replace("[5,4]", "[4,5]");
    let five = five.replace("[5, 2]", "[4, 2]").replace("[5,2]", "[4,2]");
    assert_eq!(counts(&five), (0, 0));
}

/// Experts and rows can be split; so can what a matrix maps to.
#[test]
fn experts_and_rows_split() {
    let (module, _) = recognised(&step(&[FORWARD, DY, DX, DW, RETURN].concat()), BOUNDS);
    let main = module.graph(module.graph_by_name("main").expect("main"));
    let rules = recognised::fused_rules(&module, main);
    let of = |name: &str| {
        let found = rules.iter().find(|(f, _)| f.kind.name() == name);
        &found.unwrap_or_else(|| panic!("no {name}")).1
    };
    let forward = of("grouped_matmul");
    let kind = |d: usize| forward.factors[forward.operands[0][d][0]].kind;
    assert_eq!((kind(0), kind(1)), (FactorKind::Pass, FactorKind::Pass));
    assert!(matches!(kind(2), FactorKind::Reduce(_)), "{forward:?}");
    let gradient = of("grouped_matmul_grad");
    let experts = gradient.operands[0][0][0];
    assert_eq!(gradient.factors[experts].kind, FactorKind::Pass);
    assert!(gradient.results.iter().all(|r| r[0] == gradient.operands[0][0]), "{gradient:?}");
}
