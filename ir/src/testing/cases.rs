//! Random instances of every op family: small shapes, all attributes exercised, operands included.

use super::{Generator, Rng};
use crate::dtype::DType;
use crate::module::Module;
use crate::monoid::Monoid;
use crate::op::Op;
use crate::ops::barrier::OptimizationBarrier;
use crate::ops::binary::BinaryKind;
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::compare::{Compare, Direction};
use crate::ops::concatenate::Concatenate;
use crate::ops::constant::ConstantOp;
use crate::ops::convert::Convert;
use crate::ops::dot_general::DotGeneral;
use crate::ops::gather::Gather;
use crate::ops::iota::Iota;
use crate::ops::pad::Pad;
use crate::ops::permute::Permute;
use crate::ops::reduce::Reduce;
use crate::ops::reshape::Reshape;
use crate::ops::scatter::Scatter;
use crate::ops::select::Select;
use crate::ops::slice::Slice;
use crate::ops::unary::UnaryKind;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};
use smallvec::SmallVec;

/// An op with operands that fit.
#[derive(Clone, Debug)]
pub struct Case {
    /// The module the op refers to: constants and graphs.
    pub module: Module,
    /// The op.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<Tensor>,
}

impl Case {
    pub(crate) fn new(op: impl Into<Op>, inputs: Vec<Tensor>) -> Case {
        Case { module: Module::new("case"), op: op.into(), inputs }
    }
}

/// Families of this file, by name.
pub const FAMILIES: &[(&str, Generator)] = &[
    ("unary", unary),
    ("binary", binary),
    ("compare", compare),
    ("select", select),
    ("convert", convert),
    ("constant", constant),
    ("iota", iota),
    ("broadcast", broadcast),
    ("reshape", reshape),
    ("permute", permute),
    ("slice", slice),
    ("pad", pad),
    ("concatenate", concatenate),
    ("gather", gather),
    ("scatter", scatter),
    ("dot_general", dot_general),
    ("reduce", reduce),
    ("barrier", barrier),
];

const DTYPES: [DType; 6] = [DType::F32, DType::BF16, DType::I32, DType::U8, DType::I64, DType::I1];

fn unary(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let float =
        [UnaryKind::Tanh, UnaryKind::Exponential, UnaryKind::IsFinite, UnaryKind::Negate, UnaryKind::Erf];
    let int = [UnaryKind::Negate, UnaryKind::Not, UnaryKind::Popcnt, UnaryKind::Sign];
    match r.coin() {
        true => Case::new(r.pick(&float), vec![r.tensor(DType::F32, &shape)]),
        false => Case::new(r.pick(&int), vec![r.tensor(DType::I32, &shape)]),
    }
}

fn binary(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let d = r.pick(&[DType::F32, DType::I32]);
    let kind = r.pick(&[BinaryKind::Add, BinaryKind::Multiply, BinaryKind::Maximum, BinaryKind::Subtract]);
    Case::new(kind, vec![r.tensor(d, &shape), r.tensor(d, &shape)])
}

fn compare(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let d = r.pick(&DTYPES);
    let op = Compare { direction: r.pick(&Direction::ALL), total_order: d.is_float() && r.coin() };
    Case::new(op, vec![r.tensor(d, &shape), r.tensor(d, &shape)])
}

fn select(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let d = r.pick(&DTYPES);
    let scalar = |r: &mut Rng| if r.coin() { Shape::new() } else { shape.clone() };
    if d != DType::I1 && r.coin() {
        let (low, high) = (scalar(r), scalar(r));
        return Case::new(Select::Clamp, vec![r.tensor(d, &low), r.tensor(d, &shape), r.tensor(d, &high)]);
    }
    let p = scalar(r);
    Case::new(Select::Select, vec![r.tensor(DType::I1, &p), r.tensor(d, &shape), r.tensor(d, &shape)])
}

