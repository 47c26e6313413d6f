//! Regions: the graphs that one e-graph is built from, and the program's own order on their values.

use super::term::{Graph, Node, Terms};
use crate::recognise::probe::known::Known;
use egg::Id;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{GraphId, Module, Op, OpId, ValueDef, ValueId};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Where a parameter of a part comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// From outside: a leaf.
    Outside,
    /// From outside, and known to be this: a leaf too.
    Known(Known),
    /// It is the same value as this parameter of an earlier part.
    Param {
        /// Index of the part.
        part: usize,
        /// Index of the parameter.
        index: usize,
    },
    /// It is this result of an earlier part.
    Result {
        /// Index of the part.
        part: usize,
        /// Index of the result.
        index: usize,
    },
}

/// A graph of a region with the sources of its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartSpec {
    /// The graph.
    pub graph: GraphId,
    /// One per parameter; sources lie in earlier parts.
    pub params: Vec<Source>,
}

/// A value of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct At {
    /// The part.
    pub part: usize,
    /// Position of its definition in the part: 0 for parameters, then the place in the order of ops.
    pub position: u32,
    /// The value.
    pub value: ValueId,
}

/// A graph in the region.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it comes from.
    pub spec: PartSpec,
    /// The graph as it was when the region was built.
    pub graph: msc_ir::Graph,
    /// Class of each value at the time of building; `find` gives the present one.
    classes: Vec<Option<Id>>,
    /// Position of each op in the order, counted from 1.
    positions: Vec<u32>,
}

/// The graphs of one template (or one graph alone), as classes of one e-graph.
#[derive(Clone, Debug)]
pub struct Region {
    /// The graphs; what a later one takes from an earlier one is one class.
    pub parts: Vec<Part>,
    /// The values by class as they were when last asked for: classes are united, and never parted.
    by_class: RefCell<Option<Rc<ByClass>>>,
}

/// Live values by class, each list in program order.
pub type ByClass = BTreeMap<Id, Vec<At>>;

impl Region {
    /// Adds the ops of graphs to a new e-graph around `module`.
    pub fn build(module: Module, specs: &[PartSpec]) -> (Graph, Region) {
        let mut graph = Graph::new(Terms::new(module));
        let mut region = Region { parts: Vec::new(), by_class: RefCell::default() };
        for spec in specs {
            let source = graph.analysis.module.graph(spec.graph).clone();
            let mut classes: Vec<Option<Id>> = vec![None; source.value_count()];
            let mut positions = vec![0; source.op_count()];
            let outside = outside(&source);
            // Values that only calls and the caller see are no terms: there are some of them in every layer.
            let needed = |v: ValueId| source.value(v).uses.iter().any(|u| !outside[u.op.0 as usize]);
            for (i, &p) in source.params().iter().enumerate() {
                if spec.params.get(i).is_none_or(|s| *s == Source::Outside) && !needed(p) {
                    continue;
                }
                let linked = match spec.params.get(i) {
                    Some(&Source::Result { part, index }) => region.result_class(part, index),
                    Some(&Source::Param { part, index }) => region.param_class(part, index),
                    _ => None,
                };
                classes[p.0 as usize] = Some(linked.unwrap_or_else(|| {
                    let leaf = graph.analysis.add_leaf(source.ty(p).clone());
                    graph.add(leaf)
                }));
                // A constant from outside is a constant.
                if let (Some(Source::Known(b)), Some(class)) = (spec.params.get(i), classes[p.0 as usize])
                    && let Some(v) = b.value()
                {
                    let id = graph.analysis.module.constants.intern_splat(source.ty(p).clone(), v);
                    let op = graph.analysis.intern(ConstantOp { id }.into());
                    let constant = graph.add(Node::Op { op, args: SmallVec::new() });
                    graph.union(class, constant);
                }
            }
            for (at, (id, data)) in source.ops().enumerate() {
                positions[id.0 as usize] = at as u32 + 1;
                if outside[id.0 as usize] {
                    for &r in data.results.iter().filter(|&&r| needed(r)) {
                        let leaf = graph.analysis.add_leaf(source.ty(r).clone());
                        classes[r.0 as usize] = Some(graph.add(leaf));
                    }
                    continue;
                }
                let args: Option<SmallVec<[Id; 3]>> =
                    data.operands.iter().map(|v| classes[v.0 as usize]).collect();
                // A graph that passed the verifier defines operands before uses.
                let Some(args) = args else { continue };
                let op = graph.analysis.intern(data.op.clone());
                let term = graph.add(Node::Op { op, args });
                if let [r] = data.results.as_slice() {
                    classes[r.0 as usize] = Some(term);
                } else {
                    for (index, r) in data.results.iter().enumerate() {
                        let p = graph.add(Node::Project { index: index as u32, tuple: [term] });
                        classes[r.0 as usize] = Some(p);
                    }
                }
            }
            region.parts.push(Part { spec: spec.clone(), graph: source, classes, positions });
        }
        graph.rebuild();
        (graph, region)
    }

