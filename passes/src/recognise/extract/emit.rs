//! Emission of one part: units in an order in which definitions come first.

use super::super::engine::region::Region;
use super::super::engine::term::Graph;
use super::select::{Choice, Key, Selection, Thing};
use super::{Param, broken, crossings};
use crate::error::Result;
use egg::Id;
use msc_ir::{LocId, OpId, TensorType, ValueId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Something that is emitted as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Unit {
    /// What no op of the program makes at its position: a result of a named op in another layout, or a class that no
    /// value of the program is.
    Term(u32, Thing),
    /// A named op.
    Named(usize),
    /// An op of the program.
    Op(OpId),
}

/// Builds the new graph of one part.
pub(super) struct Emitter<'g> {
    graph: &'g Graph,
    region: &'g Region,
    selection: &'g Selection,
    part: usize,
    pub(super) out: msc_ir::Graph,
    made: FxHashMap<Key, ValueId>,
    instances: BTreeMap<usize, SmallVec<[ValueId; 1]>>,
    pub(super) moved: BTreeMap<OpId, OpId>,
    pub(super) named: BTreeMap<OpId, Id>,
}

impl<'g> Emitter<'g> {
    /// For a part of a region.
    pub(super) fn new(
        graph: &'g Graph,
        region: &'g Region,
        selection: &'g Selection,
        part: usize,
    ) -> Emitter<'g> {
        Emitter {
            graph,
            region,
            selection,
            part,
            out: msc_ir::Graph::new(region.parts[part].graph.name.clone()),
            made: FxHashMap::default(),
            instances: BTreeMap::new(),
            moved: BTreeMap::new(),
            named: BTreeMap::new(),
        }
    }

    pub(super) fn own_params(&mut self, all: bool) -> Vec<Param> {
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
    pub(super) fn is_own_param(&self, key: Key) -> bool {
        key.position == 0
            && matches!(key.thing, Thing::Value(_))
            && self.selection.choices.get(&key) == Some(&Choice::Own)
    }

    /// Parameters for what this part takes from earlier ones.
    pub(super) fn imports(
        &mut self,
        exports: &[BTreeMap<Key, usize>],
        params: &mut Vec<Param>,
    ) -> Result<()> {
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

    pub(super) fn value(&self, key: Key) -> Result<ValueId> {
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
            (Choice::Own, Thing::Value(v)) => {
                self.region.parts[self.part].graph.def(v).map(|(op, _)| Unit::Op(op))
            }
            _ => Some(Unit::Term(key.position, key.thing)),
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
            Unit::Term(position, thing) => match self.selection.choices.get(&Key { part, position, thing }) {
                Some(Choice::Derived(_, keys)) => keys.to_vec(),
                _ => Vec::new(),
            },
        }
    }

    /// Units by dependency, those of the program in its own order. `Err` are the named ops that need themselves.
    pub(super) fn body(&mut self) -> Result<std::result::Result<(), Vec<usize>>> {
        // Units in their own order, each with its place among the ready ones.
        let mut units: Vec<(Unit, u32)> = Vec::new();
        let mut makers: Vec<(Key, Unit)> = Vec::new();
        for (key, choice) in &self.selection.choices {
            if let Some(u) = self.unit(*key) {
                units.push((u, key.position));
                makers.push((*key, u));
                // The named op behind a layout op is a unit of its own.
                if let Choice::Named { op, .. } = choice {
                    units.push((Unit::Named(*op), key.position));
                }
            }
        }
        units.sort_unstable();
        units.dedup_by_key(|u| u.0);
        let index: FxHashMap<Unit, u32> = units.iter().zip(0..).map(|(&(u, _), at)| (u, at)).collect();
        let makers: FxHashMap<Key, u32> = makers.into_iter().map(|(k, u)| (k, index[&u])).collect();
        let mut waits = vec![0u32; units.len()];
        let mut feeds: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); units.len()];
        for (at, &(u, _)) in units.iter().enumerate() {
            let mut before: SmallVec<[u32; 8]> =
                self.takes(u).iter().filter_map(|k| makers.get(k).copied()).collect();
            let behind = match u {
                Unit::Term(position, thing) => self.behind(Key { part: self.part, position, thing }),
                _ => None,
            };
            before.extend(behind.and_then(|b| index.get(&b).copied()));
            before.sort_unstable();
            before.dedup();
            waits[at] = before.len() as u32;
            before.iter().for_each(|&b| feeds[b as usize].push(at as u32));
        }
        let mut ready: BTreeSet<(u32, u32)> =
            (0..units.len()).filter(|&u| waits[u] == 0).map(|u| (units[u].1, u as u32)).collect();
        let mut left = units.len();
        while let Some((place, u)) = ready.pop_first() {
            self.emit(units[u as usize].0, place)?;
            left -= 1;
            for &next in &feeds[u as usize] {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.insert((units[next as usize].1, next));
                }
            }
        }
        if left == 0 {
            return Ok(Ok(()));
        }
        let units: Vec<Unit> = units.into_iter().map(|u| u.0).collect();
        match on_cycle(&units, &waits, &feeds) {
            all if all.is_empty() => Err(broken("the extracted graph is cyclic without a named op")),
            all => Ok(Err(all)),
        }
    }

    /// The named op that a thing is a result of.
    fn behind(&self, key: Key) -> Option<Unit> {
        match self.selection.choices.get(&key)? {
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
                let types = data.results.iter().map(|&r| source.ty(r).clone());
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
                let loc = match loc_at(place) {
                    LocId::UNKNOWN => self.first_result_at(o),
                    known => known,
                };
                self.named.insert(OpId(self.out.op_count() as u32), self.selection.named[o].tuple);
                let new = self.out.add(&self.graph.analysis.module, op, &operands, loc)?;
                self.instances.insert(o, new);
                self.projections(o)?;
            }
            Unit::Term(position, thing) => {
                let key = Key { part: self.part, position, thing };
                match self.selection.choices.get(&key) {
                    Some(Choice::Derived(op, _)) => {
                        let op = self.graph.analysis.op(*op).clone();
                        let new = self.out.add1(&self.graph.analysis.module, op, &operands, loc_at(place))?;
                        self.made.insert(key, new);
                    }
                    Some(Choice::Named { .. }) => self.layout(key, loc_at(place))?,
                    _ => return Err(broken("a term is to be made of nothing")),
                }
            }
        }
        Ok(())
    }

    /// Where the program makes the first value that a named op gives.
    fn first_result_at(&self, named: usize) -> LocId {
        let source = &self.region.parts[self.part].graph;
        let given = self.selection.choices.iter().filter_map(|(k, c)| match (k.thing, c) {
            (Thing::Value(v), Choice::Named { op, .. }) if k.part == self.part && *op == named => {
                source.def(v)
            }
            _ => None,
        });
        given.map(|(op, _)| source.op(op).loc).find(|l| *l != LocId::UNKNOWN).unwrap_or(LocId::UNKNOWN)
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

/// The named ops that need themselves, of the units that still wait: what only waits for them does not.
fn on_cycle(units: &[Unit], waits: &[u32], feeds: &[SmallVec<[u32; 4]>]) -> Vec<usize> {
    let reaches_itself = |start: u32| {
        let mut seen = BTreeSet::new();
        let mut todo = vec![start];
        while let Some(u) = todo.pop() {
            for &next in feeds[u as usize].iter().filter(|&&n| waits[n as usize] > 0) {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        false
    };
    let named =
        (0..units.len() as u32).filter(|&u| waits[u as usize] > 0).filter_map(|u| match units[u as usize] {
            Unit::Named(o) => Some((u, o)),
            _ => None,
        });
    named.filter(|&(u, _)| reaches_itself(u)).map(|(_, o)| o).collect()
}
