//! Random graphs: short op sequences in which the same few sizes and the same values come up again and again, so
//! that dimensions meet themselves in products, tables, reshapes, calls, loops and branches.

use super::Rng;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::barrier::OptimizationBarrier;
use crate::ops::binary::BinaryKind;
use crate::ops::branch::Branch;
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::call::Call;
use crate::ops::compare::{Compare, Direction};
use crate::ops::concatenate::Concatenate;
use crate::ops::constant::ConstantOp;
use crate::ops::convert::Convert;
use crate::ops::dot_general::DotGeneral;
use crate::ops::gather::Gather;
use crate::ops::iota::Iota;
use crate::ops::permute::Permute;
use crate::ops::reduce::Reduce;
use crate::ops::reshape::Reshape;
use crate::ops::scatter::Scatter;
use crate::ops::slice::Slice;
use crate::ops::unary::UnaryKind;
use crate::ops::while_loop::While;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};
use smallvec::smallvec;

/// Sizes of dimensions; some are products of others.
const SIZES: [usize; 5] = [1, 2, 4, 4, 6];
/// Larger values are not made.
const MAX_ELEMENTS: usize = 600;

/// Inputs for a graph: small values, indices around the sizes in use.
pub fn inputs(r: &mut Rng, types: &[TensorType]) -> Vec<Tensor> {
    let one = |t: &TensorType| match t.dtype {
        DType::I32 => r.ints(t.dtype, &t.shape, -1, 6),
        d => r.tensor(d, &t.shape),
    };
    types.iter().map(one).collect()
}

/// A module whose last graph runs random ops, calls, a loop and a branch; returns that graph.
///
/// # Errors
/// Those of op inference: an op was built wrongly.
pub fn module(r: &mut Rng) -> Result<(Module, GraphId)> {
    let mut m = Module::new("random");
    let mut made: Vec<Op> = Vec::new();
    for i in 0..r.below(0, 3) {
        let types = params(r);
        let g = body(r, &m, &format!("f{i}"), &types, &made)?;
        let op = Call { graph: m.add_graph(g) };
        made.push(op.into());
    }
    if r.coin() {
        let types = params(r);
        made.push(while_loop(r, &mut m, &types)?.into());
    }
    if r.coin() {
        let types = params(r);
        let mut arm = |r: &mut Rng, name: &str| -> Result<GraphId> {
            let mut g = body(r, &m, name, &types, &made)?;
            let results = types.iter().map(|t| like(r, &g, t)).collect();
            g.set_results(results);
            Ok(m.add_graph(g))
        };
        let branches = smallvec![arm(r, "left")?, arm(r, "right")?];
        made.push(Branch::Case { branches }.into());
    }
    let types = params(r);
    let g = body(r, &m, "main", &types, &made)?;
    let id = m.add_graph(g);
    Ok((m, id))
}

fn params(r: &mut Rng) -> Vec<TensorType> {
    let n = r.below(2, 5);
    let size = |r: &mut Rng| r.pick(&SIZES);
    (0..n)
        .map(|_| match r.below(0, 4) {
            0 => TensorType::new(DType::I32, [size(r)]),
            1 => TensorType::new(DType::F32, [size(r)]),
            _ => TensorType::new(DType::F32, [size(r), size(r)]),
        })
        .collect()
}

/// A random value of a type that some parameter has, later ones rather than the parameter.
fn like(r: &mut Rng, g: &Graph, t: &TensorType) -> ValueId {
    let mut all: Vec<ValueId> = (0..g.value_count() as u32).map(ValueId).filter(|&v| g.ty(v) == t).collect();
    all.reverse();
    let n = all.len().min(3);
    r.pick(&all[..n])
}

fn body(r: &mut Rng, m: &Module, name: &str, params: &[TensorType], calls: &[Op]) -> Result<Graph> {
    let mut g = Graph::new(name);
    for t in params {
        g.add_param(t.clone());
    }
    for _ in 0..r.below(2, 9) {
        let operator = r.below(0, 4);
        if !calls.is_empty() && operator == 0 {
            let op = r.pick(calls);
            call(r, m, &mut g, op)?;
        } else {
            step(r, m, &mut g)?;
        }
    }
    let last = g.value_count() as u32;
    let results =
        (0..r.below(1, 4)).map(|_| ValueId(r.below((last as usize).saturating_sub(4), last as usize) as u32));
    let results = results.collect();
    g.set_results(results);
    Ok(g)
}

