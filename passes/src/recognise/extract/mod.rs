//! Extraction: new graphs in which named ops stand wherever they were found.
//!
//! Every value that is still needed and that no named op gives keeps its own op at its own place. The order is a
//! topological sort that prefers the program's own; where two named ops would need each other, one of them is
//! given up, so the result is acyclic by construction.

mod select;

use super::engine::region::Region;
use super::engine::run::Run;
use super::engine::term::Graph;
use crate::error::{PassError, Result};
use egg::Id;
use msc_ir::{LocId, Op, OpId, Operation, TensorType, ValueId};
use select::{Choice, Key, Selection, Selector, Thing};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// What a parameter of an extracted graph is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Param {
    /// The old parameter with this index.
    Old(usize),
    /// The old parameter with this index of an earlier part, from outside the region.
    Outer {
        /// The part.
        part: usize,
        /// Index among its old parameters.
        index: usize,
    },
    /// A result of an earlier part's extracted graph.
    Result {
        /// The part.
        part: usize,
        /// Index among its new results.
        index: usize,
    },
}

/// What a result of an extracted graph is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The old result with this index.
    Old(usize),
    /// A value that a later part needs.
    Export,
}

/// A new graph for a part.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// The graph.
    pub graph: msc_ir::Graph,
    /// One per parameter.
    pub params: Vec<Param>,
    /// One per result.
    pub results: Vec<Outcome>,
    /// For each op of the old graph that stays, which it is now.
    pub moved: BTreeMap<OpId, OpId>,
}

/// The outcome for a region.
#[derive(Clone, Debug)]
pub struct Extraction {
    /// One per part.
    pub parts: Vec<Extracted>,
    /// For each part the named ops used: index into [`Run::reasons`] of the first reason of each.
    pub used: Vec<Vec<usize>>,
    /// Reasons whose op was given up because it would have needed itself, or repeated another.
    pub given_up: Vec<usize>,
}

/// Which results of the parts are needed from outside the region.
pub type Keep = Vec<Vec<bool>>;

/// Extracts all parts of a region. `keep_params` keeps every parameter of a single part, used or not.
///
/// # Errors
/// [`PassError::Broken`] on a bug of the engine or a rule.
pub fn extract(
    graph: &Graph,
    region: &Region,
    run: &Run,
    keep: &Keep,
    keep_params: bool,
) -> Result<Extraction> {
    let mut banned: BTreeSet<Id> = BTreeSet::new();
    // Each round gives up at least one named op.
    loop {
        let mut selector = Selector::new(graph, region, run, &banned);
        for (part, kept) in keep.iter().enumerate() {
            for (i, &k) in kept.iter().enumerate() {
                if k && let Some(&v) = region.parts[part].graph.results().get(i) {
                    selector.need(part, v);
                }
            }
            // Calls are the template's, which describes each of them.
            let graph = &region.parts[part].graph;
            for (_, data) in graph.ops().filter(|(_, d)| matches!(d.op, Op::Call(_))) {
                data.results.iter().for_each(|&r| selector.need(part, r));
            }
        }
        let selection = selector.finish()?;
        if let Some(op) = repeated(graph, &selection) {
            banned.insert(selection.named[op].tuple);
            continue;
        }
        match emit(graph, region, &selection, keep, keep_params)? {
            Ok(parts) => {
                let index =
                    |o: usize| run.reasons.iter().position(|r| graph.find(r.op) == selection.named[o].tuple);
                let used = (0..region.parts.len())
                    .map(|p| {
                        selection.instances.keys().filter(|k| k.0 == p).filter_map(|k| index(k.1)).collect()
                    })
                    .collect();
                let given_up = (0..run.reasons.len())
                    .filter(|&i| banned.contains(&graph.find(run.reasons[i].op)))
                    .collect();
                return Ok(Extraction { parts, used, given_up });
            }
            Err(op) => {
                banned.insert(selection.named[op].tuple);
            }
        }
    }
}

/// A named op that does all that another op used beside it does, and takes as many inputs or more: both would
/// compute the same values.
fn repeated(graph: &Graph, s: &Selection) -> Option<usize> {
    let name = |o: usize| graph.analysis.op(s.named[o].op).name();
    s.instances.keys().find_map(|&(p, a)| {
        let more = s.instances.keys().any(|&(q, b)| {
            p == q
                && a != b
                && name(a) == name(b)
                // One of two that differ in the order of their operands alone.
                && (s.named[b].args.len(), b) < (s.named[a].args.len(), a)
                && s.named[b].args.iter().all(|x| s.named[a].args.contains(x))
        });
        more.then_some(a)
    })
}

