//! The entry as the search sees it: ops and parameters as nodes with labels.

use crate::simplify::values::{Kinds, numbers_of};
use msc_ir::op::Op;
use msc_ir::{Graph, GraphId, OpData, OpId, TensorType, ValueDef, ValueId};
use rustc_hash::FxHashMap;

/// Label of nodes that never belong to a layer: constants (compared by content where they are used) and calls of
/// templates found before.
pub(super) const LEAF: u32 = u32::MAX;

/// Marks "no node", "no chain" in tables.
pub(super) const NONE: u32 = u32::MAX;

/// An operand of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operand {
    pub value: ValueId,
    /// The value's number: values of one number are the same in every instance.
    pub number: u32,
    /// The node that makes it, and which of its results it is.
    pub producer: u32,
    pub result: u32,
}

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
    /// Whether it is an op of the order, or a parameter.
    pub live: Vec<bool>,
    /// The operands of node `n` are `operands[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    operands: Vec<Operand>,
}

impl<'a> Nodes<'a> {
    pub fn new(graph: &'a Graph, same: &[GraphId]) -> Nodes<'a> {
        let n = graph.op_count() + graph.params().len();
        let kinds = Kinds::new(graph, same);
        let mut out = Nodes {
            graph,
            number: numbers_of(graph, &kinds),
            label: kinds.of,
            position: vec![0; n],
            scalar: vec![false; n],
            live: vec![false; n],
            starts: Vec::with_capacity(n + 1),
            operands: Vec::new(),
        };
        for (at, (id, data)) in graph.ops().enumerate() {
            let i = id.0 as usize;
            out.live[i] = true;
            out.position[i] = (at + graph.params().len()) as u32;
            out.scalar[i] = data.results.iter().all(|&r| graph.ty(r).elements() <= 1);
            if matches!(data.op, Op::Constant(_) | Op::Call(_)) {
                out.label[i] = LEAF;
            }
        }
        let mut types: FxHashMap<&TensorType, u32> = FxHashMap::default();
        for (at, &p) in graph.params().iter().enumerate() {
            let next = kinds.count + types.len() as u32;
            out.label.push(*types.entry(graph.ty(p)).or_insert(next));
            out.position[graph.op_count() + at] = at as u32;
            out.scalar[graph.op_count() + at] = graph.ty(p).elements() <= 1;
        }
        out.live[graph.op_count()..].fill(true);
        out.find_operands();
        out
    }

    fn find_operands(&mut self) {
        self.operands.reserve(2 * self.graph.order().len());
        for op in 0..self.graph.op_count() {
            self.starts.push(self.operands.len() as u32);
            // Ops that are gone have no operands here.
            let operands = if self.live[op] { &self.graph.op(OpId(op as u32)).operands[..] } else { &[] };
            for &value in operands {
                let (producer, result) = self.producer(value);
                let number = self.number[value.0 as usize];
                self.operands.push(Operand { value, number, producer, result });
            }
        }
        self.starts.resize(self.len() + 1, self.operands.len() as u32);
    }

    pub fn len(&self) -> usize {
        self.position.len()
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

    /// Whether a node is an op and no parameter.
    pub fn is_op(&self, node: u32) -> bool {
        (node as usize) < self.graph.op_count()
    }

    pub fn operands(&self, node: u32) -> &[Operand] {
        &self.operands[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
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
