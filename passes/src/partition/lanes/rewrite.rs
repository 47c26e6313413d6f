//! The graphs with lanes as one.

use super::super::lower::drop_unused;
use super::super::sums::{inner_nodes, tree};
use super::batch::{Arg, Stacker, columns};
use super::found::Found;
use super::seeds::over_lanes;
use super::{Slot, Stacked, entry};
use crate::error::Result;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::call::reachable;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Graph, GraphId, LocId, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// How far behind its place an op may be needed: a guard of the stack, beyond any chain of tied ops.
const DEPTH: usize = 2000;

/// Rewrites all graphs; `None`, and nothing is changed, if lanes depend on each other in a circle.
pub(super) fn rewrite(module: &mut Module, found: &Found) -> Result<Option<Stacked>> {
    let old = module.clone();
    for id in reachable(&old).into_iter().filter(|id| found.graphs.contains(id)) {
        match Rewriter::run(module, &old, found, id)? {
            Some(graph) => module.set_graph(id, graph),
            None => {
                *module = old;
                return Ok(None);
            }
        }
    }
    let moved = entry::rewrite(module, found);
    Ok(Some(Stacked { moved }))
}

/// Why a graph cannot be rewritten: lanes that need each other.
pub(super) struct Circle;

pub(super) type Made<T> = Result<std::result::Result<T, Circle>>;

/// Hands a circle on.
macro_rules! made {
    ($e:expr) => {
        match $e? {
            Ok(v) => v,
            Err(circle) => return Ok(Err(circle)),
        }
    };
}
pub(super) use made;

pub(super) struct Rewriter<'a> {
    pub(super) found: &'a Found,
    pub(super) id: GraphId,
    pub(super) source: &'a Graph,
    pub(super) old: &'a Module,
    pub(super) stacker: Stacker<'a>,
    pub(super) inner: Vec<bool>,
    /// Roots of sums over lanes, and the other additions of these.
    sums: BTreeSet<OpId>,
    within: BTreeSet<OpId>,
    /// Values that are one still.
    whole: Vec<Option<ValueId>>,
    /// All lanes' values, by bundle.
    stacks: BTreeMap<usize, ValueId>,
    /// Ops that are being made, and those that are made.
    begun: Vec<bool>,
    done: Vec<bool>,
    depth: usize,
}

impl<'a> Rewriter<'a> {
    /// A graph rewritten; `None` for a circle.
    fn run(module: &'a mut Module, old: &'a Module, found: &'a Found, id: GraphId) -> Result<Option<Graph>> {
        let source = old.graph(id);
        let inner = inner_nodes(source);
        let sums = over_lanes(source, &inner, |v| found.of(id, v));
        let deeper = |&root: &OpId| tree(source, root, &inner).into_iter().skip(1);
        let within = sums.iter().flat_map(deeper).collect();
        let mut r = Rewriter {
            found,
            id,
            source,
            old,
            stacker: Stacker::new(module, &source.name, found.lanes),
            inner: inner.clone(),
            sums,
            within,
            whole: vec![None; source.value_count()],
            stacks: BTreeMap::new(),
            begun: vec![false; source.op_count()],
            done: vec![false; source.op_count()],
            depth: 0,
        };
        Ok(r.graph()?.ok().map(|()| {
            let mut out = r.stacker.out;
            drop_unused(&mut out);
            out
        }))
    }

