//! Random instances of the op families that take a graph of scalars.

use super::cases::{Case, scatter, shape};
use super::{Generator, Rng};
use crate::dtype::DType;
use crate::graph::{Graph, ValueId};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::monoid::Monoid;
use crate::op::Op;
use crate::ops::binary::BinaryKind;
use crate::ops::compare::{Compare, Direction};
use crate::ops::map::Map;
use crate::ops::precision::ReducePrecision;
use crate::ops::reduce_by::ReduceBy;
use crate::ops::reducer::Reducer;
use crate::ops::scatter_by::ScatterBy;
use crate::ops::select::Select;
use crate::ops::sort::Sort;
use crate::ops::window::{Window, Windowed};
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType};

/// Families of this file, by name.
pub const FAMILIES: &[(&str, Generator)] = &[
    ("reduce_by", reduce_by),
    ("reduce_window", reduce_window),
    ("select_and_scatter", select_and_scatter),
    ("sort", sort),
    ("map", map),
    ("reduce_precision", reduce_precision),
    ("scatter_by", scatter_by),
];

/// A graph of scalars `params → what build returns`.
pub fn scalar_graph(
    m: &mut Module,
    name: &str,
    params: &[DType],
    build: impl FnOnce(&Module, &mut Graph, &[ValueId]) -> Vec<ValueId>,
) -> GraphId {
    let mut g = Graph::new(name);
    let p: Vec<ValueId> = params.iter().map(|&d| g.add_param(TensorType::scalar(d))).collect();
    let r = build(m, &mut g, &p);
    g.set_results(r);
    m.add_graph(g)
}

/// One op of a graph of scalars.
fn op1(m: &Module, g: &mut Graph, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
    g.add1(m, op, operands, LocId::UNKNOWN).expect("the operands fit")
}

/// Argmax: the greater value with its index, the lesser index where values are equal.
pub fn argmax(m: &mut Module) -> GraphId {
    let (f, i) = (DType::F32, DType::I32);
    scalar_graph(m, "argmax", &[f, i, f, i], |m, g, p| {
        let cmp = |direction| Compare { direction, total_order: false };
        let greater = op1(m, g, cmp(Direction::Gt), &[p[0], p[2]]);
        let equal = op1(m, g, cmp(Direction::Eq), &[p[0], p[2]]);
        let before = op1(m, g, cmp(Direction::Lt), &[p[1], p[3]]);
        let tie = op1(m, g, BinaryKind::And, &[equal, before]);
        let keep = op1(m, g, BinaryKind::Or, &[greater, tie]);
        let value = op1(m, g, Select::Select, &[keep, p[0], p[2]]);
        let index = op1(m, g, Select::Select, &[keep, p[1], p[3]]);
        vec![value, index]
    })
}

/// A graph `T[], T[] → T[]` of one op.
pub fn binary_graph(m: &mut Module, kind: BinaryKind, d: DType) -> GraphId {
    scalar_graph(m, kind.name(), &[d, d], |m, g, p| vec![op1(m, g, kind, p)])
}

/// A graph `T[], T[] → i1[]` of one comparison.
pub fn compare_graph(m: &mut Module, direction: Direction, params: &[DType]) -> GraphId {
    scalar_graph(m, "before", params, |m, g, p| {
        vec![op1(m, g, Compare { direction, total_order: false }, &p[..2])]
    })
}

fn reduce_by(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let k = r.below(0, shape.len() + 1);
    let mut module = Module::new("case");
    let body = argmax(&mut module);
    let inputs = vec![
        r.tensor(DType::F32, &shape),
        r.tensor(DType::I32, &shape),
        Tensor::scalar(DType::F32, -9.0),
        Tensor::scalar(DType::I32, 99.0),
    ];
    Case { module, op: ReduceBy { dims: r.subset(shape.len(), k), body }.into(), inputs }
}

fn window(r: &mut Rng, shape: &[usize], dilated: bool) -> Window {
    let mut w = Window::unit(shape.len());
    for d in 0..shape.len() {
        if r.coin() {
            continue;
        }
        w.size[d] = r.below(1, 4);
        w.stride[d] = r.below(1, 3);
        w.low[d] = r.int(-1, 2);
        w.high[d] = r.int(-1, 2);
        if dilated {
            w.base_dilation[d] = r.below(1, 3);
            w.dilation[d] = r.below(1, 3);
        }
    }
    w
}

