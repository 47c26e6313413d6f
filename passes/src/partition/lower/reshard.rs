//! Changes of layout: what a `reshard` becomes.
//!
//! | comes | needed | becomes |
//! |---|---|---|
//! | alike | alike | nothing |
//! | whole | split | the rank's own block |
//! | split | whole | `all_gather` |
//! | split | split elsewhere | `all_to_all` |
//! | partial | split | `reduce_scatter` |
//! | combined over this axis and others | split | `reduce_scatter`, then `all_reduce` over the others |
//!
//! A split that does not lie outermost in its dimension is made to by a reshape.

use super::{Local, Lowering, Partial};
use crate::error::Result;
use crate::partition::facts::Fact;
use crate::partition::problem::Place;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::ops::constant::splat;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, LocId, Module, Monoid, Op, Shape, TensorType};

/// Why and where a layout changes.
struct Change {
    loc: LocId,
    fact: Fact,
}

impl Lowering<'_> {
    /// Lowers a `reshard`.
    pub(super) fn reshard(&mut self, module: &mut Module, id: OpId) -> Result<()> {
        let data = self.source.op(id);
        let (v, r) = (data.operands[0], data.results[0]);
        let from = self.problem.place(self.scope, v, self.split);
        let to = self.problem.place(self.scope, r, self.split);
        let fact = self.known.get(&(self.id, r)).cloned().unwrap_or_else(|| Fact {
            comes: format!("{} gives it", self.place(module, id)),
            needed: "it is used in another layout".into(),
        });
        let change = Change { loc: data.loc, fact };
        let local = match (from, to) {
            (None, None) => self.local(v)?,
            (None, Some(to)) => self.scattered(module, v, to, change)?,
            (Some(from), to) => {
                let value = self.whole(module, v, Some(id))?;
                let value = match to {
                    Some(to) if to == from => value,
                    Some(to) if to.dim != from.dim => self.exchange(module, value, from, to, change)?,
                    Some(to) => {
                        let whole = self.gather(module, value, from, change)?;
                        self.own_block(module, whole, to, data.loc)?
                    }
                    None => self.gather(module, value, from, change)?,
                };
                Local { value, partial: None }
            }
        };
        self.locals[r.0 as usize] = Some(local);
        Ok(())
    }

    /// A value that is not split, as this rank's block of it.
    fn scattered(&mut self, module: &mut Module, v: ValueId, to: Place, change: Change) -> Result<Local> {
        let axis = self.split.axis;
        let local = self.local(v)?;
        if let Some(Partial { monoid, because, loc }) = local.partial {
            let fact = Fact { comes: because, ..change.fact };
            let value = self.reduce_scatter(module, local.value, monoid, to, Change { loc, fact })?;
            return Ok(Local { value, partial: None });
        }
        if let Some((def, _)) = self.source.def(v)
            && let Op::Collective(Collective::AllReduce { monoid, axes }) = &self.source.op(def).op
            && axes.contains(&axis)
        {
            let loc = self.source.op(def).loc;
            let comes = self.known.get(&(self.id, v)).map(|f| f.comes.clone());
            let fact = Fact { comes: comes.unwrap_or(change.fact.comes), ..change.fact };
            let input = self.whole(module, self.source.op(def).operands[0], Some(def))?;
            let mut value =
                self.reduce_scatter(module, input, *monoid, to, Change { loc, fact: fact.clone() })?;
            let others: Axes = axes.iter().copied().filter(|&a| a != axis).collect();
            if !others.is_empty() {
                let op = Collective::AllReduce { monoid: *monoid, axes: others };
                value = self.graph.add1(module, op, &[value], loc)?;
                self.facts.insert(value, fact);
            }
            return Ok(Local { value, partial: None });
        }
        let value = self.own_block(module, local.value, to, change.loc)?;
        Ok(Local { value, partial: None })
    }

    fn reduce_scatter(
        &mut self,
        module: &mut Module,
        v: ValueId,
        monoid: Monoid,
        to: Place,
        change: Change,
    ) -> Result<ValueId> {
        let (v, dim) = self.opened(module, v, to, change.loc)?;
        let op = Collective::ReduceScatter { monoid, dim, axes: Axes::from_slice(&[self.split.axis]) };
        let made = self.graph.add1(module, op, &[v], change.loc)?;
        self.facts.insert(made, change.fact);
        self.closed(module, made, to, change.loc)
    }

    fn gather(&mut self, module: &mut Module, v: ValueId, from: Place, change: Change) -> Result<ValueId> {
        let (v, dim) = self.opened(module, v, from, change.loc)?;
        let op = Collective::AllGather { dim, axes: Axes::from_slice(&[self.split.axis]) };
        let made = self.graph.add1(module, op, &[v], change.loc)?;
        self.facts.insert(made, change.fact);
        self.closed(module, made, from, change.loc)
    }

    fn exchange(
        &mut self,
        module: &mut Module,
        v: ValueId,
        from: Place,
        to: Place,
        change: Change,
    ) -> Result<ValueId> {
        // The inner dimension first, so that the outer one's number still holds.
        let (first, second) = if from.dim > to.dim { (from, to) } else { (to, from) };
        let (v, _) = self.opened(module, v, first, change.loc)?;
        let (v, _) = self.opened(module, v, second, change.loc)?;
        let at = |p: Place, other: Place| {
            p.dim + usize::from(p.outer > 1) + usize::from(other.outer > 1 && other.dim < p.dim)
        };
        let op = Collective::AllToAll {
            split_dim: at(to, from),
            concat_dim: at(from, to),
            axes: Axes::from_slice(&[self.split.axis]),
        };
        let made = self.graph.add1(module, op, &[v], change.loc)?;
        self.facts.insert(made, change.fact);
        let v = self.closed(module, made, second, change.loc)?;
        self.closed(module, v, first, change.loc)
    }

    /// This rank's block of a whole value.
    fn own_block(&mut self, module: &mut Module, v: ValueId, to: Place, loc: LocId) -> Result<ValueId> {
        let (v, dim) = self.opened(module, v, to, loc)?;
        let mut sizes = self.graph.ty(v).shape.clone();
        sizes[dim] /= module.mesh.size(self.split.axis);
        let start = self.position(module, sizes[dim], loc)?;
        let zero = splat(module, &mut self.graph, TensorType::scalar(DType::I32), 0.0, loc)?;
        let mut operands = vec![v];
        operands.extend((0..sizes.len()).map(|d| if d == dim { start } else { zero }));
        let made = self.graph.add1(module, Slice::Dynamic { sizes }, &operands, loc)?;
        self.closed(module, made, to, loc)
    }

    /// The value with what lies outside of a place as a dimension of its own, and the place's dimension then.
    fn opened(&mut self, module: &mut Module, v: ValueId, p: Place, loc: LocId) -> Result<(ValueId, usize)> {
        if p.outer <= 1 {
            return Ok((v, p.dim));
        }
        let mut shape: Shape = self.graph.ty(v).shape.clone();
        shape[p.dim] /= p.outer;
        shape.insert(p.dim, p.outer);
        Ok((self.graph.add1(module, Reshape { shape }, &[v], loc)?, p.dim + 1))
    }

    /// The inverse of [`Lowering::opened`].
    fn closed(&mut self, module: &mut Module, v: ValueId, p: Place, loc: LocId) -> Result<ValueId> {
        if p.outer <= 1 {
            return Ok(v);
        }
        let mut shape: Shape = self.graph.ty(v).shape.clone();
        shape[p.dim] *= shape.remove(p.dim + 1);
        Ok(self.graph.add1(module, Reshape { shape }, &[v], loc)?)
    }
}
