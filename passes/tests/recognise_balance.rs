//! Loads of experts and the loss that balances them: exporters' spellings, and near misses.

mod recognised;

use msc_ir::factor::FactorKind;
use msc_ir::interp::Mode;
use msc_ir::{Monoid, text};
use msc_passes::recognise::Report;
use recognised::{Bounds, fused_rules, sites};

/// The choice is made among the probabilities; counts are kept apart by the place of the choice, and the loss's gradient
/// is a literal.
const OWN: &str = r#"module @moe

graph @descending(%0: f32[], %1: f32[], %2: i32[], %3: i32[]) {
  %4 = compare %0, %1 {direction = GT, total_order = true} : i1[]
  return %4
}

graph @main(%0: f32[12,4]) {
  %1 = tanh %0 : f32[12,4]
  %2 = iota {dim = 1, dtype = i32, shape = [12, 4]} : i32[12,4]
  %3, %4 = sort %1, %2 {comparator = @descending, dim = 1, stable = true} : f32[12,4], i32[12,4]
  %5 = slice %4 {limit = [12, 2], start = [0, 0], stride = [1, 1]} : i32[12,2]
  %6 = iota {dim = 2, dtype = i32, shape = [12, 2, 4]} : i32[12,2,4]
  %7 = broadcast_in_dim %5 {dims = [0, 1], shape = [12, 2, 4]} : i32[12,2,4]
  %8 = compare %7, %6 {direction = EQ} : i1[12,2,4]
  %9 = convert %8 {dtype = f32} : f32[12,2,4]
  %10 = reduce %9 {dims = [0], monoid = sum} : f32[2,4]
  %11 = constant {value = splat f32[2,4] 12.0} : f32[2,4]
  %12 = divide %10, %11 : f32[2,4]
  %13 = reduce %1 {dims = [0], monoid = sum} : f32[4]
  %14 = constant {value = splat f32[4] 12.0} : f32[4]
  %15 = divide %13, %14 : f32[4]
  %16 = broadcast_in_dim %15 {dims = [1], shape = [2, 4]} : f32[2,4]
  %17 = multiply %12, %16 : f32[2,4]
  %18 = reduce %17 {dims = [0, 1], monoid = sum} : f32[]
  %19 = constant {value = splat f32[] 4.0} : f32[]
  %20 = multiply %18, %19 : f32[]
  %21 = constant {value = splat f32[2,4] 0.5} : f32[2,4]
  %22 = multiply %12, %21 : f32[2,4]
  %23 = reduce %22 {dims = [0], monoid = sum} : f32[4]
  %24 = divide %23, %14 : f32[4]
  %25 = broadcast_in_dim %24 {dims = [1], shape = [12, 4]} : f32[12,4]
  %26 = multiply %25, %0 : f32[12,4]
  return %20, %26
}
"#;

/// The choice comes from elsewhere, tokens are counted sequence by sequence, and the loss's gradient is computed.
const GIVEN: &str = r#"module @moe

graph @main(%0: f32[3,5,4], %1: f32[3,5,2], %2: f32[]) {
  %3 = constant {value = splat f32[3,5,2] 6.0} : f32[3,5,2]
  %4 = multiply %1, %3 : f32[3,5,2]
  %5 = convert %4 {dtype = i32} : i32[3,5,2]
  %6 = iota {dim = 3, dtype = i32, shape = [3, 5, 2, 4]} : i32[3,5,2,4]
  %7 = broadcast_in_dim %5 {dims = [0, 1, 2], shape = [3, 5, 2, 4]} : i32[3,5,2,4]
  %8 = compare %7, %6 {direction = EQ} : i1[3,5,2,4]
  %9 = convert %8 {dtype = i32} : i32[3,5,2,4]
  %10 = reduce %9 {dims = [2], monoid = sum} : i32[3,5,4]
  %11 = convert %10 {dtype = f32} : f32[3,5,4]
  %12 = reduce %11 {dims = [1], monoid = sum} : f32[3,4]
  %13 = constant {value = splat f32[3,4] 5.0} : f32[3,4]
  %14 = divide %12, %13 : f32[3,4]
  %15 = tanh %0 : f32[3,5,4]
  %16 = reduce %15 {dims = [1], monoid = sum} : f32[3,4]
  %17 = divide %16, %13 : f32[3,4]
  %18 = multiply %14, %17 : f32[3,4]
  %19 = reduce %18 {dims = [0, 1], monoid = sum} : f32[]
  %20 = constant {value = splat f32[] 12.0} : f32[]
  %21 = divide %19, %20 : f32[]
  %22 = divide %2, %20 : f32[]
  %23 = broadcast_in_dim %22 {dims = [], shape = [3, 4]} : f32[3,4]
  %24 = multiply %14, %23 : f32[3,4]
  %25 = divide %24, %13 : f32[3,4]
  %26 = broadcast_in_dim %25 {dims = [0, 2], shape = [3, 5, 4]} : f32[3,5,4]
  %27 = multiply %26, %0 : f32[3,5,4]
  return %21, %27
}
"#;

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-6)], replay: 4e-6 };

