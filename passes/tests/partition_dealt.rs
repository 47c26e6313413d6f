//! `ep` where the experts' weights are one tensor: tokens that are dealt to experts are exchanged, tokens that every expert
//! gets are gathered.

mod common;

use common::{axes, inputs, kinds, split};
use msc_ir::{Module, text};

/// The choice of one of four experts, as a named op.
const ROUTE: &str = "graph @descending(%0: f32[], %1: f32[], %2: i32[], %3: i32[]) {
  %4 = compare %0, %1 {direction = GT, total_order = true} : i1[]
  return %4
}
graph @route(%0: f32[4,2,4]) {
  %1 = iota {dim = 2, dtype = i32, shape = [4, 2, 4]} : i32[4,2,4]
  %2, %3 = sort %0, %1 {comparator = @descending, dim = 2, stable = true} : f32[4,2,4], i32[4,2,4]
  %4 = slice %2 {limit = [4, 2, 1], start = [0, 0, 0], stride = [1, 1, 1]} : f32[4,2,1]
  %5 = slice %3 {limit = [4, 2, 1], start = [0, 0, 0], stride = [1, 1, 1]} : i32[4,2,1]
  return %4, %5
}
";

/// Scores, the chosen experts as one-hot rows `%16`, their weights as `%17`.
const CHOICE: &str = "  %5 = gather %0, %4 {collapsed_slice_dims = [0], index_vector_dim = 2, offset_dims = [2], operand_batching_dims = [], slice_sizes = [1, 6], start_index_map = [0], start_indices_batching_dims = []} : f32[4,2,6]
  %6 = dot_general %5, %1 {dtype = f32, lhs_batch = [], lhs_contract = [2], rhs_batch = [], rhs_contract = [0]} : f32[4,2,4]
  %7, %8 = moe_route %6 {chosen = 1, definition = @route, shares = false} : f32[4,2,1], i32[4,2,1]
  %9 = reshape %8 {shape = [4, 2]} : i32[4,2]
  %10 = broadcast_in_dim %9 {dims = [0, 1], shape = [4, 2, 4]} : i32[4,2,4]
  %11 = iota {dim = 2, dtype = i32, shape = [4, 2, 4]} : i32[4,2,4]
  %12 = compare %10, %11 {direction = EQ} : i1[4,2,4]
  %13 = convert %12 {dtype = f32} : f32[4,2,4]
  %14 = reshape %7 {shape = [4, 2]} : f32[4,2]
  %15 = broadcast_in_dim %14 {dims = [0, 1], shape = [4, 2, 4]} : f32[4,2,4]
  %16 = multiply %13, %13 : f32[4,2,4]
  %17 = multiply %13, %15 : f32[4,2,4]
";

const ENTRY: &str = "entry \"train\" @main {
  param \"table\" alias 0
  param \"gate\" alias 1
  param \"up\" alias 2
  param \"down\" alias 3
  param \"tokens\"
  result \"table\"
  result \"gate\"
  result \"up\"
  result \"down\"
  result \"y\"
}
";

fn module(body: &str) -> Module {
    let head = "graph @main(%0: f32[7,6], %1: f32[6,4], %2: f32[4,6,8], %3: f32[4,8,6], %4: i32[4,2]) {\n";
    let source = format!("module @m\n{ROUTE}{head}{CHOICE}{body}}}\n{ENTRY}");
    text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

/// Two places of each expert for each row of the batch; forward, and the gradients of the experts' weights.
const CAPACITY: &str = "  %18 = iota {dim = 3, dtype = i32, shape = [4, 2, 4, 2]} : i32[4,2,4,2]
  %19 = iota {dim = 1, dtype = i32, shape = [4, 2, 4, 2]} : i32[4,2,4,2]
  %20 = compare %18, %19 {direction = EQ} : i1[4,2,4,2]
  %21 = convert %20 {dtype = f32} : f32[4,2,4,2]
  %22 = broadcast_in_dim %16 {dims = [0, 1, 2], shape = [4, 2, 4, 2]} : f32[4,2,4,2]
  %23 = multiply %22, %21 : f32[4,2,4,2]
  %24 = broadcast_in_dim %17 {dims = [0, 1, 2], shape = [4, 2, 4, 2]} : f32[4,2,4,2]
  %25 = multiply %24, %21 : f32[4,2,4,2]
  %26 = dot_general %23, %5 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,4,2,6]
  %27 = transpose %26 {permutation = [1, 0, 2, 3]} : f32[4,4,2,6]
  %28 = dot_general %27, %2 {dtype = f32, lhs_batch = [0], lhs_contract = [3], rhs_batch = [0], rhs_contract = [1]} : f32[4,4,2,8]
  %29 = tanh %28 : f32[4,4,2,8]
  %30 = dot_general %29, %3 {dtype = f32, lhs_batch = [0], lhs_contract = [3], rhs_batch = [0], rhs_contract = [1]} : f32[4,4,2,6]
  %31 = dot_general %25, %30 {dtype = f32, lhs_batch = [0], lhs_contract = [2, 3], rhs_batch = [1], rhs_contract = [0, 2]} : f32[4,2,6]
  %32 = add %5, %31 : f32[4,2,6]
  %33 = tanh %32 : f32[4,2,6]
  %34 = dot_general %33, %25 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,6,4,2]
  %35 = transpose %34 {permutation = [2, 0, 3, 1]} : f32[4,4,2,6]
  %36 = dot_general %29, %35 {dtype = f32, lhs_batch = [0], lhs_contract = [1, 2], rhs_batch = [0], rhs_contract = [1, 2]} : f32[4,8,6]
  %37 = dot_general %35, %3 {dtype = f32, lhs_batch = [0], lhs_contract = [3], rhs_batch = [0], rhs_contract = [2]} : f32[4,4,2,8]
  %38 = dot_general %27, %37 {dtype = f32, lhs_batch = [0], lhs_contract = [1, 2], rhs_batch = [0], rhs_contract = [1, 2]} : f32[4,6,8]
  %39 = dot_general %5, %6 {dtype = f32, lhs_batch = [], lhs_contract = [0, 1], rhs_batch = [], rhs_contract = [0, 1]} : f32[6,4]
  %40 = subtract %1, %39 : f32[6,4]
  %41 = subtract %2, %38 : f32[4,6,8]
  %42 = subtract %3, %36 : f32[4,8,6]
  return %0, %40, %41, %42, %32
