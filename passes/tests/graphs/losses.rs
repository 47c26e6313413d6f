//! Cross-entropies in many spellings, with gradients as JAX and PyTorch derive them, and with faults.

use msc_ir::ops::binary::BinaryKind::{Add, And, Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::gather::Gather;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::scatter::Scatter;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind::{Exponential, Log, Negate};
use msc_ir::{
    DType, Entry, Graph, LocId, Module, Monoid, Op, ParamInfo, ResultInfo, Shape, TensorType, ValueId,
};

/// How the label's logit is picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// By index; NaN outside.
    Guarded,
    /// By index; the nearest outside.
    Clamped,
    /// By the row's sum of one-hot times log-probability.
    OneHot,
    /// By the row's sum of a selection from the logits.
    Selected,
}

/// How the gradient is spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gradient {
    /// None.
    None,
    /// `(w/Σe)∘e` and a scatter of `−w`.
    Scattered,
    /// `w∘(e/Σe − onehot)`.
    Direct,
    /// `g − exp(logp)·Σg` with `g = −w∘onehot`: nothing for labels outside.
    Automatic,
}

/// What rows are weighted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Nothing.
    One,
    /// A constant.
    Mean,
    /// An input per row.
    Rows,
    /// An input per row of the last dimension alone.
    Columns,
    /// Divided by an input.
    Over,
}

/// What is counted beside the label; with one-hot labels only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Smoothed {
    /// Nothing.
    No,
    /// Nine tenths of the label, and a tenth dealt to all of them.
    Mixed,
    /// The losses against all labels, by a weight of their own.
    Apart,
}

/// Something that makes it another computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// The exponentials are summed over rows.
    OtherAxis,
    /// The sum is that of the squares.
    SquaredSum,
    /// The label's logit counts twice.
    Twice,
    /// No logarithm.
    NoLog,
    /// The last label counts as outside.
    Bound,
    /// Places are counted from 1.
    FromOne,
    /// The gradient adds the label's part.
    Sign,
    /// The gradient's exponentials are not divided by their sum.
    Unnormalised,
    /// The gradient's label part has the weight twice.
    WeightTwice,
    /// The gradient takes each label from the row before.
    RowShift,
    /// The gradient counts places from 1.
    PlaceShift,
    /// The gradient has no softmax.
    LabelOnly,
}

/// A spelling.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Element type of logits.
    pub dtype: DType,
    /// Element type of labels.
    pub labels: DType,
    /// Rows are one dimension.
    pub flat: bool,
    /// The largest logit is subtracted first.
    pub shifted: bool,
    /// The pick.
    pub pick: Pick,
    /// The gradient.
    pub gradient: Gradient,
    /// The weights.
    pub weights: Weights,
    /// The squared normalizer is added, times a hundredth.
    pub squared: bool,
    /// The smoothing.
    pub smoothed: Smoothed,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Rows, as the last of two dimensions.
    pub length: usize,
    /// The fault.
    pub fault: Fault,
}

/// The plain spelling.
pub const PLAIN: Spelling = Spelling {
    dtype: DType::F32,
    labels: DType::I32,
    flat: false,
    shifted: true,
    pick: Pick::Guarded,
    gradient: Gradient::Scattered,
    weights: Weights::Rows,
    squared: false,
    smoothed: Smoothed::No,
    vocabulary: 11,
    length: 5,
    fault: Fault::None,
};

struct Build {
    m: Module,
    g: Graph,
}

