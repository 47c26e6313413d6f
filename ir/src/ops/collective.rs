//! Collectives over mesh axes, and the rank's own position.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::FactorRule;
use crate::interp::{EvalCx, RanksCx, Row};
use crate::module::{AxisId, Module};
use crate::monoid::Monoid;
use crate::op::{Op, Operation};
use crate::ops::binary::combine;
use crate::ops::reduce::combiner;
use crate::tensor::{Storage, Tensor};
use crate::types::TensorType;
use smallvec::SmallVec;
use std::sync::Arc;

/// The mesh axes a collective runs over: its group is the ranks that differ along these axes only.
pub type Axes = SmallVec<[AxisId; 2]>;

/// Collectives. All ranks of a group execute the same one; the group's order is that of its coordinates.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Collective {
    /// `T[…] → T[…]`: every rank gets the combination of all ranks' operands.
    AllReduce {
        /// What combines.
        monoid: Monoid,
        /// The group.
        axes: Axes,
    },
    /// `T[…,d,…] → T[…,n·d,…]`: every rank gets all ranks' operands, concatenated along `dim`.
    AllGather {
        /// The dimension that grows.
        dim: usize,
        /// The group.
        axes: Axes,
    },
    /// `T[…,n·d,…] → T[…,d,…]`: rank `i` gets block `i` along `dim` of the combination.
    ReduceScatter {
        /// What combines.
        monoid: Monoid,
        /// The dimension that shrinks.
        dim: usize,
        /// The group.
        axes: Axes,
    },
    /// `→ i32[]`: the rank's coordinate along one axis.
    AxisIndex {
        /// The axis.
        axis: AxisId,
    },
}

/// An axis number as read; one that does not fit names no axis of any mesh.
fn axis_id(i: usize) -> AxisId {
    AxisId(u8::try_from(i).unwrap_or(u8::MAX))
}

impl Collective {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, _: &Module) -> Result<Option<Collective>> {
        fn axes(a: &mut AttrReader) -> Result<Axes> {
            Ok(a.indices::<Vec<usize>>("axes")?.into_iter().map(axis_id).collect())
        }
        Ok(match name {
            "all_reduce" => Some(Collective::AllReduce {
                monoid: a.word_as("monoid", Monoid::from_name)?,
                axes: axes(a)?,
            }),
            "all_gather" => Some(Collective::AllGather { dim: a.index("dim")?, axes: axes(a)? }),
            "reduce_scatter" => Some(Collective::ReduceScatter {
                monoid: a.word_as("monoid", Monoid::from_name)?,
                dim: a.index("dim")?,
                axes: axes(a)?,
            }),
            "axis_index" => Some(Collective::AxisIndex { axis: axis_id(a.index("axis")?) }),
            _ => None,
        })
    }

    /// The group's axes; empty for [`Collective::AxisIndex`], which communicates nothing.
    pub fn axes(&self) -> &[AxisId] {
        match self {
            Collective::AllReduce { axes, .. }
            | Collective::AllGather { axes, .. }
            | Collective::ReduceScatter { axes, .. } => axes,
            Collective::AxisIndex { .. } => &[],
        }
    }

    fn group_size(&self, module: &Module) -> usize {
        self.axes().iter().map(|&a| module.mesh.size(a)).product()
    }

    /// What each rank of a group gets from the operands of all, in group order. Sums of floats are accumulated in
    /// f64 and rounded once.
    ///
    /// # Errors
    /// Where the operands' element types differ.
    pub fn combine_group(&self, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
        let n = operands.len();
        let reduce = |monoid: Monoid| -> Result<Tensor> {
            let first = operands[0];
            if first.dtype().is_float() && monoid == Monoid::Sum {
                let mut acc = vec![0f64; first.len()];
                for t in operands {
                    for (a, i) in acc.iter_mut().zip(0..) {
                        *a += t.data.get_f64(i);
                    }
                }
                return Ok(Tensor::new(first.shape.iter().copied(), Storage::from_f64s(first.dtype(), &acc)));
            }
            let mut acc = first.clone();
            for t in &operands[1..] {
                acc.data = combine(combiner(monoid), &acc.data, &t.data)
                    .ok_or_else(|| IrError::ty(self.name(), "operands of different element types"))?;
            }
            Ok(acc)
        };
        Ok(match self {
            Collective::AllReduce { monoid, .. } => vec![reduce(*monoid)?; n],
            Collective::AllGather { dim, .. } => {
                let mut shape = operands[0].shape.clone();
                shape[*dim] *= n;
                let ty = TensorType { dtype: operands[0].dtype(), shape };
                let cat = crate::ops::concatenate::Concatenate { dim: *dim };
                let out = cat.eval(operands, &[ty], &EvalCx::detached(&Module::default()))?;
                vec![out[0].clone(); n]
            }
            Collective::ReduceScatter { monoid, dim, .. } => {
                let whole = reduce(*monoid)?;
                let mut size = whole.shape.clone();
                size[*dim] /= n;
                (0..n)
                    .map(|i| {
                        let mut start = vec![0; size.len()];
                        start[*dim] = i * size[*dim];
                        whole.block(&start, &size)
                    })
                    .collect()
            }
            Collective::AxisIndex { .. } => Vec::new(),
        })
    }
}

