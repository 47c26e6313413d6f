//! Attentions in many spellings, with the gradient that JAX derives from them, and with faults.

use msc_ir::ops::binary::BinaryKind::{Add, And, Divide, Multiply, Subtract};
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::pad::Pad;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::unary::UnaryKind::{Exponential, Negate, Tanh};
use msc_ir::{DType, Entry, Graph, LocId, Module, Monoid, Op, ParamInfo, ResultInfo, TensorType, ValueId};

/// Where the scale stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// On the queries.
    Queries,
    /// On the products.
    Products,
    /// As a division of the products.
    Divided,
    /// Its root on queries and on keys.
    Split,
}

/// What is masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mask {
    /// Nothing.
    None,
    /// Keys after the query, by a sum.
    CausalAdd,
    /// Keys after the query, and those this far before it, by a selection.
    Window(i64),
    /// Keys that an input says.
    Padding,
    /// An input is added, alike for the batch.
    Bias,
}

/// Something that makes it another computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Values are tiled over heads, keys repeated.
    Tiled,
    /// The weights are normalised over queries.
    OtherAxis,
    /// The sum is that of the squares.
    SquaredSum,
    /// What is subtracted differs between keys.
    ColumnShift,
    /// The gradient of the scores lacks the scale.
    GradientWithoutScale,
    /// The gradient of the scores has the scale twice.
    GradientScaleTwice,
    /// The row sum in the gradient is added.
    GradientSign,
    /// The gradient of the weights takes the keys.
    GradientOfKeys,
    /// The gradient of a later query's scores is dropped too.
    GradientMask,
    /// The gradient of scores this far apart is dropped too.
    GradientWindow(i64),
    /// The gradient multiplies by the weights twice.
    GradientTwice,
    /// The sink stands beside the scores as its exponential.
    SinkOfExponential,
    /// The sink's gradient has the other sign.
    SinkGradientSign,
}

/// A spelling.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Element type of queries, keys and values; scores are f32.
    pub dtype: DType,
    /// Query heads are grouped by head of keys, which are not repeated.
    pub grouped: bool,
    /// Batch and heads are one dimension in products.
    pub flat: bool,
    /// Query heads per head of keys.
    pub group: usize,
    /// The scale.
    pub scale: Scale,
    /// The mask.
    pub mask: Mask,
    /// A soft cap.
    pub cap: bool,
    /// A number for each head stands beside the scores.
    pub sink: bool,
    /// Products of queries and keys are kept in f32.
    pub wide: bool,
    /// Weights are divided by their sum after the product with the values.
    pub late: bool,
    /// The gradient goes through the maximum, too.
    pub ties: bool,
    /// The gradient follows.
    pub gradient: bool,
    /// Queries, and keys.
    pub length: usize,
    /// The fault.
    pub fault: Fault,
}

/// The plain spelling.
pub const PLAIN: Spelling = Spelling {
    dtype: DType::F32,
    grouped: false,
    flat: false,
    group: 2,
    scale: Scale::Products,
    mask: Mask::CausalAdd,
    cap: false,
    sink: false,
    wide: false,
    late: false,
    ties: false,
    gradient: true,
    length: 5,
    fault: Fault::None,
};

const B: usize = 2;
const K: usize = 3;
const H: usize = 4;
const SCALE: f64 = 0.5;
const CAP: f64 = 2.0;

struct Maker {
    module: Module,
    graph: Graph,
    /// What products are kept in, if not in their operands' type.
    into: Option<DType>,
}

impl Maker {
    fn op(&mut self, op: impl Into<Op>, args: &[ValueId]) -> ValueId {
        self.graph.add1(&self.module, op, args, LocId::UNKNOWN).expect("fits")
    }

    fn ty(&self, v: ValueId) -> TensorType {
        self.graph.ty(v).clone()
    }

    fn param(&mut self, dtype: DType, shape: &[usize]) -> ValueId {
        self.graph.add_param(TensorType::new(dtype, shape.iter().copied()))
    }

    fn splat(&mut self, like: ValueId, value: f64) -> ValueId {
        let ty = self.ty(like);
        let id = self.module.constants.intern_splat(ty, value);
        self.op(ConstantOp { id }, &[])
    }

    fn reshape(&mut self, v: ValueId, shape: &[usize]) -> ValueId {
        self.op(Reshape { shape: shape.iter().copied().collect() }, &[v])
    }

    fn transpose(&mut self, v: ValueId, p: &[usize]) -> ValueId {
        self.op(Permute::Transpose(p.iter().copied().collect()), &[v])
    }

