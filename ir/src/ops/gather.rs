//! `gather`.

use super::indexing::{OutOfRange, SplitComponent, expect_index_vectors, index_at, relative_indices};
use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, ints};
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::EvalCx;
use crate::location::LocId;
use crate::module::Module;
use crate::op::{Op, Operation};
use crate::ops::broadcast::BroadcastInDim;
use crate::ops::constant::splat;
use crate::ops::select::Select;
use crate::tensor::{IndexSpace, Tensor};
use crate::types::{Shape, TensorType, strides};
use smallvec::SmallVec;

/// `gather`: `T[…], i[…] → T[…]`; start indices are clamped so that slices fit (StableHLO specification, "gather").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Gather {
    /// Result dimensions that run within a slice.
    pub offset_dims: Shape,
    /// Operand dimensions of slice size 1 that the result does not have.
    pub collapsed_slice_dims: Shape,
    /// Operand dimensions indexed by the position in `start_indices_batching_dims`.
    pub operand_batching_dims: Shape,
    /// Dimensions of the indices paired with `operand_batching_dims`.
    pub start_indices_batching_dims: Shape,
    /// Which operand dimension each component of an index vector addresses.
    pub start_index_map: Shape,
    /// Dimension of the indices that holds the index vectors; the rank if each index is a scalar.
    pub index_vector_dim: usize,
    /// Slice size per operand dimension.
    pub slice_sizes: Shape,
}

impl Gather {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Gather>> {
        if name != "gather" {
            return Ok(None);
        }
        Ok(Some(Gather {
            offset_dims: a.indices("offset_dims")?,
            collapsed_slice_dims: a.indices("collapsed_slice_dims")?,
            operand_batching_dims: a.indices("operand_batching_dims")?,
            start_indices_batching_dims: a.indices("start_indices_batching_dims")?,
            start_index_map: a.indices("start_index_map")?,
            index_vector_dim: a.index("index_vector_dim")?,
            slice_sizes: a.indices("slice_sizes")?,
        }))
    }

    /// Operand dimensions that the result's offset dimensions run over, ascending.
    fn window_dims(&self) -> Shape {
        (0..self.slice_sizes.len())
            .filter(|d| !self.collapsed_slice_dims.contains(d) && !self.operand_batching_dims.contains(d))
            .collect()
    }

