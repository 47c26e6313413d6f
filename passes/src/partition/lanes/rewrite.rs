//! The graphs with lanes as one.

use super::super::lower::drop_unused;
use super::super::sums::{inner_nodes, leaves};
use super::batch::{Arg, Columns, Stacker, columns};
use super::seeds::is_sum;
use super::tie::Found;
use super::{Slot, Stacked};
use crate::error::Result;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::module::{Member, ParamInfo, ResultInfo};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::call::reachable;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Graph, GraphId, LocId, Module, Monoid, Op, Shape, TensorType};
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
    let moved = entry(module, found);
    Ok(Some(Stacked { moved }))
}

/// Rewrites what is known of the entry; for each parameter where it went.
fn entry(module: &mut Module, found: &Found) -> Vec<Option<usize>> {
    let (params, results) = (found.params(found.entry), found.results(found.entry));
    let e = &mut module.entries[0];
    let mut moved = vec![None; e.params.len()];
    let to: BTreeMap<usize, u32> = results
        .iter()
        .zip(0..)
        .flat_map(|(slot, n)| match slot {
            Slot::One(r) => vec![(*r, n)],
            Slot::Many(rs) => rs.iter().map(|&r| (r, n)).collect(),
        })
        .collect();
    let replaced = |alias: Option<u32>| alias.and_then(|r| to.get(&(r as usize)).copied());
    let new_params = params.iter().enumerate().map(|(n, slot)| match slot {
        Slot::One(p) => {
            moved[*p] = Some(n);
            ParamInfo { alias: replaced(e.params[*p].alias), ..e.params[*p].clone() }
        }
        Slot::Many(ps) => {
            let member = |&p: &usize| Member { name: e.params[p].name.clone(), number: p as u32 };
            let stack: Vec<Member> = ps.iter().map(member).collect();
            let alias = replaced(e.params[ps[0]].alias);
            ParamInfo { name: together(&stack), alias, stack, ..ParamInfo::default() }
        }
    });
    let new_params = new_params.collect();
    let new_results = results.iter().map(|slot| match slot {
        Slot::One(r) => e.results[*r].clone(),
        Slot::Many(rs) => {
            let member = |&r: &usize| Member { name: e.results[r].name.clone(), number: r as u32 };
            let stack: Vec<Member> = rs.iter().map(member).collect();
            ResultInfo { name: together(&stack), stack, ..ResultInfo::default() }
        }
    });
    let new_results = new_results.collect();
    (e.params, e.results) = (new_params, new_results);
    moved
}

/// A name for several: what they have in common, and how the first and the last differ.
fn together(stack: &[Member]) -> String {
    let (Some(first), Some(last)) = (stack.first(), stack.last()) else { return String::new() };
    let (a, b): (Vec<char>, Vec<char>) = (first.name.chars().collect(), last.name.chars().collect());
    let least = a.len().min(b.len());
    let before = (0..least).take_while(|&i| a[i] == b[i]).count();
    let after = (0..least - before).take_while(|&i| a[a.len() - 1 - i] == b[b.len() - 1 - i]).count();
    let text = |c: &[char]| c.iter().collect::<String>();
    let (x, y) = (text(&a[before..a.len() - after]), text(&b[before..b.len() - after]));
    format!("{}{{{x}..{y}}}{}", text(&a[..before]), text(&a[a.len() - after..]))
}

/// Why a graph cannot be rewritten: lanes that need each other.
struct Circle;

type Made<T> = Result<std::result::Result<T, Circle>>;

/// Hands a circle on.
macro_rules! made {
    ($e:expr) => {
        match $e? {
            Ok(v) => v,
            Err(circle) => return Ok(Err(circle)),
        }
    };
}

