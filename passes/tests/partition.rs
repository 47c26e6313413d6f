//! Partitioning keeps the numbers, finds the splits one would choose by hand, and says why it communicates.

use msc_ir::interp::{Mode, run, run_ranks};
use msc_ir::{Module, Op, Tensor, text};
mod common;

use common::{LOSS, MLP, block, mesh, wanted};
use msc_passes::partition::{Options, Report, partition};
use msc_passes::recognise::recognise_graph;

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
    let rows: Vec<Vec<Tensor>> = (0..local.mesh.ranks())
        .map(|r| {
            let types = local.graph(entry.graph).param_types();
            let blocks = whole.iter().zip(&entry.params).zip(&types);
            blocks.map(|((t, p), ty)| block(&local.mesh, t, &p.sharding, r, ty)).collect()
        })
        .collect();
    let got = run_ranks(&local, entry.graph, &rows, Mode::Wide).expect("runs on all ranks");
    for (r, row) in got.iter().enumerate() {
        for ((g, w), info) in row.iter().zip(&want).zip(&entry.results) {
            let w = wanted(&local.mesh, w, &info.sharding, r, g);
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

/// A learned table of positions beside one of tokens: the lookup meets the rows of both.
const POSITIONS: &str = "module @m
graph @main(%0: f32[10,3], %1: f32[4,3], %2: i32[4]) {
  %3 = gather %0, %2 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [1], operand_batching_dims = [], slice_sizes = [1, 3], start_index_map = [0], start_indices_batching_dims = []} : f32[4,3]
  %4 = add %3, %1 : f32[4,3]
  %5 = negate %0 : f32[10,3]
  return %5, %4
}
entry \"train\" @main {
  param \"tokens.weight\" alias 0
  param \"positions.weight\" alias 1
  param \"tokens\"
  result \"tokens.weight\"
  result \"positions.weight\"
}";

#[test]
fn rows_of_a_table_and_of_its_indices_are_not_split_together() {
    let m = text::parse(POSITIONS).expect("parses");
    let (_, report) = check(&m, &[("tp", 2)]);
    assert_eq!(report.splits.len(), 1, "{:?}", report.splits);
    assert_eq!(report.splits[0].parameters, ["tokens.weight[0]"]);
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_the_sizes() {
    let mut m = text::parse(MLP).expect("parses");
    let e = partition(&mut m, &Options { mesh: mesh(&[("tp", 7)]), ..Options::default() })
        .expect_err("7 divides nothing");
    assert!(e.to_string().contains("MSC-C0001") && e.to_string().contains("10"), "{e}");
}

/// An embedding, a loss and their gradients as named ops: with the vocabulary split they are plain ops with collectives
/// between them, with the batch split they stay what they are.
#[test]
fn lookups_split_by_vocabulary_and_by_batch() {
    let mut m = text::parse(LOSS).expect("parses");
    let before = m.clone();
    let entry = m.entry().expect("entry").graph;
    let found = recognise_graph(&mut m, entry).expect("recognises");
    let named = |m: &Module| {
        let g = m.graph(m.entry().expect("entry").graph);
        let mut names: Vec<&str> = g
            .ops()
            .filter_map(|(_, d)| if let Op::Fused(f) = &d.op { Some(f.kind.name()) } else { None })
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    let all = "cross_entropy cross_entropy_grad embedding embedding_grad";
    assert_eq!(named(&m), all, "{:?}", found.regions[0].refused);
    let (local, report) = check(&m, &[("tp", 2)]);
    assert_eq!(report.splits[0].parameters, ["embed[0]"]);
    assert_eq!(named(&local), "");
    // As many bytes cross as without named ops.
    let bytes = |r: &Report| r.collectives.iter().map(|c| c.bytes).sum::<u64>();
    let plain = check(&before, &[("tp", 2)]).1;
    assert_eq!(bytes(&report), bytes(&plain));
    let (local, report) = check(&m, &[("dp", 2)]);
    assert_eq!(report.splits[0].parameters, ["tokens[0]", "labels[0]"]);
    assert_eq!(named(&local), all);
    check(&m, &[("dp", 2), ("tp", 2)]);
}