    /// Dimensions of the indices other than the index vector's, ascending.
    fn batch_dims(&self, indices_rank: usize) -> Shape {
        (0..indices_rank).filter(|&d| d != self.index_vector_dim).collect()
    }
}

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        AttrMap::from([
            ("offset_dims", ints(&self.offset_dims)),
            ("collapsed_slice_dims", ints(&self.collapsed_slice_dims)),
            ("operand_batching_dims", ints(&self.operand_batching_dims)),
            ("start_indices_batching_dims", ints(&self.start_indices_batching_dims)),
            ("start_index_map", ints(&self.start_index_map)),
            ("index_vector_dim", AttrValue::Int(self.index_vector_dim as i64)),
            ("slice_sizes", ints(&self.slice_sizes)),
        ])
    }

    fn infer(&self, operands: &[&TensorType], _: &Module) -> Result<Vec<TensorType>> {
        expect_operands(self.name(), operands, 2)?;
        let (x, ix) = (operands[0], operands[1]);
        let op = self.name();
        expect_index_vectors(op, ix, self.index_vector_dim, self.start_index_map.len())?;
        let removed: Vec<usize> =
            self.collapsed_slice_dims.iter().chain(&self.operand_batching_dims).copied().collect();
        expect_dims(op, "collapsed_slice_dims", &removed, x.rank())?;
        let addressed: Vec<usize> =
            self.start_index_map.iter().chain(&self.operand_batching_dims).copied().collect();
        expect_dims(op, "start_index_map", &addressed, x.rank())?;
        expect_dims(op, "start_indices_batching_dims", &self.start_indices_batching_dims, ix.rank())?;
        if self.operand_batching_dims.len() != self.start_indices_batching_dims.len() {
            return Err(IrError::attr(
                op,
                "operand_batching_dims",
                "does not pair with start_indices_batching_dims",
            ));
        }
        for (&a, &b) in self.operand_batching_dims.iter().zip(&self.start_indices_batching_dims) {
            if x.shape[a] != ix.shape[b] || b == self.index_vector_dim {
                return Err(IrError::attr(
                    op,
                    "operand_batching_dims",
                    format!("{a} of {x} does not pair with {b} of {ix}"),
                ));
            }
        }
        if self.slice_sizes.len() != x.rank() || self.slice_sizes.iter().zip(&x.shape).any(|(s, n)| s > n) {
            return Err(IrError::attr(
                op,
                "slice_sizes",
                format!("{:?} does not fit in {x}", self.slice_sizes),
            ));
        }
        if let Some(d) = removed.iter().find(|&&d| self.slice_sizes[d] > 1) {
            return Err(IrError::attr(
                op,
                "slice_sizes",
                format!("dimension {d} is removed but not of size 1"),
            ));
        }
        let (window, batch) = (self.window_dims(), self.batch_dims(ix.rank()));
        let rank = window.len() + batch.len();
        expect_dims(op, "offset_dims", &self.offset_dims, rank)?;
        if self.offset_dims.len() != window.len() || !self.offset_dims.is_sorted() {
            return Err(IrError::attr(
                op,
                "offset_dims",
                format!("{:?} for {} window dimensions", self.offset_dims, window.len()),
            ));
        }
        let (mut w, mut b) = (window.iter(), batch.iter());
        let shape = (0..rank).map(|d| match self.offset_dims.contains(&d) {
            true => w.next().map_or(1, |&d| self.slice_sizes[d]),
            false => b.next().map_or(1, |&d| ix.shape[d]),
        });
        Ok(vec![x.with_shape(shape)])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], _: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        let (x, ix) = (inputs[0], inputs[1]);
        let st = strides(&x.shape);
        let window = self.window_dims();
        let batch_of: Vec<usize> = self.batch_dims(ix.shape.len()).to_vec();
        let shape = &results[0].shape;
        let index = IndexSpace::new(shape).map(|at| {
            let batch: Shape =
                (0..shape.len()).filter(|d| !self.offset_dims.contains(d)).map(|d| at[d]).collect();
            let mut flat = 0;
            for (c, &d) in self.start_index_map.iter().enumerate() {
                let i = index_at(ix, self.index_vector_dim, &batch, c);
                flat += st[d] * i.clamp(0, (x.shape[d] - self.slice_sizes[d]) as i64) as usize;
            }
            for (&d, b) in self.operand_batching_dims.iter().zip(&self.start_indices_batching_dims) {
                let k = batch_of.iter().position(|x| x == b).unwrap_or(0);
                flat += st[d] * batch[k];
            }
            for (&o, &d) in self.offset_dims.iter().zip(&window) {
                flat += st[d] * at[o];
            }
            flat
        });
        Ok(vec![Tensor::new(shape.iter().copied(), x.data.pick(index))])
    }

    /// Factors in order: collapsed dimensions (`range` of the table where indexed), batch dimensions, window
    /// dimensions, the index vector.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        let (x, ix) = (operands[0], operands[1]);
        let mut r = FactorRule::empty(operands, results);
        for &d in &self.collapsed_slice_dims {
            let kind = if self.start_index_map.contains(&d) { FactorKind::Range } else { FactorKind::Whole };
            let f = r.factor(x.shape[d], kind);
            r.on_operand(0, d, f);
        }
        let window = self.window_dims();
        let batch = self.batch_dims(ix.rank());
        let mut b = batch.iter();
        for d in 0..results[0].rank() {
            if self.offset_dims.contains(&d) {
                continue;
            }
            let Some(&i) = b.next() else { continue };
            let f = r.factor(ix.shape[i], FactorKind::Pass);
            r.on_operand(1, i, f);
            r.on_result(0, d, f);
            if let Some(k) = self.start_indices_batching_dims.iter().position(|&s| s == i) {
                r.on_operand(0, self.operand_batching_dims[k], f);
            }
        }
        for (&o, &d) in self.offset_dims.iter().zip(&window) {
            let passes = self.slice_sizes[d] == x.shape[d] && !self.start_index_map.contains(&d);
            let f = r.factor(x.shape[d], if passes { FactorKind::Pass } else { FactorKind::Whole });
            r.on_operand(0, d, f);
            let g = if passes { f } else { r.factor(self.slice_sizes[d], FactorKind::Whole) };
            r.on_result(0, o, g);
        }
        if self.index_vector_dim < ix.rank() {
            let f = r.factor(ix.shape[self.index_vector_dim], FactorKind::Whole);
            r.on_operand(1, self.index_vector_dim, f);
        }
        r
    }

    fn resized(&self, operands: &[&TensorType], results: &[TensorType]) -> Result<Op> {
        let mut out = self.clone();
        for (&o, &d) in self.offset_dims.iter().zip(&self.window_dims()) {
            out.slice_sizes[d] = results[0].shape[o].min(operands[0].shape[d]);
        }
        Ok(out.into())
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let (xt, it) = (graph.ty(operands[0]).clone(), graph.ty(operands[1]).clone());
        let op = self.resized(&[&xt, &it], results)?;
        let split: Vec<SplitComponent> = self
            .collapsed_slice_dims
            .iter()
            .enumerate()
            .filter_map(|(f, d)| {
                let start = *starts.get(&f)?;
                let component = self.start_index_map.iter().position(|m| m == d)?;
                Some(SplitComponent { component, start, local: xt.shape[*d] })
            })
            .collect();
        if split.is_empty() {
            return graph.add(module, op, operands, loc);
        }
        let (local, mask) = relative_indices(
            module,
            graph,
            operands[1],
            self.index_vector_dim,
            &split,
            OutOfRange::Clamp,
            loc,
        )?;
        let got = graph.add1(module, op, &[operands[0], local], loc)?;
        let Some(mask) = mask else { return Ok(SmallVec::from_slice(&[got])) };
        let dims: Shape = (0..results[0].rank()).filter(|d| !self.offset_dims.contains(d)).collect();
        let mask =
            graph.add1(module, BroadcastInDim { shape: results[0].shape.clone(), dims }, &[mask], loc)?;
        let zero = splat(module, graph, results[0].clone(), 0.0, loc)?;
        graph.add(module, Select::Select, &[mask, got, zero], loc)
    }
}
