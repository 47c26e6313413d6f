//! What a rewritten graph makes of columns, of numbers, and of sums over lanes.

use super::super::sums::leaves;
use super::batch::{Arg, Columns, Stacker};
use super::rewrite::{Circle, Made, Rewriter, made};
use crate::error::Result;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::splat;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, LocId, Monoid, Op, Shape, TensorType};
use std::collections::BTreeMap;

impl Rewriter<'_> {
    /// Slices that follow each other: the dimension is cut in pieces, and the pieces come first.
    pub(super) fn columns(&mut self, from: ValueId, c: &Columns, like: &Op, loc: LocId) -> Result<ValueId> {
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

    /// One place of a stack.
    pub(super) fn lane(&mut self, v: ValueId, lane: usize, loc: LocId) -> Result<ValueId> {
        let row = self.row(v, lane, loc)?;
        let shape = self.stacker.out.ty(row).shape.iter().skip(1).copied().collect();
        self.stacker.add1(Reshape { shape }, &[row], loc)
    }

    /// The same, with the leading dimension.
    fn row(&mut self, v: ValueId, lane: usize, loc: LocId) -> Result<ValueId> {
        let mut limit: Shape = self.stacker.out.ty(v).shape.clone();
        let mut start = Shape::from_elem(0, limit.len());
        (start[0], limit[0]) = (lane, lane + 1);
        let stride = Shape::from_elem(1, limit.len());
        self.stacker.add1(Slice::Static { start, limit, stride }, &[v], loc)
    }

    /// Constants of the lanes, if they are numbers that follow each other at equal distances: computed from the lane's, so
    /// that a rank makes its own.
    pub(super) fn numbers(&mut self, values: &[ValueId], loc: LocId) -> Result<Option<Arg>> {
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
        let constant = |s: &mut Stacker<'_>, x: f64| splat(s.module, &mut s.out, one.clone(), x, loc);
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
    pub(super) fn sum(&mut self, root: OpId) -> Made<ValueId> {
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
}