/// Everything that a part takes from an earlier one: the part that takes, and what.
fn crossings(s: &Selection) -> BTreeSet<(usize, Key)> {
    let chosen = s.choices.iter().flat_map(|(k, c)| {
        let from: &[Key] = match c {
            Choice::Import(from) => std::slice::from_ref(from),
            Choice::Derived(_, keys) => keys,
            _ => &[],
        };
        from.iter().map(|&f| (k.part, f))
    });
    let named = s.instances.iter().flat_map(|(&(p, _), keys)| keys.iter().map(move |&f| (p, f)));
    chosen.chain(named).filter(|(p, f)| f.part < *p).collect()
}

/// Something that is emitted as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Unit {
    /// A class that no value of the program is.
    Class(Id),
    /// A named op.
    Named(usize),
    /// A value that a named op gives through a layout op.
    Layout(ValueId),
    /// An op of the program.
    Op(OpId),
}

struct Emitter<'g> {
    graph: &'g Graph,
    region: &'g Region,
    selection: &'g Selection,
    part: usize,
    out: msc_ir::Graph,
    made: BTreeMap<Key, ValueId>,
    instances: BTreeMap<usize, SmallVec<[ValueId; 1]>>,
    moved: BTreeMap<OpId, OpId>,
}

/// Emits every part; `Err` is a named op that needs itself.
fn emit(
    graph: &Graph,
    region: &Region,
    selection: &Selection,
    keep: &Keep,
    keep_params: bool,
) -> Result<std::result::Result<Vec<Extracted>, usize>> {
    let mut done: Vec<Extracted> = Vec::new();
    let mut exports: Vec<BTreeMap<Key, usize>> = Vec::new();
    for part in 0..region.parts.len() {
        let source = &region.parts[part].graph;
        let mut e = Emitter {
            graph,
            region,
            selection,
            part,
            out: msc_ir::Graph::new(source.name.clone()),
            made: BTreeMap::new(),
            instances: BTreeMap::new(),
            moved: BTreeMap::new(),
        };
        let mut params = e.own_params(keep_params);
        e.imports(&exports, &mut params)?;
        if let Err(op) = e.body()? {
            return Ok(Err(op));
        }
        let (mut results, mut outcomes) = (Vec::new(), Vec::new());
        let mut exported = BTreeMap::new();
        for (i, &v) in source.results().iter().enumerate() {
            if keep.get(part).and_then(|k| k.get(i)) == Some(&true) {
                let at = region.at(part, v);
                let key = Key { part, position: at.position, thing: Thing::Value(v) };
                exported.entry(key).or_insert(results.len());
                results.push(e.value(key)?);
                outcomes.push(Outcome::Old(i));
            }
        }
        for (to, from) in crossings(selection) {
            if from.part == part && to > part && !exported.contains_key(&from) && !e.is_own_param(from) {
                exported.insert(from, results.len());
                results.push(e.value(from)?);
                outcomes.push(Outcome::Export);
            }
        }
        e.out.set_results(results);
        exports.push(exported);
        done.push(Extracted { graph: e.out, params, results: outcomes, moved: e.moved });
    }
    Ok(Ok(done))
}

fn broken(message: impl Into<String>) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}

