//! What tests of graph passes share: special inputs, comparison bit by bit, random graphs.

#![allow(dead_code)]

pub mod layers;

use msc_ir::interp::{Mode, run};
use msc_ir::op::Op;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{
    DType, Entry, Graph, LocId, Module, Monoid, ParamInfo, ResultInfo, Tensor, TensorType, ValueId,
};

/// A small deterministic generator (xorshift), so that a failing case can be named by its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Elements that identities go wrong on: both zeros, infinities, NaN, subnormals, ones, large and odd values.
const SPECIAL: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e-40,
    -1e-45,
    3.402_823_4e38,
    0.1,
    -7.0,
    129.0,
    65504.0,
];

/// A tensor of special and ordinary values.
pub fn tensor(ty: &TensorType, random: &mut Random) -> Tensor {
    let values: Vec<f64> = (0..ty.elements())
        .map(|_| {
            if random.below(2) == 0 {
                *random.pick(&SPECIAL)
            } else {
                random.below(2001) as f64 / 500.0 - 2.0
            }
        })
        .collect();
    Tensor::from_f64s(ty, &values)
}

/// A tensor of ordinary values, for graphs whose depth would turn special ones into NaN everywhere.
pub fn plain_tensor(ty: &TensorType, random: &mut Random) -> Tensor {
    let values: Vec<f64> = (0..ty.elements())
        .map(|_| match ty.dtype {
            d if d.is_float() => random.below(2001) as f64 / 1000.0 - 1.0,
            _ => random.below(7) as f64,
        })
        .collect();
    Tensor::from_f64s(ty, &values)
}

/// Whether two tensors have the same bits; any NaN equals any NaN.
pub fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let width = a.dtype().size_bytes();
    a.ty() == b.ty()
        && a.data
            .bytes()
            .chunks_exact(width)
            .zip(b.data.bytes().chunks_exact(width))
            .enumerate()
            .all(|(i, (x, y))| x == y || (a.data.get_f64(i).is_nan() && b.data.get_f64(i).is_nan()))
}

/// Runs the default entry of both modules on the same inputs and compares every output bit by bit.
pub fn assert_same(before: &Module, after: &Module, inputs: &[Tensor]) {
    let run = |m: &Module| run(m, m.entry().expect("entry").graph, inputs, Mode::Spec).expect("runs");
    let (x, y) = (run(before), run(after));
    assert_eq!(x.len(), y.len());
    for (i, (a, b)) in x.iter().zip(&y).enumerate() {
        assert!(same_bits(a, b), "output {i} differs: {a:?} {b:?}");
    }
}

/// Inputs of the default entry's types.
pub fn inputs(m: &Module, random: &mut Random, make: fn(&TensorType, &mut Random) -> Tensor) -> Vec<Tensor> {
    m.graph(m.entry().expect("entry").graph).param_types().iter().map(|t| make(t, random)).collect()
}

/// Makes `graph` the entry of a module, with names `argN` and `resultN`.
pub fn with_entry(mut module: Module, graph: Graph) -> Module {
    let (params, results) = (graph.params().len(), graph.results().len());
    let id = module.add_graph(graph);
    module.entries.push(Entry {
        name: "main".into(),
        graph: id,
        params: (0..params).map(|i| ParamInfo { name: format!("arg{i}"), ..ParamInfo::default() }).collect(),
        results: (0..results)
            .map(|i| ResultInfo { name: format!("result{i}"), ..ResultInfo::default() })
            .collect(),
    });
    module
}

/// A random graph of `n` ops over small tensors, in which identities, constants and movement are frequent.
pub fn random_module(seed: u64, n: usize) -> Module {
    let mut r = Random::new(seed);
    let mut m = Module::new("random");
    let mut g = Graph::new("main");
    let dtypes = [DType::F32, DType::BF16, DType::F16, DType::I32, DType::U8, DType::I1, DType::F64];
    let shapes: [&[usize]; 6] = [&[], &[3], &[2, 3], &[3, 2], &[1, 3], &[2, 1, 3]];
    let mut values: Vec<ValueId> = Vec::new();
    for _ in 0..6 {
        let ty = TensorType::new(*r.pick(&dtypes), r.pick(&shapes).iter().copied());
        values.push(g.add_param(ty));
    }
    while g.order().len() < n {
        if let Some((op, operands)) = random_op(&mut r, &mut m, &g, &values) {
            // A draw whose types do not fit is drawn again.
            if let Ok(v) = g.add(&m, op, &operands, LocId::UNKNOWN) {
                values.extend(v);
            }
        }
    }
    let results = values.iter().rev().step_by(3).take(12).copied().collect();
    g.set_results(results);
    with_entry(m, g)
}

fn random_op(r: &mut Random, m: &mut Module, g: &Graph, values: &[ValueId]) -> Option<(Op, Vec<ValueId>)> {
    let x = *r.pick(values);
    let t = g.ty(x).clone();
    let alike = |r: &mut Random| {
        let same: Vec<ValueId> = values.iter().copied().filter(|&v| *g.ty(v) == t).collect();
        *r.pick(&same)
    };
    Some(match r.below(11) {
        0 | 1 => {
            let id = match r.below(3) {
                0 => m
                    .constants
                    .intern_splat(t, *r.pick(&[0.0, -0.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY])),
                1 => m.constants.intern_tensor(&tensor(&t, r)),
                _ => m.constants.intern_splat(TensorType::scalar(t.dtype), *r.pick(&[0.0, 1.0, -1.0])),
            };
            (ConstantOp { id }.into(), vec![])
        }
        2 => (UnaryKind::ALL[r.below(UnaryKind::ALL.len())].into(), vec![x]),
        3 | 4 => {
            let y = alike(r);
            (
                BinaryKind::ALL[r.below(BinaryKind::ALL.len())].into(),
                if r.below(2) == 0 { vec![x, y] } else { vec![y, x] },
            )
        }
        5 => (Convert::Value(*r.pick(&DType::ALL)).into(), vec![x]),
        6 => {
            let shape: Vec<usize> = match t.rank() {
                0 => vec![2, 3],
                1 => vec![2, t.shape[0]],
                _ => t.shape.to_vec(),
            };
            let dims = (shape.len() - t.rank()..shape.len()).collect();
            (BroadcastInDim { shape: shape.as_slice().into(), dims }.into(), vec![x])
        }
        7 => {
            let mut shape = t.shape.clone();
            if r.below(2) == 0 {
                shape.reverse()
            } else {
                shape.push(1)
            }
            (Reshape { shape }.into(), vec![x])
        }
        8 => {
            let mut p: Vec<usize> = (0..t.rank()).collect();
            if r.below(3) > 0 {
                p.reverse();
            }
            (Permute::Transpose(p.as_slice().into()).into(), vec![x])
        }
        9 => {
            let dims = (0..t.rank()).filter(|_| r.below(3) == 0).collect();
            (Reduce { dims, monoid: *r.pick(&Monoid::ALL) }.into(), vec![x])
        }
        _ => match r.below(2) {
            0 => {
                let direction = *r.pick(&Direction::ALL);
                (Compare { direction, total_order: r.below(4) == 0 }.into(), vec![x, alike(r)])
            }
            _ => {
                let p: Vec<ValueId> =
                    values.iter().copied().filter(|&v| g.ty(v).dtype == DType::I1).collect();
                (Select::Select.into(), vec![*p.get(r.below(p.len().max(1)))?, x, alike(r)])
            }
        },
    })
}
