//! Selection: which values of the program a named op computes, found by walking back from what is needed.
//!
//! A value that no named op stands for keeps its own op, so the rest of the program stays as it is. Of several
//! named ops for one value the one that is needed anyway is taken, otherwise the one that gives the most values, and
//! of these the one with the fewest inputs, scalars aside: a number that is an operand is as much the op's own as one
//! that is known.

use super::super::engine::region::{At, ByClass, Region, Source};
use super::super::engine::run::Run;
use super::super::engine::term::{Graph, Node, OpRef};
use crate::error::{PassError, Result};
use egg::{Id, Language};
use msc_ir::ops::unary::UnaryKind;
use msc_ir::{ValueDef, ValueId};
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Thing {
    /// A value of the program.
    Value(ValueId),
    /// A class that no value of the program belongs to.
    Class(Id),
}

/// Something computed in a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
}

impl<'g> Selector<'g> {
    /// A selector that may use the named ops of a run but for `banned` ones.
    pub fn new(graph: &'g Graph, region: &'g Region, run: &Run, banned: &'g BTreeSet<Id>) -> Selector<'g> {
        let values = region.values_by_class(graph);
        let mut s =
            Selector { graph, region, values, banned, out: Selection::default(), todo: BTreeSet::new() };
        for r in &run.reasons {
            let tuple = graph.find(r.op);
            if banned.contains(&tuple) || s.out.named.iter().any(|n| n.tuple == tuple) {
                continue;
            }
            let node = graph[tuple].nodes.iter().find_map(|n| match n {
                Node::Op { op, args } => match graph.analysis.op(*op) {
                    msc_ir::Op::Fused(f) if *f == r.fused => Some((*op, args.clone())),
                    _ => None,
                },
                _ => None,
            });
            if let Some((op, args)) = node {
                let args: SmallVec<[Id; 3]> = args.iter().map(|&a| graph.find(a)).collect();
                let part = args.iter().map(|&a| s.first_part(a, &mut BTreeSet::new())).max().unwrap_or(0);
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
    fn first_part(&self, class: Id, seen: &mut BTreeSet<Id>) -> usize {
        let class = self.graph.find(class);
        if let Some(v) = self.values.get(&class).and_then(|v| v.first()) {
            return v.part;
        }
        if !seen.insert(class) {
            return usize::MAX;
        }
        let of_node = |n: &Node, seen: &mut BTreeSet<Id>| {
            n.children().iter().map(|&c| self.first_part(c, seen)).max().unwrap_or(0)
        };
        self.graph[class].nodes.iter().map(|n| of_node(n, seen)).min().unwrap_or(usize::MAX)
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
        for at in self.region.operands(self.region.at(part, value)) {
            self.push(Key::of(at));
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
        for n in &self.graph[class].nodes {
            let Node::Op { op, args } = n else { continue };
            let &[a] = args.as_slice() else { continue };
            let elements = |c: Id| self.graph[c].data.types.first().map(|t| t.elements());
            let leads = match self.graph.analysis.op(*op) {
                msc_ir::Op::Broadcast(_) | msc_ir::Op::Reshape(_) | msc_ir::Op::Permute(_) => {
                    elements(a) == elements(class)
                }
                // A result that the program has only summed, or with the other sign.
                msc_ir::Op::Reduce(_) => !self.values.contains_key(&self.graph.find(a)),
                msc_ir::Op::Unary(u) => {
                    u.kind == UnaryKind::Negate && !self.values.contains_key(&self.graph.find(a))
                }
                _ => false,
            };
            if leads {
                out.extend(projections(a).map(|(o, i)| (o, i, Some(*op))));
            }
        }
        out
    }

    fn named_choice(&mut self, part: usize, class: Id) -> Option<Choice> {
        let mut all = self.candidates(class);
        all.retain(|&(o, _, _)| self.out.named[o].part <= part);
        let best = all.into_iter().min_by_key(|&(o, i, layout)| {
            let used = self.out.instances.contains_key(&(part, o));
            let n = &self.out.named[o];
            (!used, Reverse(n.gives), n.tensors, layout.is_some(), o, i, layout)
        });
        let (op, index, layout) = best?;
        self.instance(part, op);
        Some(Choice::Named { op, index, layout })
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
        let mut best: Option<(usize, &Node)> = None;
        for n in &self.graph[class].nodes {
            if let Some(c) = self.cost(n, &mut vec![class])
                && best.is_none_or(|(b, m)| (c, n) < (b, m))
            {
                best = Some((c, n));
            }
        }
        match best {
            Some((_, Node::Op { op, args })) => {
                let keys = args.iter().map(|&a| self.class_key(part, a)).collect();
                Ok(Choice::Derived(*op, keys))
            }
            _ => Err(broken("a class has no term that can be computed")),
        }
    }

    /// Ops needed beside values of the program; `None` where a term depends on itself or a banned op.
    fn cost(&self, node: &Node, above: &mut Vec<Id>) -> Option<usize> {
        let Node::Op { args, .. } = node else { return None };
        let mut total = 1;
        for &a in args {
            let a = self.graph.find(a);
            if self.values.contains_key(&a) {
                continue;
            }
            if above.contains(&a) || self.banned.contains(&a) {
                return None;
            }
            if !self.candidates(a).is_empty() {
                total += 1;
                continue;
            }
            above.push(a);
            let best = self.graph[a].nodes.iter().filter_map(|n| self.cost(n, above)).min();
            above.pop();
            total += best?;
        }
        Some(total)
    }
}

fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "recognise", message: message.to_string() }
}
