//! Factor rules of whole graphs: solved over their ops, then proven by splitting a call of the graph.

use msc_ir::factor::resize::resize_graph;
use msc_ir::factor::solve::{Atoms, graph_rule};
use msc_ir::factor::{FactorKind, FactorRule};
use msc_ir::ops::call::Call;
use msc_ir::testing::split::{check, pieces};
use msc_ir::testing::{Rng, eval};
use msc_ir::{DType, Module, Monoid, Op, Operation, Tensor, TensorType, text};

const RMS_NORM: &str = "module @m
graph @g(%0: f32[5,6], %1: f32[6]) {
  %2 = multiply %0, %0 : f32[5,6]
  %3 = reduce %2 {dims = [1], monoid = sum} : f32[5]
  %4 = constant {value = splat f32[5] 0.125} : f32[5]
  %5 = multiply %3, %4 : f32[5]
  %6 = rsqrt %5 : f32[5]
  %7 = broadcast_in_dim %6 {dims = [0], shape = [5, 6]} : f32[5,6]
  %8 = multiply %0, %7 : f32[5,6]
  %9 = broadcast_in_dim %1 {dims = [1], shape = [5, 6]} : f32[5,6]
  %10 = multiply %9, %8 : f32[5,6]
  return %10, %6
}";

const RMS_NORM_GRAD: &str = "module @m
graph @g(%0: f32[5,6], %1: f32[5,6], %2: f32[6], %3: f32[5]) {
  %4 = broadcast_in_dim %3 {dims = [0], shape = [5, 6]} : f32[5,6]
  %5 = multiply %1, %4 : f32[5,6]
  %6 = multiply %0, %5 : f32[5,6]
  %7 = reduce %6 {dims = [0], monoid = sum} : f32[6]
  %8 = broadcast_in_dim %2 {dims = [1], shape = [5, 6]} : f32[5,6]
  %9 = multiply %0, %8 : f32[5,6]
  %10 = multiply %9, %5 : f32[5,6]
  %11 = reduce %10 {dims = [1], monoid = sum} : f32[5]
  %12 = broadcast_in_dim %11 {dims = [0], shape = [5, 6]} : f32[5,6]
  %13 = multiply %5, %12 : f32[5,6]
  %14 = subtract %9, %13 : f32[5,6]
  %15 = multiply %4, %14 : f32[5,6]
  return %15, %7
}";

const SOFTMAX: &str = "module @m
graph @g(%0: f32[2,3,5]) {
  %1 = reduce %0 {dims = [2], monoid = max} : f32[2,3]
  %2 = broadcast_in_dim %1 {dims = [0, 1], shape = [2, 3, 5]} : f32[2,3,5]
  %3 = subtract %0, %2 : f32[2,3,5]
  %4 = exponential %3 : f32[2,3,5]
  %5 = reduce %4 {dims = [2], monoid = sum} : f32[2,3]
  %6 = broadcast_in_dim %5 {dims = [0, 1], shape = [2, 3, 5]} : f32[2,3,5]
  %7 = divide %4, %6 : f32[2,3,5]
  return %7
}";

/// `[b·s, d]·[d, h·e]`, split into heads, an elementwise op, merged again, `·[h·e, d]`.
const MATMUL_CHAIN: &str = "module @m
graph @g(%0: f32[4,6], %1: f32[6,12], %2: f32[12,5]) {
  %3 = dot_general %0, %1 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,12]
  %4 = reshape %3 {shape = [2, 2, 4, 3]} : f32[2,2,4,3]
  %5 = transpose %4 {permutation = [0, 2, 1, 3]} : f32[2,4,2,3]
  %6 = tanh %5 : f32[2,4,2,3]
  %7 = transpose %6 {permutation = [0, 2, 1, 3]} : f32[2,2,4,3]
  %8 = reshape %7 {shape = [4, 12]} : f32[4,12]
  %9 = dot_general %8, %2 {dtype = f32, lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]} : f32[4,5]
  return %9
}";

/// A scatter-add into an operand: its updates cannot be split without telling the shards apart.
const EMBEDDING_GRAD: &str = "module @m
graph @g(%0: f32[7,3], %1: i32[4], %2: f32[4,3]) {
  %3 = scatter %0, %1, %2 {combine = sum, index_vector_dim = 1, input_batching_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], scatter_indices_batching_dims = [], unique_indices = false, update_window_dims = [1]} : f32[7,3]
  return %3
}";

