//! Sort, and what is made of it.

use super::{Importer, Results};
use crate::error::{Code, Result};
use crate::raw::RawOp;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::iota::Iota;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::sort::Sort;
use msc_ir::{DType, Graph, GraphId, LocId, TensorType, ValueId};

impl<'r, 'a> Importer<'r, 'a> {
    /// `sort`.
    pub(super) fn sort(&mut self, op: &'r RawOp<'a>, loc: LocId) -> Result<Results> {
        let operands = self.operands(op)?;
        let rank = operands.first().map_or(0, |&v| self.graph.ty(v).rank());
        let dim = match op.attr("dimension") {
            // The last dimension, unless another is given.
            None => rank.checked_sub(1),
            Some(_) => match self.int(op, "dimension")? {
                d if d < 0 => rank.checked_sub(d.unsigned_abs() as usize),
                d => usize::try_from(d).ok(),
            },
        };
        let dim = dim.ok_or_else(|| self.bad_attr(op, "dimension", "is not one of the operand's"))?;
        let stable = self.flag(op, "is_stable")?;
        let region = self.single_region(op)?;
        let comparator = self.scalar_graph(op, region, "comparator")?;
        self.emit(op, Sort { dim, stable, comparator }, &operands, loc)
    }

    /// The `k` greatest elements of the last dimension and their positions, greatest first; of equal ones the
    /// first comes first (CHLO, "top_k"). NaN is greater than every number.
    pub(super) fn top_k(&mut self, op: &RawOp<'a>, x: ValueId, k: usize, loc: LocId) -> Result<Results> {
        let ty = self.graph.ty(x).clone();
        let Some(dim) = ty.rank().checked_sub(1) else {
            return Err(self.error(op, Code::Invalid, format!("{} of a scalar", op.name)));
        };
        let positions = self.emit1(op, Iota { ty: ty.with_dtype(DType::I32), dim }, &[], loc)?;
        let comparator = self.descending(op, ty.dtype, loc)?;
        let sorted = self.emit(op, Sort { dim, stable: true, comparator }, &[x, positions], loc)?;
        let mut limit = ty.shape.clone();
        limit[dim] = k;
        let start = limit.iter().map(|_| 0).collect();
        let stride = limit.iter().map(|_| 1).collect();
        let slice = Slice::Static { start, limit, stride };
        let mut results = Results::new();
        for v in sorted {
            results.push(self.emit1(op, slice.clone(), &[v], loc)?);
        }
        Ok(results)
    }

    /// The comparator of a descending sort of `dtype` that carries `i32` along.
    fn descending(&mut self, op: &RawOp<'a>, dtype: DType, loc: LocId) -> Result<GraphId> {
        if let Some(&id) = self.descending.get(&dtype) {
            return Ok(id);
        }
        let mut g = Graph::new(format!("descending.{dtype}"));
        let a = g.add_param(TensorType::scalar(dtype));
        let b = g.add_param(TensorType::scalar(dtype));
        g.add_param(TensorType::scalar(DType::I32));
        g.add_param(TensorType::scalar(DType::I32));
        let compare = Compare { direction: Direction::Gt, total_order: dtype.is_float() };
        let c = g.add1(&self.module, compare, &[a, b], loc).map_err(|e| self.refused(op, e))?;
        g.set_results(vec![c]);
        let id = self.module.add_graph(g);
        self.descending.insert(dtype, id);
        Ok(id)
    }
}
