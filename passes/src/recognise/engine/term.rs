//! The term language of the e-graph: ops of the IR with their attributes interned, leaves, and projections of
//! the results of ops that have several.

use super::facts::ValueFacts;
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use msc_ir::constant::ConstData;
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{DType, Module, Op, Operation, Storage, Tensor, TensorType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An op with its attributes, by its index in [`Terms`]. Indices follow the order of first use, which is a
/// function of the program alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpRef(u32);

/// A term. Its children are classes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Node {
    /// A value from outside the region, by its number.
    Leaf(u32),
    /// An op. With one result it stands for that result, otherwise for the tuple of its results.
    Op {
        /// Which op.
        op: OpRef,
        /// Operands.
        args: SmallVec<[Id; 3]>,
    },
    /// Result `index` of an op with several results.
    Project {
        /// Which result.
        index: u32,
        /// The op.
        tuple: [Id; 1],
    },
}

impl Language for Node {
    type Discriminant = (u8, u32);

    fn discriminant(&self) -> (u8, u32) {
        match self {
            Node::Leaf(n) => (0, *n),
            Node::Op { op, .. } => (1, op.0),
            Node::Project { index, .. } => (2, *index),
        }
    }

    fn matches(&self, other: &Node) -> bool {
        self.discriminant() == other.discriminant() && self.children().len() == other.children().len()
    }

    fn children(&self) -> &[Id] {
        match self {
            Node::Leaf(_) => &[],
            Node::Op { args, .. } => args,
            Node::Project { tuple, .. } => tuple,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Node::Leaf(_) => &mut [],
            Node::Op { args, .. } => args,
            Node::Project { tuple, .. } => tuple,
        }
    }
}

/// The one value of every element of a class, as little-endian bytes of the class's element type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Splat {
    dtype: DType,
    bytes: SmallVec<[u8; 8]>,
}

impl Splat {
    /// From the first element of a tensor.
    fn of(t: &Storage) -> Splat {
        let w = t.dtype().size_bytes();
        Splat { dtype: t.dtype(), bytes: t.bytes()[..w].into() }
    }

    /// The value as a double.
    pub fn value(&self) -> f64 {
        Storage::from_bytes(self.dtype, &self.bytes).get_f64(0)
    }

    fn tensor(&self) -> Tensor {
        Tensor::new([], Storage::from_bytes(self.dtype, &self.bytes))
    }
}

/// What is known of a class.
#[derive(Clone, Debug)]
pub struct ClassData {
    /// Types of the results: one for a value, none or several for a tuple.
    pub types: SmallVec<[TensorType; 1]>,
    /// The one value of all elements, if it is known.
    pub splat: Option<Splat>,
    /// What is known of the elements.
    pub facts: ValueFacts,
}

/// The e-graph's context: the module, the ops by index, the types of leaves.
#[derive(Debug, Default)]
pub struct Terms {
    /// The module; appliers add constants and definitions to it.
    pub module: Module,
    ops: Vec<Op>,
    index: FxHashMap<Op, OpRef>,
    leaves: Vec<TensorType>,
    /// Whether there is any optimization barrier to see through.
    barriers: bool,
    /// Broken promises of rules (unions of classes of different types, terms that do not type-check).
    pub faults: Vec<String>,
}

/// The e-graph.
pub type Graph = EGraph<Node, Terms>;

impl Terms {
    /// A context around a module.
    pub fn new(module: Module) -> Terms {
        Terms { module, ..Terms::default() }
    }

    /// The index of an op, given out if new.
    pub fn intern(&mut self, op: Op) -> OpRef {
        if let Some(&r) = self.index.get(&op) {
            return r;
        }
        let r = OpRef(self.ops.len() as u32);
        self.barriers |= matches!(op, Op::Barrier(_));
        self.ops.push(op.clone());
        self.index.insert(op, r);
        r
    }

    /// The op behind an index.
    pub fn op(&self, r: OpRef) -> &Op {
        &self.ops[r.0 as usize]
    }

    /// Announces a leaf of a type; leaves are numbered in this order.
    pub fn add_leaf(&mut self, ty: TensorType) -> Node {
        self.leaves.push(ty);
        Node::Leaf(self.leaves.len() as u32 - 1)
    }
}

/// The class whose value a class is, seen through optimization barriers. Barriers stay in the program: a class
/// behind one is a class of its own, so that what was meant to be computed twice is.
pub fn behind_barriers(graph: &Graph, class: Id) -> Id {
    let mut at = graph.find(class);
    if !graph.analysis.barriers {
        return at;
    }
    // Barriers follow each other in program order, so there is no cycle of them unless a rule made one.
    for _ in 0..64 {
        let through = graph[at].nodes.iter().find_map(|n| match n {
            Node::Project { index, tuple } => graph[tuple[0]].nodes.iter().find_map(|n| match n {
                Node::Op { op, args } if matches!(graph.analysis.op(*op), Op::Barrier(_)) => {
                    args.get(*index as usize).map(|&a| graph.find(a))
                }
                _ => None,
            }),
            Node::Op { op, args } if matches!(graph.analysis.op(*op), Op::Barrier(_)) => {
                args.first().map(|&a| graph.find(a))
            }
            _ => None,
        });
        match through {
            Some(c) if c != at => at = c,
            _ => break,
        }
    }
    at
}

