//! Values of a program across its calls: where a value is made, and what uses it, whichever graph that is in.
//!
//! The gradients of layers are made in one template's segments and scaled in another's, and their squares meet in the
//! graph that calls both. An optimizer's step, which may scale its gradient, and a sum of squares are seen
//! through as calls are.

use msc_ir::ops::convert::Convert;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{Graph, GraphId, Module, Op, OpData, OpId, TensorType, ValueDef, ValueId};
use smallvec::{SmallVec, smallvec};

/// The calls from the region's own graph to the graph of a value, outermost first.
pub type Path = SmallVec<[OpId; 4]>;

/// The graph that an op calls, or stands for, if it is seen through.
fn callee(op: &Op) -> Option<GraphId> {
    match op {
        Op::Call(c) => Some(c.graph),
        Op::Fused(f) if f.kind.is_update() || f.kind == FusedKind::SumOfSquares => Some(f.definition),
        _ => None,
    }
}

/// A value with the calls that lead to its graph.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The calls.
    pub path: Path,
    /// The value.
    pub value: ValueId,
}

impl Clone for Place {
    /// Copies the path as bytes; there are thousands.
    fn clone(&self) -> Self {
        Place { path: Path::from_slice(&self.path), value: self.value }
    }
}

/// The values of a graph and of the graphs that it calls.
#[derive(Clone, Copy)]
pub struct Flow<'m> {
    /// The module.
    pub module: &'m Module,
    root: GraphId,
}

impl<'m> Flow<'m> {
    /// The values from a graph on.
    pub fn new(module: &'m Module, root: GraphId) -> Flow<'m> {
        Flow { module, root }
    }

    /// The graph at the end of a path.
    pub fn graph(&self, path: &[OpId]) -> &'m Graph {
        let mut at = self.module.graph(self.root);
        for &op in path {
            if let Some(graph) = callee(&at.op(op).op) {
                at = self.module.graph(graph);
            }
        }
        at
    }

    /// The type of a value.
    pub fn ty(&self, at: &Place) -> &'m TensorType {
        self.graph(&at.path).ty(at.value)
    }

    /// Where a value is made: what a call is given, or gives, is that value; so is what passes a barrier.
    pub fn home(&self, mut at: Place) -> Place {
        loop {
            let graph = self.graph(&at.path);
            match graph.value(at.value).def {
                ValueDef::Param(i) => {
                    let Some(call) = at.path.pop() else { return at };
                    at.value = self.graph(&at.path).op(call).operands[i as usize];
                }
                ValueDef::Result(op, i) => match (callee(&graph.op(op).op), &graph.op(op).op) {
                    (Some(callee), _) => {
                        at.path.push(op);
                        at.value = self.module.graph(callee).results()[i as usize];
                    }
                    (None, Op::Barrier(_)) => at.value = graph.op(op).operands[i as usize],
                    _ => return at,
                },
            }
        }
    }

    /// The op that makes a value. `None` for values from outside.
    pub fn maker(&self, at: &Place) -> Option<&'m OpData> {
        let graph = self.graph(&at.path);
        graph.def(at.value).map(|(op, _)| graph.op(op))
    }

    /// An operand of the op that makes a value, at home.
    pub fn operand(&self, at: &Place, maker: &OpData, index: usize) -> Option<Place> {
        let value = *maker.operands.get(index)?;
        Some(self.home(Place { value, ..at.clone() }))
    }

    /// The op that makes a value, with its operands, all at home. `None` for values from outside.
    pub fn op(&self, at: &Place) -> Option<(&'m Op, SmallVec<[Place; 3]>)> {
        let maker = self.maker(at)?;
        let operands = (0..maker.operands.len()).filter_map(|i| self.operand(at, maker, i));
        Some((&maker.op, operands.collect()))
    }

    /// The first results of the ops that use a value that is at home.
    pub fn users(&self, at: &Place) -> Vec<Place> {
        let mut out: Vec<Place> = Vec::new();
        let mut todo: SmallVec<[Place; 4]> = smallvec![at.clone()];
        while let Some(at) = todo.pop() {
            let graph = self.graph(&at.path);
            for u in &graph.value(at.value).uses {
                let data = graph.op(u.op);
                match (callee(&data.op), &data.op) {
                    (Some(callee), _) => {
                        let value = self.module.graph(callee).params()[u.index as usize];
                        let mut inside = Place { value, ..at.clone() };
                        inside.path.push(u.op);
                        todo.push(inside);
                    }
                    (None, Op::Barrier(_)) => {
                        todo.push(Place { value: data.results[u.index as usize], ..at.clone() });
                    }
                    _ => out.extend(data.results.first().map(|&value| Place { value, ..at.clone() })),
                }
            }
            if let Some((&call, outer)) = at.path.split_last() {
                let results = graph.results().iter().zip(&self.graph(outer).op(call).results);
                for (_, &value) in results.filter(|r| *r.0 == at.value) {
                    todo.push(Place { path: Path::from_slice(outer), value });
                }
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// The operand of which a value is the same elements, in another layout or a wider type.
    pub fn same(&self, at: &Place) -> Option<Place> {
        let maker = self.maker(at)?;
        let layout = matches!(
            maker.op,
            Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_) | Op::Convert(_) | Op::Reduce(_)
        );
        if !layout {
            return None;
        }
        let from = self.operand(at, maker, 0)?;
        let (a, b) = (self.ty(&from), self.ty(at));
        let same = match &maker.op {
            Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_) => true,
            Op::Convert(Convert::Value(_)) => {
                a.dtype.is_float() && b.dtype.is_float() && a.dtype.size_bytes() <= b.dtype.size_bytes()
            }
            Op::Reduce(r) => r.dims.iter().all(|&d| a.shape[d] == 1),
            _ => false,
        };
        (same && a.elements() == b.elements()).then_some(from)
    }

    /// The one number that a constant consists of, seen through layout.
    pub fn number(&self, at: &Place) -> Option<f64> {
        let mut at = at.clone();
        loop {
            let maker = self.maker(&at)?;
            match &maker.op {
                Op::Constant(c) => return self.module.constants.get(c.id).splat_value(),
                Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_) | Op::Convert(Convert::Value(_)) => {
                    at = self.operand(&at, maker, 0)?;
                }
                _ => return None,
            }
        }
    }
}