fn counts(source: &str) -> ([usize; 3], Report, String) {
    let (after, report) = recognised::recognised(&recognised::numbered(source), BOUNDS);
    let all = ["moe_load", "moe_balance", "moe_balance_grad"].map(|name| sites(&report, name));
    (all, report, text::print(&after))
}

fn replaced(source: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(source.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    })
}

#[test]
fn a_choice_among_the_probabilities() {
    let (all, report, printed) = counts(OWN);
    assert_eq!(all, [1, 1, 1], "{:?}\n{printed}", report.regions[0].refused);
    let main = &printed[printed.find("graph @main").expect("main")..];
    // 4/12² and ½/12².
    assert!(main.contains("scale = 0.0277") && main.contains("scale = 0.00347"), "{printed}");
    assert!(main.contains("groups = 0") && main.contains("seeded = false"), "{printed}");
    assert!(main.contains("chosen = 2"), "{printed}");
    for left in ["compare", "f32[12,2,4]", "sort"] {
        assert!(!main.contains(left), "{left} is left\n{printed}");
    }
}

#[test]
fn a_choice_from_elsewhere_by_sequence() {
    let (all, report, printed) = counts(GIVEN);
    assert_eq!(all, [1, 1, 1], "{:?}\n{printed}", report.regions[0].refused);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(main.contains("groups = 1") && main.contains("seeded = true"), "{printed}");
    assert!(!main.contains("compare") && !main.contains("iota"), "something is left\n{printed}");
}

/// Tokens split: each rank counts its own, and what they count adds up.
#[test]
fn loads_split_by_token() {
    for source in [OWN, GIVEN] {
        let (after, _) = recognised::recognised(&recognised::numbered(source), BOUNDS);
        let main = after.graph_by_name("main").expect("main");
        let rules = fused_rules(&after, after.graph(main));
        let (_, rule) = rules.iter().find(|(f, _)| f.kind.name() == "moe_load").expect("a load");
        let tokens = rule.operands[0][rule.operands[0].len() - 2][0];
        assert_eq!(rule.factors[tokens].kind, FactorKind::Reduce(Monoid::Sum), "{rule:?}");
    }
}

#[test]
fn near_misses() {
    for (what, source, changes, want) in [
        (
            "the largest of the sums",
            OWN,
            vec![(
                "%18 = reduce %17 {dims = [0, 1], monoid = sum}",
                "%18 = reduce %17 {dims = [0, 1], monoid = max}",
            )],
            [0, 0, 0],
        ),
        (
            "the largest probability",
            OWN,
            vec![(
                "%13 = reduce %1 {dims = [0], monoid = sum}",
                "%13 = reduce %1 {dims = [0], monoid = max}",
            )],
            [0, 0, 0],
        ),
        (
            "counts plus probabilities",
            OWN,
            vec![("%17 = multiply %12, %16", "%17 = add %12, %16")],
            [0, 0, 0],
        ),
        (
            "every expert but the chosen",
            OWN,
            vec![("%8 = compare %7, %6 {direction = EQ}", "%8 = compare %7, %6 {direction = NE}")],
            [0, 0, 0],
        ),
        (
            "choices before an expert",
            OWN,
            vec![("%8 = compare %7, %6 {direction = EQ}", "%8 = compare %7, %6 {direction = LT}")],
            [0, 0, 0],
        ),
        // The smallest are an operand: only where they come from is another.
        ("the least probable", OWN, vec![("direction = GT", "direction = LT")], [1, 1, 1]),
        (
            "sums of what belongs to other experts",
            OWN,
            vec![(
                "%16 = broadcast_in_dim %15 {dims = [1], shape = [2, 4]} : f32[2,4]",
                "%98 = reverse %15 {dims = [0]} : f32[4]\n  %16 = broadcast_in_dim %98 {dims = [1], shape = [2, 4]} : f32[2,4]",
            )],
            [0, 0, 0],
        ),
        (
            "the gradient of other experts",
            OWN,
            vec![(
                "%24 = divide %23, %14 : f32[4]",
                "%98 = reverse %23 {dims = [0]} : f32[4]\n  %24 = divide %98, %14 : f32[4]",
            )],
            [1, 1, 0],
        ),
        (
            "sequences counted together",
            GIVEN,
            vec![(
                "%18 = multiply %14, %17",
                "%98 = reverse %17 {dims = [0]} : f32[3,4]\n  %18 = multiply %14, %98",
            )],
            [0, 0, 0],
        ),
    ] {
        let (all, report, printed) = counts(&replaced(source, &changes));
        assert_eq!(all, want, "{what} {:?}\n{printed}", report.regions[0].refused);
    }
}
