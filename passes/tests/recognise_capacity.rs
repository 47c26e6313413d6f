//! Tokens in slots of experts with a capacity: exporters' spellings, and near misses.

mod recognised;

use msc_ir::factor::FactorKind;
use msc_ir::interp::Mode;
use msc_ir::{Monoid, text};
use msc_passes::recognise::{Report, recognise};
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use recognised::{Bounds, fused_rules, numbered, sites};
use std::path::Path;

/// Tokens `%0`, slots `%1` from 1 on, shares `%2`; what experts give for the slots is `tanh`. Tokens without a share are not
/// moved. With the gradient of all three.
const MASKS: &str = r#"module @moe

graph @main(%0: f32[2,6,5], %1: i32[2,6,3], %2: f32[2,6,3], %3: f32[2,6,5]) {
  %4 = iota {dim = 3, dtype = i32, shape = [2, 6, 3, 5]} : i32[2,6,3,5]
  %5 = broadcast_in_dim %1 {dims = [0, 1, 2], shape = [2, 6, 3, 5]} : i32[2,6,3,5]
  %6 = compare %5, %4 {direction = EQ} : i1[2,6,3,5]
  %7 = convert %6 {dtype = f32} : f32[2,6,3,5]
  %8 = slice %7 {limit = [2, 6, 3, 5], start = [0, 0, 0, 1], stride = [1, 1, 1, 1]} : f32[2,6,3,4]
  %9 = broadcast_in_dim %2 {dims = [0, 1, 2], shape = [2, 6, 3, 4]} : f32[2,6,3,4]
  %10 = multiply %9, %8 : f32[2,6,3,4]
  %11 = constant {value = splat f32[2,6,3,4] 0.0} : f32[2,6,3,4]
  %12 = compare %10, %11 {direction = NE} : i1[2,6,3,4]
  %13 = convert %12 {dtype = f32} : f32[2,6,3,4]
  %14 = dot_general %13, %0 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[2,3,4,5]
  %15 = transpose %14 {permutation = [1, 0, 2, 3]} : f32[3,2,4,5]
  %16 = tanh %15 : f32[3,2,4,5]
  %17 = dot_general %10, %16 {dtype = f32, lhs_batch = [0], lhs_contract = [3, 2], rhs_batch = [1], rhs_contract = [2, 0]} : f32[2,6,5]
  %18 = dot_general %3, %10 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[2,5,3,4]
  %19 = transpose %18 {permutation = [2, 0, 3, 1]} : f32[3,2,4,5]
  %20 = dot_general %3, %16 {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [1], rhs_contract = [3]} : f32[2,6,3,4]
  %21 = multiply %20, %8 : f32[2,6,3,4]
  %22 = reduce %21 {dims = [3], monoid = sum} : f32[2,6,3]
  %23 = multiply %19, %16 : f32[3,2,4,5]
  %24 = transpose %23 {permutation = [1, 0, 2, 3]} : f32[2,3,4,5]
  %25 = dot_general %24, %13 {dtype = f32, lhs_batch = [0], lhs_contract = [1, 2], rhs_batch = [0], rhs_contract = [2, 3]} : f32[2,5,6]
  %26 = transpose %25 {permutation = [0, 2, 1]} : f32[2,6,5]
  return %17, %22, %26
}
"#;

const ALL: [&str; 4] = ["moe_dispatch", "moe_dispatch_grad", "moe_combine", "moe_combine_grad"];

const BOUNDS: Bounds = Bounds { modes: &[(Mode::Spec, 1e-5), (Mode::Wide, 1e-9)], replay: 4e-6 };

fn counts(changes: &[(&str, &str)]) -> ([usize; 4], Report, String) {
    let source = changes.iter().fold(MASKS.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    });
    let (after, report) = recognised::recognised(&numbered(&source), BOUNDS);
    (ALL.map(|name| sites(&report, name)), report, text::print(&after))
}

#[test]
fn tokens_to_slots_and_back() {
    let (all, report, printed) = counts(&[]);
    assert_eq!(all, [1; 4], "{:?}\n{printed}", report.regions[0].refused);
    let main = &printed[printed.find("graph @main").expect("main")..];
    assert!(main.contains("first = 1") && main.contains("slots = 4"), "{printed}");
    for left in ["iota", "compare", "[2,6,3,4]", "[2,6,3,5]"] {
        assert!(!main.contains(left), "{left} is left\n{printed}");
    }
}