fn convert(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    if r.coin() {
        let mut shape = shape;
        let (from, to, parts) = r.pick(&[
            (DType::I32, DType::U32, 1),
            (DType::I32, DType::U8, 1),
            (DType::U64, DType::I32, 1),
            (DType::U16, DType::I32, 2),
            (DType::U8, DType::U64, 8),
        ]);
        if parts > 1 {
            shape.push(parts);
        }
        return Case::new(Convert::Bits(to), vec![r.tensor(from, &shape)]);
    }
    let (from, to) = (r.pick(&DTYPES), r.pick(&DTYPES));
    Case::new(Convert::Value(to), vec![r.tensor(from, &shape)])
}

fn constant(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let mut module = Module::new("case");
    let d = r.pick(&DTYPES);
    let id = match r.coin() {
        true => module.constants.intern_tensor(&r.tensor(d, &shape)),
        false => module.constants.intern_splat(TensorType::new(d, shape), 1.0),
    };
    Case { module, op: ConstantOp { id }.into(), inputs: vec![] }
}

fn iota(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let dim = r.below(0, shape.len());
    Case::new(Iota { ty: TensorType::new(r.pick(&[DType::I32, DType::F32, DType::U8]), shape), dim }, vec![])
}

fn broadcast(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 4);
    let k = r.below(0, shape.len() + 1);
    let mut dims: Shape = r.permutation(shape.len()).into_iter().take(k).collect();
    if r.coin() {
        dims.sort();
    }
    let from: Shape = dims.iter().map(|&d| if r.below(0, 4) == 0 { 1 } else { shape[d] }).collect();
    Case::new(BroadcastInDim { shape, dims }, vec![r.tensor(DType::F32, &from)])
}

/// Two groupings of one list of primes, sometimes of another order (no common refinement).
fn reshape(r: &mut Rng) -> Case {
    let n = r.below(1, 5);
    let mut primes: Vec<usize> = (0..n).map(|_| r.pick(&[2, 2, 3, 5])).collect();
    let group = |r: &mut Rng, primes: &[usize]| -> Shape {
        let mut shape = Shape::from_slice(&[1]);
        for &p in primes {
            match r.below(0, 3) {
                0 => shape.push(p),
                1 if r.coin() => shape.extend([1, p]),
                _ => *shape.last_mut().expect("starts with one") *= p,
            }
        }
        if r.coin() && shape[0] == 1 {
            shape.remove(0);
        }
        shape
    };
    let from = group(r, &primes);
    if r.below(0, 6) == 0 {
        primes.reverse();
    }
    let shape = group(r, &primes);
    Case::new(Reshape { shape }, vec![r.tensor(DType::I32, &from)])
}

fn permute(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 4);
    let p = r.permutation(shape.len());
    let k = r.below(0, shape.len() + 1);
    let op = if r.coin() { Permute::Transpose(p) } else { Permute::Reverse(r.subset(shape.len(), k)) };
    Case::new(op, vec![r.tensor(DType::I32, &shape)])
}

fn slice(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let x = r.tensor(DType::F32, &shape);
    let part: Shape = shape.iter().map(|&n| if r.coin() { n } else { r.below(1, n + 1) }).collect();
    if r.coin() {
        let start: Shape = shape.iter().zip(&part).map(|(n, k)| r.below(0, n - k + 1)).collect();
        let limit: Shape = start.iter().zip(&part).map(|(s, k)| s + k).collect();
        let stride: Shape = shape.iter().map(|_| r.pick(&[1, 1, 1, 2])).collect();
        return Case::new(Slice::Static { start, limit, stride }, vec![x]);
    }
    let d = r.pick(&[DType::I32, DType::U32, DType::I64]);
    let starts: Vec<Tensor> = shape.iter().map(|&n| r.ints(d, &[], -2, n as i64 + 1)).collect();
    let mut inputs = vec![x];
    let op = match r.coin() {
        true => Slice::Dynamic { sizes: part },
        false => {
            inputs.push(r.tensor(DType::F32, &part));
            Slice::Update
        }
    };
    inputs.extend(starts);
    Case::new(op, inputs)
}