    fn param_class(&self, part: usize, index: usize) -> Option<Id> {
        let p = self.parts.get(part)?;
        p.classes[p.graph.params().get(index)?.0 as usize]
    }

    fn result_class(&self, part: usize, index: usize) -> Option<Id> {
        let p = self.parts.get(part)?;
        p.classes[p.graph.results().get(index)?.0 as usize]
    }

    /// The class of a value.
    pub fn class(&self, graph: &Graph, part: usize, value: ValueId) -> Option<Id> {
        self.parts[part].classes.get(value.0 as usize).copied().flatten().map(|c| graph.find(c))
    }

    /// A value with its position.
    pub fn at(&self, part: usize, value: ValueId) -> At {
        let p = &self.parts[part];
        let position = match p.graph.value(value).def {
            ValueDef::Param(_) => 0,
            ValueDef::Result(op, _) => p.positions[op.0 as usize],
        };
        At { part, position, value }
    }

    /// What a parameter from outside is known to be.
    pub fn known(&self, at: At) -> Option<Known> {
        let part = &self.parts[at.part];
        match (part.graph.value(at.value).def, &part.spec.params) {
            (ValueDef::Param(i), params) => match params.get(i as usize) {
                Some(&Source::Known(b)) => Some(b),
                _ => None,
            },
            _ => None,
        }
    }

    /// The op that defines a value.
    pub fn def(&self, at: At) -> Option<OpId> {
        self.parts[at.part].graph.def(at.value).map(|(op, _)| op)
    }

    /// All live values by class of the region's e-graph, each list in program order.
    pub fn values_by_class(&self, graph: &Graph) -> Rc<ByClass> {
        let mut last = self.by_class.borrow_mut();
        let known = last.get_or_insert_with(|| Rc::new(self.collect_by_class(graph)));
        let united: Vec<Id> = known.keys().copied().filter(|&c| graph.find(c) != c).collect();
        if !united.is_empty() {
            let all = Rc::make_mut(known);
            for old in united {
                let values = all.remove(&old).unwrap_or_default();
                let list = all.entry(graph.find(old)).or_default();
                list.extend(values);
                list.sort();
            }
        }
        known.clone()
    }

    fn collect_by_class(&self, graph: &Graph) -> ByClass {
        let mut out = ByClass::new();
        for (i, part) in self.parts.iter().enumerate() {
            let params = part.graph.params().iter().copied();
            let results = part.graph.ops().flat_map(|(_, d)| d.results.iter().copied());
            for v in params.chain(results) {
                if let Some(c) = self.class(graph, i, v) {
                    out.entry(c).or_default().push(self.at(i, v));
                }
            }
        }
        out.values_mut().for_each(|v| v.sort());
        out
    }

