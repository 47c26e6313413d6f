//! Collectives over mesh axes, and the rank's own position.

use super::{expect_dims, expect_operands};
use crate::attr::{AttrMap, AttrReader, AttrValue, word};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::{FactorKind, FactorRule};
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
    /// `T[…,n·d,…] → T[…,d,…,n·e,…]`: the operand is cut into `n` blocks along `split_dim`; rank `i` gets every rank's
    /// block `i`, concatenated along `concat_dim` (StableHLO specification, "all_to_all").
    AllToAll {
        /// The dimension that shrinks.
        split_dim: usize,
        /// The dimension that grows.
        concat_dim: usize,
        /// The group.
        axes: Axes,
    },
    /// `T[…] → T[…]`: rank `t` gets rank `s`'s operand for each pair (s, t); a rank that is no target gets zeros
    /// (StableHLO specification, "collective_permute").
    Permute {
        /// Positions within the group; sources are distinct, and so are targets.
        pairs: SmallVec<[(u32, u32); 4]>,
        /// The group.
        axes: Axes,
    },
    /// `T[…] → T[…]`: every rank gets the group's first rank's operand (StableHLO specification,
    /// "collective_broadcast").
    Broadcast {
        /// The group.
        axes: Axes,
    },
    /// `→ u32[]`: the rank's number in the mesh (StableHLO specification, "partition_id"). Every rank is a partition
    /// of one replica, so "replica_id" is the constant 0.
    PartitionId,
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
            "all_to_all" => Some(Collective::AllToAll {
                split_dim: a.index("split_dim")?,
                concat_dim: a.index("concat_dim")?,
                axes: axes(a)?,
            }),
            "collective_permute" => {
                let flat: Vec<usize> = a.indices("pairs")?;
                let number = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
                if !flat.len().is_multiple_of(2) {
                    return Err(IrError::attr(name, "pairs", "does not hold pairs"));
                }
                let pairs = flat.chunks_exact(2).map(|p| (number(p[0]), number(p[1]))).collect();
                Some(Collective::Permute { pairs, axes: axes(a)? })
            }
            "collective_broadcast" => Some(Collective::Broadcast { axes: axes(a)? }),
            "partition_id" => Some(Collective::PartitionId),
            "axis_index" => Some(Collective::AxisIndex { axis: axis_id(a.index("axis")?) }),
            _ => None,
        })
    }

    /// The group's axes; empty for [`Collective::AxisIndex`] and [`Collective::PartitionId`], which communicate
    /// nothing.
    pub fn axes(&self) -> &[AxisId] {
        match self {
            Collective::AllReduce { axes, .. }
            | Collective::AllGather { axes, .. }
            | Collective::ReduceScatter { axes, .. }
            | Collective::AllToAll { axes, .. }
            | Collective::Permute { axes, .. }
            | Collective::Broadcast { axes } => axes,
            Collective::AxisIndex { .. } | Collective::PartitionId => &[],
        }
    }

    /// The same op over other axes, those that `moved` gives for its own.
    #[must_use]
    pub fn over(&self, moved: impl Fn(AxisId) -> AxisId) -> Collective {
        let mut c = self.clone();
        match &mut c {
            Collective::AllReduce { axes, .. }
            | Collective::AllGather { axes, .. }
            | Collective::ReduceScatter { axes, .. }
            | Collective::AllToAll { axes, .. }
            | Collective::Permute { axes, .. }
            | Collective::Broadcast { axes } => axes.iter_mut().for_each(|a| *a = moved(*a)),
            Collective::AxisIndex { axis } => *axis = moved(*axis),
            Collective::PartitionId => {}
        }
        c
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
                vec![concatenated(*dim, operands, &ty)?; n]
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
            Collective::AllToAll { split_dim, concat_dim, .. } => {
                let mut size = operands[0].shape.clone();
                size[*split_dim] /= n;
                let mut shape = size.clone();
                shape[*concat_dim] *= n;
                let ty = TensorType { dtype: operands[0].dtype(), shape };
                let mut out = Vec::with_capacity(n);
                for i in 0..n {
                    let mut start = vec![0; size.len()];
                    start[*split_dim] = i * size[*split_dim];
                    let blocks: Vec<Tensor> = operands.iter().map(|t| t.block(&start, &size)).collect();
                    let refs: Vec<&Tensor> = blocks.iter().collect();
                    out.push(concatenated(*concat_dim, &refs, &ty)?);
                }
                out
            }
            Collective::Permute { pairs, .. } => (0..n)
                .map(|i| {
                    let source = pairs.iter().find(|p| p.1 as usize == i);
                    match source.and_then(|p| operands.get(p.0 as usize)) {
                        Some(t) => (*t).clone(),
                        None => Tensor::splat(&operands[i].ty(), 0.0),
                    }
                })
                .collect(),
            Collective::Broadcast { .. } => vec![operands[0].clone(); n],
            Collective::AxisIndex { .. } | Collective::PartitionId => Vec::new(),
        })
    }
}