    fn broadcast(&mut self, v: ValueId, shape: &[usize], dims: &[usize]) -> ValueId {
        let b =
            BroadcastInDim { shape: shape.iter().copied().collect(), dims: dims.iter().copied().collect() };
        self.op(b, &[v])
    }

    fn reduce(&mut self, v: ValueId, dim: usize, monoid: Monoid) -> ValueId {
        self.op(Reduce { dims: [dim].into_iter().collect(), monoid }, &[v])
    }

    /// A statistic over dimension `dim`, spread again.
    fn spread(&mut self, v: ValueId, dim: usize, monoid: Monoid) -> ValueId {
        let shape = self.ty(v).shape.to_vec();
        let r = self.reduce(v, dim, monoid);
        let dims: Vec<usize> = (0..shape.len()).filter(|&d| d != dim).collect();
        self.broadcast(r, &shape, &dims)
    }

    fn convert(&mut self, v: ValueId, dtype: DType) -> ValueId {
        if self.ty(v).dtype == dtype { v } else { self.op(Convert::Value(dtype), &[v]) }
    }

    fn dot(&mut self, l: ValueId, r: ValueId, batch: usize, contract: (&[usize], &[usize])) -> ValueId {
        let dtype = self.into.unwrap_or(self.ty(l).dtype);
        let d = DotGeneral {
            lhs_batch: (0..batch).collect(),
            rhs_batch: (0..batch).collect(),
            lhs_contract: contract.0.iter().copied().collect(),
            rhs_contract: contract.1.iter().copied().collect(),
            dtype,
        };
        self.op(d, &[l, r])
    }

    /// A dot of `[B,H,…]` tensors, over one batch dimension where `flat`.
    fn product(&mut self, l: ValueId, r: ValueId, contract: (usize, usize), flat: bool) -> ValueId {
        if !flat {
            return self.dot(l, r, 2, (&[contract.0], &[contract.1]));
        }
        let (a, b) = (self.ty(l).shape, self.ty(r).shape);
        let l = self.reshape(l, &[a[0] * a[1], a[2], a[3]]);
        let r = self.reshape(r, &[b[0] * b[1], b[2], b[3]]);
        let out = self.dot(l, r, 1, (&[contract.0 - 1], &[contract.1 - 1]));
        let s = self.ty(out).shape;
        self.reshape(out, &[a[0], a[1], s[1], s[2]])
    }

    fn scaled(&mut self, v: ValueId, by: f64) -> ValueId {
        let c = self.splat(v, by);
        self.op(Multiply, &[v, c])
    }

    /// Elements `from..to` of the last dimension.
    fn last(&mut self, v: ValueId, from: usize, to: usize) -> ValueId {
        let mut limit = self.ty(v).shape;
        let d = limit.len() - 1;
        let mut start: msc_ir::Shape = limit.iter().map(|_| 0).collect();
        let stride = limit.iter().map(|_| 1).collect();
        (start[d], limit[d]) = (from, to);
        self.op(Slice::Static { start, limit, stride }, &[v])
    }

    /// `[B,n,heads·h] → [B,heads,n,h]`.
    fn heads(&mut self, v: ValueId, heads: usize) -> ValueId {
        let s = self.ty(v).shape;
        let v = self.reshape(v, &[s[0], s[1], heads, s[2] / heads]);
        self.transpose(v, &[0, 2, 1, 3])
    }

    /// The inverse.
    fn joined(&mut self, v: ValueId) -> ValueId {
        let s = self.ty(v).shape;
        let v = self.transpose(v, &[0, 2, 1, 3]);
        self.reshape(v, &[s[0], s[2], s[1] * s[3]])
    }

    /// Whether a key is kept, `i1[length,length]`.
    fn kept(&mut self, length: usize, window: Option<i64>, shift: i64) -> ValueId {
        let ty = TensorType::new(DType::I32, [length, length]);
        let i = self.op(Iota { ty: ty.clone(), dim: 0 }, &[]);
        let j = self.op(Iota { ty, dim: 1 }, &[]);
        let shift = self.splat(i, shift as f64);
        let i = self.op(Add, &[i, shift]);
        let mut kept = self.op(Compare { direction: Direction::Le, total_order: false }, &[j, i]);
        if let Some(n) = window {
            let n = self.splat(i, n as f64);
            let first = self.op(Subtract, &[i, n]);
            let near = self.op(Compare { direction: Direction::Gt, total_order: false }, &[j, first]);
            kept = self.op(And, &[kept, near]);
        }
        kept
    }
}