impl Build {
    fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        self.g.add1(&self.m, op, operands, LocId::UNKNOWN).expect("fits")
    }

    fn ty(&self, v: ValueId) -> TensorType {
        self.g.ty(v).clone()
    }

    fn splat(&mut self, ty: TensorType, value: f64) -> ValueId {
        let id = self.m.constants.intern_splat(ty, value);
        self.op(ConstantOp { id }, &[])
    }

    fn like(&mut self, v: ValueId, value: f64) -> ValueId {
        self.splat(self.g.ty(v).clone(), value)
    }

    fn compare(&mut self, direction: Direction, a: ValueId, b: ValueId) -> ValueId {
        self.op(Compare { direction, total_order: false }, &[a, b])
    }

    fn reduce(&mut self, v: ValueId, dims: &[usize], monoid: Monoid) -> ValueId {
        self.op(Reduce { dims: dims.into(), monoid }, &[v])
    }

    /// Rows over the vocabulary.
    fn wide(&mut self, v: ValueId, shape: &Shape) -> ValueId {
        let dims = (0..shape.len() - 1).collect();
        self.op(BroadcastInDim { shape: shape.clone(), dims }, &[v])
    }

    fn reshape(&mut self, v: ValueId, shape: Shape) -> ValueId {
        self.op(Reshape { shape }, &[v])
    }

    /// `i1[…,V]`: where the label is.
    fn hits(&mut self, labels: ValueId, shape: &Shape, from: f64) -> ValueId {
        let ty = TensorType { dtype: self.ty(labels).dtype, shape: shape.clone() };
        let labels = self.wide(labels, shape);
        let mut places = self.op(Iota { ty, dim: shape.len() - 1 }, &[]);
        if from != 0.0 {
            let by = self.like(places, from);
            places = self.op(Add, &[places, by]);
        }
        self.compare(Direction::Eq, labels, places)
    }

    fn onehot(&mut self, labels: ValueId, shape: &Shape, from: f64) -> ValueId {
        let hits = self.hits(labels, shape, from);
        self.op(Convert::Value(DType::F32), &[hits])
    }

    /// What the labels are mixed to.
    fn target(&mut self, onehot: ValueId, smoothed: Smoothed) -> ValueId {
        if smoothed != Smoothed::Mixed {
            return onehot;
        }
        let n = self.ty(onehot).shape.last().copied().unwrap_or(1) as f64;
        let (label, each) = (self.like(onehot, 0.9), self.like(onehot, 0.1 / n));
        let own = self.op(Multiply, &[label, onehot]);
        self.op(Add, &[own, each])
    }
}