fn pad(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let mut op = Pad { low: SmallVec::new(), high: SmallVec::new(), interior: Shape::new() };
    for &n in &shape {
        let plain = r.coin();
        op.low.push(if plain { 0 } else { r.int(-(n as i64) / 2, 2) });
        op.high.push(if plain { 0 } else { r.int(-(n as i64) / 2, 2) });
        op.interior.push(if plain { 0 } else { r.below(0, 3) });
    }
    Case::new(op, vec![r.tensor(DType::F32, &shape), r.tensor(DType::F32, &[])])
}

fn concatenate(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let dim = r.below(0, shape.len());
    let inputs = (0..r.below(1, 4))
        .map(|_| {
            let mut s = shape.clone();
            s[dim] = r.below(1, 4);
            r.tensor(DType::I32, &s)
        })
        .collect();
    Case::new(Concatenate { dim }, inputs)
}

/// The dimension numbers that `gather` and `scatter` share: (table shape, removed dimensions, batching
/// dimensions of the table, of the indices, index map, indices shape, vector dimension).
struct Indexing {
    table: Shape,
    removed: Shape,
    table_batching: Shape,
    indices_batching: Shape,
    map: Shape,
    indices: Tensor,
    vector_dim: usize,
    batch: Shape,
}

fn indexing(r: &mut Rng) -> Indexing {
    let table = shape(r, 1, 4);
    let rank = table.len();
    let k = r.below(0, 2).min(rank - 1);
    let table_batching: Shape = r.subset(rank, k);
    let free: Shape = (0..rank).filter(|d| !table_batching.contains(d)).collect();
    let picked = r.permutation(free.len());
    let map: Shape = picked.iter().take(r.below(1, free.len().min(3) + 1)).map(|&i| free[i]).collect();
    let mut removed: Shape = free.iter().copied().filter(|d| map.contains(d) && r.below(0, 3) > 0).collect();
    removed.sort();
    let mut batch = shape(r, 0, 2);
    let mut indices_batching = Shape::new();
    for &d in &table_batching {
        let at = r.below(0, batch.len() + 1);
        batch.insert(at, table[d]);
        indices_batching.push(at);
    }
    let scalar = map.len() == 1 && r.coin();
    let vector_dim = if scalar { batch.len() } else { r.below(0, batch.len() + 1) };
    let mut full = batch.clone();
    if !scalar {
        full.insert(vector_dim, map.len());
        for b in &mut indices_batching {
            if *b >= vector_dim {
                *b += 1;
            }
        }
    }
    let dtype = r.pick(&[DType::I32, DType::I32, DType::U32, DType::I64, DType::U8, DType::I8]);
    let indices = r.ints(dtype, &full, -2, 7);
    Indexing { table, removed, table_batching, indices_batching, map, indices, vector_dim, batch }
}

/// A shape that has `batch` in order, with `window` at the returned dimensions.
fn interleave(r: &mut Rng, batch: &[usize], window: &[usize]) -> (Shape, Shape) {
    let rank = batch.len() + window.len();
    let at = r.subset(rank, window.len());
    let (mut b, mut w) = (batch.iter(), window.iter());
    let shape =
        (0..rank).filter_map(|d| if at.contains(&d) { w.next() } else { b.next() }).copied().collect();
    (shape, at)
}