";

/// Every expert works on every token.
const DENSE: &str = "  %18 = reshape %5 {shape = [8, 6]} : f32[8,6]
  %19 = broadcast_in_dim %18 {dims = [1, 2], shape = [4, 8, 6]} : f32[4,8,6]
  %20 = dot_general %19, %2 {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : f32[4,8,8]
  %21 = tanh %20 : f32[4,8,8]
  %22 = dot_general %21, %3 {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [1]} : f32[4,8,6]
  %23 = reshape %17 {shape = [8, 4]} : f32[8,4]
  %24 = transpose %23 {permutation = [1, 0]} : f32[4,8]
  %25 = broadcast_in_dim %24 {dims = [0, 1], shape = [4, 8, 6]} : f32[4,8,6]
  %26 = multiply %22, %25 : f32[4,8,6]
  %27 = reduce %26 {dims = [0], monoid = sum} : f32[8,6]
  %28 = add %18, %27 : f32[8,6]
  %29 = broadcast_in_dim %28 {dims = [1, 2], shape = [4, 8, 6]} : f32[4,8,6]
  %30 = multiply %29, %25 : f32[4,8,6]
  %31 = dot_general %21, %30 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,8,6]
  %32 = subtract %3, %31 : f32[4,8,6]
  %33 = dot_general %30, %3 {dtype = f32, lhs_batch = [0], lhs_contract = [2], rhs_batch = [0], rhs_contract = [2]} : f32[4,8,8]
  %34 = dot_general %19, %33 {dtype = f32, lhs_batch = [0], lhs_contract = [1], rhs_batch = [0], rhs_contract = [1]} : f32[4,6,8]
  %35 = subtract %2, %34 : f32[4,6,8]
  %36 = reshape %28 {shape = [4, 2, 6]} : f32[4,2,6]
  return %0, %1, %35, %32, %36
";

const LAYOUTS: [&[(&str, usize)]; 6] = [
    &[("ep", 2)],
    &[("ep", 4)],
    &[("dp", 2), ("ep", 2)],
    &[("ep", 2), ("tp", 2)],
    &[("fsdp", 2), ("ep", 2)],
    &[("ep", 2), ("cp", 2)],
];

/// Shapes of the experts' weights on a rank.
fn held(m: &Module) -> Vec<Vec<usize>> {
    let g = m.graph(m.entry().expect("entry").graph);
    g.params()[2..4].iter().map(|&v| g.ty(v).shape.to_vec()).collect()
}

#[test]
fn tokens_that_are_dealt_to_experts_are_exchanged() {
    let m = module(CAPACITY);
    let (local, report) = split(&m, &inputs(&m, 1), &axes(&[("ep", 2)])).expect("splits");
    assert_eq!(held(&local), [[2, 6, 8], [2, 8, 6]]);
    // To the experts and back, and the gradient of what comes back; the router's own gradient is summed.
    assert_eq!(kinds(&report), ["all_to_all", "all_to_all", "all_to_all", "all_reduce"], "{report:#?}");
    assert!(report.collectives[0].whole_because.contains("works for a part of the experts"), "{report:#?}");
}

#[test]
fn tokens_that_every_expert_gets_are_gathered_and_their_sum_is_scattered() {
    let m = module(DENSE);
    let (local, report) = split(&m, &inputs(&m, 2), &axes(&[("ep", 2)])).expect("splits");
    assert_eq!(held(&local), [[2, 6, 8], [2, 8, 6]]);
    let kinds = kinds(&report);
    let count = |kind: &str| kinds.iter().filter(|k| **k == kind).count();
    assert_eq!((count("reduce_scatter"), count("all_reduce")), (1, 0), "{report:#?}");
    // Tokens are gathered; only their weights, of one element each, may be exchanged.
    let exchanged = report.collectives.iter().filter(|c| c.kind == "all_to_all").map(|c| c.bytes).max();
    assert!(exchanged.unwrap_or(0) <= 64 && count("all_gather") >= 2, "{report:#?}");
}

#[test]
fn experts_of_one_tensor_give_the_same_in_every_layout() {
    for body in [CAPACITY, DENSE] {
        for layout in LAYOUTS {
            let m = module(body);
            let (local, _) =
                split(&m, &inputs(&m, 3), &axes(layout)).unwrap_or_else(|e| panic!("{layout:?}: {e}"));
            // What `fsdp` stores in shards are experts too.
            let ranks: usize = layout.iter().filter(|a| a.0 == "ep" || a.0 == "fsdp").map(|a| a.1).product();
            assert!(held(&local).iter().all(|s| s[0] == 4 / ranks), "{layout:?}: {:?}", held(&local));
        }
    }
}