#[test]
fn slots_from_zero_on() {
    let (all, report, printed) = counts(&[(
        "limit = [2, 6, 3, 5], start = [0, 0, 0, 1]",
        "limit = [2, 6, 3, 4], start = [0, 0, 0, 0]",
    )]);
    assert_eq!(all, [1; 4], "{:?}\n{printed}", report.regions[0].refused);
    assert!(printed.contains("first = 0"), "{printed}");
}

/// Where the number of no slot is cut off after the shares are multiplied, their gradient puts it back.
#[test]
fn a_gradient_that_is_padded() {
    let padded = "%97 = constant {value = splat f32[] 0.0} : f32[]
  %98 = pad %20, %97 {high = [0, 0, 0, 0], interior = [0, 0, 0, 0], low = [0, 0, 0, 1]} : f32[2,6,3,5]
  %21 = multiply %98, %7 : f32[2,6,3,5]";
    let (all, report, printed) = counts(&[("%21 = multiply %20, %8 : f32[2,6,3,4]", padded)]);
    assert_eq!(all, [1; 4], "{:?}\n{printed}", report.regions[0].refused);
    // Padded with something else, it is another sum.
    let ones = padded.replace("splat f32[] 0.0", "splat f32[] 1.0");
    let (all, _, printed) = counts(&[("%21 = multiply %20, %8 : f32[2,6,3,4]", &ones)]);
    assert_eq!(all, [1, 1, 1, 0], "{printed}");
}

/// Tokens split: each rank fills its own slots, and what is in them adds up. Experts split: each its own slots.
#[test]
fn tokens_and_experts_split() {
    let (after, _) = recognised::recognised(&numbered(MASKS), BOUNDS);
    let main = after.graph_by_name("main").expect("main");
    let rules = fused_rules(&after, after.graph(main));
    let of = |name: &str| &rules.iter().find(|(f, _)| f.kind.name() == name).expect("found").1;
    let (dispatch, combine) = (of("moe_dispatch"), of("moe_combine"));
    let kind = |r: &msc_ir::factor::FactorRule, operand: usize, dim: usize| {
        r.factors[r.operands[operand][dim][0]].kind
    };
    assert_eq!(kind(dispatch, 0, 1), FactorKind::Reduce(Monoid::Sum), "{dispatch:?}");
    assert_eq!(kind(dispatch, 1, 2), FactorKind::Pass, "{dispatch:?}");
    assert_eq!(kind(combine, 0, 1), FactorKind::Reduce(Monoid::Sum), "{combine:?}");
    assert_eq!(kind(combine, 1, 1), FactorKind::Pass, "{combine:?}");
}

#[test]
fn near_misses() {
    for (what, changes, want) in [
        (
            "the slot and those after it",
            vec![("compare %5, %4 {direction = EQ}", "compare %5, %4 {direction = LE}")],
            [0; 4],
        ),
        (
            "every slot but one",
            vec![("compare %5, %4 {direction = EQ}", "compare %5, %4 {direction = NE}")],
            [0; 4],
        ),
        // Slots from the last to the first: other results, not none.
        (
            "slots the other way round",
            vec![(
                "%8 = slice %7 {limit = [2, 6, 3, 5], start = [0, 0, 0, 1], stride = [1, 1, 1, 1]}",
                "%98 = reverse %7 {dims = [3]} : f32[2,6,3,5]\n  %8 = slice %98 {limit = [2, 6, 3, 5], start = [0, 0, 0, 1], stride = [1, 1, 1, 1]}",
            )],
            [0; 4],
        ),
        (
            "tokens moved by more than their share",
            vec![("%14 = dot_general %13, %0", "%14 = dot_general %10, %0")],
            [0, 1, 1, 1],
        ),
        (
            "what other experts give",
            vec![("%16 = tanh %15", "%98 = reverse %15 {dims = [0]} : f32[3,2,4,5]\n  %16 = tanh %98")],
            [1, 1, 1, 1],
        ),
        (
            "shares where the slot is another's",
            vec![(
                "%21 = multiply %20, %8",
                "%98 = reverse %20 {dims = [1]} : f32[2,6,3,4]\n  %21 = multiply %98, %8",
            )],
            [1, 1, 1, 0],
        ),
        (
            "the largest worth",
            vec![(
                "%22 = reduce %21 {dims = [3], monoid = sum}",
                "%22 = reduce %21 {dims = [3], monoid = max}",
            )],
            [1, 1, 1, 0],
        ),
    ] {
        let (all, report, printed) = counts(&changes);
        assert_eq!(all, want, "{what} {:?}\n{printed}", report.regions[0].refused);
    }
}