/// The loss of each row, weighted and summed, with the gradient of the logits where there is one. Parameters: logits,
/// labels, weights.
pub fn losses(sp: &Spelling) -> Module {
    let mut b = Build { m: Module::new("losses"), g: Graph::new("main") };
    let rows: Shape =
        if sp.flat { [2 * sp.length].into_iter().collect() } else { [2, sp.length].into_iter().collect() };
    let n = sp.vocabulary;
    let last = rows.len();
    let mut shape = rows.clone();
    shape.push(n);
    let x = b.g.add_param(TensorType { dtype: sp.dtype, shape: shape.clone() });
    let labels = b.g.add_param(TensorType { dtype: sp.labels, shape: rows.clone() });
    let per_row = TensorType { dtype: DType::F32, shape: rows.clone() };
    let given = match sp.weights {
        Weights::Rows => per_row.clone(),
        Weights::Columns => TensorType::new(DType::F32, [rows[last - 1]]),
        _ => TensorType::scalar(DType::F32),
    };
    let given = b.g.add_param(given);
    let given_rank = b.ty(given).rank();
    let dims: Shape = (last - given_rank..last).collect();
    let w = match sp.weights {
        Weights::One => b.splat(per_row.clone(), 1.0),
        Weights::Mean => b.splat(per_row.clone(), 0.125),
        _ if given_rank == last => given,
        _ => b.op(BroadcastInDim { shape: rows.clone(), dims }, &[given]),
    };

    // Forward.
    let x32 = if sp.dtype == DType::F32 { x } else { b.op(Convert::Value(DType::F32), &[x]) };
    let largest = b.reduce(x32, &[last], Monoid::Max);
    let below = if sp.shifted {
        let over = b.wide(largest, &shape);
        b.op(Subtract, &[x32, over])
    } else {
        x32
    };
    let e = b.op(Exponential, &[below]);
    let axis = if sp.fault == Fault::OtherAxis { last - 1 } else { last };
    let summed = if sp.fault == Fault::SquaredSum { b.op(Multiply, &[e, e]) } else { e };
    let sum = b.reduce(summed, &[axis], Monoid::Sum);
    let spread = |b: &mut Build, v: ValueId| {
        let dims = (0..=last).filter(|&d| d != axis).collect();
        b.op(BroadcastInDim { shape: shape.clone(), dims }, &[v])
    };
    let log = if sp.fault == Fault::NoLog { sum } else { b.op(Log, &[sum]) };
    let zero = b.like(labels, 0.0);
    let size = b.like(labels, n as f64);
    let negative = b.compare(Direction::Lt, labels, zero);
    let wrapped = b.op(Add, &[labels, size]);
    let index = b.op(Select::Select, &[negative, wrapped, labels]);
    let by_index = matches!(sp.pick, Pick::Guarded | Pick::Clamped);
    let chosen = if by_index { index } else { labels };
    let from = if sp.fault == Fault::FromOne { 1.0 } else { 0.0 };
    let mut rest = None;
    let loss = match sp.pick {
        Pick::Guarded | Pick::Clamped => {
            let mut vectors = rows.clone();
            vectors.extend([1, 1]);
            let vectors = b.reshape(index, vectors);
            let batch: Shape = (0..last).collect();
            let mut sizes: Shape = std::iter::repeat_n(1, last + 1).collect();
            sizes[last] = 1;
            let gather = Gather {
                offset_dims: Shape::new(),
                collapsed_slice_dims: [last].into_iter().collect(),
                operand_batching_dims: batch.clone(),
                start_indices_batching_dims: batch,
                start_index_map: [last].into_iter().collect(),
                index_vector_dim: last + 1,
                slice_sizes: sizes,
            };
            let mut picked = b.op(gather, &[x32, vectors]);
            if sp.pick == Pick::Guarded {
                let first = b.like(vectors, 0.0);
                let end = if sp.fault == Fault::Bound { n as f64 - 2.0 } else { n as f64 - 1.0 };
                let end = b.like(vectors, end);
                let above = b.compare(Direction::Ge, vectors, first);
                let under = b.compare(Direction::Le, vectors, end);
                let inside = b.op(And, &[above, under]);
                let kept = b.ty(picked).shape;
                let inside = b.reshape(inside, kept);
                let nan = b.like(picked, f64::NAN);
                picked = b.op(Select::Select, &[inside, picked, nan]);
            }
            let picked = b.reshape(picked, rows.clone());
            let lse = if sp.shifted { b.op(Add, &[log, largest]) } else { log };
            let picked = if sp.fault == Fault::Twice { b.op(Add, &[picked, picked]) } else { picked };
            b.op(Subtract, &[lse, picked])
        }
        Pick::OneHot => {
            let log = spread(&mut b, log);
            let logp = b.op(Subtract, &[below, log]);
            let onehot = b.onehot(labels, &shape, from);
            let onehot = b.target(onehot, sp.smoothed);
            if sp.smoothed == Smoothed::Apart {
                rest = Some(b.reduce(logp, &[last], Monoid::Sum));
            }
            let each = b.op(Multiply, &[onehot, logp]);
            let each = if sp.fault == Fault::Twice { b.op(Add, &[each, each]) } else { each };
            let sum = b.reduce(each, &[last], Monoid::Sum);
            b.op(Negate, &[sum])
        }
        Pick::Selected => {
            let hits = b.hits(labels, &shape, from);
            let zero = b.like(x32, 0.0);
            let only = b.op(Select::Select, &[hits, x32, zero]);
            let picked = b.reduce(only, &[last], Monoid::Sum);
            let lse = if sp.shifted { b.op(Add, &[log, largest]) } else { log };
            let picked = if sp.fault == Fault::Twice { b.op(Add, &[picked, picked]) } else { picked };
            b.op(Subtract, &[lse, picked])
        }
    };
    let lse = if sp.shifted && axis == last { b.op(Add, &[log, largest]) } else { log };
    let (loss, slope) = if sp.squared {
        let square = b.op(Multiply, &[lse, lse]);
        let rate = b.like(lse, 1e-2);
        let square = b.op(Multiply, &[rate, square]);
        let rate = b.like(lse, 2e-2);
        (b.op(Add, &[loss, square]), Some(b.op(Multiply, &[rate, lse])))
    } else {
        (loss, None)
    };
    let weighted = match sp.weights {
        Weights::One => loss,
        Weights::Over => b.op(Divide, &[loss, w]),
        _ => b.op(Multiply, &[loss, w]),
    };
    let all: Vec<usize> = (0..last).collect();
    let mut total = b.reduce(weighted, &all, Monoid::Sum);
    let u = b.op(Multiply, &[w, w]);
    if let Some(rest) = rest {
        let rest = b.op(Multiply, &[rest, u]);
        let rest = b.reduce(rest, &all, Monoid::Sum);
        total = b.op(Subtract, &[total, rest]);
    }
    let mut results = vec![total];

    // Backward.
    let shifted = |b: &mut Build, labels: ValueId| {
        let n = rows[last - 1];
        let part = |from: usize, to: usize| {
            let mut start: Shape = std::iter::repeat_n(0, last).collect();
            let (mut limit, stride) = (rows.clone(), std::iter::repeat_n(1, last).collect());
            (start[last - 1], limit[last - 1]) = (from, to);
            Slice::Static { start, limit, stride }
        };
        let (a, z) = (b.op(part(n - 1, n), &[labels]), b.op(part(0, n - 1), &[labels]));
        b.op(Concatenate { dim: last - 1 }, &[a, z])
    };
    let mine = if sp.fault == Fault::RowShift { shifted(&mut b, chosen) } else { chosen };
    let from = if sp.fault == Fault::PlaceShift { 1.0 } else { from };
    let one = b.like(w, 1.0);
    let d = if sp.weights == Weights::Over { b.op(Divide, &[one, w]) } else { w };
    let twice = sp.fault == Fault::WeightTwice;
    let dx = match sp.gradient {
        Gradient::None => None,
        Gradient::Scattered => {
            let own = match slope {
                Some(slope) => {
                    let beside = b.op(Multiply, &[d, slope]);
                    b.op(Add, &[d, beside])
                }
                None => d,
            };
            let part = if sp.fault == Fault::Unnormalised { own } else { b.op(Divide, &[own, sum]) };
            let part = b.wide(part, &shape);
            let soft = if sp.fault == Fault::LabelOnly { part } else { b.op(Multiply, &[part, e]) };
            let d = if twice { b.op(Multiply, &[d, d]) } else { d };
            let minus = if sp.fault == Fault::Sign { d } else { b.op(Negate, &[d]) };
            let mut vectors = rows.clone();
            vectors.extend([1, 1]);
            let vectors = b.reshape(mine, vectors);
            let vectors = if sp.fault == Fault::PlaceShift {
                let one = b.like(vectors, 1.0);
                b.op(Add, &[vectors, one])
            } else {
                vectors
            };
            let mut updates = rows.clone();
            updates.push(1);
            let minus = b.reshape(minus, updates);
            let batch: Shape = (0..last).collect();
            let scatter = Scatter {
                update_window_dims: Shape::new(),
                inserted_window_dims: [last].into_iter().collect(),
                input_batching_dims: batch.clone(),
                scatter_indices_batching_dims: batch,
                scatter_dims_to_operand_dims: [last].into_iter().collect(),
                index_vector_dim: last + 1,
                combine: Some(Monoid::Sum),
                unique_indices: false,
            };
            let zeros = b.like(x32, 0.0);
            let label = b.op(scatter, &[zeros, vectors, minus]);
            Some(b.op(Add, &[soft, label]))
        }
        Gradient::Direct => {
            let sums = spread(&mut b, sum);
            let p = if sp.fault == Fault::Unnormalised { e } else { b.op(Divide, &[e, sums]) };
            let p = match slope {
                Some(slope) => {
                    let s = b.op(Add, &[one, slope]);
                    let s = b.wide(s, &shape);
                    b.op(Multiply, &[s, p])
                }
                None => p,
            };
            let onehot = b.onehot(mine, &shape, from);
            let onehot = if twice {
                let d = b.wide(d, &shape);
                b.op(Multiply, &[d, onehot])
            } else {
                onehot
            };
            let diff = match sp.fault {
                Fault::Sign => b.op(Add, &[p, onehot]),
                Fault::LabelOnly => b.op(Negate, &[onehot]),
                _ => b.op(Subtract, &[p, onehot]),
            };
            let d = b.wide(d, &shape);
            Some(b.op(Multiply, &[d, diff]))
        }
        Gradient::Automatic => {
            let log = b.wide(log, &shape);
            let logp = b.op(Subtract, &[below, log]);
            let p = if sp.fault == Fault::Unnormalised { e } else { b.op(Exponential, &[logp]) };
            let onehot = b.onehot(mine, &shape, from);
            let onehot = b.target(onehot, sp.smoothed);
            let minus = if sp.fault == Fault::Sign { onehot } else { b.op(Negate, &[onehot]) };
            let wide = b.wide(w, &shape);
            let g = match sp.weights {
                Weights::Over => b.op(Divide, &[minus, wide]),
                _ => b.op(Multiply, &[minus, wide]),
            };
            let g = if twice { b.op(Multiply, &[g, wide]) } else { g };
            let g = if rest.is_some() {
                let u = b.wide(u, &shape);
                b.op(Subtract, &[g, u])
            } else {
                g
            };
            let unsigned = if twice || sp.fault == Fault::Sign {
                let minus = b.op(Negate, &[onehot]);
                b.op(Multiply, &[minus, wide])
            } else {
                g
            };
            let sum = b.reduce(unsigned, &[last], Monoid::Sum);
            let sum = b.wide(sum, &shape);
            let soft = b.op(Multiply, &[p, sum]);
            let soft = if sp.fault == Fault::LabelOnly { sum } else { soft };
            Some(b.op(Subtract, &[g, soft]))
        }
    };
    if let Some(dx) = dx {
        let dx = if sp.dtype == DType::F32 { dx } else { b.op(Convert::Value(sp.dtype), &[dx]) };
        results.push(dx);
    }
    b.g.set_results(results);
    finish(b)
}

fn finish(b: Build) -> Module {
    let Build { mut m, g } = b;
    let (params, results) = (g.params().len(), g.results().len());
    let graph = m.add_graph(g);
    m.entries.push(Entry {
        name: "train".into(),
        graph,
        params: (0..params).map(|i| ParamInfo { name: format!("arg{i}"), ..ParamInfo::default() }).collect(),
        results: (0..results)
            .map(|i| ResultInfo { name: format!("out{i}"), ..ResultInfo::default() })
            .collect(),
    });
    m
}