    fn graph(&mut self) -> Made<()> {
        let params = self.source.params();
        for slot in self.found.params(self.id) {
            match slot {
                Slot::One(p) => {
                    let v = self.stacker.out.add_param(self.source.ty(params[*p]).clone());
                    self.whole[params[*p].0 as usize] = Some(v);
                }
                Slot::Many(ps) => {
                    let ty = self.stacker.stacked(self.source.ty(params[ps[0]]));
                    let v = self.stacker.out.add_param(ty);
                    if let Some((b, _)) = self.found.of(self.id, params[ps[0]]) {
                        self.stacks.insert(b, v);
                    }
                }
            }
        }
        // An op of the lanes stands where its last lane did; one that is needed before comes before.
        let mut last: BTreeMap<usize, OpId> = BTreeMap::new();
        for (op, data) in self.source.ops() {
            if let Some((b, _)) = data.results.first().and_then(|&r| self.found.of(self.id, r)) {
                last.insert(b, op);
            }
        }
        let order: Vec<OpId> = self.source.order().to_vec();
        for op in order {
            let first = self.source.op(op).results.first().copied();
            let waits = first.and_then(|r| self.found.of(self.id, r)).is_some_and(|(b, _)| last[&b] != op);
            if !self.within.contains(&op) && !waits {
                made!(self.op(op));
            }
        }
        let results = self.source.results();
        let mut given = Vec::new();
        for slot in self.found.results(self.id) {
            given.push(match slot {
                Slot::One(r) => made!(self.one(results[*r], LocId::UNKNOWN)),
                Slot::Many(rs) => {
                    let values: Vec<ValueId> = rs.iter().map(|&r| results[r]).collect();
                    let all = made!(self.tuple(&values, LocId::UNKNOWN));
                    self.stacker.all(all, LocId::UNKNOWN)?
                }
            });
        }
        self.stacker.out.set_results(given);
        Ok(Ok(()))
    }

    /// Makes an op, unless it is made.
    fn op(&mut self, op: OpId) -> Made<()> {
        if self.done[op.0 as usize] {
            return Ok(Ok(()));
        }
        if std::mem::replace(&mut self.begun[op.0 as usize], true) || self.depth > DEPTH {
            return Ok(Err(Circle));
        }
        self.depth += 1;
        let data = self.source.op(op);
        let loc = data.loc;
        let bundle = data.results.first().and_then(|&r| self.found.of(self.id, r));
        match (&data.op, bundle) {
            (Op::Call(c), _) => {
                made!(self.call(op, self.found.params(c.graph), self.found.results(c.graph)));
            }
            (Op::Barrier(_), _) => {
                let slots = self.found.slots(self.id, &data.results);
                made!(self.call(op, &slots, &slots));
            }
            (_, Some((b, _))) => made!(self.lanes(b)),
            _ if self.sums.contains(&op) => {
                let v = made!(self.sum(op));
                self.whole[data.results[0].0 as usize] = Some(v);
            }
            _ => {
                let mut operands = Vec::new();
                for &v in &data.operands {
                    operands.push(made!(self.one(v, loc)));
                }
                // Types are checked anew: a called graph may have changed.
                let s = &mut self.stacker;
                let made = s.out.add(s.module, data.op.clone(), &operands, loc)?;
                for (&r, v) in data.results.iter().zip(made) {
                    self.whole[r.0 as usize] = Some(v);
                }
            }
        }
        self.depth -= 1;
        self.done[op.0 as usize] = true;
        Ok(Ok(()))
    }

    /// Makes the ops behind a bundle, as one.
    fn lanes(&mut self, b: usize) -> Made<()> {
        let values = &self.found.list[b].values;
        let ops: Vec<OpId> = values.iter().filter_map(|&v| Some(self.source.def(v)?.0)).collect();
        let first = self.source.op(ops[0]);
        for &op in &ops {
            self.begun[op.0 as usize] = true;
        }
        let kinds: Vec<&Op> = ops.iter().map(|&o| &self.source.op(o).op).collect();
        if let Some(c) = columns(&kinds) {
            let from = made!(self.one(first.operands[0], first.loc));
            let made = self.columns(from, &c, kinds[0], first.loc)?;
            self.stacks.insert(b, made);
        } else {
            let mut args = Vec::new();
            for i in 0..first.operands.len() {
                let operands: Vec<ValueId> = ops.iter().map(|&o| self.source.op(o).operands[i]).collect();
                args.push(made!(self.tuple(&operands, first.loc)));
            }
            let made = self.stacker.apply(&first.op, &args, first.loc)?;
            for (&r, v) in first.results.iter().zip(made) {
                if let Some((b, _)) = self.found.of(self.id, r) {
                    self.stacks.insert(b, v);
                }
            }
        }
        for op in ops {
            self.done[op.0 as usize] = true;
        }
        Ok(Ok(()))
    }

