//! Selection: which values of the program a named op computes, found by walking back from what is needed.
//!
//! A value that no named op stands for keeps its own op, so the rest of the program stays as it is. Of several
//! named ops for one value the one that is needed anyway is taken, otherwise the one that gives the most values, and
//! of these the one with the fewest inputs, scalars aside: a number that is an operand is as much the op's own as one
//! that is known.

use super::super::engine::derive::{Count, Leaf, cheapest};
use super::super::engine::region::{At, ByClass, Region, Source};
use super::super::engine::run::Run;
use super::super::engine::term::{Graph, Node, OpRef};
use crate::error::{PassError, Result};
use egg::Id;
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{OpId, ValueDef, ValueId};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A named op that may be used.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its class.
    pub tuple: Id,
    /// Which op.
    pub op: OpRef,
    /// Operand classes.
    pub args: SmallVec<[Id; 3]>,
    /// First part in which every operand is available.
    pub part: usize,
    /// Values of the program that it gives.
    pub gives: usize,
    /// Operands that are no scalars.
    pub tensors: usize,
}

/// How a value comes about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// By its own op, or it is a parameter from outside.
    Own,
    /// It is a value of an earlier part.
    Import(Key),
    /// It is result `index` of a named op, put through a layout op if there is one.
    Named {
        /// Index of the op in [`Selection::named`].
        op: usize,
        /// Which result.
        index: u32,
        /// Layout op, or a sum or change of sign.
        layout: Option<OpRef>,
    },
    /// A term that no value of the program is: an op on other classes.
    Derived(OpRef, SmallVec<[Key; 3]>),
}

/// What is computed in a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Thing {
    /// A value of the program.
    Value(ValueId),
    /// A class that no value of the program belongs to.
    Class(Id),
}

/// Something computed in a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The part.
    pub part: usize,
    /// Its position there; 0 for classes.
    pub position: u32,
    /// What.
    pub thing: Thing,
}

impl Key {
    fn of(at: At) -> Key {
        Key { part: at.part, position: at.position, thing: Thing::Value(at.value) }
    }
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Named ops known.
    pub named: Vec<Named>,
    /// For each thing needed, how it comes about.
    pub choices: BTreeMap<Key, Choice>,
    /// For each named op used in a part, its operands there.
    pub instances: BTreeMap<(usize, usize), SmallVec<[Key; 3]>>,
}

/// Walks back from what is needed.
pub struct Selector<'g> {
    graph: &'g Graph,
    region: &'g Region,
    values: Rc<ByClass>,
    banned: &'g BTreeSet<Id>,
    out: Selection,
    todo: BTreeSet<Key>,
    /// Ops of several results whose operands are needed: a call has dozens of both.
    done: BTreeSet<(usize, OpId)>,
}

