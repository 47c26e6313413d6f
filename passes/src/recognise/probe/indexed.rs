//! Indices in trials: token ids and labels, drawn inside and outside of what they count along.
//!
//! Where the dimension that they count along is cut, the program's own mention of its size is cut with it: a bound
//! `V − 1` is the last index at every size. Any other number stays as it is, and indices are drawn beside it, so that a
//! bound that is not the dimension's shows as a difference.

use crate::recognise::check::random::Random;
use msc_ir::factor::solve::AtomId;
use msc_ir::ops::compare::Direction;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::convert::Convert;
use msc_ir::{DType, Graph, Module, Op, Tensor, TensorType, ValueDef, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of a slice beside which indices are drawn; exporters have up to six.
const MAX_NUMBERS: usize = 24;

/// A parameter of a trial that holds indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Indexed {
    /// Which parameter.
    pub param: usize,
    /// The dimension that it counts along.
    pub along: AtomId,
}

/// The number that every element of an integer constant is.
fn whole_number(module: &Module, op: &Op) -> Option<(ConstantOp, i64)> {
    let Op::Constant(c) = op else { return None };
    let value = module.constants.splat_value(c.id).filter(|_| module.constants.dtype(c.id).is_int())?;
    (value.abs() < 9e15).then_some((*c, value as i64))
}

/// A resized graph in which integers that are a size that was changed, before and after by `sizes`, or the last index of
/// it, are that of the new size.
pub fn recount(
    module: &mut Module,
    mut graph: Graph,
    indices: &[Indexed],
    sizes: impl Fn(AtomId) -> (usize, usize),
) -> Graph {
    let changed: BTreeSet<(i64, i64)> = indices
        .iter()
        .map(|i| sizes(i.along))
        .filter(|(old, new)| old != new)
        .map(|(old, new)| (old as i64, new as i64))
        .collect();
    if changed.is_empty() {
        return graph;
    }
    let mut map = BTreeMap::new();
    for (_, data) in graph.ops() {
        let Some((c, value)) = whole_number(module, &data.op) else { continue };
        let same = changed.iter().find_map(|&(old, new)| match value {
            v if v == old => Some(new),
            v if v == old - 1 => Some(new - 1),
            v if v == -old => Some(-new),
            _ => None,
        });
        if let Some(new) = same {
            let ty = module.constants.get(c.id).ty.clone();
            map.insert(c.id, module.constants.intern_splat(ty, new as f64));
        }
    }
    graph.map_ops(|op| match op {
        Op::Constant(c) => ConstantOp { id: *map.get(&c.id).unwrap_or(&c.id) }.into(),
        op => op.clone(),
    });
    graph
}

/// Whether every index that a graph counts itself is compared with one of the parameters for equality, and used for
/// nothing else: then all places of the counted dimension are alike, and a smaller one shows all there is.
pub fn iotas_are_compared(graph: &Graph, indices: &[Indexed]) -> bool {
    let moves = |op: &Op| {
        let exact = |d: DType| d.is_int() && d.size_bytes() >= 4 || matches!(d, DType::F32 | DType::F64);
        match op {
            Op::Convert(Convert::Value(d)) => exact(*d),
            op => matches!(op, Op::Reshape(_) | Op::Broadcast(_) | Op::Permute(_)),
        }
    };
    let from_indices = |mut v: ValueId| loop {
        match graph.value(v).def {
            ValueDef::Param(i) => return indices.iter().any(|x| x.param == i as usize),
            ValueDef::Result(op, _) if moves(&graph.op(op).op) => v = graph.op(op).operands[0],
            ValueDef::Result(..) => return false,
        }
    };
    let iotas = graph.ops().filter(|(_, d)| matches!(d.op, Op::Iota(_)));
    let mut todo: Vec<ValueId> = iotas.map(|(_, d)| d.results[0]).collect();
    while let Some(v) = todo.pop() {
        for u in &graph.value(v).uses {
            let data = graph.op(u.op);
            match &data.op {
                op if moves(op) => todo.push(data.results[0]),
                Op::Compare(c) if matches!(c.direction, Direction::Eq | Direction::Ne) => {
                    if !data.operands.iter().any(|&o| o != v && from_indices(o)) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }
    true
}

/// What indices are drawn from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// By parameter: the size of what it counts along.
    sizes: BTreeMap<usize, usize>,
    /// Numbers of interest.
    near: Vec<i64>,
    /// Which of them is next: they are drawn in turn, so that none is left out.
    next: usize,
}

impl Numbers {
    /// The numbers of a trial.
    pub fn of(
        module: &Module,
        graph: &Graph,
        indices: &[Indexed],
        size: &dyn Fn(AtomId) -> usize,
    ) -> Numbers {
        if indices.is_empty() {
            return Numbers::default();
        }
        let sizes: BTreeMap<usize, usize> = indices.iter().map(|i| (i.param, size(i.along))).collect();
        let ends = sizes.values().flat_map(|&n| [0, n as i64, -(n as i64)]);
        let mine = graph.ops().filter_map(|(_, d)| Some(whole_number(module, &d.op)?.1)).take(MAX_NUMBERS);
        let near: BTreeSet<i64> = ends.chain(mine).flat_map(|n| [n - 1, n, n + 1]).collect();
        Numbers { sizes, near: near.into_iter().collect(), next: 0 }
    }

    /// Whether no parameter is an index.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Random values of a parameter, if it is an index: three in five inside, the others near a number of interest.
    pub fn draw(&mut self, param: usize, ty: &TensorType, rng: &mut Random) -> Option<Tensor> {
        let n = *self.sizes.get(&param)?;
        let mut one = || {
            if rng.chance(60) {
                return rng.below(n.max(1)) as f64;
            }
            self.next += 1;
            self.near[self.next % self.near.len()] as f64
        };
        let data: Vec<f64> = (0..ty.elements()).map(|_| one()).collect();
        Some(Tensor::from_f64s(ty, &data))
    }
}

/// Whether two tensors are NaN at the same places.
pub fn same_nans(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.data.to_f64s(), b.data.to_f64s());
    a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x.is_nan() == y.is_nan())
}
