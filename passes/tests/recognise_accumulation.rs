//! Loops over microbatches: what is one, what is none, and the exporters' own.

use msc_ir::text;
use msc_passes::recognise::accumulation::{Accumulation, Refused, find};
use msc_passes::recognise::recognise;
use msc_passes::simplify::simplify;
use msc_passes::template::template;
use std::path::Path;

/// Carries: counter, batches, weight, sum of gradients, sum of losses. The gradients are added in a graph of their own.
const LOOP: &str = "module @m
graph @add(%0: f32[3], %1: f32[3]) {
  %2 = add %0, %1 : f32[3]
  return %2
}
graph @cond(%0: i32[], %1: f32[4,5,3], %2: f32[3], %3: f32[3], %4: f32[]) {
  %5 = constant {value = splat i32[] 4} : i32[]
  %6 = compare %0, %5 {direction = LT} : i1[]
  return %6
}
graph @body(%0: i32[], %1: f32[4,5,3], %2: f32[3], %3: f32[3], %4: f32[]) {
  %5 = constant {value = splat i32[] 1} : i32[]
  %6 = add %0, %5 : i32[]
  %7 = constant {value = splat i32[] 0} : i32[]
  %8 = dynamic_slice %1, %0, %7, %7 {sizes = [1, 5, 3]} : f32[1,5,3]
  %9 = reshape %8 {shape = [5, 3]} : f32[5,3]
  %10 = broadcast_in_dim %2 {dims = [1], shape = [5, 3]} : f32[5,3]
  %11 = multiply %9, %10 : f32[5,3]
  %12 = tanh %11 : f32[5,3]
  %13 = reduce %12 {dims = [0], monoid = sum} : f32[3]
  %14 = reduce %12 {dims = [0, 1], monoid = sum} : f32[]
  %15 = call %3, %13 {graph = @add} : f32[3]
  %16 = add %14, %4 : f32[]
  return %6, %1, %2, %15, %16
}
graph @main(%0: f32[3], %1: f32[4,5,3]) {
  %2 = constant {value = splat i32[] 0} : i32[]
  %3 = constant {value = splat f32[3] 0.0} : f32[3]
  %4 = constant {value = splat f32[] 0.0} : f32[]
  %5, %6, %7, %8, %9 = while %2, %1, %0, %3, %4 {body = @body, cond = @cond} : i32[], f32[4,5,3], f32[3], f32[3], f32[]
  %10 = constant {value = splat f32[3] 4.0} : f32[3]
  %11 = divide %8, %10 : f32[3]
  %12 = subtract %0, %11 : f32[3]
  return %12, %9
}
entry \"train\" @main {
  param \"w\" alias 0
  param \"x\"
  result \"w\"
  result \"loss\"
}
";

fn found(changes: &[(&str, &str)]) -> (Vec<Accumulation>, Vec<Refused>) {
    let text = changes.iter().fold(LOOP.to_string(), |s, (from, to)| {
        assert!(s.contains(from), "{from}");
        s.replace(from, to)
    });
    let module = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    msc_ir::verify::verify(&module).unwrap_or_else(|e| panic!("{e}\n{text}"));
    find(&module)
}

#[test]
fn sums_of_gradients_and_of_losses() {
    let (all, refused) = found(&[]);
    let [a] = all.as_slice() else { panic!("{all:?} {refused:?}") };
    assert_eq!((a.microbatches, a.gradients(), a.sums.len()), (4, 1, 2), "{a:?}");
    assert_eq!((a.divided(), a.batched.as_slice(), a.executed), (Some(4.0), [1].as_slice(), 1), "{a:?}");
    assert_eq!(
        a.describe(),
        "4 microbatches, 1 gradients summed and divided by 4 after the loop, beside 1 other sum"
    );
}

#[test]
fn near_misses() {
    for (what, changes, why) in [
        ("a running maximum", vec![("%16 = add %14, %4", "%16 = maximum %14, %4")], Some("otherwise than")),
        (
            "a sum that decays",
            vec![(
                "%2 = add %0, %1 : f32[3]\n  return %2",
                "%2 = add %0, %0 : f32[3]\n  %3 = add %2, %1 : f32[3]\n  return %3",
            )],
            Some("otherwise than"),
        ),
        (
            "a difference",
            vec![("%2 = add %0, %1 : f32[3]", "%2 = subtract %1, %0 : f32[3]")],
            Some("otherwise"),
        ),
        (
            "a sum that the next trip reads",
            vec![("%10 = broadcast_in_dim %2 {", "%10 = broadcast_in_dim %3 {")],
            Some("otherwise than"),
        ),
        (
            "a sum from elsewhere",
            vec![("%3 = constant {value = splat f32[3] 0.0}", "%3 = constant {value = splat f32[3] 1.0}")],
            Some("does not start from zero"),
        ),
        ("one trip", vec![("splat i32[] 4", "splat i32[] 1")], None),
        // The loss alone is summed: nothing is updated by it.
        ("no gradient", vec![("%12 = subtract %0, %11", "%12 = subtract %0, %0")], None),
        (
            "the weight changes within",
            vec![("return %6, %1, %2, %15, %16", "return %6, %1, %13, %15, %16")],
            Some("otherwise than"),
        ),
    ] {
        let (all, refused) = found(&changes);
        assert!(all.is_empty(), "{what}: {all:?}");
        match why {
            Some(why) => assert!(refused.iter().any(|r| r.why.contains(why)), "{what}: {refused:?}"),
            None => assert!(refused.is_empty(), "{what}: {refused:?}"),
        }
    }
}

/// Microbatches around loops of layers; only the outer loop is one, and its facts hold after recognition too.
#[test]
fn the_exporters_loop() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/stablehlo");
    for (fixture, want) in
        [("llama_flax_scan_gradaccum_tiny", Some((2, 12, Some(2.0)))), ("llama_flax_scan_remat_tiny", None)]
    {
        let file = root.join(fixture).join("model.mlir");
        let mut module = msc_frontends::read_file(&file).expect("imports").module;
        simplify(&mut module).expect("simplifies");
        let before: Vec<_> = find(&module).0.iter().map(Accumulation::describe).collect();
        let mut templates = template(&mut module).expect("finds templates");
        let report = recognise(&mut module, &mut templates).expect("recognises");
        let after: Vec<_> = find(&module).0.iter().map(Accumulation::describe).collect();
        assert_eq!(before, after, "{fixture}");
        let all = &report.accumulations;
        let facts = all.iter().map(|a| (a.microbatches, a.gradients(), a.divided())).next();
        assert_eq!(facts, want, "{fixture}: {all:?}");
        assert_eq!(all.len(), usize::from(want.is_some()));
        assert_eq!(all.iter().map(|a| a.batched.len()).sum::<usize>(), 2 * all.len(), "{all:?}");
        let sites = report.fusions.get("gradient_accumulation").map_or(0, |f| f.sites);
        assert_eq!(sites, all.len());
    }
}