impl<'g> Selector<'g> {
    /// A selector that may use the named ops of a run but for `banned` ones.
    pub fn new(graph: &'g Graph, region: &'g Region, run: &Run, banned: &'g BTreeSet<Id>) -> Selector<'g> {
        let (values, todo) = (region.values_by_class(graph), BTreeSet::new());
        let mut s = Selector {
            graph,
            region,
            values,
            banned,
            out: Selection::default(),
            todo,
            done: BTreeSet::new(),
        };
        for r in &run.reasons {
            let tuple = graph.find(r.op);
            if banned.contains(&tuple) || s.out.named.iter().any(|n| n.tuple == tuple) {
                continue;
            }
            let node = graph[tuple].nodes.iter().find_map(|n| match n {
                Node::Op { op, args } => match graph.analysis.op(*op) {
                    msc_ir::Op::Fused(f) if **f == r.fused => Some((*op, args.clone())),
                    _ => None,
                },
                _ => None,
            });
            if let Some((op, args)) = node {
                let args: SmallVec<[Id; 3]> = args.iter().map(|&a| graph.find(a)).collect();
                let part = args.iter().map(|&a| s.first_part(a)).max().unwrap_or(0);
                let reasons = run.reasons.iter().filter(|o| graph.find(o.op) == tuple);
                let gives = reasons.map(|o| o.outputs.len()).max().unwrap_or(0);
                let tensor = |a: &&Id| graph[**a].data.types.first().is_some_and(|t| t.rank() > 0);
                let tensors = args.iter().filter(tensor).count();
                s.out.named.push(Named { tuple, op, args, part, gives, tensors });
            }
        }
        s
    }

    /// The first part in which a class is available.
    fn first_part(&self, class: Id) -> usize {
        let class = self.graph.find(class);
        let first = |c: Id| self.values.get(&c).and_then(|v| v.first()).map(|v| v.part);
        let leaf = |c: Id| first(c).map_or(Leaf::Made, Leaf::Given);
        first(class).unwrap_or_else(|| {
            let ways = cheapest(self.graph, class, Count::Latest, leaf, |_| true);
            ways.get(&class).map_or(usize::MAX, |w| w.cost)
        })
    }

    /// Says that a value of the program is needed.
    pub fn need(&mut self, part: usize, value: ValueId) {
        let key = Key::of(self.region.at(part, value));
        self.push(key);
    }

    fn push(&mut self, key: Key) {
        if !self.out.choices.contains_key(&key) {
            self.todo.insert(key);
        }
    }

    /// Decides everything needed.
    ///
    /// # Errors
    /// [`PassError::Broken`] if a class has no term that can be computed.
    pub fn finish(mut self) -> Result<Selection> {
        while let Some(key) = self.todo.pop_last() {
            let choice = match key.thing {
                Thing::Value(v) => self.value(key.part, v)?,
                Thing::Class(c) => self.derived(key.part, c)?,
            };
            self.out.choices.insert(key, choice);
        }
        Ok(self.out)
    }

    fn value(&mut self, part: usize, value: ValueId) -> Result<Choice> {
        let p = &self.region.parts[part];
        if let ValueDef::Param(i) = p.graph.value(value).def {
            return Ok(match p.spec.params.get(i as usize) {
                Some(&Source::Result { part, index }) => {
                    let source = self.region.parts[part].graph.results().get(index);
                    let source = source.ok_or_else(|| broken("a parameter comes from no result"))?;
                    let key = Key::of(self.region.at(part, *source));
                    self.push(key);
                    Choice::Import(key)
                }
                Some(&Source::Param { part, index }) => {
                    let source = self.region.parts[part].graph.params().get(index);
                    let source = source.ok_or_else(|| broken("a parameter is no parameter"))?;
                    let key = Key::of(self.region.at(part, *source));
                    self.push(key);
                    Choice::Import(key)
                }
                _ => Choice::Own,
            });
        }
        if let Some(class) = self.region.class(self.graph, part, value)
            && let Some(choice) = self.named_choice(part, class)
        {
            return Ok(choice);
        }
        let many = p.graph.def(value).map(|d| d.0).filter(|&op| p.graph.op(op).results.len() > 1);
        if many.is_none_or(|op| self.done.insert((part, op))) {
            for at in self.region.operands(self.region.at(part, value)) {
                self.push(Key::of(at));
            }
        }
        Ok(Choice::Own)
    }

    /// Ways in which named ops give a class.
    fn candidates(&self, class: Id) -> Vec<(usize, u32, Option<OpRef>)> {
        let projections = |class: Id| {
            self.graph[class].nodes.iter().filter_map(|n| match n {
                Node::Project { index, tuple } => {
                    let t = self.graph.find(tuple[0]);
                    Some((self.out.named.iter().position(|n| n.tuple == t)?, *index))
                }
                _ => None,
            })
        };
        let mut out: Vec<_> = projections(class).map(|(o, i)| (o, i, None)).collect();
        for (op, a) in self.led(class) {
            out.extend(projections(a).map(|(o, i)| (o, i, Some(op))));
        }
        out
    }

    /// Classes that give a class when put through a layout op, a sum or a change of sign.
    fn led(&self, class: Id) -> impl Iterator<Item = (OpRef, Id)> {
        let elements = |c: Id| self.graph[c].data.types.first().map(|t| t.elements());
        self.graph[class].nodes.iter().filter_map(move |n| {
            let Node::Op { op, args } = n else { return None };
            let &[a] = args.as_slice() else { return None };
            let a = self.graph.find(a);
            let leads = match self.graph.analysis.op(*op) {
                msc_ir::Op::Broadcast(_) | msc_ir::Op::Reshape(_) | msc_ir::Op::Permute(_) => {
                    elements(a) == elements(class)
                }
                // A result that the program has only summed, or with the other sign.
                msc_ir::Op::Reduce(_) => !self.values.contains_key(&a),
                msc_ir::Op::Unary(u) => u.kind == UnaryKind::Negate && !self.values.contains_key(&a),
                _ => false,
            };
            leads.then_some((*op, a))
        })
    }

    fn named_choice(&mut self, part: usize, class: Id) -> Option<Choice> {
        let mut all = self.candidates(class);
        all.retain(|&(o, _, _)| self.out.named[o].part <= part);
        let best = all.into_iter().min_by_key(|&(o, i, layout)| {
            let used = self.out.instances.contains_key(&(part, o));
            let n = &self.out.named[o];
            (!used, Reverse(n.gives), n.tensors, layout.is_some(), o, i, layout)
        });
        if let Some((op, index, layout)) = best {
            self.instance(part, op);
            return Some(Choice::Named { op, index, layout });
        }
        // What a named op gives, with the other sign and in another layout.
        let ready = |c: Id| {
            let negated = |op: OpRef| matches!(self.graph.analysis.op(op), msc_ir::Op::Unary(_));
            let all = self.candidates(c);
            all.iter().any(|&(o, _, by)| self.out.named[o].part <= part && by.is_some_and(negated))
        };
        let found = self.led(class).find(|&(_, a)| !self.values.contains_key(&a) && ready(a));
        let (op, a) = found?;
        Some(Choice::Derived(op, [self.class_key(part, a)].into_iter().collect()))
    }

    fn instance(&mut self, part: usize, op: usize) {
        if self.out.instances.contains_key(&(part, op)) {
            return;
        }
        let args = self.out.named[op].args.clone();
        let keys = args.iter().map(|&a| self.class_key(part, a)).collect();
        self.out.instances.insert((part, op), keys);
    }

    /// The thing that stands for a class in a part; it becomes needed.
    fn class_key(&mut self, part: usize, class: Id) -> Key {
        let class = self.graph.find(class);
        let key = match self.values.get(&class) {
            Some(all) => {
                let here = all.iter().find(|a| a.part == part);
                let earlier = all.iter().find(|a| a.part < part);
                match here.or(earlier) {
                    Some(&at) => Key::of(at),
                    None => Key { part, position: 0, thing: Thing::Class(class) },
                }
            }
            None => Key { part, position: 0, thing: Thing::Class(class) },
        };
        self.push(key);
        key
    }

    fn derived(&mut self, part: usize, class: Id) -> Result<Choice> {
        // A result of a named op is computed where the op first can be, as its other results are.
        if let Some(o) = self.candidates(class).iter().map(|c| c.0).min() {
            let home = self.out.named[o].part;
            if home < part {
                let key = Key { part: home, position: 0, thing: Thing::Class(class) };
                self.push(key);
                return Ok(Choice::Import(key));
            }
            if let Some(choice) = self.named_choice(part, class) {
                return Ok(choice);
            }
        }
        let ways = cheapest(self.graph, class, Count::Ops, |c| self.leaf(c), |_| true);
        let term = ways.get(&class).and_then(|w| self.graph[class].nodes.get(w.term?));
        match term {
            Some(Node::Op { op, args }) => {
                let keys = args.iter().map(|&a| self.class_key(part, a)).collect();
                Ok(Choice::Derived(*op, keys))
            }
            _ => Err(broken("a class has no term that can be computed")),
        }
    }

    /// What a class costs beside values of the program.
    fn leaf(&self, class: Id) -> Leaf {
        if self.values.contains_key(&class) {
            Leaf::Given(0)
        } else if self.banned.contains(&class) {
            Leaf::Never
        } else if !self.candidates(class).is_empty() {
            Leaf::Given(1)
        } else {
            Leaf::Made
        }
    }
}

fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "recognise", message: message.to_string() }
}
