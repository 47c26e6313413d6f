//! Reductions, and the recognition of their regions as monoids.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::{RawOp, Region};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::reduce::{Reduce, combiner, identity};
use msc_ir::ops::reduce_by::ReduceBy;
use msc_ir::{GraphId, LocId, Monoid, Op, ValueId};

/// What a region of two arguments computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Combine {
    /// Both combined.
    Monoid(Monoid),
    /// The second alone.
    Second,
}

/// What a region with `n` accumulators and `n` elements does, if it combines each pair independently and by one
/// plain op: one entry per pair.
pub(super) fn recognise(region: &Region<'_>, n: usize) -> Option<Vec<Combine>> {
    let [block] = &region.blocks[..] else { return None };
    let (last, ops) = block.ops.split_last()?;
    if block.args.len() != 2 * n || last.operands.len() != n || last.name != "stablehlo.return" {
        return None;
    }
    (0..n)
        .map(|i| {
            let result = last.operands[i];
            let (a, b) = (block.args.get(i)?, block.args.get(n + i)?);
            if result == b {
                return Some(Combine::Second);
            }
            let def = ops.iter().find(|o| o.results.iter().any(|r| r == result))?;
            if def.operands[..] != [a, b] && def.operands[..] != [b, a] {
                return None;
            }
            let name = def.name.strip_prefix("stablehlo.")?;
            let monoid = Monoid::ALL.into_iter().find(|&m| combiner(m).name() == name)?;
            Some(Combine::Monoid(monoid))
        })
        .collect()
}

impl<'r, 'a> Importer<'r, 'a> {
    /// The only region of an op.
    pub(super) fn single_region(&self, op: &'r RawOp<'a>) -> Result<&'r Region<'a>> {
        match &op.regions[..] {
            [region] => Ok(region),
            _ => {
                let message = format!("{} has {} regions, not one", op.name, op.regions.len());
                Err(self.error(op, Code::Invalid, message))
            }
        }
    }

    /// A region of scalars as a graph. It may use constants of outside, nothing else.
    pub(super) fn scalar_graph(
        &mut self,
        op: &'r RawOp<'a>,
        region: &'r Region<'a>,
        suffix: &str,
    ) -> Result<GraphId> {
        let block = self.single_block(op, region)?;
        let captures = self.captures(&[block]);
        if !self.captured(&captures).is_empty() {
            let message = format!("the region of {} uses a value that is computed outside", op.name);
            return Err(self.error(op, Code::UnsupportedForm, message));
        }
        self.block_graph(op, block, &captures, suffix, false)
    }

    /// `reduce`. One of several operands that are combined independently becomes one per operand, and an initial
    /// value that is not the monoid's identity is combined with the result.
    pub(super) fn reduce(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let n = operands.len() / 2;
        if operands.len() != 2 * n || n == 0 {
            let message = "stablehlo.reduce takes operands and as many initial values";
            return Err(self.error(op, Code::Invalid, message));
        }
        let mut dims = self.dims(op, "dimensions")?;
        dims.sort_unstable();
        let region = self.single_region(op)?;
        let monoids: Option<Vec<Monoid>> = recognise(region, n).and_then(|v| {
            v.into_iter()
                .map(|c| match c {
                    Combine::Monoid(m) => Some(m),
                    Combine::Second => None,
                })
                .collect()
        });
        let Some(monoids) = monoids else {
            let body = self.scalar_graph(op, region, "reducer")?;
            return self.emit(op, ReduceBy { dims, body }, &operands, loc);
        };
        let mut results = Results::new();
        for (i, monoid) in monoids.into_iter().enumerate() {
            let reduced = self.emit1(op, Reduce { dims: dims.clone(), monoid }, &[operands[i]], loc)?;
            results.push(self.with_initial(op, monoid, reduced, operands[n + i], loc)?);
        }
        Ok(results)
    }

    /// Combines a reduction's result with its initial value, unless that is the identity.
    fn with_initial(
        &mut self,
        op: &RawOp<'a>,
        monoid: Monoid,
        reduced: ValueId,
        initial: ValueId,
        loc: LocId,
    ) -> Result<ValueId> {
        let ty = self.graph.ty(reduced).clone();
        let start = self.graph.ty(initial);
        if start.rank() != 0 || start.dtype != ty.dtype {
            let message = format!("the initial value is {start}, the operand's elements are {}", ty.dtype);
            return Err(self.error(op, Code::Invalid, message));
        }
        if self.is_identity(monoid, initial) {
            return Ok(reduced);
        }
        let all = self.emit1(op, BroadcastInDim::scalar(&ty.shape), &[initial], loc)?;
        self.emit1(op, combiner(monoid), &[reduced, all], loc)
    }

    /// Whether a value is a scalar constant, and the identity of a monoid. A sum may start at either zero.
    pub(super) fn is_identity(&self, monoid: Monoid, v: ValueId) -> bool {
        let Some((def, _)) = self.graph.def(v) else { return false };
        let Op::Constant(c) = &self.graph.op(def).op else { return false };
        let c = self.module.constants.get(c.id);
        if c.ty.rank() != 0 {
            return false;
        }
        let t = c.tensor();
        let zero = combiner(monoid) == BinaryKind::Add && t.data.get_f64(0) == 0.0;
        zero || t.data.bytes() == identity(monoid, t.dtype()).bytes()
    }
}