fn reduce_window(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let window = window(r, &shape, true);
    let mut module = Module::new("case");
    if r.coin() {
        let reducer = Reducer::Monoid(r.pick(&[Monoid::Sum, Monoid::Max, Monoid::Product]));
        let d = r.pick(&[DType::F32, DType::I32]);
        return Case::new(Windowed::Reduce { window, reducer }, vec![r.tensor(d, &shape)]);
    }
    let reducer = Reducer::Graph(argmax(&mut module));
    let inputs = vec![
        r.tensor(DType::F32, &shape),
        r.tensor(DType::I32, &shape),
        Tensor::scalar(DType::F32, -9.0),
        Tensor::scalar(DType::I32, 99.0),
    ];
    Case { module, op: Windowed::Reduce { window, reducer }.into(), inputs }
}

fn select_and_scatter(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let window = window(r, &shape, false);
    let mut module = Module::new("case");
    let select = compare_graph(&mut module, Direction::Ge, &[DType::F32, DType::F32]);
    let scatter = binary_graph(&mut module, BinaryKind::Add, DType::F32);
    let count: Shape = window.count("select_and_scatter", &shape).expect("small windows");
    let inputs =
        vec![r.tensor(DType::F32, &shape), r.tensor(DType::F32, &count), Tensor::scalar(DType::F32, 0.0)];
    Case { module, op: Windowed::SelectAndScatter { window, select, scatter }.into(), inputs }
}

fn sort(r: &mut Rng) -> Case {
    let shape = shape(r, 1, 3);
    let mut module = Module::new("case");
    let d = r.pick(&[DType::F32, DType::I32]);
    let two = r.coin();
    let mut params = vec![d, d];
    let mut inputs = vec![r.ints(d, &shape, -2, 2)];
    if two {
        params.extend([DType::I32; 2]);
        inputs.push(r.tensor(DType::I32, &shape));
    }
    let direction = r.pick(&[Direction::Lt, Direction::Gt]);
    let comparator = compare_graph(&mut module, direction, &params);
    let op = Sort { dim: r.below(0, shape.len()), stable: r.coin(), comparator };
    Case { module, op: op.into(), inputs }
}

fn map(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let mut module = Module::new("case");
    let body = binary_graph(&mut module, BinaryKind::Maximum, DType::F32);
    let inputs = vec![r.tensor(DType::F32, &shape), r.tensor(DType::F32, &shape)];
    Case { module, op: Map { body }.into(), inputs }
}

fn reduce_precision(r: &mut Rng) -> Case {
    let shape = shape(r, 0, 3);
    let op = ReducePrecision { exponent_bits: r.below(2, 12) as u32, mantissa_bits: r.below(0, 30) as u32 };
    let d = r.pick(&[DType::F32, DType::BF16]);
    Case::new(op, vec![r.tensor(d, &shape)])
}

/// The case of a scatter with its input twice and a graph that combines both.
fn scatter_by(r: &mut Rng) -> Case {
    let one = scatter(r);
    let Op::Scatter(numbers) = one.op else { unreachable!("a scatter case holds a scatter") };
    let mut module = Module::new("case");
    let d = one.inputs[0].dtype();
    let body = scalar_graph(&mut module, "update", &[d, d, d, d], |m, g, p| {
        let first = op1(m, g, BinaryKind::Subtract, &[p[0], p[3]]);
        let second = op1(m, g, BinaryKind::Add, &[p[1], p[2]]);
        vec![first, second]
    });
    let again = |r: &mut Rng, t: &Tensor| r.tensor(d, &t.shape);
    let inputs = vec![
        one.inputs[0].clone(),
        again(r, &one.inputs[0]),
        one.inputs[1].clone(),
        one.inputs[2].clone(),
        again(r, &one.inputs[2]),
    ];
    let numbers = crate::ops::scatter::Scatter { combine: None, ..*numbers };
    Case { module, op: ScatterBy { numbers, body }.into(), inputs }
}