    /// A value by itself; a lane is cut out of its stack.
    pub(super) fn one(&mut self, v: ValueId, loc: LocId) -> Made<ValueId> {
        if let Some(known) = self.whole[v.0 as usize] {
            return Ok(Ok(known));
        }
        if let Some((op, _)) = self.source.def(v) {
            made!(self.op(op));
        }
        if let Some((b, lane)) = self.found.of(self.id, v)
            && let Some(&stack) = self.stacks.get(&b)
        {
            self.whole[v.0 as usize] = Some(self.lane(stack, lane, loc)?);
        }
        match self.whole[v.0 as usize] {
            Some(v) => Ok(Ok(v)),
            None => Ok(Err(Circle)),
        }
    }

    /// A value of each lane.
    pub(super) fn tuple(&mut self, values: &[ValueId], loc: LocId) -> Made<Arg> {
        if values.iter().all(|v| *v == values[0]) {
            return Ok(Ok(Arg::Alike(made!(self.one(values[0], loc)))));
        }
        if let Some((b, _)) = self.found.of(self.id, values[0]) {
            let whole = values.iter().enumerate().all(|(e, &v)| self.found.of(self.id, v) == Some((b, e)));
            if whole {
                if !self.stacks.contains_key(&b)
                    && let Some((op, _)) = self.source.def(values[0])
                {
                    made!(self.op(op));
                }
                return Ok(match self.stacks.get(&b) {
                    Some(&v) => Ok(Arg::Stacked(v)),
                    None => Err(Circle),
                });
            }
        }
        if let Some(numbers) = self.numbers(values, loc)? {
            return Ok(Ok(numbers));
        }
        let mut rows = Vec::new();
        for &v in values {
            let v = made!(self.one(v, loc));
            let shape = std::iter::once(1).chain(self.stacker.out.ty(v).shape.iter().copied()).collect();
            rows.push(self.stacker.add1(Reshape { shape }, &[v], loc)?);
        }
        Ok(Ok(Arg::Stacked(self.stacker.add1(Concatenate { dim: 0 }, &rows, loc)?)))
    }

    /// A call of a graph that was rewritten before, or a barrier.
    fn call(&mut self, op: OpId, params: &[Slot], results: &[Slot]) -> Made<()> {
        let data = self.source.op(op);
        let mut operands = Vec::new();
        for slot in params {
            operands.push(match slot {
                Slot::One(p) => made!(self.one(data.operands[*p], data.loc)),
                Slot::Many(ps) => {
                    let values: Vec<ValueId> = ps.iter().map(|&p| data.operands[p]).collect();
                    let a = made!(self.tuple(&values, data.loc));
                    self.stacker.all(a, data.loc)?
                }
            });
        }
        let s = &mut self.stacker;
        let made = s.out.add(s.module, data.op.clone(), &operands, data.loc)?;
        for (slot, v) in results.iter().zip(made) {
            match slot {
                Slot::One(r) => self.whole[data.results[*r].0 as usize] = Some(v),
                Slot::Many(rs) => {
                    let values: Vec<ValueId> = rs.iter().map(|&r| data.results[r]).collect();
                    let of = self.found.of(self.id, values[0]);
                    let tied = |b: usize| {
                        let all = values.iter().enumerate();
                        all.clone().all(|(e, &v)| self.found.of(self.id, v) == Some((b, e)))
                    };
                    match of.filter(|(b, _)| tied(*b)) {
                        Some((b, _)) => {
                            self.stacks.insert(b, v);
                        }
                        None => {
                            for (lane, &r) in values.iter().enumerate() {
                                self.whole[r.0 as usize] = Some(self.lane(v, lane, data.loc)?);
                            }
                        }
                    }
                }
            }
        }
        Ok(Ok(()))
    }
}