/// Runs `op` on values of the types it takes, if the graph has them.
fn call(r: &mut Rng, m: &Module, g: &mut Graph, op: Op) -> Result<()> {
    let callees = crate::ops::call::wires(&op);
    let Some(wire) = callees.first() else { return Ok(()) };
    let mut operands = Vec::new();
    if wire.first_operand == 1 {
        operands.push(scalar(m, g, r.int(0, 1))?);
    }
    for t in m.graph(wire.graph).param_types() {
        match t.rank() {
            0 => operands.push(scalar(m, g, 0)?),
            _ if (0..g.value_count() as u32).any(|v| *g.ty(ValueId(v)) == t) => operands.push(like(r, g, &t)),
            _ => return Ok(()),
        }
    }
    g.add(m, op, &operands, LocId::UNKNOWN).map(|_| ())
}

/// An `i32[]` of value `n`, out of ops alone.
fn scalar(m: &Module, g: &mut Graph, n: i64) -> Result<ValueId> {
    let zero = Iota { ty: TensorType::new(DType::I32, [1]), dim: 0 };
    let mut v = g.add1(m, zero, &[], LocId::UNKNOWN)?;
    v = g.add1(m, Reshape { shape: Shape::new() }, &[v], LocId::UNKNOWN)?;
    for _ in 0..n {
        let one = g.add1(m, UnaryKind::Not, &[v], LocId::UNKNOWN)?;
        v = g.add1(m, UnaryKind::Negate, &[one], LocId::UNKNOWN)?;
    }
    Ok(v)
}

/// Two turns of a random body with a counter.
fn while_loop(r: &mut Rng, m: &mut Module, types: &[TensorType]) -> Result<While> {
    let counter = TensorType::scalar(DType::I32);
    let all = [std::slice::from_ref(&counter), types].concat();
    let mut g = body(r, m, "turn", &all, &[])?;
    let id = m.constants.intern_splat(counter.clone(), 1.0);
    let one = g.add1(m, ConstantOp { id }, &[], LocId::UNKNOWN)?;
    let next = g.add1(m, BinaryKind::Add, &[g.params()[0], one], LocId::UNKNOWN)?;
    let carries = types.iter().map(|t| like(r, &g, t)).collect::<Vec<_>>();
    g.set_results([&[next], &carries[..]].concat());
    let body = m.add_graph(g);
    let mut c = Graph::new("more");
    let params: Vec<ValueId> = all.iter().map(|t| c.add_param(t.clone())).collect();
    let id = m.constants.intern_splat(counter, 2.0);
    let two = c.add1(m, ConstantOp { id }, &[], LocId::UNKNOWN)?;
    let less = Compare { direction: Direction::Lt, total_order: false };
    let decides = c.add1(m, less, &[params[0], two], LocId::UNKNOWN)?;
    c.set_results(vec![decides]);
    Ok(While { cond: m.add_graph(c), body })
}

/// Adds one op on values that are there; none where what was drawn does not fit.
fn step(r: &mut Rng, m: &Module, g: &mut Graph) -> Result<()> {
    let all: Vec<ValueId> = (0..g.value_count() as u32).map(ValueId).collect();
    let of = |g: &Graph, d: DType| -> Vec<ValueId> {
        all.iter().copied().filter(|&v| g.ty(v).dtype == d).collect()
    };
    let floats = of(g, DType::F32);
    let ints: Vec<ValueId> = of(g, DType::I32).into_iter().filter(|&v| g.ty(v).rank() == 1).collect();
    if floats.is_empty() {
        let ty = TensorType::new(DType::F32, [r.pick(&SIZES)]);
        return g.add1(m, Iota { ty, dim: 0 }, &[], LocId::UNKNOWN).map(|_| ());
    }
    let x = r.pick(&floats);
    let ty = g.ty(x).clone();
    let rank = ty.rank();
    let (op, operands): (Op, Vec<ValueId>) = match r.below(0, 14) {
        0 => (UnaryKind::Tanh.into(), vec![x]),
        1 | 2 => {
            let kind = r.pick(&[BinaryKind::Add, BinaryKind::Multiply, BinaryKind::Subtract]);
            (kind.into(), vec![x, like(r, g, &ty)])
        }
        3 => (Permute::Transpose(r.permutation(rank)).into(), vec![x]),
        4 | 5 => {
            let y = if r.coin() { x } else { r.pick(&floats) };
            (product(r, &ty, g.ty(y)).into(), vec![x, y])
        }
        6 => {
            let k = r.below(0, rank + 1);
            let monoid = r.pick(&[Monoid::Sum, Monoid::Max]);
            (Reduce { dims: r.subset(rank, k), monoid }.into(), vec![x])
        }
        7 => {
            let at = r.below(0, rank + 1);
            let mut shape = ty.shape.clone();
            shape.insert(at, r.pick(&SIZES));
            let dims = (0..=rank).filter(|&d| d != at).collect();
            (BroadcastInDim { shape, dims }.into(), vec![x])
        }
        8 => (Reshape { shape: regrouped(r, &ty.shape) }.into(), vec![x]),
        9 if rank > 0 && !ints.is_empty() => {
            let i = r.pick(&ints);
            (rows(&ty.shape).into(), vec![x, i])
        }
        10 if rank > 0 && !ints.is_empty() => {
            let i = r.pick(&ints);
            let updates = if r.coin() { x } else { r.pick(&floats) };
            let u = g.ty(updates).shape.clone();
            if u.len() != rank || u[1..] != ty.shape[1..] || u[0] != g.ty(i).shape[0] {
                return Ok(());
            }
            (into_rows(r, rank).into(), vec![x, i, updates])
        }
        11 if rank > 0 => {
            let dim = r.below(0, rank);
            if r.coin() {
                (Concatenate { dim }.into(), vec![x, x])
            } else {
                let mut limit = ty.shape.clone();
                limit[dim] = limit[dim].div_ceil(2);
                let (start, stride) = (Shape::from_elem(0, rank), Shape::from_elem(1, rank));
                (Slice::Static { start, limit, stride }.into(), vec![x])
            }
        }
        12 => {
            let i = ty.shape.first().copied().unwrap_or(2);
            if r.coin() || ints.is_empty() {
                (Iota { ty: TensorType::new(DType::I32, [i]), dim: 0 }.into(), vec![])
            } else {
                (Convert::Value(DType::F32).into(), vec![r.pick(&ints)])
            }
        }
        13 => (OptimizationBarrier.into(), vec![x, r.pick(&floats)]),
        _ => (UnaryKind::Negate.into(), vec![x]),
    };
    let types: Vec<&TensorType> = operands.iter().map(|&v| g.ty(v)).collect();
    if op.infer(&types, m)?.iter().all(|t| t.rank() <= 5 && t.elements() <= MAX_ELEMENTS) {
        g.add(m, op, &operands, LocId::UNKNOWN)?;
    }
    Ok(())
}