/// A step counter beside a row-wise function: it depends on no split value.
const COUNTER: &str = "module @m
graph @g(%0: i32[], %1: f32[4,3]) {
  %2 = constant {value = splat i32[] 1} : i32[]
  %3 = add %0, %2 : i32[]
  %4 = negate %1 : f32[4,3]
  return %3, %4
}";

struct Solved {
    module: Module,
    op: Op,
    inputs: Vec<Tensor>,
    rule: FactorRule,
}

fn solved(source: &str) -> Solved {
    let module = text::parse(source).expect("parses");
    let graph = module.graph_by_name("g").expect("has @g");
    let mut r = Rng::new(7);
    let inputs = module
        .graph(graph)
        .param_types()
        .iter()
        .map(|t| match t.dtype {
            DType::I32 => r.ints(t.dtype, &t.shape, 0, 6),
            d => r.tensor(d, &t.shape),
        })
        .collect();
    let rule = graph_rule(&module, module.graph(graph));
    Solved { module, op: Call { graph }.into(), inputs, rule }
}

/// Splits every factor of the rule by 2 and 3; inner factors of composite dimensions are strided shards.
fn split_every_factor(s: &Solved) -> Result<usize, String> {
    let mut n = 0;
    check(&s.module, &s.op, &s.inputs, &s.rule, &[])?;
    for (f, factor) in s.rule.factors.iter().enumerate() {
        if factor.kind == FactorKind::Whole {
            continue;
        }
        for parts in [2, 3] {
            for first in 1..factor.size {
                if let Some(p) = pieces(factor.size, parts, first) {
                    check(&s.module, &s.op, &s.inputs, &s.rule, &[(f, p.clone())])
                        .map_err(|e| format!("factor {f} of {:?} cut into {p:?}: {e}", s.rule))?;
                    n += 1;
                }
            }
        }
    }
    Ok(n)
}

fn kinds(rule: &FactorRule) -> Vec<(usize, FactorKind)> {
    rule.factors.iter().map(|f| (f.size, f.kind)).collect()
}

#[test]
fn rms_norm_splits_by_rows() {
    let s = solved(RMS_NORM);
    assert_eq!(kinds(&s.rule), [(5, FactorKind::Pass), (6, FactorKind::Whole)]);
    assert!(split_every_factor(&s).expect("splits") >= 7);
}

#[test]
fn the_gradient_of_the_norm_weight_is_reduced_over_rows() {
    let s = solved(RMS_NORM_GRAD);
    assert_eq!(kinds(&s.rule), [(5, FactorKind::Reduce(Monoid::Sum)), (6, FactorKind::Whole)]);
    assert!(split_every_factor(&s).expect("splits") >= 7);
}

#[test]
fn softmax_needs_its_row_whole() {
    let s = solved(SOFTMAX);
    assert_eq!(kinds(&s.rule), [(2, FactorKind::Pass), (3, FactorKind::Pass), (5, FactorKind::Whole)]);
    assert!(split_every_factor(&s).expect("splits") >= 4);
}

#[test]
fn heads_split_through_reshapes() {
    let s = solved(MATMUL_CHAIN);
    let [x, w, v] = [0, 1, 2].map(|o| &s.rule.operands[o]);
    assert_eq!((x[0].len(), x[1].len()), (2, 1), "rows are batch and sequence: {:?}", s.rule);
    assert_eq!(w[1].len(), 2, "columns are heads and head size: {:?}", s.rule);
    assert_eq!(w[1], v[0], "the heads of the two weights are one factor");
    // The contraction of the first product lies inside; that of the second is what the result is.
    assert_eq!(s.rule.factors[w[0][0]].kind, FactorKind::Whole);
    for &f in &w[1] {
        assert_eq!(s.rule.factors[f].kind, FactorKind::Reduce(Monoid::Sum));
    }
    assert!(split_every_factor(&s).expect("splits") >= 12);
}

#[test]
fn an_accumulating_input_keeps_updates_whole() {
    let s = solved(EMBEDDING_GRAD);
    let updates = s.rule.operands[2][0][0];
    assert_eq!(s.rule.factors[updates].kind, FactorKind::Whole, "{:?}", s.rule);
    assert!(split_every_factor(&s).expect("splits") >= 2);
}

