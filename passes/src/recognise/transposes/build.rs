//! The parts of a region with some of its named operations exchanged, and with no more layout than that needs.

use super::super::define;
use super::super::extract::{Extracted, Outcome, Param};
use super::chain::{is_layout, shorter};
use super::islands::{Islands, Place};
use super::laws::{Exchanged, Law, exchange, exchanged};
use super::part::{Part, Plan};
use super::{broken, dots};
use crate::error::Result;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::fused::{Fused, FusedKind};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Graph, LocId, Module, Op, OpId, TensorType, ValueDef, ValueId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Layout ops on the way of one value that are looked at together.
const MAX_CHAIN: usize = 8;

/// The parts under construction.
pub(super) struct Builder<'a> {
    module: &'a mut Module,
    /// Only to see what layout is left: named ops keep their definitions, and the module stays as it is.
    trial: bool,
    laws: BTreeMap<Place, &'a Law>,
    parts: Vec<Part<'a>>,
}

/// Builds the parts anew, the ops of `which` islands exchanged. A trial only shows what layout is left.
///
/// # Errors
/// [`crate::PassError::Broken`] if the parts do not fit together.
pub(super) fn build(
    module: &mut Module,
    old: &[Extracted],
    islands: &Islands,
    (which, trial): (&BTreeSet<usize>, bool),
) -> Result<Vec<Extracted>> {
    let places = which.iter().flat_map(|&i| &islands.all[i]);
    let laws = places.filter_map(|p| Some((*p, islands.laws.get(p)?))).collect();
    let mut b = Builder { module, trial, laws, parts: Vec::new() };
    for (at, part) in old.iter().enumerate() {
        b.part(at, part)?;
    }
    b.finish()
}

impl<'a> Builder<'a> {
    fn part(&mut self, at: usize, old: &'a Extracted) -> Result<()> {
        self.parts.push(Part::new(old));
        for (id, d) in old.graph.ops() {
            let op = match self.laws.get(&(at, id)).copied() {
                Some(law) => Some(self.named(at, id, law)?),
                None if is_layout(&d.op) => {
                    let new = match self.turned(at, id)? {
                        Some(new) => new,
                        None => {
                            let v = self.plain(at, d.operands[0])?;
                            self.lay(at, d.op.clone(), v, d.loc)?
                        }
                    };
                    self.parts[at].plain[d.results[0].0 as usize] = Some(new);
                    self.parts[at].new.def(new).map(|(op, _)| op)
                }
                None => match &d.op {
                    Op::DotGeneral(dot) => {
                        let free = old.graph.value(d.results[0]).uses.iter();
                        let free =
                            free.map(|u| &old.graph.op(u.op).op).all(|op| matches!(op, Op::Reshape(_)));
                        let free = free && !old.graph.results().contains(&d.results[0]);
                        let ty = old.graph.ty(d.results[0]);
                        let new = self.product(at, ((**dot).clone(), &d.operands), (ty, free), d.loc)?;
                        self.parts[at].plain[d.results[0].0 as usize] = Some(new);
                        self.parts[at].new.def(new).map(|(op, _)| op)
                    }
                    _ => Some(self.copied(at, id)?),
                },
            };
            if let Some(op) = op {
                self.parts[at].moved.insert(id, op);
            }
        }
        // What others than later parts need, they need as it was.
        for (&v, outcome) in old.graph.results().iter().zip(&old.results) {
            if matches!(outcome, Outcome::Old(_)) {
                self.plain(at, v)?;
            }
        }
        Ok(())
    }