/// A product that batches or contracts some pairs of equal dimensions.
fn product(r: &mut Rng, a: &TensorType, b: &TensorType) -> DotGeneral {
    let mut op = DotGeneral {
        lhs_batch: Shape::new(),
        rhs_batch: Shape::new(),
        lhs_contract: Shape::new(),
        rhs_contract: Shape::new(),
        dtype: a.dtype,
    };
    for (i, n) in a.shape.iter().enumerate() {
        let taken = |j: &usize| op.rhs_batch.contains(j) || op.rhs_contract.contains(j);
        let fit: Vec<usize> = (0..b.rank()).filter(|&j| b.shape[j] == *n && !taken(&j)).collect();
        if fit.is_empty() {
            continue;
        }
        let j = r.pick(&fit);
        match r.below(0, 4) {
            0 => {
                op.lhs_batch.push(i);
                op.rhs_batch.push(j);
            }
            1 | 2 => {
                op.lhs_contract.push(i);
                op.rhs_contract.push(j);
            }
            _ => {}
        }
    }
    op
}

/// Two neighbouring dimensions merged, or one split by 2.
fn regrouped(r: &mut Rng, shape: &[usize]) -> Shape {
    let mut out = Shape::from_slice(shape);
    let splits: Vec<usize> = (0..shape.len()).filter(|&d| shape[d].is_multiple_of(2)).collect();
    if shape.len() > 1 && (r.coin() || splits.is_empty()) {
        let d = r.below(1, shape.len());
        out[d - 1] *= out.remove(d);
    } else if !splits.is_empty() {
        let d = r.pick(&splits);
        let outer = if r.coin() { 2 } else { shape[d] / 2 };
        out[d] = shape[d] / outer;
        out.insert(d, outer);
    }
    out
}

/// Whole rows of a table by a vector of indices.
fn rows(table: &[usize]) -> Gather {
    let mut slice_sizes = Shape::from_slice(table);
    slice_sizes[0] = 1;
    Gather {
        offset_dims: (1..table.len()).collect(),
        collapsed_slice_dims: smallvec![0],
        operand_batching_dims: Shape::new(),
        start_indices_batching_dims: Shape::new(),
        start_index_map: smallvec![0],
        index_vector_dim: 1,
        slice_sizes,
    }
}

/// Whole rows added to, or put in the place of, those of a table.
fn into_rows(r: &mut Rng, rank: usize) -> Scatter {
    Scatter {
        update_window_dims: (1..rank).collect(),
        inserted_window_dims: smallvec![0],
        input_batching_dims: Shape::new(),
        scatter_indices_batching_dims: Shape::new(),
        scatter_dims_to_operand_dims: smallvec![0],
        index_vector_dim: 1,
        combine: r.pick(&[None, Some(Monoid::Sum), Some(Monoid::Sum)]),
        unique_indices: false,
    }
}