/// What experts compute between the slots, with its gradient: a gated gradient read the wrong way round would give what the
/// forward does, and then need itself through the shares' gradient. All operations are found all the same.
#[test]
fn a_gated_layer_between_the_slots() {
    let forward = "%g = multiply %15, %p : f32[3,2,4,5]
  %u = multiply %15, %q : f32[3,2,4,5]
  %s = logistic %g : f32[3,2,4,5]
  %a = multiply %g, %s : f32[3,2,4,5]
  %h = multiply %a, %u : f32[3,2,4,5]
  %16 = multiply %h, %r : f32[3,2,4,5]";
    let backward = "%dh = multiply %19, %r : f32[3,2,4,5]
  %dr = multiply %19, %h : f32[3,2,4,5]
  %du = multiply %dh, %a : f32[3,2,4,5]
  %one = constant {value = splat f32[3,2,4,5] 1.0} : f32[3,2,4,5]
  %rest = subtract %one, %s : f32[3,2,4,5]
  %more = multiply %g, %rest : f32[3,2,4,5]
  %all = add %one, %more : f32[3,2,4,5]
  %slope = multiply %s, %all : f32[3,2,4,5]
  %dhu = multiply %dh, %u : f32[3,2,4,5]
  %dg = multiply %dhu, %slope : f32[3,2,4,5]
  %first = multiply %dg, %p : f32[3,2,4,5]
  %second = multiply %du, %q : f32[3,2,4,5]
  %23 = add %first, %second : f32[3,2,4,5]";
    let (all, report, printed) = counts(&[
        ("%3: f32[2,6,5])", "%3: f32[2,6,5], %p: f32[3,2,4,5], %q: f32[3,2,4,5], %r: f32[3,2,4,5])"),
        ("%16 = tanh %15 : f32[3,2,4,5]", forward),
        ("%23 = multiply %19, %16 : f32[3,2,4,5]", backward),
        ("return %17, %22, %26", "return %17, %22, %26, %dr, %dg, %du"),
    ]);
    assert_eq!(all, [1; 4], "{:?}\n{printed}", report.regions[0].refused);
    assert_eq!(["swiglu", "swiglu_grad"].map(|n| sites(&report, n)), [1, 1], "{printed}");
    let main = &printed[printed.find("graph @main").expect("main")..];
    let main = &main[..main.find("\n}").expect("an end")];
    assert!(!main.contains("logistic"), "{printed}");
}

/// The exporter's own step: all of it is found, and no mask of tokens by experts by slots is left.
#[test]
fn the_exporters_masks() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo/moe_capacity_jax/model.mlir");
    let mut module = msc_frontends::read_file(&file).expect("imports").module;
    simplify(&mut module).expect("simplifies");
    let mut templates = template(&mut module).expect("finds templates");
    let report = recognise(&mut module, &mut templates).expect("recognises");
    for name in ALL {
        let executed = report.fusions.get(name).map_or(0, |f| f.executed);
        assert_eq!(
            executed,
            2,
            "{name}: {:?}",
            report.regions.iter().map(|r| &r.refused).collect::<Vec<_>>()
        );
    }
    let entry = module.entry().expect("an entry").graph;
    let g = module.graph(entry);
    let masks = g.ops().flat_map(|(_, d)| &d.results).filter(|&&v| {
        // 2 sequences, 12 tokens, 4 experts, 7 slots.
        let shape = g.ty(v).shape.as_slice();
        matches!(shape, [2, 12, 4, 7 | 8])
    });
    assert_eq!(masks.count(), 0, "{}", text::print(&module));
}