    /// A named op with its dimensions exchanged.
    fn named(&mut self, at: usize, id: OpId, law: &Law) -> Result<OpId> {
        let old = &self.parts[at].old.graph;
        let d = old.op(id);
        let mut operands: SmallVec<[ValueId; 3]> = SmallVec::new();
        for (&v, e) in d.operands.iter().zip(&law.operands) {
            operands.push(match e {
                Exchanged::No => self.plain(at, v)?,
                Exchanged::Yes | Exchanged::Table => self.exchanged(at, v)?,
            });
        }
        let taken: Vec<TensorType> = operands.iter().map(|&v| self.parts[at].new.ty(v).clone()).collect();
        let op: Op = match (self.trial, &d.op) {
            (true, op) => op.clone(),
            (false, _) => defined(self.module, &law.kind, &taken)?.into(),
        };
        let given = d.results.iter().zip(&law.results);
        let given = given.map(|(&r, is)| if *is { exchanged(old.ty(r)) } else { old.ty(r).clone() });
        let part = &mut self.parts[at];
        let new = OpId(part.new.op_count() as u32);
        let results = part.new.add_typed(op, &operands, given.collect::<Vec<_>>(), d.loc);
        for ((old, new), is) in d.results.iter().zip(results).zip(&law.results) {
            let side = if *is { &mut part.exchanged } else { &mut part.plain };
            side[old.0 as usize] = Some(new);
        }
        Ok(new)
    }

    /// An op as it is.
    fn copied(&mut self, at: usize, id: OpId) -> Result<OpId> {
        let d = self.parts[at].old.graph.op(id);
        let operands: SmallVec<[ValueId; 3]> =
            d.operands.iter().map(|&v| self.plain(at, v)).collect::<Result<_>>()?;
        let part = &mut self.parts[at];
        let new = OpId(part.new.op_count() as u32);
        let types = d.results.iter().map(|&r| part.old.graph.ty(r).clone());
        let results = part.new.add_typed(d.op.clone(), &operands, types, d.loc);
        for (old, new) in d.results.iter().zip(results) {
            part.plain[old.0 as usize] = Some(new);
        }
        Ok(new)
    }

    /// The result of a transpose, if it is all that is made of a product: another product.
    fn turned(&mut self, at: usize, id: OpId) -> Result<Option<ValueId>> {
        let old = &self.parts[at].old.graph;
        let (d, v) = (old.op(id), old.op(id).operands[0]);
        let (Op::Permute(Permute::Transpose(order)), Some((product, _))) = (&d.op, old.def(v)) else {
            return Ok(None);
        };
        let Op::DotGeneral(dot) = &old.op(product).op else { return Ok(None) };
        let operands = &old.op(product).operands;
        let ranks = [old.ty(operands[0]).rank(), old.ty(operands[1]).rank()];
        let only = old.value(v).uses.len() == 1 && !old.results().contains(&v);
        let Some(dot) = dots::turned(dot, ranks, order).filter(|_| only) else { return Ok(None) };
        self.product(at, (dot, &[operands[1], operands[0]]), (old.ty(d.results[0]), false), d.loc).map(Some)
    }

    /// A product of old values, of type `ty`, that takes its matrices as they are stored: transposed, and with rows in more
    /// than one dimension. Where the result then has other dimensions, too, it is put into its shape, if it may be: if
    /// that is all that is done with it, the two reshapes are one or none.
    fn product(
        &mut self,
        at: usize,
        (mut dot, operands): (DotGeneral, &[ValueId]),
        (ty, may_split): (&TensorType, bool),
        loc: LocId,
    ) -> Result<ValueId> {
        let mut places = [self.seen(at, operands[0])?, self.seen(at, operands[1])?];
        let mut rows = [None, None];
        for (side, place) in places.iter_mut().enumerate() {
            while let Some((Op::Permute(Permute::Transpose(order)), base)) = self.made_of(*place)
                && dots::absorb(&mut dot, side, order)
            {
                place.1 = base;
            }
            if let Some((Op::Reshape(_), base)) = self.made_of(*place) {
                let g = &self.parts[place.0].new;
                rows[side] = dots::merged(&g.ty(base).shape, &g.ty(place.1).shape).map(|m| (base, m));
            }
        }
        let shapes = places.map(|(part, v)| self.parts[part].new.ty(v).shape.clone());
        let ways = [[true, true], [true, false], [false, true]];
        let split = ways.into_iter().find_map(|way| {
            let side = |i: usize| match &rows[i] {
                Some((base, merged)) if way[i] => {
                    Some((merged.clone(), self.parts[places[i].0].new.ty(*base).shape.clone()))
                }
                None if way[i] => None,
                _ => Some((dots::apart(shapes[i].len()), shapes[i].clone())),
            };
            let (l, r) = (side(0)?, side(1)?);
            let (dot, same) = dots::split(&dot, [&l.0, &r.0], [&l.1, &r.1])?;
            (same || may_split).then_some((dot, way))
        });
        if let Some((split, way)) = split {
            dot = split;
            for (i, place) in places.iter_mut().enumerate().filter(|(i, _)| way[*i]) {
                place.1 = rows[i].as_ref().map_or(place.1, |r| r.0);
            }
        }
        let mut values: SmallVec<[ValueId; 2]> = SmallVec::new();
        for (part, v) in places {
            values.push(if part == at { v } else { self.import(at, part, v)? });
        }
        let new = self.parts[at].new.add1(self.module, dot, &values, loc)?;
        if self.parts[at].new.ty(new) == ty {
            return Ok(new);
        }
        self.lay(at, Reshape { shape: ty.shape.clone() }.into(), new, loc)
    }

