//! Reductions, and the recognition of their regions as monoids.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::reduce::{Reduce, combiner, identity};
use msc_ir::{LocId, Monoid, Op, ValueId};

/// What a region of two arguments computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reducer {
    /// Both combined.
    Monoid(Monoid),
    /// The second alone.
    Second,
}

impl<'r, 'a> Importer<'r, 'a> {
    /// The reducers of a region with `n` accumulators and `n` elements, one per accumulator.
    pub(super) fn reducers(&self, op: &RawOp<'a>, n: usize) -> Result<Vec<Reducer>> {
        let refused = || {
            self.error(
                op,
                Code::UnsupportedForm,
                format!("the region of {} is not a sum, product, maximum, minimum, and, or", op.name),
            )
            .help("msc reduces by these only; several operands must be combined independently")
        };
        let [region] = &op.regions[..] else { return Err(refused()) };
        let [block] = &region.blocks[..] else { return Err(refused()) };
        let Some((last, ops)) = block.ops.split_last() else { return Err(refused()) };
        if block.args.len() != 2 * n || last.operands.len() != n || last.name != "stablehlo.return" {
            return Err(refused());
        }
        (0..n)
            .map(|i| {
                let result = last.operands[i];
                let (a, b) = (block.args.get(i), block.args.get(n + i));
                if Some(result) == b {
                    return Ok(Reducer::Second);
                }
                let def = ops.iter().find(|o| o.results.iter().any(|r| r == result));
                let def = def.ok_or_else(refused)?;
                let of = [def.operands.first().copied(), def.operands.get(1).copied()];
                if def.operands.len() != 2 || (of != [a, b] && of != [b, a]) {
                    return Err(refused());
                }
                let name = def.name.strip_prefix("stablehlo.").unwrap_or("");
                let monoid = Monoid::ALL.into_iter().find(|&m| combiner(m).name() == name);
                monoid.map(Reducer::Monoid).ok_or_else(refused)
            })
            .collect()
    }

    /// `reduce`; one of several operands becomes one per operand, and an initial value that is not the monoid's
    /// identity is combined with the result.
    pub(super) fn reduce(&mut self, op: &RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let n = operands.len() / 2;
        if operands.len() != 2 * n || n == 0 {
            return Err(self.error(
                op,
                Code::Invalid,
                "stablehlo.reduce takes operands and as many initial values",
            ));
        }
        let mut dims = self.dims(op, "dimensions")?;
        dims.sort_unstable();
        let mut results = Results::new();
        for (i, reducer) in self.reducers(op, n)?.into_iter().enumerate() {
            let Reducer::Monoid(monoid) = reducer else {
                return Err(self.error(op, Code::UnsupportedForm, "the reduction returns its last element"));
            };
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

    /// Whether a scalar is a constant, and the identity of a monoid. A sum may start at either zero.
    fn is_identity(&self, monoid: Monoid, v: ValueId) -> bool {
        let Some((def, _)) = self.graph.def(v) else { return false };
        let Op::Constant(c) = &self.graph.op(def).op else { return false };
        let c = self.module.constants.get(c.id);
        let t = c.tensor();
        let zero = combiner(monoid) == BinaryKind::Add && t.len() == 1 && t.data.get_f64(0) == 0.0;
        zero || t.data.bytes() == identity(monoid, t.dtype()).bytes()
    }
}
