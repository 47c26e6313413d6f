//! Partitioning keeps the numbers, finds the splits one would choose by hand, and says why it communicates.

use msc_ir::interp::{Mode, run, run_ranks};
use msc_ir::module::{Mesh, MeshAxis};
use msc_ir::{Module, Tensor, text};
use msc_passes::partition::{Options, Report, partition};

/// A vocabulary-parallel embedding, a two-layer network whose weights are updated, and a mean over the batch.
const MLP: &str = r#"module @mlp

graph @layer(%0: f32[4,6], %1: f32[6,8], %2: f32[8,6]) {
  %3 = dot_general %0, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,8]
  %4 = tanh %3 : f32[4,8]
  %5 = dot_general %4, %2 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,6]
  %6 = add %0, %5 : f32[4,6]
  return %6
}

graph @main(%0: f32[10,6], %1: f32[6,8], %2: f32[8,6], %3: f32[6,8], %4: f32[8,6], %5: i32[4]) {
  %6 = gather %0, %5 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 6], start_index_map = [0], start_indices_batching_dims = []} : f32[4,6]
  %7 = multiply %6, %6 : f32[4,6]
  %8 = reduce %7 {dims = [1], monoid = sum} : f32[4]
  %9 = rsqrt %8 : f32[4]
  %10 = broadcast_in_dim %9 {dims = [0], shape = [4, 6]} : f32[4,6]
  %11 = multiply %6, %10 : f32[4,6]
  %12 = call %11, %1, %2 {graph = @layer} : f32[4,6]
  %13 = call %12, %3, %4 {graph = @layer} : f32[4,6]
  %14 = slice %13 {limit = [4, 5], start = [0, 0], stride = [1, 1]} : f32[4,5]
  %15 = reduce %14 {dims = [0, 1], monoid = sum} : f32[]
  %16 = negate %1 : f32[6,8]
  %17 = negate %2 : f32[8,6]
  %18 = multiply %1, %1 : f32[6,8]
  %19 = reduce %18 {dims = [0, 1], monoid = sum} : f32[]
  %20 = multiply %0, %0 : f32[10,6]
  %21 = reduce %20 {dims = [0, 1], monoid = sum} : f32[]
  %22 = add %19, %15 : f32[]
  %23 = add %22, %21 : f32[]
  return %0, %16, %17, %3, %4, %23
}

entry "train" @main {
  param "embed" alias 0
  param "up.0" alias 1
  param "down.0" alias 2
  param "up.1" alias 3
  param "down.1" alias 4
  param "tokens"
  result "embed"
  result "up.0"
  result "down.0"
  result "up.1"
  result "down.1"
  result "loss"
}
"#;

fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh { axes: axes.iter().map(|&(n, size)| MeshAxis { name: n.into(), size }).collect() }
}

fn inputs(m: &Module) -> Vec<Tensor> {
    let mut seed = 1u64;
    let g = m.graph(m.entry().expect("entry").graph);
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 40) as f64 / (1u64 << 24) as f64
    };
    g.params()
        .iter()
        .map(|&v| {
            let t = g.ty(v);
            let values: Vec<f64> = if t.dtype.is_int() {
                // Indices at the borders and beyond the table: they clamp.
                vec![0.0, 9.0, 12.0, 4.0]
            } else {
                (0..t.elements()).map(|_| next() - 0.5).collect()
            };
            Tensor::from_f64s(t, &values)
        })
        .collect()
}

/// A rank's blocks of the inputs, and the check of its results against the blocks of the whole results.
fn check(global: &Module, axes: &[(&str, usize)]) -> (Module, Report) {
    let mut local = global.clone();
    let report =
        partition(&mut local, &Options { mesh: mesh(axes), ..Options::default() }).expect("partitions");
    msc_ir::verify::verify(&local).expect("verifies");
    let whole = inputs(global);
    let want = run(global, global.entry().expect("entry").graph, &whole, Mode::Wide).expect("runs");
    let entry = local.entry().expect("entry");
    let block = |t: &Tensor, s: &msc_ir::module::Sharding, rank: usize| {
        let mut start = vec![0; t.shape.len()];
        let mut size = t.shape.to_vec();
        for (d, axes) in s.dims.iter().enumerate() {
            for &a in axes {
                size[d] /= local.mesh.size(a);
                start[d] += local.mesh.coordinate(rank, a) * size[d];
            }
        }
        t.block(&start, &size)
    };
    let rows: Vec<Vec<Tensor>> = (0..local.mesh.ranks())
        .map(|r| whole.iter().zip(&entry.params).map(|(t, p)| block(t, &p.sharding, r)).collect())
        .collect();
    let got = run_ranks(&local, entry.graph, &rows, Mode::Wide).expect("runs on all ranks");
    for (r, row) in got.iter().enumerate() {
        for ((g, w), info) in row.iter().zip(&want).zip(&entry.results) {
            let w = block(w, &info.sharding, r);
            assert_eq!(g.shape, w.shape, "{}", info.name);
            for (a, b) in g.data.to_f64s().iter().zip(w.data.to_f64s()) {
                assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "rank {r}, {}: {a} for {b}", info.name);
            }
        }
    }
    (local, report)
}

#[test]
fn tensor_parallel_splits_hidden_and_vocabulary() {
    let m = text::parse(MLP).expect("parses");
    let (local, report) = check(&m, &[("tp", 2)]);
    let names: Vec<String> = report.splits.iter().map(|s| s.parameters.join(" ")).collect();
    assert_eq!(names, ["embed[0]", "up.0[1] down.0[0] up.1[1] down.1[0]"]);
    let list: Vec<(String, usize)> =
        report.collectives.iter().map(|c| (c.graph.clone(), c.executed)).collect();
    // One for each layer's second product, one for the embedding, one for both sums of squares.
    assert_eq!(list, [("layer".into(), 2), ("main".into(), 1), ("main".into(), 1)]);
    assert_eq!(report.state_bytes * 2, report.state_bytes_unsplit);
    assert!(report.collectives[0].partial_because.contains("up.0[1]"), "{:?}", report.collectives[0]);
    assert!(report.collectives[0].whole_because.contains("add"), "{:?}", report.collectives[0]);
    insta::assert_snapshot!(text::print(&local));
}

#[test]
fn data_parallel_splits_the_batch() {
    let m = text::parse(MLP).expect("parses");
    let (_, report) = check(&m, &[("dp", 2)]);
    assert_eq!(report.splits[0].parameters, ["tokens[0]"]);
    assert_eq!(report.state_bytes, report.state_bytes_unsplit);
    check(&m, &[("dp", 2), ("tp", 2)]);
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_the_sizes() {
    let mut m = text::parse(MLP).expect("parses");
    let e = partition(&mut m, &Options { mesh: mesh(&[("tp", 7)]), ..Options::default() })
        .expect_err("7 divides nothing");
    assert!(e.to_string().contains("MSC-C0001") && e.to_string().contains("10"), "{e}");
}