    /// An old value of a part: the part in which it is made, and which it is there.
    fn seen(&mut self, at: usize, v: ValueId) -> Result<(usize, ValueId)> {
        let known = self.parts[at].plain[v.0 as usize];
        let import = known.and_then(|k| self.parts[at].imports.iter().find(|(_, p)| **p == k));
        if let Some((&place, _)) = import {
            return Ok(place);
        }
        match self.source(at, v) {
            Some((from, w)) if known.is_none() && self.parts[from].plain[w.0 as usize].is_some() => {
                Ok((from, self.plain(from, w)?))
            }
            _ => Ok((at, self.plain(at, v)?)),
        }
    }

    /// The layout op that a new value of a part is made by, and what of.
    fn made_of(&self, (part, v): (usize, ValueId)) -> Option<(&Op, ValueId)> {
        let g = &self.parts[part].new;
        let d = g.op(g.def(v)?.0);
        is_layout(&d.op).then(|| (&d.op, d.operands[0]))
    }

    /// The value of an earlier part that an old value of a part is, if it is a parameter from there.
    fn source(&self, at: usize, v: ValueId) -> Option<(usize, ValueId)> {
        let old = self.parts[at].old;
        let ValueDef::Param(i) = old.graph.value(v).def else { return None };
        let Param::Result { part, index } = *old.params.get(i as usize)? else { return None };
        Some((part, *self.parts.get(part)?.old.graph.results().get(index)?))
    }

    /// An old value of a part.
    fn plain(&mut self, at: usize, v: ValueId) -> Result<ValueId> {
        if let Some(new) = self.parts[at].plain[v.0 as usize] {
            return Ok(new);
        }
        let new = if let Some(other) = self.parts[at].exchanged[v.0 as usize] {
            self.exchange(at, other)?
        } else {
            let (from, w) = self.source(at, v).ok_or_else(|| broken("a value is not there yet"))?;
            let there = &self.parts[from];
            match (there.plain[w.0 as usize], there.exchanged[w.0 as usize]) {
                (None, Some(other)) => {
                    let other = self.import(at, from, other)?;
                    self.exchange(at, other)?
                }
                _ => {
                    let there = self.plain(from, w)?;
                    self.import(at, from, there)?
                }
            }
        };
        self.parts[at].plain[v.0 as usize] = Some(new);
        Ok(new)
    }

    /// An old value of a part with dimensions 1 and 2 exchanged.
    fn exchanged(&mut self, at: usize, v: ValueId) -> Result<ValueId> {
        if let Some(new) = self.parts[at].exchanged[v.0 as usize] {
            return Ok(new);
        }
        let new = match self.source(at, v) {
            Some((from, w))
                if !self.is_used_plain(at, v) || self.parts[from].exchanged[w.0 as usize].is_some() =>
            {
                let there = self.exchanged(from, w)?;
                self.import(at, from, there)?
            }
            _ => {
                let plain = self.plain(at, v)?;
                self.exchange(at, plain)?
            }
        };
        self.parts[at].exchanged[v.0 as usize] = Some(new);
        Ok(new)
    }

    /// Whether something in a part takes an old value as it is.
    fn is_used_plain(&self, at: usize, v: ValueId) -> bool {
        let old = self.parts[at].old;
        let plain = |u: &msc_ir::Use| {
            let law = self.laws.get(&(at, u.op));
            law.is_none_or(|l| l.operands.get(u.index as usize) == Some(&Exchanged::No))
        };
        old.graph.value(v).uses.iter().any(plain) || old.graph.results().contains(&v)
    }

