//! Solved graphs, by splitting: random graphs, each atom that may be split cut into two or three shards.

use msc_ir::factor::FactorKind;
use msc_ir::factor::solve::{AtomId, Atoms};
use msc_ir::graph::ValueId;
use msc_ir::ops::call::Call;
use msc_ir::testing::layout::check_atom;
use msc_ir::testing::split::{check, pieces, rule_of};
use msc_ir::testing::{Rng, graphs};
use msc_ir::{GraphId, Module, Op, Tensor, text};

/// Random graphs per test.
const GRAPHS: u64 = 400;

fn random(seed: u64) -> (Module, GraphId, Vec<Tensor>, Rng) {
    let mut r = Rng::new(seed);
    let (m, g) = graphs::module(&mut r).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let inputs = graphs::inputs(&mut r, &m.graph(g).param_types());
    (m, g, inputs, r)
}

/// The atoms that the values of scope 0 have and that may be split.
fn splittable(m: &Module, g: GraphId, atoms: &Atoms) -> Vec<AtomId> {
    let values = (0..m.graph(g).value_count() as u32).map(ValueId);
    let mut out: Vec<AtomId> =
        values.flat_map(|v| (0..m.graph(g).ty(v).rank()).flat_map(move |d| atoms.dim(v, d))).collect();
    out.sort();
    out.dedup();
    out.retain(|&a| !atoms.is_whole(a));
    out
}

/// Splits every atom; returns how many splits were checked.
fn split_all(m: &Module, g: GraphId, atoms: &Atoms, inputs: &[Tensor], r: &mut Rng) -> Result<usize, String> {
    let mut n = 0;
    for a in splittable(m, g, atoms) {
        let (size, parts) = (atoms.size(a), r.pick(&[2, 3]));
        let first = r.below(1, size);
        let Some(p) = pieces(size, parts, first) else { continue };
        check_atom(m, g, atoms, (a, &p), inputs)
            .map_err(|e| format!("atom {a:?} of size {size} cut into {p:?}: {e}\n{}", text::print(m)))?;
        n += 1;
    }
    Ok(n)
}

#[test]
fn atoms_of_a_graph_split() {
    let mut n = 0;
    for seed in 0..GRAPHS {
        let (m, g, inputs, mut r) = random(seed);
        let atoms = Atoms::solve(&m, m.graph(g));
        n += split_all(&m, g, &atoms, &inputs, &mut r).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(n as u64 > GRAPHS, "only {n} splits");
}

#[test]
fn atoms_of_a_graph_and_those_it_calls_split() {
    let mut n = 0;
    for seed in 0..GRAPHS {
        let (m, g, inputs, mut r) = random(seed);
        let atoms = Atoms::solve_calls(&m, g);
        n += split_all(&m, g, &atoms, &inputs, &mut r).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(n as u64 > GRAPHS / 2, "only {n} splits");
}

#[test]
fn tied_values_are_laid_out_alike_and_split() {
    let (mut n, mut tied) = (0, 0);
    for seed in 0..GRAPHS {
        let (m, g, inputs, mut r) = random(seed);
        let graph = m.graph(g);
        let mut pairs = Vec::new();
        for &p in graph.params() {
            let fit: Vec<ValueId> =
                graph.results().iter().copied().filter(|&v| graph.ty(v) == graph.ty(p)).collect();
            if !fit.is_empty() {
                pairs.push((p, r.pick(&fit)));
            }
        }
        let mut atoms = Atoms::solve_calls(&m, g);
        atoms.tie(0, pairs.iter().copied());
        for &(a, b) in &pairs {
            for d in 0..graph.ty(a).rank() {
                assert_eq!(atoms.dim(a, d), atoms.dim(b, d), "seed {seed}");
            }
        }
        tied += pairs.len();
        n += split_all(&m, g, &atoms, &inputs, &mut r).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(tied as u64 > GRAPHS / 10 && n as u64 > GRAPHS / 2, "only {n} splits, {tied} ties");
}

#[test]
fn graphs_as_one_op_split_by_their_rule() {
    let mut n = 0;
    for seed in 0..GRAPHS {
        let (m, g, inputs, mut r) = random(seed);
        let op: Op = Call { graph: g }.into();
        let rule = rule_of(&m, &op, &inputs).expect("infers");
        for (f, factor) in rule.factors.iter().enumerate() {
            if factor.kind == FactorKind::Whole {
                continue;
            }
            let (parts, first) = (r.pick(&[2, 3]), r.below(1, factor.size));
            let Some(p) = pieces(factor.size, parts, first) else { continue };
            check(&m, &op, &inputs, &rule, &[(f, p.clone())]).unwrap_or_else(|e| {
                panic!("seed {seed}, factor {f} cut into {p:?}: {e}\n{}", text::print(&m))
            });
            n += 1;
        }
    }
    assert!(n as u64 > GRAPHS / 4, "only {n} splits");
}

fn whole_sizes(source: &str) -> Vec<usize> {
    let m = text::parse(source).expect("parses");
    let g = m.graph_by_name("g").expect("has @g");
    let atoms = Atoms::solve_calls(&m, g);
    atoms.all().into_iter().filter(|&a| atoms.is_whole(a)).map(|a| atoms.size(a)).collect()
}

#[test]
fn a_dimension_that_meets_itself_stays_whole() {
    let gram = "module @m graph @g(%0: f32[4,3]) {
      %1 = dot_general %0, %0 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [1]} : f32[4,4]
      return %1
    }";
    assert_eq!(whole_sizes(gram), [4]);
    // Its own rows as a table of row numbers.
    let table = "module @m graph @g(%0: i32[6]) {
      %1 = gather %0, %0 {collapsed_slice_dims = [0], index_vector_dim = 1, offset_dims = [], operand_batching_dims = [], slice_sizes = [1], start_index_map = [0], start_indices_batching_dims = []} : i32[6]
      return %1
    }";
    assert_eq!(whole_sizes(table), [6]);
}
