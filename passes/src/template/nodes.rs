//! The entry as the search sees it: ops and parameters as nodes with labels.

use crate::simplify::values::{comparable, numbers};
use msc_ir::op::Op;
use msc_ir::{Graph, GraphId, OpData, OpId, TensorType, ValueDef, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Label of nodes that never belong to a layer: constants (compared by content where they are used) and calls of
/// templates found before.
pub(super) const LEAF: u32 = u32::MAX;

/// Marks "no node", "no chain" in tables.
pub(super) const NONE: u32 = u32::MAX;

/// Nodes are the ops of a graph, by their ids, followed by its parameters.
pub(super) struct Nodes<'a> {
    pub graph: &'a Graph,
    /// Two nodes may stand for each other only if their labels are equal: same op, attributes and types; for
    /// parameters the same type.
    pub label: Vec<u32>,
    /// Value numbers: values of one number are the same in every instance.
    pub number: Vec<u32>,
    /// Place in the order; parameters come first.
    pub position: Vec<u32>,
    /// Whether every result has one element.
    pub scalar: Vec<bool>,
}

impl<'a> Nodes<'a> {
    pub fn new(graph: &'a Graph, same: &[GraphId]) -> Nodes<'a> {
        let n = graph.op_count() + graph.params().len();
        let mut out = Nodes {
            graph,
            label: vec![LEAF; n],
            number: numbers(graph, same),
            position: vec![0; n],
            scalar: vec![false; n],
        };
        let referring: FxHashMap<OpId, Op> =
            graph.ops().filter_map(|(id, d)| comparable(&d.op, same).map(|op| (id, op))).collect();
        let mut ops: FxHashMap<(&Op, SmallVec<[&TensorType; 4]>), u32> = FxHashMap::default();
        for (at, (id, data)) in graph.ops().enumerate() {
            let i = id.0 as usize;
            out.position[i] = (at + graph.params().len()) as u32;
            out.scalar[i] = data.results.iter().all(|&r| graph.ty(r).elements() <= 1);
            if matches!(data.op, Op::Constant(_) | Op::Call(_)) {
                continue;
            }
            let op = referring.get(&id).unwrap_or(&data.op);
            let types = data.operands.iter().map(|&v| graph.ty(v)).collect();
            let next = ops.len() as u32;
            out.label[i] = *ops.entry((op, types)).or_insert(next);
        }
        let first = ops.len() as u32;
        let mut types: FxHashMap<&TensorType, u32> = FxHashMap::default();
        for (at, &p) in graph.params().iter().enumerate() {
            let i = graph.op_count() + at;
            let next = first + types.len() as u32;
            out.label[i] = *types.entry(graph.ty(p)).or_insert(next);
            out.position[i] = at as u32;
            out.scalar[i] = graph.ty(p).elements() <= 1;
        }
        out
    }

    pub fn len(&self) -> usize {
        self.label.len()
    }

    /// The node that defines a value, and which of its results the value is.
    pub fn producer(&self, v: ValueId) -> (u32, u32) {
        match self.graph.value(v).def {
            ValueDef::Param(i) => (self.graph.op_count() as u32 + i, 0),
            ValueDef::Result(op, r) => (op.0, r),
        }
    }

    /// The op of a node, unless it is a parameter.
    pub fn op(&self, node: u32) -> Option<&'a OpData> {
        ((node as usize) < self.graph.op_count()).then(|| self.graph.op(OpId(node)))
    }

    pub fn operands(&self, node: u32) -> &'a [ValueId] {
        self.op(node).map_or(&[], |d| &d.operands)
    }

    pub fn results(&self, node: u32) -> &'a [ValueId] {
        match self.op(node) {
            Some(d) => &d.results,
            None => std::slice::from_ref(&self.graph.params()[node as usize - self.graph.op_count()]),
        }
    }

    /// Whether two values are certainly the same.
    pub fn equal(&self, a: ValueId, b: ValueId) -> bool {
        self.number[a.0 as usize] == self.number[b.0 as usize]
    }

    /// Live nodes in order, parameters first.
    pub fn in_order(&self) -> impl Iterator<Item = u32> + use<'a> {
        let ops = self.graph.op_count() as u32;
        let params = self.graph.params().len() as u32;
        (ops..ops + params).chain(self.graph.order().iter().map(|o| o.0))
    }
}
