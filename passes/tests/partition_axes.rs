//! Layouts change where they must: axes of the sequence and of stored state, axes in parts, what is asked for, and random
//! programs over all of them.

mod common;

use common::{axes, inputs, kinds, split, step};
use msc_ir::module::{AxisId, Sharding};
use msc_ir::testing::Rng;
use msc_ir::{Op, Operation, text};
use msc_passes::partition::given::Given;

/// Attention over a sequence of 4 with 2 heads of 2, in plain ops, from one weight for queries, keys and values.
const ATTENTION: &str = "module @m
graph @main(%0: f32[6,4], %1: f32[6,12], %2: f32[4,6], %3: i32[2,4]) {
  %4 = gather %0, %3 {collapsed_slice_dims = [0], index_vector_dim = 2, offset_dims = [2], operand_batching_dims = [], slice_sizes = [1, 4], start_index_map = [0], start_indices_batching_dims = []} : f32[2,4,4]
  %5 = slice %1 {limit = [4, 12], start = [0, 0], stride = [1, 1]} : f32[4,12]
  %6 = dot_general %4, %5 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,12]
  %7 = slice %6 {limit = [2, 4, 4], start = [0, 0, 0], stride = [1, 1, 1]} : f32[2,4,4]
  %8 = slice %6 {limit = [2, 4, 8], start = [0, 0, 4], stride = [1, 1, 1]} : f32[2,4,4]
  %9 = slice %6 {limit = [2, 4, 12], start = [0, 0, 8], stride = [1, 1, 1]} : f32[2,4,4]
  %10 = reshape %7 {shape = [2, 4, 2, 2]} : f32[2,4,2,2]
  %11 = reshape %8 {shape = [2, 4, 2, 2]} : f32[2,4,2,2]
  %12 = reshape %9 {shape = [2, 4, 2, 2]} : f32[2,4,2,2]
  %13 = dot_general %10, %11 {dtype = f32, lhs_batch = [0, 2], lhs_contract = [3], rhs_batch = [0, 2], rhs_contract = [3]} : f32[2,2,4,4]
  %14 = exponential %13 : f32[2,2,4,4]
  %15 = reduce %14 {dims = [3], monoid = sum} : f32[2,2,4]
  %16 = broadcast_in_dim %15 {dims = [0, 1, 2], shape = [2, 2, 4, 4]} : f32[2,2,4,4]
  %17 = divide %14, %16 : f32[2,2,4,4]
  %18 = dot_general %17, %12 {dtype = f32, lhs_batch = [0, 1], lhs_contract = [3], rhs_batch = [0, 2], rhs_contract = [1]} : f32[2,2,4,2]
  %19 = transpose %18 {permutation = [0, 2, 1, 3]} : f32[2,4,2,2]
  %20 = reshape %19 {shape = [2, 4, 4]} : f32[2,4,4]
  %21 = dot_general %20, %2 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[2,4,6]
  %22 = negate %1 : f32[6,12]
  %23 = negate %2 : f32[4,6]
  return %22, %23, %21
}
entry \"train\" @main {
  param \"table\"
  param \"qkv\" alias 0
  param \"out\" alias 1
  param \"tokens\"
  result \"qkv\"
  result \"out\"
  result \"y\"
}";

#[test]
fn along_the_sequence_attention_is_split_over_heads_or_batch() {
    let m = text::parse(ATTENTION).expect("parses");
    let (_, report) = split(&m, &inputs(&m, 1), &axes(&[("cp", 2)])).expect("splits");
    // Scores meet the sequence twice: queries, keys and values are exchanged, and so is what comes out.
    assert_eq!(kinds(&report), ["all_to_all"; 4], "{report:?}");
    assert_eq!(report.splits.iter().filter(|s| s.parameters == ["tokens[1]"]).count(), 1);
    assert!(
        report.collectives[0].partial_because.contains("cp splits tokens[1]"),
        "{:?}",
        report.collectives[0]
    );
    assert!(report.collectives[0].whole_because.contains("dot_general"), "{:?}", report.collectives[0]);
}

#[test]
fn one_weight_for_queries_keys_and_values_is_split_in_each_of_its_parts() {
    let m = text::parse(ATTENTION).expect("parses");
    let (local, report) = split(&m, &inputs(&m, 2), &axes(&[("tp", 2)])).expect("splits");
    let s = &local.entry().expect("entry").params[1].sharding;
    assert_eq!((s.axes(1), s.parts(1)), (&[AxisId(0)][..], 3), "{report:?}");
    assert_eq!(kinds(&report), ["all_reduce"]);
    // The layout survives printing.
    let again = text::parse(&text::print(&local)).expect("parses");
    assert_eq!(again.entry().expect("entry"), local.entry().expect("entry"));
}