fn grown(op: &str, t: &TensorType, dim: usize, n: usize) -> Result<usize> {
    t.shape[dim]
        .checked_mul(n)
        .ok_or_else(|| IrError::ty(op, format!("{n} times dimension {dim} of {t} does not fit in memory")))
}

fn shrunk(op: &str, t: &TensorType, dim: usize, n: usize) -> Result<usize> {
    if !t.shape[dim].is_multiple_of(n) {
        return Err(IrError::ty(op, format!("dimension {dim} of {t} does not divide by {n} ranks")));
    }
    Ok(t.shape[dim] / n)
}

fn concatenated(dim: usize, parts: &[&Tensor], ty: &TensorType) -> Result<Tensor> {
    let cat = crate::ops::concatenate::Concatenate { dim };
    let out = cat.eval(parts, std::slice::from_ref(ty), &EvalCx::detached(&Module::default()))?;
    out.into_iter().next().ok_or_else(|| IrError::ty(cat.name(), "gives nothing"))
}

impl Operation for Collective {
    fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce { .. } => "all_reduce",
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllToAll { .. } => "all_to_all",
            Collective::Permute { .. } => "collective_permute",
            Collective::Broadcast { .. } => "collective_broadcast",
            Collective::PartitionId => "partition_id",
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
            Collective::AllToAll { split_dim, concat_dim, .. } => AttrMap::from([
                ("split_dim", AttrValue::Int(*split_dim as i64)),
                ("concat_dim", AttrValue::Int(*concat_dim as i64)),
                ("axes", axes()),
            ]),
            Collective::Permute { pairs, .. } => {
                let flat = pairs.iter().flat_map(|p| [i64::from(p.0), i64::from(p.1)]).collect();
                AttrMap::from([("pairs", AttrValue::Ints(flat)), ("axes", axes())])
            }
            Collective::Broadcast { .. } => AttrMap::from([("axes", axes())]),
            Collective::PartitionId => AttrMap::new(),
            Collective::AxisIndex { axis } => AttrMap::from([("axis", AttrValue::Int(i64::from(axis.0)))]),
        }
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let known = |a: &AxisId| (a.0 as usize) < module.mesh.axes.len();
        let all_known = match self {
            Collective::AxisIndex { axis } => known(axis),
            Collective::PartitionId => true,
            _ => !self.axes().is_empty() && self.axes().iter().all(known),
        };
        if !all_known {
            return Err(IrError::attr(self.name(), "axes", "are not axes of the module's mesh"));
        }
        let own = match self {
            Collective::AxisIndex { .. } => Some(DType::I32),
            Collective::PartitionId => Some(DType::U32),
            _ => None,
        };
        if let Some(dtype) = own {
            expect_operands(self.name(), operands, 0)?;
            return Ok(vec![TensorType::scalar(dtype)]);
        }
        expect_operands(self.name(), operands, 1)?;
        let mut out = operands[0].clone();
        if let Collective::AllReduce { monoid, .. } | Collective::ReduceScatter { monoid, .. } = self
            && !monoid.supports(out.dtype)
        {
            return Err(IrError::ty(self.name(), format!("{monoid} is not defined on {out}")));
        }
        let n = self.group_size(module);
        match self {
            Collective::AllGather { dim, .. } => {
                expect_dims(self.name(), "dim", &[*dim], out.rank())?;
                out.shape[*dim] = grown(self.name(), &out, *dim, n)?;
            }
            Collective::ReduceScatter { dim, .. } => {
                expect_dims(self.name(), "dim", &[*dim], out.rank())?;
                out.shape[*dim] = shrunk(self.name(), &out, *dim, n)?;
            }
            Collective::AllToAll { split_dim, concat_dim, .. } => {
                expect_dims(self.name(), "split_dim", &[*split_dim], out.rank())?;
                expect_dims(self.name(), "concat_dim", &[*concat_dim], out.rank())?;
                out.shape[*split_dim] = shrunk(self.name(), &out, *split_dim, n)?;
                out.shape[*concat_dim] = grown(self.name(), &out, *concat_dim, n)?;
            }
            Collective::Permute { pairs, .. } => {
                for (i, p) in pairs.iter().enumerate() {
                    let twice = pairs[..i].iter().any(|q| q.0 == p.0 || q.1 == p.1);
                    if p.0 as usize >= n || p.1 as usize >= n || twice {
                        let message = format!("{p:?} among {n} ranks is out of range or a repetition");
                        return Err(IrError::attr(self.name(), "pairs", message));
                    }
                }
            }
            Collective::AllReduce { .. }
            | Collective::Broadcast { .. }
            | Collective::PartitionId
            | Collective::AxisIndex { .. } => {}
        }
        if let Collective::AllReduce { monoid, .. } | Collective::ReduceScatter { monoid, .. } = self
            && !monoid.supports(out.dtype)
        {
            return Err(IrError::ty(self.name(), format!("{monoid} is not defined on {out}")));
        }
        Ok(vec![out])
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.lockstep(inputs, |cx, rows| self.eval_ranks(rows, results, cx))
    }

    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        let mesh = &cx.module().mesh;
        let own = |&rank: &usize| match self {
            Collective::AxisIndex { axis } => {
                Some(Tensor::scalar(DType::I32, mesh.coordinate(rank, *axis) as f64))
            }
            Collective::PartitionId => Some(Tensor::scalar(DType::U32, rank as f64)),
            _ => None,
        };
        let positions: Option<Vec<Row>> = cx.ranks().iter().map(|r| Some(vec![Arc::new(own(r)?)])).collect();
        if let Some(rows) = positions {
            return Ok(rows);
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

    /// Along other axes than the collective's own, its dimensions are each other's. A dimension that grows by the
    /// group holds the group's position outside what each rank has.
    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
        let mut r = FactorRule::empty(operands, results);
        let Some(operand) = operands.first() else { return r };
        let (shrinks, grows) = match self {
            Collective::AllGather { dim, .. } => (None, Some(*dim)),
            Collective::ReduceScatter { dim, .. } => (Some(*dim), None),
            Collective::AllToAll { split_dim, concat_dim, .. } => (Some(*split_dim), Some(*concat_dim)),
            _ => (None, None),
        };
        if shrinks.is_some() && shrinks == grows {
            return FactorRule::whole(operands, results);
        }
        for (d, (&m, &n)) in operand.shape.iter().zip(&results[0].shape).enumerate() {
            if shrinks == Some(d) {
                let position = r.factor(self.group_size(module), FactorKind::Whole);
                r.on_operand(0, d, position);
            }
            if grows == Some(d) {
                let position = r.factor(self.group_size(module), FactorKind::Whole);
                r.on_result(0, d, position);
            }
            let f = r.factor(m.min(n), FactorKind::Pass);
            r.on_operand(0, d, f);
            r.on_result(0, d, f);
        }
        r
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }
}