/// The scalar that every element of a class is, where an op spreads one out.
pub fn spread(graph: &Graph, class: Id) -> Option<Id> {
    graph[behind_barriers(graph, class)].nodes.iter().find_map(|n| match n {
        Node::Op { op, args } if matches!(graph.analysis.op(*op), Op::Broadcast(_) | Op::Reshape(_)) => {
            let from = graph.find(*args.first()?);
            graph[from].data.types.first().filter(|t| t.rank() == 0).map(|_| from)
        }
        _ => None,
    })
}

/// Whether an op of one result applies element by element to operands of one shape.
fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_))
}

fn splat_of(egraph: &Graph, op: &Op, args: &[Id], ty: &TensorType) -> Option<Splat> {
    if ty.elements() == 0 {
        return None;
    }
    let module = &egraph.analysis.module;
    match op {
        Op::Constant(ConstantOp { id }) => match &module.constants.get(*id).data {
            ConstData::Splat(b) => Some(Splat { dtype: ty.dtype, bytes: b[..].into() }),
            ConstData::Dense(_) => None,
        },
        Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) => {
            let splat = egraph[*args.first()?].data.splat.clone()?;
            matches!(op, Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_)).then_some(splat)
        }
        op if is_elementwise(op) => {
            let inputs: Option<Vec<Tensor>> =
                args.iter().map(|&a| egraph[a].data.splat.as_ref().map(Splat::tensor)).collect();
            let inputs = inputs?;
            let refs: Vec<&Tensor> = inputs.iter().collect();
            let out =
                EvalCx::new(module, Mode::Spec, 0).eval(op, &refs, &[TensorType::scalar(ty.dtype)]).ok()?;
            Some(Splat::of(&out.first()?.data))
        }
        _ => None,
    }
}

impl Analysis<Node> for Terms {
    type Data = ClassData;

    fn make(egraph: &mut Graph, node: &Node, _: Id) -> ClassData {
        let none = ClassData { types: SmallVec::new(), splat: None, facts: ValueFacts::default() };
        match node {
            Node::Leaf(n) => ClassData {
                types: egraph.analysis.leaves.get(*n as usize).cloned().into_iter().collect(),
                ..none
            },
            Node::Project { index, tuple } => ClassData {
                types: egraph[tuple[0]].data.types.get(*index as usize).cloned().into_iter().collect(),
                ..none
            },
            Node::Op { op, args } => {
                let op = egraph.analysis.op(*op).clone();
                let types: Option<SmallVec<[&TensorType; 4]>> =
                    args.iter().map(|&a| egraph[a].data.types.first()).collect();
                let inferred = types.map(|t| op.infer(&t, &egraph.analysis.module));
                let types = match inferred {
                    Some(Ok(types)) => types,
                    Some(Err(e)) => {
                        egraph.analysis.faults.push(e.to_string());
                        return none;
                    }
                    None => {
                        egraph.analysis.faults.push(format!("{} of an operand without a type", op.name()));
                        return none;
                    }
                };
                let splat = match types.as_slice() {
                    [t] => splat_of(egraph, &op, args, t),
                    _ => None,
                };
                let facts = match types.as_slice() {
                    [t] => ValueFacts::of_op(egraph, &op, args, t, splat.as_ref()),
                    _ => ValueFacts::default(),
                };
                ClassData { types: types.into(), splat, facts }
            }
        }
    }

    fn merge(&mut self, to: &mut ClassData, from: ClassData) -> DidMerge {
        if to.types != from.types {
            self.faults.push(format!("a union of {:?} and {:?}", to.types, from.types));
        }
        let mut changed = DidMerge(false, false);
        match (&to.splat, from.splat) {
            (None, Some(s)) => {
                to.splat = Some(s);
                changed.0 = true;
            }
            (Some(_), None) => changed.1 = true,
            // Equal over the reals, rounded differently: either is the class's value; the first stays.
            _ => {}
        }
        changed | to.facts.merge(&from.facts)
    }

    /// A class of one known value holds the constant.
    fn modify(egraph: &mut Graph, id: Id) {
        let data = &egraph[id].data;
        let (Some(splat), [ty]) = (&data.splat, data.types.as_slice()) else { return };
        let (splat, ty) = (splat.clone(), ty.clone());
        let constant = egraph.analysis.module.constants.intern_splat_bytes(ty, &splat.bytes);
        let op = egraph.analysis.intern(ConstantOp { id: constant }.into());
        let node = Node::Op { op, args: SmallVec::new() };
        let known = egraph.lookup(node.clone()).map(|c| egraph.find(c));
        if known != Some(egraph.find(id)) {
            let c = egraph.add(node);
            egraph.union(id, c);
        }
    }
}