#[test]
fn an_axis_wider_than_what_is_left_is_split_in_parts() {
    let m = text::parse(ATTENTION).expect("parses");
    // Of the batch there are two rows, of the sequence four places.
    let (local, report) = split(&m, &inputs(&m, 3), &axes(&[("dp", 8)])).expect("splits");
    let names: Vec<(&str, usize)> = local.mesh.axes.iter().map(|a| (a.name.as_str(), a.size)).collect();
    assert_eq!(names, [("dp.0", 2), ("dp.1", 4)]);
    let s = &local.entry().expect("entry").params[3].sharding;
    assert_eq!((s.axes(0), s.axes(1)), (&[AxisId(0)][..], &[AxisId(1)][..]), "{report:?}");
    assert!(report.idle.is_empty());
    // What is left over computes the same, and the report says so.
    let (_, report) = split(&m, &inputs(&m, 3), &axes(&[("dp", 16)])).expect("splits");
    assert_eq!(report.idle, [("dp.2".to_string(), 2)]);
}

/// Two weights, their gradients with a norm over both, and an update.
const UPDATE: &str = "module @m
graph @main(%0: f32[4,6], %1: f32[6,4], %2: f32[5,4], %3: i32[8]) {
  %4 = gather %2, %3 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 4], start_index_map = [0], start_indices_batching_dims = []} : f32[8,4]
  %5 = dot_general %4, %0 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[8,6]
  %6 = tanh %5 : f32[8,6]
  %7 = dot_general %6, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[8,4]
  %8 = dot_general %6, %7 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[6,4]
  %9 = dot_general %7, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : f32[8,6]
  %10 = dot_general %4, %9 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[4,6]
  %11 = multiply %8, %8 : f32[6,4]
  %12 = reduce %11 {dims = [0, 1], monoid = sum} : f32[]
  %13 = multiply %10, %10 : f32[4,6]
  %14 = reduce %13 {dims = [0, 1], monoid = sum} : f32[]
  %15 = add %12, %14 : f32[]
  %16 = broadcast_in_dim %15 {dims = [], shape = [4, 6]} : f32[4,6]
  %17 = divide %10, %16 : f32[4,6]
  %18 = subtract %0, %17 : f32[4,6]
  %19 = broadcast_in_dim %15 {dims = [], shape = [6, 4]} : f32[6,4]
  %20 = divide %8, %19 : f32[6,4]
  %21 = subtract %1, %20 : f32[6,4]
  return %18, %21
}
entry \"train\" @main {
  param \"up\" alias 0
  param \"down\" alias 1
  param \"table\"
  param \"tokens\"
  result \"up\"
  result \"down\"
}";

#[test]
fn stored_state_is_gathered_and_its_gradients_are_scattered() {
    let m = text::parse(UPDATE).expect("parses");
    let (local, report) = split(&m, &inputs(&m, 4), &axes(&[("fsdp", 2)])).expect("splits");
    assert_eq!(report.state_bytes * 2, report.state_bytes_unsplit);
    let mut kinds = kinds(&report);
    kinds.sort_unstable();
    // `up` once, `down` forward and backward; both gradients as one; the norm.
    assert_eq!(kinds, ["all_gather", "all_gather", "all_gather", "all_reduce", "reduce_scatter"]);
    let norm = report.collectives.iter().find(|c| c.kind == "all_reduce").expect("the norm");
    assert_eq!(norm.bytes, 4);
    // Nothing of the update is whole.
    let g = local.graph(local.entry().expect("entry").graph);
    for (_, d) in g.ops().filter(|(_, d)| d.op.name() == "subtract") {
        assert_eq!(g.ty(d.results[0]).elements(), 12);
    }
}

#[test]
fn gradients_are_scattered_over_one_axis_and_summed_over_another() {
    let m = text::parse(UPDATE).expect("parses");
    let (_, report) = split(&m, &inputs(&m, 4), &axes(&[("dp", 2), ("fsdp", 2)])).expect("splits");
    let sizes: Vec<(&str, u64)> = report.collectives.iter().map(|c| (c.kind, c.bytes)).collect();
    // Both gradients as one: 48 elements, of which a rank then has half.
    assert!(sizes.contains(&("reduce_scatter", 192)) && sizes.contains(&("all_reduce", 96)), "{sizes:?}");
}

