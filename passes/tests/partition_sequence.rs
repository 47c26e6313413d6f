//! Along an axis that splits state, the sequence is split between its products: the same numbers, sums scattered and gathered.

mod common;

use common::{axes, inputs, kinds, split};
use msc_ir::module::AxisId;
use msc_ir::{Module, text};
use msc_passes::partition::{Options, Report, SequenceParallel};

/// An embedding, two layers of a norm, two products, a residual and the gradient of the norm's scale, and a head.
const MODEL: &str = "module @m
graph @layer(%0: f32[2,4,5], %1: f32[5,16], %2: f32[5,16], %3: f32[16,5], %4: f32[5]) {
  %5 = multiply %0, %0 : f32[2,4,5]
  %6 = reduce %5 {dims = [2], monoid = sum} : f32[2,4]
  %7 = rsqrt %6 : f32[2,4]
  %8 = broadcast_in_dim %7 {dims = [0, 1], shape = [2, 4, 5]} : f32[2,4,5]
  %9 = multiply %0, %8 : f32[2,4,5]
  %10 = broadcast_in_dim %4 {dims = [2], shape = [2, 4, 5]} : f32[2,4,5]
  %11 = multiply %9, %10 : f32[2,4,5]
  %12 = dot_general %11, %1 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,16]
  %13 = dot_general %11, %2 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,16]
  %14 = tanh %12 : f32[2,4,16]
  %15 = dot_general %14, %3 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,5]
  %16 = dot_general %13, %3 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,5]
  %17 = add %15, %16 : f32[2,4,5]
  %18 = add %0, %17 : f32[2,4,5]
  %19 = multiply %9, %17 : f32[2,4,5]
  %20 = reduce %19 {dims = [0, 1], monoid = sum} : f32[5]
  return %18, %20
}
graph @main(%0: f32[24,5], %1: f32[5,16], %2: f32[5,16], %3: f32[16,5], %4: f32[5], %5: i32[2,4]) {
  %6 = gather %0, %5 {collapsed_slice_dims = [0], index_vector_dim = 2, offset_dims = [2], operand_batching_dims = [], slice_sizes = [1, 5], start_index_map = [0], start_indices_batching_dims = []} : f32[2,4,5]
  %7, %8 = call %6, %1, %2, %3, %4 {graph = @layer} : f32[2,4,5], f32[5]
  %9, %10 = call %7, %1, %2, %3, %4 {graph = @layer} : f32[2,4,5], f32[5]
  %11 = dot_general %9, %0 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [1]} : f32[2,4,24]
  %12 = reduce %11 {dims = [2], monoid = max} : f32[2,4]
  %13 = exponential %12 : f32[2,4]
  %14 = broadcast_in_dim %13 {dims = [0, 1], shape = [2, 4, 24]} : f32[2,4,24]
  %15 = divide %11, %14 : f32[2,4,24]
  %16 = reduce %15 {dims = [0, 1, 2], monoid = sum} : f32[]
  %17 = add %8, %10 : f32[5]
  %18 = negate %1 : f32[5,16]
  %19 = negate %2 : f32[5,16]
  %20 = negate %3 : f32[16,5]
  %21 = negate %0 : f32[24,5]
  return %21, %18, %19, %20, %17, %16
}
entry \"train\" @main {
  param \"embed\" alias 0
  param \"up\" alias 1
  param \"gate\" alias 2
  param \"down\" alias 3
  param \"scale\" alias 4
  param \"tokens\"
  result \"embed\"
  result \"up\"
  result \"gate\"
  result \"down\"
  result \"scale\"
  result \"loss\"
}";

fn with(choice: SequenceParallel, list: &[(&str, usize)]) -> (Module, Report) {
    let m = text::parse(MODEL).expect("parses");
    let options = Options { sequence: choice, ..axes(list) };
    split(&m, &inputs(&m, 5), &options).unwrap_or_else(|e| panic!("{choice:?}, {list:?}: {e}"))
}

/// Bytes of the stream.
const STREAM: u64 = 2 * 4 * 5 * 4;

#[test]
fn sums_are_scattered_and_gathered() {
    let (_, off) = with(SequenceParallel::Off, &[("tp", 2)]);
    assert!(off.sequence.is_none() && kinds(&off).iter().all(|k| *k == "all_reduce"), "{off:?}");
    let (local, on) = with(SequenceParallel::On, &[("tp", 2)]);
    let found = on.sequence.as_ref().expect("looked for");
    assert!(found.taken && found.with_ps.is_some(), "{found:?}");
    let moved = |r: &Report, kind: &str| -> Vec<(String, u64)> {
        let of = r.collectives.iter().filter(|c| c.kind == kind && c.bytes * 4 > STREAM);
        of.map(|c| (c.graph.clone(), c.bytes)).collect()
    };
    let layer = |bytes: u64| ("layer".to_string(), bytes);
    let main = |bytes: u64| ("main".to_string(), bytes);
    // The two products' sums are one.
    assert_eq!(moved(&on, "reduce_scatter"), [layer(STREAM), main(STREAM)], "{on:?}");
    assert_eq!(moved(&on, "all_gather"), [layer(STREAM / 2), main(STREAM / 2)], "{on:?}");
    assert!(moved(&on, "all_reduce").is_empty(), "{on:?}");
    // The loss's row maxima, and what the scale's gradient sums over rows.
    let small: Vec<u64> = on.collectives.iter().filter(|c| c.kind == "all_reduce").map(|c| c.bytes).collect();
    assert_eq!(small.len(), kinds(&on).len() - 4, "{on:?}");
    let facts = on.collectives.iter().filter(|c| c.kind == "all_gather");
    for c in facts {
        assert!(c.whole_because.contains("works for a part of the state"), "{c:?}");
        assert!(c.partial_because.contains("tp splits tokens[1] between products"), "{c:?}");
    }
    // Nothing of the outside is split along the sequence.
    let entry = local.entry().expect("entry");
    assert!(entry.params[5].sharding.dims.iter().flatten().all(|a| *a != AxisId(0)));
    assert_eq!(on.state_bytes, off.state_bytes);
}

#[test]
fn it_goes_with_other_axes() {
    for list in [
        &[("dp", 2), ("tp", 2)][..],
        &[("fsdp", 2), ("tp", 2)],
        &[("dp", 2), ("tp", 4)],
        &[("ep", 2), ("tp", 2)],
        &[("dp", 3), ("tp", 2)],
    ] {
        let (_, r) = with(SequenceParallel::On, list);
        assert!(r.sequence.as_ref().is_some_and(|s| s.taken), "{list:?}: {:?}", r.sequence);
        assert!(kinds(&r).contains(&"reduce_scatter"), "{list:?}");
    }
    // An axis that has the sequence already leaves none.
    for list in [&[("cp", 2), ("tp", 2)][..], &[("dp", 4), ("tp", 2)]] {
        let (_, r) = with(SequenceParallel::On, list);
        assert!(r.sequence.as_ref().is_some_and(|s| !s.taken && s.with_ps.is_none()), "{:?}", r.sequence);
    }
}

#[test]
fn the_prediction_decides() {
    let (_, r) = with(SequenceParallel::Auto, &[("tp", 2)]);
    let s = r.sequence.expect("looked for");
    assert_eq!(s.taken, s.with_ps.is_some_and(|with| with <= s.without_ps + s.without_ps / 64), "{s:?}");
    for s in SequenceParallel::ALL {
        assert_eq!(s.name().parse(), Ok(s));
    }
    assert!("maybe".parse::<SequenceParallel>().is_err());
}