/// The program of a spelling: queries `[B,S,H·h]`, keys and values `[B,S,K·h]`, the output's gradient, then an input
/// of the mask if it has one and the sink if there is one, to the output and the gradients of queries, keys, values and sink.
pub fn attention(sp: &Spelling) -> Module {
    let mut m = Maker { module: Module::new("step"), graph: Graph::new("main"), into: None };
    let (g, heads, s) = (sp.group, K * sp.group, sp.length);
    let q0 = m.param(sp.dtype, &[B, s, heads * H]);
    let k0 = m.param(sp.dtype, &[B, s, K * H]);
    let v0 = m.param(sp.dtype, &[B, s, K * H]);
    let dy0 = m.param(sp.dtype, &[B, s, heads * H]);
    let input = match sp.mask {
        Mask::Padding => Some(m.param(DType::I1, &[B, s])),
        Mask::Bias => Some(m.param(DType::F32, &[heads, s, s])),
        _ => None,
    };
    let sink = sp.sink.then(|| m.param(DType::F32, &[heads]));
    let (q1, k1, v1) = (m.heads(q0, heads), m.heads(k0, K), m.heads(v0, K));
    let (mut q, mut k, mut v) = (q1, k1, v1);
    match sp.scale {
        Scale::Queries => q = m.scaled(q, SCALE),
        Scale::Split => {
            q = m.scaled(q, SCALE.sqrt());
            k = m.scaled(k, SCALE.sqrt());
        }
        _ => {}
    }
    let wide = [B, K, g, s, H];
    if sp.grouped {
        q = m.reshape(q, &wide);
    } else if g > 1 {
        let repeated = m.broadcast(k, &wide, &[0, 1, 3, 4]);
        k = m.reshape(repeated, &[B, heads, s, H]);
        v = if sp.fault == Fault::Tiled {
            let tiled = m.broadcast(v, &[B, g, K, s, H], &[0, 2, 3, 4]);
            m.reshape(tiled, &[B, heads, s, H])
        } else {
            let repeated = m.broadcast(v, &wide, &[0, 1, 3, 4]);
            m.reshape(repeated, &[B, heads, s, H])
        };
    }
    let all = [B, heads, s, s];
    let grouped = [B, K, g, s, s];
    m.into = sp.wide.then_some(DType::F32);
    let mut s = if sp.grouped {
        // Keys on the left.
        let s = m.dot(k, q, 2, (&[3], &[4]));
        let s = m.transpose(s, &[0, 1, 3, 4, 2]);
        m.reshape(s, &all)
    } else {
        m.product(q, k, (3, 3), sp.flat)
    };
    m.into = None;
    s = m.convert(s, DType::F32);
    match sp.scale {
        Scale::Products => s = m.scaled(s, SCALE),
        Scale::Divided => {
            let c = m.splat(s, 1.0 / SCALE);
            s = m.op(Divide, &[s, c]);
        }
        _ => {}
    }
    let mut slope = None;
    if sp.cap {
        let t = m.scaled(s, 1.0 / CAP);
        let t = m.op(Tanh, &[t]);
        slope = Some(t);
        s = m.scaled(t, CAP);
    }
    let mut selected = None;
    match (sp.mask, input) {
        (Mask::CausalAdd, _) => {
            let kept = m.kept(sp.length, None, 0);
            let ty = TensorType::new(DType::F32, [sp.length, sp.length]);
            let zero = m.module.constants.intern_splat(ty.clone(), 0.0);
            let zero = m.op(ConstantOp { id: zero }, &[]);
            let least = m.module.constants.intern_splat(ty, f64::from(f32::MIN));
            let least = m.op(ConstantOp { id: least }, &[]);
            let bias = m.op(Select::Select, &[kept, zero, least]);
            let bias = m.broadcast(bias, &all, &[2, 3]);
            s = m.op(Add, &[s, bias]);
        }
        (Mask::Window(n), _) => {
            let kept = m.kept(sp.length, Some(n), 0);
            let kept = m.broadcast(kept, &all, &[2, 3]);
            let fill = m.splat(s, -1e9);
            s = m.op(Select::Select, &[kept, s, fill]);
            selected = Some(kept);
        }
        (Mask::Padding, Some(kept)) => {
            let kept = m.broadcast(kept, &all, &[0, 3]);
            let fill = m.splat(s, -1e9);
            s = m.op(Select::Select, &[kept, s, fill]);
            selected = Some(kept);
        }
        (Mask::Bias, Some(bias)) => {
            let bias = m.broadcast(bias, &all, &[1, 2, 3]);
            s = m.op(Add, &[s, bias]);
        }
        _ => {}
    }
    if let Some(sink) = sink {
        let sink = if sp.fault == Fault::SinkOfExponential { m.op(Exponential, &[sink]) } else { sink };
        let column = m.broadcast(sink, &[B, heads, sp.length, 1], &[1]);
        s = m.op(Concatenate { dim: 3 }, &[s, column]);
    }
    let axis = if sp.fault == Fault::OtherAxis { 2 } else { 3 };
    let largest = m.spread(s, if sp.fault == Fault::ColumnShift { 2 } else { axis }, Monoid::Max);
    let below = m.op(Subtract, &[s, largest]);
    let e = m.op(Exponential, &[below]);
    let summed = if sp.fault == Fault::SquaredSum { m.op(Multiply, &[e, e]) } else { e };
    let l = m.spread(summed, axis, Monoid::Sum);
    let p = m.op(Divide, &[e, l]);
    let shares = p;
    let (p, weights) = match sink {
        Some(_) => (m.last(p, 0, sp.length), m.last(if sp.late { e } else { p }, 0, sp.length)),
        None => (p, if sp.late { e } else { p }),
    };
    let weights = m.convert(weights, sp.dtype);
    let narrow = sp.late && sp.dtype != DType::F32;
    let mut o = if sp.grouped {
        let w = m.reshape(weights, &grouped);
        let o = m.dot(v, w, 2, (&[2], &[4]));
        let o = m.transpose(o, &[0, 1, 3, 4, 2]);
        m.reshape(o, &[B, heads, sp.length, H])
    } else {
        m.product(weights, v, (3, 2), sp.flat)
    };
    let (product, mut row) = (o, o);
    if sp.late {
        row = m.reduce(summed, axis, Monoid::Sum);
        row = m.convert(row, sp.dtype);
        let row = m.broadcast(row, &[B, heads, sp.length, H], &[0, 1, 2]);
        o = m.op(Divide, &[o, row]);
    }
    let mut results = vec![m.joined(o)];
    if sp.gradient {
        let dy = m.heads(dy0, heads);
        let (mut pw, mut into) = (m.convert(p, sp.dtype), dy);
        if narrow {
            let row = m.broadcast(row, &[B, heads, sp.length, H], &[0, 1, 2]);
            (pw, into) = (weights, m.op(Divide, &[dy, row]));
        }
        let with = if sp.fault == Fault::GradientOfKeys { k } else { v };
        let (dv, dp) = if sp.grouped {
            let (w, d) = (m.reshape(pw, &grouped), m.reshape(into, &wide));
            let dv = m.dot(w, d, 2, (&[2, 3], &[2, 3]));
            let dp = m.dot(d, with, 2, (&[4], &[3]));
            (dv, m.reshape(dp, &all))
        } else {
            let dv = m.product(pw, into, (2, 2), sp.flat);
            (m.grouped_sum(dv, g), m.product(into, with, (3, 3), sp.flat))
        };
        let mut dp = m.convert(dp, DType::F32);
        let mut every = all;
        if sink.is_some() {
            let zero = m.module.constants.intern_splat(TensorType::new(DType::F32, []), 0.0);
            let zero = m.op(ConstantOp { id: zero }, &[]);
            let pad = Pad {
                low: [0; 4].into_iter().collect(),
                high: [0, 0, 0, 1].into_iter().collect(),
                interior: [0; 4].into_iter().collect(),
            };
            dp = m.op(pad, &[dp, zero]);
            every[3] += 1;
        }
        // The quotient rule.
        let base = if narrow { row } else { l };
        let square = m.op(Multiply, &[base, base]);
        let one = m.splat(square, 1.0);
        let inverse = m.op(Divide, &[one, square]);
        let row = if narrow {
            let inverse = m.broadcast(inverse, &[B, heads, sp.length, H], &[0, 1, 2]);
            let part = m.op(Multiply, &[dy, inverse]);
            let part = m.op(Multiply, &[part, product]);
            let row = m.reduce(part, 3, Monoid::Sum);
            let row = m.convert(row, DType::F32);
            m.broadcast(row, &every, &[0, 1, 2])
        } else {
            let part = m.op(Multiply, &[dp, inverse]);
            let part = m.op(Multiply, &[part, e]);
            m.spread(part, 3, Monoid::Sum)
        };
        let row = if sp.fault == Fault::GradientSign { row } else { m.op(Negate, &[row]) };
        let over = if narrow { dp } else { m.op(Divide, &[dp, l]) };
        let sum = m.op(Add, &[over, row]);
        let mut ds = m.op(Multiply, &[sum, e]);
        if sp.ties {
            let is = m.op(Compare { direction: Direction::Eq, total_order: false }, &[s, largest]);
            let is = m.convert(is, DType::F32);
            let number = m.spread(is, 3, Monoid::Sum);
            let against = m.op(Negate, &[ds]);
            let sum = m.spread(against, 3, Monoid::Sum);
            let share = m.op(Divide, &[sum, number]);
            let share = m.op(Multiply, &[share, is]);
            ds = m.op(Add, &[ds, share]);
        }
        if sp.fault == Fault::GradientTwice {
            ds = m.op(Multiply, &[ds, shares]);
        }
        let mut of_sink = None;
        if sink.is_some() {
            let column = m.last(ds, sp.length, sp.length + 1);
            let rows = m.reduce(column, 2, Monoid::Sum);
            let heads_alone = m.reduce(rows, 0, Monoid::Sum);
            let of = m.reshape(heads_alone, &[heads]);
            of_sink = Some(if sp.fault == Fault::SinkGradientSign { m.op(Negate, &[of]) } else { of });
            ds = m.last(ds, 0, sp.length);
        }
        let mut selected = selected;
        if let Fault::GradientWindow(n) = sp.fault {
            let kept = m.kept(sp.length, Some(n), 0);
            selected = Some(m.broadcast(kept, &all, &[2, 3]));
        }
        if sp.fault == Fault::GradientMask {
            let kept = m.kept(sp.length, None, -1);
            selected = Some(m.broadcast(kept, &all, &[2, 3]));
        }
        if let Some(kept) = selected {
            let zero = m.splat(ds, 0.0);
            ds = m.op(Select::Select, &[kept, ds, zero]);
        }
        if let Some(t) = slope {
            let square = m.op(Multiply, &[t, t]);
            let one = m.splat(t, 1.0);
            let slope = m.op(Subtract, &[one, square]);
            ds = m.op(Multiply, &[ds, slope]);
        }
        if matches!(sp.scale, Scale::Products | Scale::Divided) && sp.fault != Fault::GradientWithoutScale {
            ds = m.scaled(ds, SCALE);
        }
        if sp.fault == Fault::GradientScaleTwice {
            ds = m.scaled(ds, SCALE);
        }
        let into = if sp.wide { DType::F32 } else { sp.dtype };
        let ds = m.convert(ds, into);
        let (q, k) = (m.convert(q, into), m.convert(k, into));
        let (mut dq, mut dk) = if sp.grouped {
            let d = m.reshape(ds, &grouped);
            let dq = m.dot(d, k, 2, (&[4], &[2]));
            let dk = m.dot(d, q, 2, (&[2, 3], &[2, 3]));
            (m.reshape(dq, &[B, heads, sp.length, H]), m.convert(dk, sp.dtype))
        } else {
            let dk = m.product(ds, q, (2, 2), sp.flat);
            let dk = m.convert(dk, sp.dtype);
            (m.product(ds, k, (3, 2), sp.flat), m.grouped_sum(dk, g))
        };
        dq = m.convert(dq, sp.dtype);
        match sp.scale {
            Scale::Queries => dq = m.scaled(dq, SCALE),
            Scale::Split => {
                dq = m.scaled(dq, SCALE.sqrt());
                dk = m.scaled(dk, SCALE.sqrt());
            }
            _ => {}
        }
        for d in [dq, dk, dv] {
            let joined = m.joined(d);
            results.push(joined);
        }
        results.extend(of_sink);
    }
    let Maker { mut module, mut graph, .. } = m;
    let (params, n) = (graph.params().len(), results.len());
    graph.set_results(results);
    let graph = module.add_graph(graph);
    module.entries.push(Entry {
        name: "train".into(),
        graph,
        params: (0..params).map(|i| ParamInfo { name: format!("p{i}"), ..Default::default() }).collect(),
        results: (0..n).map(|i| ResultInfo { name: format!("r{i}"), ..Default::default() }).collect(),
    });
    module
}

impl Maker {
    /// `[B,H,…] → [B,K,…]`, summed over the heads of a group.
    fn grouped_sum(&mut self, v: ValueId, g: usize) -> ValueId {
        if g == 1 {
            return v;
        }
        let s = self.ty(v).shape;
        let v = self.reshape(v, &[s[0], s[1] / g, g, s[2], s[3]]);
        self.reduce(v, 2, Monoid::Sum)
    }
}