#[test]
fn an_independent_result_is_the_same_on_every_shard() {
    let s = solved(COUNTER);
    assert_eq!(kinds(&s.rule), [(4, FactorKind::Pass), (3, FactorKind::Pass)]);
    split_every_factor(&s).expect("splits");
}

#[test]
fn wrong_graph_rules_are_rejected() {
    for (source, factor, kind) in [
        (RMS_NORM, 1, FactorKind::Pass),
        (RMS_NORM_GRAD, 0, FactorKind::Pass),
        (SOFTMAX, 2, FactorKind::Pass),
        (MATMUL_CHAIN, 3, FactorKind::Pass),
        (EMBEDDING_GRAD, 2, FactorKind::Reduce(Monoid::Sum)),
        (COUNTER, 0, FactorKind::Reduce(Monoid::Sum)),
    ] {
        let mut s = solved(source);
        s.rule.factors[factor].kind = kind;
        assert!(split_every_factor(&s).is_err(), "{kind:?} for factor {factor} of {source}");
    }
}

#[test]
fn resizing_gives_the_same_function_at_other_sizes() {
    let mut m = text::parse(RMS_NORM).expect("parses");
    let g = m.graph(m.graph_by_name("g").expect("has @g")).clone();
    let want = [TensorType::new(DType::F32, [9, 6]), TensorType::new(DType::F32, [6])];
    let bigger = resize_graph(&mut m, &g, &want).expect("rows are free");
    assert_eq!(bigger.result_types()[0], want[0]);
    let id = m.add_graph(bigger);
    let mut r = Rng::new(3);
    let inputs = [r.tensor(DType::F32, &[9, 6]), r.tensor(DType::F32, &[6])];
    let out = eval(&m, Call { graph: id }, &inputs, msc_ir::interp::Mode::Wide).expect("runs");
    for row in 0..9 {
        let at = |t: &Tensor, i: usize| t.data.get_f64(row * 6 + i);
        let ss: f64 = (0..6).map(|i| at(&inputs[0], i).powi(2)).sum::<f64>() * 0.125;
        for i in 0..6 {
            let y = at(&inputs[0], i) / ss.sqrt() * inputs[1].data.get_f64(i);
            assert!((y - at(&out[0], i)).abs() < 1e-12);
        }
    }
    let wider = [TensorType::new(DType::F32, [5, 8]), TensorType::new(DType::F32, [8])];
    assert_eq!(resize_graph(&mut m, &g, &wider).expect("one factor").param_types(), wider);
    let torn = [TensorType::new(DType::F32, [5, 8]), TensorType::new(DType::F32, [6])];
    assert!(resize_graph(&mut m, &g, &torn).is_err(), "one factor, two sizes");
}

#[test]
fn what_an_op_needs_whole_keeps_its_size() {
    let mut m =
        text::parse("module @m graph @g(%0: f32[4,3]) { %1 = reverse %0 {dims = [1]} : f32[4,3] return %1 }")
            .expect("parses");
    let g = m.graph(m.graph_by_name("g").expect("has @g")).clone();
    assert!(resize_graph(&mut m, &g, &[TensorType::new(DType::F32, [2, 3])]).is_ok());
    let e = resize_graph(&mut m, &g, &[TensorType::new(DType::F32, [4, 2])]).expect_err("is reversed");
    assert!(e.to_string().contains("whole"), "{e}");
}

#[test]
fn atoms_of_a_deep_chain_are_found_in_nearly_linear_time() {
    // 200,000 ops: a chain of links as long as the graph would take minutes.
    let mut m = Module::new("deep");
    let mut g = msc_ir::Graph::new("g");
    let x = g.add_param(TensorType::new(DType::F32, [4, 8]));
    let mut v = x;
    for _ in 0..200_000 {
        v = g.add1(&m, msc_ir::ops::unary::UnaryKind::Tanh, &[v], msc_ir::LocId::UNKNOWN).expect("infers");
    }
    g.set_results(vec![v]);
    let atoms = Atoms::solve(&m, &g);
    assert_eq!(atoms.dim(x, 0), atoms.dim(v, 0));
    let id = m.add_graph(g);
    assert_eq!(m.graph(id).ops().len(), 200_000);
    let ty = m.graph(id).param_types();
    let refs: Vec<&TensorType> = ty.iter().collect();
    assert_eq!(Op::from(Call { graph: id }).factor_rule(&refs, &ty, &m).factors.len(), 2);
}