impl Emitter<'_> {
    fn own_params(&mut self, all: bool) -> Vec<Param> {
        let source = &self.region.parts[self.part].graph;
        let mut params = Vec::new();
        for (i, &v) in source.params().iter().enumerate() {
            let key = Key { part: self.part, position: 0, thing: Thing::Value(v) };
            if all || self.selection.choices.get(&key) == Some(&Choice::Own) {
                let new = self.out.add_param(source.ty(v).clone());
                self.made.insert(key, new);
                params.push(Param::Old(i));
            }
        }
        params
    }

    /// Whether a thing is a parameter from outside, of whichever part.
    fn is_own_param(&self, key: Key) -> bool {
        key.position == 0
            && matches!(key.thing, Thing::Value(_))
            && self.selection.choices.get(&key) == Some(&Choice::Own)
    }

    /// Parameters for what this part takes from earlier ones.
    fn imports(&mut self, exports: &[BTreeMap<Key, usize>], params: &mut Vec<Param>) -> Result<()> {
        let wanted: BTreeSet<Key> =
            crossings(self.selection).into_iter().filter(|c| c.0 == self.part).map(|c| c.1).collect();
        for from in wanted {
            let param = match from.thing {
                Thing::Value(v) if self.is_own_param(from) => {
                    let g = &self.region.parts[from.part].graph;
                    let index = g.params().iter().position(|&p| p == v);
                    Param::Outer { part: from.part, index: index.ok_or_else(|| broken("no such parameter"))? }
                }
                _ => {
                    let index = exports.get(from.part).and_then(|e| e.get(&from)).copied();
                    let index =
                        index.ok_or_else(|| broken("a value is taken from a part that does not give it"))?;
                    Param::Result { part: from.part, index }
                }
            };
            let new = self.out.add_param(self.ty(from)?);
            params.push(param);
            self.made.insert(from, new);
        }
        // What is only another name for an imported value.
        for (k, c) in self.selection.choices.iter().filter(|(k, _)| k.part == self.part) {
            if let Choice::Import(from) = c {
                self.made.insert(*k, self.value(*from)?);
            }
        }
        Ok(())
    }

    fn ty(&self, key: Key) -> Result<TensorType> {
        match key.thing {
            Thing::Value(v) => Ok(self.region.parts[key.part].graph.ty(v).clone()),
            Thing::Class(c) => {
                let t = self.graph[c].data.types.first();
                t.cloned().ok_or_else(|| broken("a class has no type"))
            }
        }
    }

    fn value(&self, key: Key) -> Result<ValueId> {
        self.made.get(&key).copied().ok_or_else(|| broken("a needed value was not made"))
    }

    /// The unit that makes a thing; `None` for parameters.
    fn unit(&self, key: Key) -> Option<Unit> {
        if key.part != self.part {
            return None;
        }
        match (self.selection.choices.get(&key)?, key.thing) {
            (Choice::Import(_), _) => None,
            (Choice::Named { op, layout: None, .. }, _) => Some(Unit::Named(*op)),
            (Choice::Named { .. }, Thing::Value(v)) => Some(Unit::Layout(v)),
            (_, Thing::Class(c)) => Some(Unit::Class(c)),
            (Choice::Own, Thing::Value(v)) => {
                self.region.parts[self.part].graph.def(v).map(|(op, _)| Unit::Op(op))
            }
            (Choice::Derived(..), Thing::Value(_)) => None,
        }
    }

    /// The things a unit takes.
    fn takes(&self, unit: Unit) -> Vec<Key> {
        let part = self.part;
        match unit {
            Unit::Named(o) => self.selection.instances[&(part, o)].to_vec(),
            Unit::Op(op) => {
                let g = &self.region.parts[part].graph;
                let key = |v: ValueId| {
                    let at = self.region.at(part, v);
                    Key { part, position: at.position, thing: Thing::Value(v) }
                };
                g.op(op).operands.iter().map(|&v| key(v)).collect()
            }
            Unit::Class(c) => {
                let key = Key { part, position: 0, thing: Thing::Class(c) };
                match self.selection.choices.get(&key) {
                    Some(Choice::Derived(_, keys)) => keys.to_vec(),
                    _ => Vec::new(),
                }
            }
            Unit::Layout(_) => Vec::new(),
        }
    }

    /// Units by dependency, those of the program in its own order. `Err` is a named op that needs itself.
    fn body(&mut self) -> Result<std::result::Result<(), usize>> {
        // For each unit, its place among the ready ones.
        let mut place: BTreeMap<Unit, u32> = BTreeMap::new();
        for key in self.selection.choices.keys() {
            if let Some(u) = self.unit(*key) {
                let at = place.entry(u).or_insert(key.position);
                *at = (*at).min(key.position);
                // The named op behind a layout op is a unit of its own.
                if let Some(Choice::Named { op, .. }) = self.selection.choices.get(key) {
                    let at = place.entry(Unit::Named(*op)).or_insert(key.position);
                    *at = (*at).min(key.position);
                }
            }
        }
        let mut waits: BTreeMap<Unit, usize> = BTreeMap::new();
        let mut feeds: BTreeMap<Unit, Vec<Unit>> = BTreeMap::new();
        for &u in place.keys() {
            let mut before: BTreeSet<Unit> = self.takes(u).into_iter().filter_map(|k| self.unit(k)).collect();
            if let Unit::Class(c) = u {
                before.extend(self.behind(Thing::Class(c)));
            }
            if let Unit::Layout(v) = u {
                before.extend(self.behind(Thing::Value(v)));
            }
            waits.insert(u, before.len());
            for b in before {
                feeds.entry(b).or_default().push(u);
            }
        }
        let mut ready: BTreeSet<(u32, Unit)> =
            waits.iter().filter(|&(_, &n)| n == 0).map(|(&u, _)| (place[&u], u)).collect();
        let mut left = place.len();
        while let Some((_, u)) = ready.pop_first() {
            self.emit(u, place[&u])?;
            left -= 1;
            for next in feeds.remove(&u).unwrap_or_default() {
                if let Some(n) = waits.get_mut(&next) {
                    *n -= 1;
                    if *n == 0 {
                        ready.insert((place[&next], next));
                    }
                }
            }
        }
        if left == 0 {
            return Ok(Ok(()));
        }
        let stuck = waits.iter().filter(|&(_, &n)| n > 0).filter_map(|(u, _)| match u {
            Unit::Named(o) => Some(*o),
            _ => None,
        });
        match stuck.max() {
            Some(o) => Ok(Err(o)),
            None => Err(broken("the extracted graph is cyclic without a named op")),
        }
    }

    /// The named op that a thing is a result of.
    fn behind(&self, thing: Thing) -> Option<Unit> {
        let position = match thing {
            Thing::Value(v) => self.region.at(self.part, v).position,
            Thing::Class(_) => 0,
        };
        match self.selection.choices.get(&Key { part: self.part, position, thing })? {
            Choice::Named { op, .. } => Some(Unit::Named(*op)),
            _ => None,
        }
    }

    fn emit(&mut self, unit: Unit, place: u32) -> Result<()> {
        let operands: SmallVec<[ValueId; 3]> =
            self.takes(unit).into_iter().map(|k| self.value(k)).collect::<Result<_>>()?;
        let source = &self.region.parts[self.part].graph;
        let loc_at = |position: u32| {
            let op = (position as usize).checked_sub(1).and_then(|i| source.order().get(i));
            op.map_or(LocId::UNKNOWN, |&op| source.op(op).loc)
        };
        match unit {
            Unit::Op(op) => {
                let data = source.op(op);
                let types = data.results.iter().map(|&r| source.ty(r).clone()).collect();
                self.moved.insert(op, OpId(self.out.op_count() as u32));
                let new = self.out.add_typed(data.op.clone(), &operands, types, data.loc);
                for (&old, new) in data.results.iter().zip(new) {
                    let key = Key { part: self.part, position: place, thing: Thing::Value(old) };
                    // A sibling result may come from a named op.
                    self.made.entry(key).or_insert(new);
                }
            }
            Unit::Named(o) => {
                let op = self.graph.analysis.op(self.selection.named[o].op).clone();
                let new = self.out.add(&self.graph.analysis.module, op, &operands, loc_at(place))?;
                self.instances.insert(o, new);
                self.projections(o)?;
            }
            Unit::Layout(v) => {
                let position = self.region.at(self.part, v).position;
                self.layout(Key { part: self.part, position, thing: Thing::Value(v) }, loc_at(place))?;
            }
            Unit::Class(c) => {
                let key = Key { part: self.part, position: 0, thing: Thing::Class(c) };
                match self.selection.choices.get(&key) {
                    Some(Choice::Derived(op, _)) => {
                        let op = self.graph.analysis.op(*op).clone();
                        let new = self.out.add1(&self.graph.analysis.module, op, &operands, loc_at(place))?;
                        self.made.insert(key, new);
                    }
                    Some(Choice::Named { .. }) => self.layout(key, loc_at(place))?,
                    _ => return Err(broken("a class is to be made without a term")),
                }
            }
        }
        Ok(())
    }

    /// Records the things that are results of a named op just emitted.
    fn projections(&mut self, named: usize) -> Result<()> {
        for (key, c) in self.selection.choices.iter().filter(|(k, _)| k.part == self.part) {
            if let Choice::Named { op, index, layout: None } = c
                && *op == named
            {
                let value = self.instances[&named].get(*index as usize);
                let value = value.ok_or_else(|| broken("a named op has too few results"))?;
                self.made.insert(*key, *value);
            }
        }
        Ok(())
    }

    /// Puts a result of a named op through its layout op.
    fn layout(&mut self, key: Key, loc: LocId) -> Result<()> {
        let Some(Choice::Named { op, index, layout: Some(layout) }) = self.selection.choices.get(&key) else {
            return Err(broken("a layout is to be made of nothing"));
        };
        let value = self.instances.get(op).and_then(|r| r.get(*index as usize));
        let value = *value.ok_or_else(|| broken("a named op has too few results"))?;
        let layout = self.graph.analysis.op(*layout).clone();
        let new = self.out.add1(&self.graph.analysis.module, layout, &[value], loc)?;
        self.made.insert(key, new);
        Ok(())
    }
}