impl Operation for Collective {
    fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce { .. } => "all_reduce",
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AxisIndex { .. } => "axis_index",
        }
    }

    fn attrs(&self, _: &Module) -> AttrMap {
        let axes = || AttrValue::Ints(self.axes().iter().map(|a| i64::from(a.0)).collect());
        match self {
            Collective::AllReduce { monoid, .. } => {
                AttrMap::from([("monoid", word(monoid.name())), ("axes", axes())])
            }
            Collective::AllGather { dim, .. } => {
                AttrMap::from([("dim", AttrValue::Int(*dim as i64)), ("axes", axes())])
            }
            Collective::ReduceScatter { monoid, dim, .. } => AttrMap::from([
                ("monoid", word(monoid.name())),
                ("dim", AttrValue::Int(*dim as i64)),
                ("axes", axes()),
            ]),
            Collective::AxisIndex { axis } => AttrMap::from([("axis", AttrValue::Int(i64::from(axis.0)))]),
        }
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let known = |a: &AxisId| (a.0 as usize) < module.mesh.axes.len();
        let all_known = match self {
            Collective::AxisIndex { axis } => known(axis),
            _ => !self.axes().is_empty() && self.axes().iter().all(known),
        };
        if !all_known {
            return Err(IrError::attr(self.name(), "axes", "are not axes of the module's mesh"));
        }
        if let Collective::AxisIndex { .. } = self {
            expect_operands(self.name(), operands, 0)?;
            return Ok(vec![TensorType::scalar(DType::I32)]);
        }
        expect_operands(self.name(), operands, 1)?;
        let mut out = operands[0].clone();
        let n = self.group_size(module);
        match self {
            Collective::AllGather { dim, .. } => {
                expect_dims(self.name(), "dim", &[*dim], out.rank())?;
                out.shape[*dim] *= n;
            }
            Collective::ReduceScatter { dim, .. } => {
                expect_dims(self.name(), "dim", &[*dim], out.rank())?;
                if !out.shape[*dim].is_multiple_of(n) {
                    return Err(IrError::ty(
                        self.name(),
                        format!("dimension {dim} of {out} does not divide by {n} ranks"),
                    ));
                }
                out.shape[*dim] /= n;
            }
            _ => {}
        }
        Ok(vec![out])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.lockstep(inputs, |cx, rows| self.eval_ranks(rows, results, cx))
    }

    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        let mesh = &cx.module().mesh;
        if let Collective::AxisIndex { axis } = self {
            let at = |&rank: &usize| {
                vec![Arc::new(Tensor::scalar(DType::I32, mesh.coordinate(rank, *axis) as f64))]
            };
            return Ok(cx.ranks().iter().map(at).collect());
        }
        let mut out: Vec<Row> = vec![Row::new(); inputs.len()];
        for (i, &rank) in cx.ranks().iter().enumerate() {
            if !out[i].is_empty() {
                continue;
            }
            let group = mesh.group(rank, self.axes());
            let rows: Option<Vec<usize>> = group.iter().map(|r| cx.ranks().binary_search(r).ok()).collect();
            let rows = rows.ok_or_else(|| {
                IrError::unsupported(
                    self.name(),
                    format!("ranks {group:?} of one group do not all come here"),
                )
            })?;
            let operands: Vec<&Tensor> = rows.iter().map(|&k| &*inputs[k][0]).collect();
            for (&k, t) in rows.iter().zip(self.combine_group(&operands)?) {
                out[k] = vec![Arc::new(t)];
            }
        }
        Ok(out)
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], _: &Module) -> FactorRule {
        FactorRule::whole(operands, results)
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
