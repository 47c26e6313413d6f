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
use msc_ir::{Graph, LocId, Module, Op, OpData, OpId, Shape, TensorType, ValueDef, ValueId};
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
                None => Some(self.copied(at, id)?),
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

    /// An op as it is, but for what a product takes transposed.
    fn copied(&mut self, at: usize, id: OpId) -> Result<OpId> {
        let d = self.parts[at].old.graph.op(id);
        let mut operands: SmallVec<[ValueId; 3]> =
            d.operands.iter().map(|&v| self.plain(at, v)).collect::<Result<_>>()?;
        let mut op = d.op.clone();
        if let Op::DotGeneral(dot) = &mut op {
            self.absorb(at, dot, &mut operands)?;
        }
        let part = &mut self.parts[at];
        let new = OpId(part.new.op_count() as u32);
        let types = d.results.iter().map(|&r| part.old.graph.ty(r).clone());
        let results = part.new.add_typed(op, &operands, types, d.loc);
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
        let Some(mut dot) = dots::turned(dot, ranks, order).filter(|_| only) else { return Ok(None) };
        let mut operands: SmallVec<[ValueId; 3]> =
            [operands[1], operands[0]].iter().map(|&v| self.plain(at, v)).collect::<Result<_>>()?;
        self.absorb(at, &mut dot, &mut operands)?;
        self.parts[at].new.add1(self.module, dot, &operands, d.loc).map(Some).map_err(Into::into)
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

    /// What an operand of a product is a transpose of, here or in an earlier part, as a value of this part.
    fn stored(&mut self, at: usize, v: ValueId) -> Result<Option<(Shape, ValueId)>> {
        let transposed = |g: &Graph, v: ValueId| match g.def(v).map(|(op, _)| g.op(op)) {
            Some(OpData { op: Op::Permute(Permute::Transpose(order)), operands, .. }) => {
                Some((order.clone(), operands[0]))
            }
            _ => None,
        };
        if let Some(found) = transposed(&self.parts[at].new, v) {
            return Ok(Some(found));
        }
        let import = self.parts[at].imports.iter().find(|(_, p)| **p == v).map(|(&k, _)| k);
        let Some((from, w)) = import else { return Ok(None) };
        let Some((order, base)) = transposed(&self.parts[from].new, w) else { return Ok(None) };
        Ok(Some((order, self.import(at, from, base)?)))
    }

    /// Lets a product take what its operands are transposes of.
    fn absorb(&mut self, at: usize, dot: &mut DotGeneral, operands: &mut [ValueId]) -> Result<()> {
        for (side, v) in operands.iter_mut().enumerate() {
            if let Some((order, base)) = self.stored(at, *v)?
                && dots::absorb(dot, side, &order)
            {
                *v = base;
            }
        }
        Ok(())
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