#[test]
fn what_is_asked_for_is_done() {
    let m = text::parse(UPDATE).expect("parses");
    let layout = |dims: &[&[u8]]| Sharding {
        dims: dims.iter().map(|l| l.iter().map(|&a| AxisId(a)).collect()).collect(),
        ..Sharding::default()
    };
    let mut options = axes(&[("x", 2), ("y", 2)]);
    let mut given = Given::default();
    given.set_param(0, layout(&[&[0], &[1]]), []);
    given.set_param(1, layout(&[&[1], &[]]), []);
    given.set_param(3, layout(&[&[0]]), []);
    options.given = given;
    let (local, report) = split(&m, &inputs(&m, 5), &options).expect("splits");
    let params = &local.entry().expect("entry").params;
    assert!(report.not_as_asked.is_empty(), "{report:?}");
    // `y` splits the network between its two weights, `x` the tokens; `up` is stored in shards over `x` beside that.
    assert!(params[0].sharding.same(&layout(&[&[0], &[1]])));
    assert!(params[1].sharding.same(&layout(&[&[1]])));
    assert!(params[3].sharding.same(&layout(&[&[0]])));
    // Five rows over two ranks are padded; what cannot be done, over four, is told.
    options.given.set_param(2, layout(&[&[1], &[]]), []);
    let (_, report) = split(&m, &inputs(&m, 5), &options).expect("splits");
    assert_eq!(report.padded, [("table[0]".to_string(), 5, 6)]);
    assert!(report.not_as_asked.is_empty(), "{report:?}");
    options.given.set_param(2, layout(&[&[1, 0], &[]]), []);
    let (_, report) = split(&m, &inputs(&m, 5), &options).expect("splits");
    assert_eq!(report.not_as_asked, [("table".to_string(), "[y, x] []".to_string())]);
}

/// Sums that do not wait for each other, and one that waits for another.
const SUMS: &str = "module @m
graph @main(%0: f32[3,3], %1: i32[4], %2: f32[4,3]) {
  %3 = dot_general %2, %2 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[3,3]
  %4 = convert %1 {dtype = f32} : f32[4]
  %5 = reduce %4 {dims = [0], monoid = sum} : f32[]
  %6 = tanh %3 : f32[3,3]
  %7 = dot_general %2, %6 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,3]
  %8 = broadcast_in_dim %4 {dims = [0], shape = [4, 3]} : f32[4,3]
  %9 = multiply %7, %8 : f32[4,3]
  %10 = reduce %9 {dims = [0], monoid = sum} : f32[3]
  %11 = add %0, %6 : f32[3,3]
  return %11, %5, %10
}
entry \"train\" @main {
  param \"w\" alias 0
  param \"tokens\"
  param \"x\"
  result \"w\"
  result \"count\"
  result \"y\"
}";

#[test]
fn collectives_are_joined_unless_one_waits_for_another() {
    let m = text::parse(SUMS).expect("parses");
    let (_, report) = split(&m, &inputs(&m, 6), &axes(&[("dp", 2)])).expect("splits");
    let bytes: Vec<u64> = report.collectives.iter().map(|c| c.bytes).collect();
    // The count is there as early as the first; the second waits for a product, and that for the first.
    assert_eq!(bytes, [40, 12], "{report:?}");
    assert!(report.collectives[0].partial_because.ends_with("with 1 more"));
}

#[test]
fn random_programs_give_the_same_in_every_layout() {
    const PROGRAMS: u64 = 1000;
    let layouts: [&[(&str, usize)]; 9] = [
        &[("tp", 2)],
        &[("tp", 4)],
        &[("dp", 2)],
        &[("cp", 2)],
        &[("fsdp", 2)],
        &[("dp", 2), ("tp", 2)],
        &[("fsdp", 2), ("cp", 2), ("tp", 2)],
        &[("dp", 3), ("ep", 2)],
        &[("dp", 2), ("fsdp", 2)],
    ];
    let (mut done, mut padded) = ([0usize; 9], 0);
    for seed in 0..PROGRAMS {
        let (m, inputs) = step(&mut Rng::new(seed));
        for (l, layout) in layouts.iter().enumerate() {
            match split(&m, &inputs, &axes(layout)) {
                Ok((_, report)) => {
                    done[l] += 1;
                    padded += report.padded.len();
                }
                Err(e) if e.starts_with("refused") => {}
                Err(e) => panic!("seed {seed}, {layout:?}: {e}\n{}", text::print(&m)),
            }
        }
    }
    println!("{done:?} of {PROGRAMS}, {padded} paddings");
    // Few use an input of integers in a way that can be split over several axes.
    assert!(done.iter().all(|&n| n >= PROGRAMS as usize / 100), "{done:?}");
}