    fn exchange(&mut self, at: usize, v: ValueId) -> Result<ValueId> {
        let loc = self.parts[at].new.def(v).map_or(LocId::UNKNOWN, |(op, _)| self.parts[at].new.op(op).loc);
        self.lay(at, exchange().into(), v, loc)
    }

    /// A layout op on a new value; what it and those before it do together is done by as few as possible.
    fn lay(&mut self, at: usize, op: Op, v: ValueId, loc: LocId) -> Result<ValueId> {
        let part = &self.parts[at];
        let (mut ops, mut base) = (vec![op.clone()], v);
        while ops.len() < MAX_CHAIN {
            let Some((def, _)) = part.new.def(base).filter(|(def, _)| is_layout(&part.new.op(*def).op))
            else {
                break;
            };
            ops.push(part.new.op(def).op.clone());
            base = part.new.op(def).operands[0];
        }
        ops.reverse();
        match shorter(self.module, part.new.ty(base), &ops) {
            Some(ops) => ops.into_iter().try_fold(base, |v, op| self.put(at, op, v, loc)),
            None => self.put(at, op, v, loc),
        }
    }

    fn put(&mut self, at: usize, op: Op, v: ValueId, loc: LocId) -> Result<ValueId> {
        let part = &mut self.parts[at];
        let key = (op, v);
        if let Some(&known) = part.made.get(&key) {
            return Ok(known);
        }
        let new = part.new.add1(self.module, key.0.clone(), &[v], loc)?;
        part.made.insert(key, new);
        Ok(new)
    }

    /// A new value of an earlier part as a value of a part. What is there already in another shape is not kept twice, and
    /// what the earlier part has from outside is had from there.
    fn import(&mut self, at: usize, from: usize, v: ValueId) -> Result<ValueId> {
        if let Some(&known) = self.parts[at].imports.get(&(from, v)) {
            return Ok(known);
        }
        let there = &self.parts[from].new;
        let ty = there.ty(v).clone();
        if let Some(outer) = self.parts[from].outside(from, v) {
            return Ok(self.parts[at].take(outer, ty));
        }
        let same = shaped(there, v);
        let mut known = self.parts[at].imports.iter().filter(|((part, _), _)| *part == from);
        let param = match known.find(|((_, w), _)| shaped(there, *w) == same).map(|(_, &p)| p) {
            Some(p) => self.lay(at, Reshape { shape: ty.shape }.into(), p, LocId::UNKNOWN)?,
            None => self.parts[at].new.add_param(ty),
        };
        self.parts[at].imports.insert((from, v), param);
        Ok(param)
    }

    fn finish(self) -> Result<Vec<Extracted>> {
        // From the last part to the first: what each hands on is what later ones need.
        let mut exports: Vec<BTreeSet<ValueId>> = vec![BTreeSet::new(); self.parts.len()];
        let mut plans: Vec<Plan> = Vec::new();
        for (at, part) in self.parts.iter().enumerate().rev() {
            let plan = part.plan(&exports[at])?;
            plan.imports.iter().for_each(|&(from, v, _)| {
                exports[from].insert(v);
            });
            plans.push(plan);
        }
        plans.reverse();
        let given: Vec<Vec<ValueId>> = plans.iter().map(|p| p.results.clone()).collect();
        self.parts.into_iter().zip(plans).map(|(p, plan)| p.compact(plan, &given)).collect()
    }
}

/// The named op of a kind on operands of these types.
///
/// # Errors
/// If they do not fit.
pub(super) fn defined(module: &mut Module, kind: &FusedKind, types: &[TensorType]) -> Result<Fused> {
    let known = module.definition(kind, types);
    let definition = match known {
        Some(known) => known,
        None => {
            let made = define::build(module, kind, types)?;
            module.define(kind.clone(), made)
        }
    };
    Ok(Fused { kind: kind.clone(), definition })
}

/// Where a value comes from, seen through other shapes.
fn shaped(g: &Graph, v: ValueId) -> ValueId {
    let mut at = v;
    while let Some((op, _)) = g.def(at).filter(|(op, _)| matches!(g.op(*op).op, Op::Reshape(_))) {
        at = g.op(op).operands[0];
    }
    at
}