    /// The values that a value is computed from directly; a parameter's source if it is in the region.
    pub fn operands(&self, at: At) -> SmallVec<[At; 4]> {
        let part = &self.parts[at.part];
        match part.graph.value(at.value).def {
            ValueDef::Result(op, _) => {
                part.graph.op(op).operands.iter().map(|&v| self.at(at.part, v)).collect()
            }
            ValueDef::Param(i) => match part.spec.params.get(i as usize) {
                Some(&Source::Result { part, index }) => {
                    let results = self.parts[part].graph.results();
                    results.get(index).map(|&v| self.at(part, v)).into_iter().collect()
                }
                Some(&Source::Param { part, index }) => {
                    let params = self.parts[part].graph.params();
                    params.get(index).map(|&v| self.at(part, v)).into_iter().collect()
                }
                _ => SmallVec::new(),
            },
        }
    }
}

/// By op, whether it is no term: calls, and sums of scalars that calls give. The norm over all gradients is one; it has
/// a term in every layer, and no rule looks into it.
fn outside(graph: &msc_ir::Graph) -> Vec<bool> {
    let mut out = vec![false; graph.op_count()];
    for (id, data) in graph.ops() {
        out[id.0 as usize] = match &data.op {
            Op::Call(_) => true,
            Op::Binary(b) if b.kind == BinaryKind::Add && graph.ty(data.results[0]).rank() == 0 => {
                data.operands.iter().any(|&v| graph.def(v).is_some_and(|(op, _)| out[op.0 as usize]))
            }
            _ => false,
        };
    }
    out
}

/// Reachability on the program's DAG. Classes that no value of the program belongs to (an applier made them)
/// depend on whatever any of their terms depends on.
pub struct Reach<'g> {
    graph: &'g Graph,
    region: &'g Region,
    values: Rc<ByClass>,
}

impl<'g> Reach<'g> {
    /// Reachability in a region.
    pub fn new(graph: &'g Graph, region: &'g Region) -> Reach<'g> {
        Reach { graph, region, values: region.values_by_class(graph) }
    }

    /// Classes with values of the program.
    pub fn program_classes(&self) -> BTreeSet<Id> {
        self.values.keys().copied().collect()
    }

    /// The first value of the program that is a class, if one is.
    pub fn first(&self, class: Id) -> Option<At> {
        self.values.get(&self.graph.find(class)).and_then(|v| v.first()).copied()
    }

    /// The first of `targets` that `from` is computed from, `from` itself included. Terms made of `through` are
    /// not followed.
    pub fn first_reached(&self, from: Id, targets: &BTreeSet<Id>, through: Id) -> Option<Id> {
        // Values are computed from earlier ones, so those before every target's first lead to none.
        let earliest = targets.iter().filter_map(|&t| self.first(t)).min();
        let early = |v: &At| earliest.is_none_or(|e| (v.part, v.position) < (e.part, e.position));
        let mut classes = vec![self.graph.find(from)];
        let mut seen_classes: FxHashSet<Id> = classes.iter().copied().collect();
        let mut values: Vec<At> = Vec::new();
        let mut seen_values: FxHashSet<At> = FxHashSet::default();
        loop {
            if let Some(v) = values.pop() {
                let class = self.region.class(self.graph, v.part, v.value);
                if let Some(c) = class.filter(|c| targets.contains(c)) {
                    return Some(c);
                }
                for o in self.region.operands(v) {
                    if !early(&o) && seen_values.insert(o) {
                        values.push(o);
                    }
                }
                continue;
            }
            let c = classes.pop()?;
            if targets.contains(&c) {
                return Some(c);
            }
            match self.values.get(&c).and_then(|v| v.first()) {
                Some(&v) => {
                    if !early(&v) && seen_values.insert(v) {
                        values.push(v);
                    }
                }
                None => {
                    for node in &self.graph[c].nodes {
                        for &child in egg::Language::children(node) {
                            let child = self.graph.find(child);
                            if child != self.graph.find(through) && seen_classes.insert(child) {
                                classes.push(child);
                            }
                        }
                    }
                }
            }
        }
    }
}
