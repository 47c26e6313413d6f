//! The entry as one list of ops: bodies of loops, branches and calls stand where they run, once each.
//!
//! Values of inner graphs are joined to those outside by [`What::Copy`]. The edge from a loop's body back to its
//! beginning is left out: what a parameter is used for shows in the first trip.

use msc_ir::{Graph, GraphId, Module, Op, Operation, TensorType};
use smallvec::SmallVec;

/// A value: a number in [`Flow::types`].
pub type Node = u32;

/// What makes a value.
#[derive(Clone, Copy, Debug)]
pub enum What<'m> {
    /// An op.
    Op(&'m Op),
    /// The same value under another number.
    Copy,
}

/// One op with its operands and results.
#[derive(Clone, Debug)]
pub struct Step<'m> {
    /// What it does.
    pub what: What<'m>,
    /// Operands.
    pub reads: SmallVec<[Node; 3]>,
    /// Results.
    pub writes: SmallVec<[Node; 1]>,
}

/// The list, with definitions and uses.
#[derive(Debug)]
pub struct Flow<'m> {
    /// The module.
    pub module: &'m Module,
    /// Ops, definitions before uses.
    pub steps: Vec<Step<'m>>,
    /// Type of each value.
    pub types: Vec<&'m TensorType>,
    /// The steps that define each value; more than one for the results of branches.
    pub defs: Vec<SmallVec<[u32; 1]>>,
    /// The steps that use each value, with the operand's number.
    pub uses: Vec<SmallVec<[(u32, u32); 2]>>,
    /// The entry's parameters.
    pub params: Vec<Node>,
    /// The entry's results.
    pub results: Vec<Node>,
}

/// Inner graphs nest no deeper than this in what is followed; the rest stays an op.
const MAX_DEPTH: usize = 16;

/// Inner graphs are no longer followed once the list has this many ops.
const MAX_STEPS: usize = 4_000_000;

impl<'m> Flow<'m> {
    /// The flow of a graph of a module.
    pub fn new(module: &'m Module, graph: GraphId) -> Flow<'m> {
        let mut f = Flow {
            module,
            steps: Vec::new(),
            types: Vec::new(),
            defs: Vec::new(),
            uses: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
        };
        let g = module.graph(graph);
        f.params = g.params().iter().map(|&p| f.node(g.ty(p))).collect();
        let params = f.params.clone();
        f.results = f.expand(g, &params, 0);
        for (n, s) in f.steps.iter().enumerate() {
            for (i, &v) in s.reads.iter().enumerate() {
                f.uses[v as usize].push((n as u32, i as u32));
            }
            for &v in &s.writes {
                f.defs[v as usize].push(n as u32);
            }
        }
        f
    }

    fn node(&mut self, ty: &'m TensorType) -> Node {
        self.types.push(ty);
        self.defs.push(SmallVec::new());
        self.uses.push(SmallVec::new());
        self.types.len() as Node - 1
    }

    fn copy(&mut self, from: Node, to: Node) {
        let (reads, writes) = (SmallVec::from_slice(&[from]), SmallVec::from_slice(&[to]));
        self.steps.push(Step { what: What::Copy, reads, writes });
    }

    /// Appends the ops of a graph; gives its results.
    fn expand(&mut self, g: &'m Graph, params: &[Node], depth: usize) -> Vec<Node> {
        let mut number: Vec<Node> = vec![0; g.value_count()];
        for (&p, &n) in g.params().iter().zip(params) {
            number[p.0 as usize] = n;
        }
        for (_, data) in g.ops() {
            let reads: SmallVec<[Node; 3]> = data.operands.iter().map(|v| number[v.0 as usize]).collect();
            let writes: SmallVec<[Node; 1]> = data.results.iter().map(|&v| self.node(g.ty(v))).collect();
            for (r, &w) in data.results.iter().zip(&writes) {
                number[r.0 as usize] = w;
            }
            // The graphs that run, and how many operands come before theirs.
            let (inner, skipped): (SmallVec<[GraphId; 2]>, usize) = match &data.op {
                Op::While(w) => (SmallVec::from_slice(&[w.body]), 0),
                Op::Branch(b) => (b.callees(), 1),
                Op::Call(c) => (SmallVec::from_slice(&[c.graph]), 0),
                _ => (SmallVec::new(), 0),
            };
            if inner.is_empty() || depth >= MAX_DEPTH || self.steps.len() >= MAX_STEPS {
                self.steps.push(Step { what: What::Op(&data.op), reads, writes });
                continue;
            }
            for id in inner {
                let body = self.module.graph(id);
                let inside: Vec<Node> = body.params().iter().map(|&p| self.node(body.ty(p))).collect();
                for (&from, &to) in reads[skipped..].iter().zip(&inside) {
                    self.copy(from, to);
                }
                let results = self.expand(body, &inside, depth + 1);
                for (&from, &to) in results.iter().zip(&writes) {
                    self.copy(from, to);
                }
            }
        }
        g.results().iter().map(|v| number[v.0 as usize]).collect()
    }

    /// The op that defines a value, if it is one op.
    pub fn op(&self, v: Node) -> Option<(&'m Op, &Step<'m>)> {
        let [n] = self.defs[v as usize].as_slice() else { return None };
        let s = &self.steps[*n as usize];
        match s.what {
            What::Op(op) => Some((op, s)),
            What::Copy => None,
        }
    }

    /// The value behind conversions, broadcasts, reshapes, slices of a stack, barriers and copies: the same
    /// numbers in another form. `None` where that is no single value.
    fn source(&self, v: Node) -> Option<Node> {
        let [n] = self.defs[v as usize].as_slice() else { return None };
        let s = &self.steps[*n as usize];
        match s.what {
            What::Copy => Some(s.reads[0]),
            What::Op(Op::Barrier(_)) => {
                s.writes.iter().position(|&w| w == v).and_then(|i| s.reads.get(i).copied())
            }
            What::Op(op) => is_form(op).then(|| s.reads[0]),
        }
    }

    /// [`Flow::source`] as far as it goes.
    pub fn origin(&self, mut v: Node) -> Node {
        while let Some(s) = self.source(v) {
            v = s;
        }
        v
    }
}

/// Whether an op gives its first operand's numbers in another form.
pub fn is_form(op: &Op) -> bool {
    use msc_ir::ops::slice::Slice;
    matches!(
        op,
        Op::Convert(_)
            | Op::Broadcast(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Slice(Slice::Static { .. } | Slice::Dynamic { .. })
            | Op::ReducePrecision(_)
    )
}