struct Rewriter<'a> {
    found: &'a Found,
    id: GraphId,
    source: &'a Graph,
    old: &'a Module,
    stacker: Stacker<'a>,
    inner: Vec<bool>,
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
        let lanes_of = |root: OpId| -> BTreeSet<usize> {
            leaves(source, root, &inner).into_iter().filter_map(|v| Some(found.of(id, v)?.1)).collect()
        };
        let roots = source.ops().map(|(op, _)| op).filter(|&op| is_sum(source, op, &inner));
        let sums: BTreeSet<OpId> = roots.filter(|&op| lanes_of(op).len() > 1).collect();
        let mut within = BTreeSet::new();
        let mut tree: Vec<OpId> = sums.iter().copied().collect();
        while let Some(op) = tree.pop() {
            let deeper = source.op(op).operands.iter().filter_map(|&v| source.def(v)).map(|d| d.0);
            let deeper: Vec<OpId> = deeper.filter(|d| inner[d.0 as usize]).collect();
            within.extend(deeper.iter().copied());
            tree.extend(deeper);
        }
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
            (Op::Call(c), _) => made!(self.call(op, c.graph)),
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

    /// Slices that follow each other: the dimension is cut in pieces, and the pieces come first.
    fn columns(&mut self, from: ValueId, c: &Columns, like: &Op, loc: LocId) -> Result<ValueId> {
        let Op::Slice(Slice::Static { start, limit, stride }) = like else {
            return Err(self.stacker.broken("columns of no slice"));
        };
        let n = self.stacker.lanes;
        let (mut start, mut limit) = (start.clone(), limit.clone());
        (start[c.dim], limit[c.dim]) = (c.first, c.first + n * c.size);
        let cut = Slice::Static { start, limit, stride: stride.clone() };
        let v = self.stacker.add1(cut, &[from], loc)?;
        let mut shape: Shape = self.stacker.out.ty(v).shape.clone();
        shape[c.dim] = c.size;
        shape.insert(c.dim, n);
        let rank = shape.len();
        let v = self.stacker.add1(Reshape { shape }, &[v], loc)?;
        let order = std::iter::once(c.dim).chain((0..rank).filter(|&d| d != c.dim)).collect();
        let v = self.stacker.add1(Permute::Transpose(order), &[v], loc)?;
        if c.numbers.is_sorted() {
            return Ok(v);
        }
        // Lanes are not in the order of the columns.
        let rows = c.numbers.iter().map(|&i| self.row(v, i as usize, loc)).collect::<Result<Vec<_>>>()?;
        self.stacker.add1(Concatenate { dim: 0 }, &rows, loc)
    }

    /// One place of a stack, with the leading dimension.
    fn row(&mut self, v: ValueId, lane: usize, loc: LocId) -> Result<ValueId> {
        let limit: Shape = self.stacker.out.ty(v).shape.clone();
        let (mut start, mut limit) = (Shape::from_elem(0, limit.len()), limit);
        (start[0], limit[0]) = (lane, lane + 1);
        let stride = Shape::from_elem(1, limit.len());
        self.stacker.add1(Slice::Static { start, limit, stride }, &[v], loc)
    }

    /// A value by itself; a lane is cut out of its stack.
    fn one(&mut self, v: ValueId, loc: LocId) -> Made<ValueId> {
        if let Some(known) = self.whole[v.0 as usize] {
            return Ok(Ok(known));
        }
        if let Some((op, _)) = self.source.def(v) {
            made!(self.op(op));
        }
        if let Some((b, lane)) = self.found.of(self.id, v)
            && let Some(&stack) = self.stacks.get(&b)
        {
            let row = self.row(stack, lane, loc)?;
            let shape = self.source.ty(v).shape.clone();
            let one = self.stacker.add1(Reshape { shape }, &[row], loc)?;
            self.whole[v.0 as usize] = Some(one);
        }
        match self.whole[v.0 as usize] {
            Some(v) => Ok(Ok(v)),
            None => Ok(Err(Circle)),
        }
    }

    /// A value of each lane.
    fn tuple(&mut self, values: &[ValueId], loc: LocId) -> Made<Arg> {
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

    /// Constants of the lanes, if they are numbers that follow each other at equal distances: computed from the lane's, so
    /// that a rank makes its own.
    fn numbers(&mut self, values: &[ValueId], loc: LocId) -> Result<Option<Arg>> {
        let mut found = Vec::new();
        for &v in values {
            let Some((op, _)) = self.source.def(v) else { return Ok(None) };
            let Op::Constant(c) = &self.source.op(op).op else { return Ok(None) };
            let Some(x) = self.old.constants.splat_value(c.id) else { return Ok(None) };
            found.push(x);
        }
        let ty = self.source.ty(values[0]).clone();
        let step = found[1] - found[0];
        let exact = |x: f64| x.fract() == 0.0 && x.abs() <= 100.0;
        let even = found.windows(2).all(|w| w[1] - w[0] == step) && step >= 0.0;
        if !even || !found.iter().all(|&x| exact(x) && x >= 0.0) || ty.dtype == DType::I1 {
            return Ok(None);
        }
        let s = &mut self.stacker;
        let one = TensorType::new(ty.dtype, [s.lanes]);
        let constant = |s: &mut Stacker<'_>, x: f64| {
            let id = s.module.constants.intern_splat(one.clone(), x);
            s.add1(ConstantOp { id }, &[], loc)
        };
        let mut v = s.add1(Iota { ty: one.clone(), dim: 0 }, &[], loc)?;
        if step != 1.0 {
            let by = constant(s, step)?;
            v = s.add1(BinaryKind::Multiply, &[v, by], loc)?;
        }
        if found[0] != 0.0 {
            let first = constant(s, found[0])?;
            v = s.add1(BinaryKind::Add, &[v, first], loc)?;
        }
        let shape = s.stacked(&ty).shape;
        Ok(Some(Arg::Stacked(s.add1(BroadcastInDim { shape, dims: Shape::from_slice(&[0]) }, &[v], loc)?)))
    }

    /// A sum over lanes: stacks are added first, then reduced once, then added to the rest.
    fn sum(&mut self, root: OpId) -> Made<ValueId> {
        let loc = self.source.op(root).loc;
        let terms = leaves(self.source, root, &self.inner);
        let mut lanes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &v in &terms {
            if let Some((b, lane)) = self.found.of(self.id, v) {
                lanes.entry(b).or_insert_with(|| vec![0; self.found.lanes])[lane] += 1;
            }
        }
        let mut stacks: Vec<ValueId> = Vec::new();
        let mut left: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (b, counts) in lanes {
            let times = counts.iter().copied().min().unwrap_or(0);
            left.insert(b, vec![times; self.found.lanes]);
            if times > 0
                && let Arg::Stacked(v) = made!(self.tuple(&self.found.list[b].values.clone(), loc))
            {
                stacks.extend(std::iter::repeat_n(v, times));
            }
        }
        let mut sum: Option<ValueId> = None;
        let add = |s: &mut Stacker<'_>, sum: Option<ValueId>, v: ValueId| match sum {
            Some(a) => s.add1(BinaryKind::Add, &[a, v], loc).map(Some),
            None => Ok(Some(v)),
        };
        for v in terms {
            if let Some((b, lane)) = self.found.of(self.id, v)
                && let Some(times) = left.get_mut(&b).map(|l| &mut l[lane]).filter(|n| **n > 0)
            {
                *times -= 1;
                continue;
            }
            if !stacks.is_empty() && self.is_zero(v) {
                continue;
            }
            let v = made!(self.one(v, loc));
            sum = add(&mut self.stacker, sum, v)?;
        }
        let mut stacked: Option<ValueId> = None;
        for v in stacks {
            stacked = add(&mut self.stacker, stacked, v)?;
        }
        if let Some(v) = stacked {
            let reduce = Reduce { dims: Shape::from_slice(&[0]), monoid: Monoid::Sum };
            let v = self.stacker.add1(reduce, &[v], loc)?;
            sum = add(&mut self.stacker, sum, v)?;
        }
        Ok(sum.ok_or(Circle))
    }

    fn is_zero(&self, v: ValueId) -> bool {
        let Some((op, _)) = self.source.def(v) else { return false };
        let Op::Constant(c) = &self.source.op(op).op else { return false };
        self.old.constants.splat_value(c.id) == Some(0.0)
    }

    /// A call of a graph that was rewritten before.
    fn call(&mut self, op: OpId, callee: GraphId) -> Made<()> {
        let data = self.source.op(op);
        let mut operands = Vec::new();
        for slot in self.found.params(callee) {
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
        for (slot, v) in self.found.results(callee).iter().zip(made) {
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
                                let row = self.row(v, lane, data.loc)?;
                                let shape = self.source.ty(r).shape.clone();
                                let one = self.stacker.add1(Reshape { shape }, &[row], data.loc)?;
                                self.whole[r.0 as usize] = Some(one);
                            }
                        }
                    }
                }
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_named_by_what_their_members_share() {
        let stack = |names: &[&str]| -> String {
            together(
                &names.iter().map(|n| Member { name: n.to_string(), number: 0 }).collect::<Vec<_>>(),
            )
        };
        assert_eq!(stack(&["e.0.w", "e.1.w", "e.7.w"]), "e.{0..7}.w");
        assert_eq!(stack(&["a1", "a11"]), "a1{..1}");
        assert_eq!(stack(&["", ""]), "{..}");
    }
}