#[test]
fn programs_of_ops_that_need_all_of_a_sequence_are_set_apart() {
    // A reverse along the sequence cannot be split, what is around it can.
    let source = ATTENTION.replace(
        "return %22, %23, %21",
        "%24 = reverse %21 {dims = [1]} : f32[2,4,6]\n  return %22, %23, %24",
    );
    let m = text::parse(&source).expect("parses");
    let (local, _) = split(&m, &inputs(&m, 7), &axes(&[("cp", 4)])).expect("splits");
    let g = local.graph(local.entry().expect("entry").graph);
    assert!(!g.ops().any(|(_, d)| matches!(d.op, Op::Reshard(_))), "layout changes are lowered");
}

/// Microbatches: a sum of gradients, a stack of them, and one more that begins with something.
const LOOP: &str = "module @m
graph @cond(%0: i32[], %1: f32[3,3], %2: f32[2,3,3], %3: f32[3,3], %4: f32[4,3], %5: i32[4]) {
  %6 = constant {value = splat i32[] 2} : i32[]
  %7 = compare %0, %6 {direction = LT} : i1[]
  return %7
}
graph @body(%0: i32[], %1: f32[3,3], %2: f32[2,3,3], %3: f32[3,3], %4: f32[4,3], %5: i32[4]) {
  %6 = convert %5 {dtype = f32} : f32[4]
  %7 = broadcast_in_dim %6 {dims = [0], shape = [4, 3]} : f32[4,3]
  %8 = multiply %4, %7 : f32[4,3]
  %9 = dot_general %8, %4 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[3,3]
  %10 = add %1, %9 : f32[3,3]
  %11 = dot_general %8, %8 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[3,3]
  %12 = reshape %11 {shape = [1, 3, 3]} : f32[1,3,3]
  %13 = constant {value = splat i32[] 0} : i32[]
  %14 = dynamic_update_slice %2, %12, %0, %13, %13 : f32[2,3,3]
  %15 = dot_general %4, %4 {dtype = f32, lhs_batch = [], lhs_contract = [0], rhs_batch = [], rhs_contract = [0]} : f32[3,3]
  %16 = add %3, %15 : f32[3,3]
  %17 = constant {value = splat i32[] 1} : i32[]
  %18 = add %0, %17 : i32[]
  return %18, %10, %14, %16, %4, %5
}
graph @main(%0: f32[3,3], %1: i32[4], %2: f32[4,3]) {
  %3 = constant {value = splat i32[] 0} : i32[]
  %4 = constant {value = splat f32[3,3] 0.0} : f32[3,3]
  %5 = constant {value = splat f32[2,3,3] 0.0} : f32[2,3,3]
  %6, %7, %8, %9, %10, %11 = while %3, %4, %5, %0, %2, %1 {body = @body, cond = @cond} : i32[], f32[3,3], f32[2,3,3], f32[3,3], f32[4,3], i32[4]
  %12 = subtract %0, %7 : f32[3,3]
  %13 = subtract %12, %9 : f32[3,3]
  return %13, %8
}
entry \"train\" @main {
  param \"w\" alias 0
  param \"tokens\"
  param \"x\"
  result \"w\"
  result \"stack\"
}";

#[test]
fn sums_that_a_loop_carries_are_combined_behind_it() {
    let m = text::parse(LOOP).expect("parses");
    let (_, report) = split(&m, &inputs(&m, 9), &axes(&[("dp", 2)])).expect("splits");
    let found: Vec<(&str, u64)> = report.collectives.iter().map(|c| (c.graph.as_str(), c.bytes)).collect();
    // What begins with a weight is no sum of the ranks'; the others are one of 3·3 and 2·3·3 elements.
    assert_eq!(found, [("body", 36), ("main", 108)], "{report:?}");
    let (_, report) = split(&m, &inputs(&m, 9), &axes(&[("dp", 2), ("cp", 2)])).expect("splits");
    assert!(report.collectives.iter().all(|c| c.graph != "body" || c.bytes == 36), "{report:?}");
}