fn gather(r: &mut Rng) -> Case {
    let i = indexing(r);
    let removed = |d: &usize| i.removed.contains(d) || i.table_batching.contains(d);
    let slice_sizes: Shape = (0..i.table.len())
        .map(|d| match () {
            _ if removed(&d) => 1,
            _ if r.coin() => i.table[d],
            _ => r.below(1, i.table[d] + 1),
        })
        .collect();
    let window: Shape = (0..i.table.len()).filter(|d| !removed(d)).map(|d| slice_sizes[d]).collect();
    let (_, offset_dims) = interleave(r, &i.batch, &window);
    let op = Gather {
        offset_dims,
        collapsed_slice_dims: i.removed.clone(),
        operand_batching_dims: i.table_batching.clone(),
        start_indices_batching_dims: i.indices_batching.clone(),
        start_index_map: i.map.clone(),
        index_vector_dim: i.vector_dim,
        slice_sizes,
    };
    let d = r.pick(&[DType::F32, DType::I32]);
    Case::new(op, vec![r.tensor(d, &i.table), i.indices])
}

pub(super) fn scatter(r: &mut Rng) -> Case {
    let i = indexing(r);
    let window: Shape = (0..i.table.len())
        .filter(|d| !i.removed.contains(d) && !i.table_batching.contains(d))
        .map(|d| if r.coin() { i.table[d] } else { r.below(1, i.table[d] + 1) })
        .collect();
    let (updates, update_window_dims) = interleave(r, &i.batch, &window);
    let combine = r.pick(&[None, Some(Monoid::Sum), Some(Monoid::Max), Some(Monoid::Product)]);
    let op = Scatter {
        update_window_dims,
        inserted_window_dims: i.removed.clone(),
        input_batching_dims: i.table_batching.clone(),
        scatter_indices_batching_dims: i.indices_batching.clone(),
        scatter_dims_to_operand_dims: i.map.clone(),
        index_vector_dim: i.vector_dim,
        combine,
        unique_indices: false,
    };
    let d = r.pick(&[DType::F32, DType::I32]);
    Case::new(op, vec![r.tensor(d, &i.table), i.indices, r.tensor(d, &updates)])
}

fn dot_general(r: &mut Rng) -> Case {
    let (b, k, m, n) = (shape(r, 0, 1), shape(r, 0, 2), shape(r, 0, 2), shape(r, 0, 2));
    let side = |r: &mut Rng, free: &Shape| -> (Shape, Shape, Shape) {
        let all: Shape = b.iter().chain(&k).chain(free).copied().collect();
        let p = r.permutation(all.len());
        let mut at: Shape = SmallVec::from_elem(0, all.len());
        let mut out: Shape = SmallVec::from_elem(0, all.len());
        for (i, &to) in p.iter().enumerate() {
            at[i] = to;
            out[to] = all[i];
        }
        // Free dimensions stay in ascending order by the op's definition; their sizes may come out permuted.
        (out, at[..b.len()].into(), at[b.len()..b.len() + k.len()].into())
    };
    let (ls, lhs_batch, lhs_contract) = side(r, &m);
    let (rs, rhs_batch, rhs_contract) = side(r, &n);
    let d = r.pick(&[DType::F32, DType::BF16, DType::I32]);
    let dtype = if d == DType::BF16 && r.coin() { DType::F32 } else { d };
    let op = DotGeneral { lhs_batch, rhs_batch, lhs_contract, rhs_contract, dtype };
    Case::new(op, vec![r.tensor(d, &ls), r.tensor(d, &rs)])
}

fn reduce(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 4);
    let k = r.below(0, shape.len() + 1);
    let monoid = r.pick(&Monoid::ALL);
    let dtypes: Vec<DType> = DTYPES.into_iter().filter(|&d| monoid.supports(d)).collect();
    let d = r.pick(&dtypes);
    Case::new(Reduce { dims: r.subset(shape.len(), k), monoid }, vec![r.tensor(d, &shape)])
}

fn barrier(r: &mut Rng) -> Case {
    let (a, b) = (shape(r, 0, 3), shape(r, 0, 3));
    Case::new(OptimizationBarrier, vec![r.tensor(DType::F32, &a), r.tensor(DType::I32, &b)])
}

pub(super) fn shape(r: &mut Rng, low: usize, high: usize) -> Shape {
    let rank = r.below(low, high + 1);
    r.shape(rank)
}
