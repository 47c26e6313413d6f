//! One op for all lanes: each family's form with a leading dimension.

use super::super::lower::drop_unused;
use crate::error::{PassError, Result};
use msc_ir::constant::ConstData;
use msc_ir::graph::ValueId;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::dot_general::DotGeneral;
use msc_ir::ops::fused::{Fused, FusedKind};
use msc_ir::ops::permute::Permute;
use msc_ir::ops::reduce::Reduce;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::slice::Slice;
use msc_ir::{Graph, LocId, Module, Op, Shape, TensorType};
use std::collections::BTreeMap;

/// What stands for a value of the lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arg {
    /// All lanes' values, in order along a leading dimension.
    Stacked(ValueId),
    /// The one value that all lanes have.
    Alike(ValueId),
}

/// Whether an op has a form for all lanes.
pub(super) fn can(op: &Op, module: &Module) -> bool {
    match op {
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_) => true,
        Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Concatenate(_) => true,
        Op::Slice(s) => matches!(s, Slice::Static { .. }),
        Op::DotGeneral(_) | Op::Reduce(_) => true,
        Op::Fused(f) => module.graph(f.definition).ops().all(|(_, d)| match &d.op {
            // The same for all lanes, and not of what differs.
            Op::Constant(_) | Op::Iota(_) => true,
            op => !matches!(op, Op::Fused(_)) && can(op, module),
        }),
        _ => false,
    }
}

/// Slices that differ by the place along one dimension, which follow each other there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    pub dim: usize,
    /// First index of the first of them, and elements of each.
    pub first: usize,
    pub size: usize,
    /// For each op which of them it is.
    pub numbers: Vec<i64>,
}

/// Ops of the lanes as slices that follow each other.
pub(super) fn columns(ops: &[&Op]) -> Option<Columns> {
    let mut all = Vec::new();
    for op in ops {
        let Op::Slice(Slice::Static { start, limit, stride }) = op else { return None };
        if stride.iter().any(|&s| s != 1) {
            return None;
        }
        all.push((start, limit));
    }
    let (start, limit) = *all.first()?;
    let mut differ = (0..start.len()).filter(|&d| all.iter().any(|(s, _)| s[d] != start[d]));
    let (Some(dim), None) = (differ.next(), differ.next()) else { return None };
    let size = limit[dim].checked_sub(start[dim]).filter(|&n| n > 0)?;
    let alike = |(s, l): &(&Shape, &Shape)| {
        (0..start.len()).all(|d| if d == dim { l[d] == s[d] + size } else { l[d] == limit[d] })
    };
    let first = all.iter().map(|(s, _)| s[dim]).min()?;
    let places = all.iter().map(|(s, _)| s[dim] - first);
    let numbers: Vec<i64> = places.clone().map(|p| (p / size) as i64).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let follow = sorted.iter().enumerate().all(|(i, &n)| n == i as i64);
    let whole = places.clone().all(|p| p % size == 0);
    (all.iter().all(alike) && follow && whole).then_some(Columns { dim, first, size, numbers })
}

/// A graph under construction in which lanes are one.
pub(super) struct Stacker<'m> {
    pub module: &'m mut Module,
    pub out: Graph,
    pub lanes: usize,
    /// Values of one lane for all, by what they repeat.
    repeated: BTreeMap<ValueId, ValueId>,
}

/// Dimensions behind the leading one.
fn behind(dims: &[usize]) -> Shape {
    dims.iter().map(|d| d + 1).collect()
}

fn led(by: usize, dims: &[usize]) -> Shape {
    std::iter::once(by).chain(dims.iter().copied()).collect()
}

impl<'m> Stacker<'m> {
    pub fn new(module: &'m mut Module, name: &str, lanes: usize) -> Stacker<'m> {
        Stacker { module, out: Graph::new(name), lanes, repeated: BTreeMap::new() }
    }

    /// The type of all lanes' values of a type.
    pub fn stacked(&self, ty: &TensorType) -> TensorType {
        ty.with_shape(led(self.lanes, &ty.shape))
    }

    pub fn add1(&mut self, op: impl Into<Op>, operands: &[ValueId], loc: LocId) -> Result<ValueId> {
        Ok(self.out.add1(self.module, op, operands, loc)?)
    }

    pub fn broken(&self, message: impl std::fmt::Display) -> PassError {
        PassError::Broken { pass: "partition", message: format!("@{}: {message}", self.out.name) }
    }

    /// A value with the leading dimension.
    pub fn all(&mut self, a: Arg, loc: LocId) -> Result<ValueId> {
        match a {
            Arg::Stacked(v) => Ok(v),
            Arg::Alike(v) => self.repeat(v, loc),
        }
    }

    /// One value for all lanes. What is itself repeated is repeated from its own source.
    fn repeat(&mut self, v: ValueId, loc: LocId) -> Result<ValueId> {
        if let Some(&known) = self.repeated.get(&v) {
            return Ok(known);
        }
        let ty = self.stacked(self.out.ty(v));
        let source = self.out.def(v).map(|(op, _)| self.out.op(op));
        let (op, operands): (Op, Vec<ValueId>) = match source.map(|s| (&s.op, &s.operands)) {
            Some((Op::Constant(c), _)) if self.module.constants.splat_value(c.id).is_some() => {
                let id = match &self.module.constants.get(c.id).data {
                    ConstData::Splat(bytes) => {
                        let bytes = bytes.clone();
                        self.module.constants.intern_splat_bytes(ty, &bytes)
                    }
                    ConstData::Dense(_) => return Err(self.broken("a splat without one element")),
                };
                (ConstantOp { id }.into(), vec![])
            }
            Some((Op::Broadcast(b), operands)) => {
                (BroadcastInDim { shape: ty.shape, dims: behind(&b.dims) }.into(), operands.to_vec())
            }
            _ => {
                let dims = (1..ty.rank()).collect();
                (BroadcastInDim { shape: ty.shape, dims }.into(), vec![v])
            }
        };
        let made = self.add1(op, &operands, loc)?;
        self.repeated.insert(v, made);
        Ok(made)
    }

    /// An op for all lanes. At least one operand is stacked, and [`can`] holds.
    pub fn apply(&mut self, op: &Op, args: &[Arg], loc: LocId) -> Result<Vec<ValueId>> {
        if let Op::Fused(f) = op {
            return self.fused(f, args, loc);
        }
        let n = self.lanes;
        let mut operands = Vec::with_capacity(args.len());
        for (i, &a) in args.iter().enumerate() {
            // Predicates and bounds may be scalars.
            let scalar = matches!(a, Arg::Alike(v) if self.out.ty(v).rank() == 0);
            let keeps = matches!(op, Op::Select(_)) && scalar && i != 1;
            operands.push(match a {
                Arg::Alike(v) if keeps => v,
                a => self.all(a, loc)?,
            });
        }
        if let Op::Select(_) = op {
            let shape = self.out.ty(operands[1]).shape.clone();
            for v in &mut operands {
                if self.out.ty(*v).rank() == 1 && shape.len() > 1 {
                    let dims = Shape::from_slice(&[0]);
                    *v = self.add1(BroadcastInDim { shape: shape.clone(), dims }, &[*v], loc)?;
                }
            }
        }
        let op: Op = match op {
            Op::Broadcast(b) => {
                BroadcastInDim { shape: led(n, &b.shape), dims: led(0, &behind(&b.dims)) }.into()
            }
            Op::Reshape(r) => Reshape { shape: led(n, &r.shape) }.into(),
            Op::Permute(Permute::Transpose(p)) => Permute::Transpose(led(0, &behind(p))).into(),
            Op::Permute(Permute::Reverse(d)) => Permute::Reverse(behind(d)).into(),
            Op::Concatenate(c) => Concatenate { dim: c.dim + 1 }.into(),
            Op::Slice(Slice::Static { start, limit, stride }) => {
                Slice::Static { start: led(0, start), limit: led(n, limit), stride: led(1, stride) }.into()
            }
            Op::Reduce(r) => Reduce { dims: behind(&r.dims), monoid: r.monoid }.into(),
            Op::DotGeneral(d) => DotGeneral {
                lhs_batch: led(0, &behind(&d.lhs_batch)),
                rhs_batch: led(0, &behind(&d.rhs_batch)),
                lhs_contract: behind(&d.lhs_contract),
                rhs_contract: behind(&d.rhs_contract),
                dtype: d.dtype,
            }
            .into(),
            elementwise => elementwise.clone(),
        };
        Ok(self.out.add(self.module, op, &operands, loc)?.to_vec())
    }

    /// A named op: itself where it is defined for more dimensions, else the ops that define it.
    fn fused(&mut self, f: &Fused, args: &[Arg], loc: LocId) -> Result<Vec<ValueId>> {
        let source = self.module.graph(f.definition).clone();
        let scalars = args.iter().zip(source.params());
        let scalars_alike =
            scalars.into_iter().all(|(a, &p)| source.ty(p).rank() > 0 || matches!(a, Arg::Alike(_)));
        if !scalars_alike || !keeps_meaning(&f.kind, args) {
            let from = self.out.op_count();
            let results = self.inlined(&source, args, loc)?;
            for op in from..self.out.op_count() {
                self.out.set_loc(msc_ir::OpId(op as u32), loc);
            }
            return results.into_iter().map(|a| self.all(a, loc)).collect();
        }
        let lanes = self.lanes;
        let mut inner = Stacker::new(self.module, &source.name, lanes);
        let mut operands = Vec::new();
        let mut params = Vec::new();
        for (&a, &p) in args.iter().zip(source.params()) {
            let ty = source.ty(p);
            // Tensors of every lane; scalars are one for all.
            let stacks = ty.rank() > 0 && !stays_alike(&f.kind, operands.len());
            let ty = if stacks { inner.stacked(ty) } else { ty.clone() };
            let v = inner.out.add_param(ty);
            params.push(if stacks { Arg::Stacked(v) } else { Arg::Alike(v) });
            operands.push((a, stacks));
        }
        let results = inner.inlined(&source, &params, loc)?;
        let mut given = Vec::new();
        for a in results {
            given.push(inner.all(a, loc)?);
        }
        inner.out.set_results(given);
        let mut definition = inner.out;
        drop_unused(&mut definition);
        let definition = self.module.define(f.kind.clone(), definition);
        let mut values = Vec::new();
        for (a, stacks) in operands {
            values.push(match a {
                Arg::Alike(v) if !stacks => v,
                a => self.all(a, loc)?,
            });
        }
        let op = Fused { kind: f.kind.clone(), definition };
        Ok(self.out.add(self.module, op, &values, loc)?.to_vec())
    }

    /// The ops of a graph for all lanes, at the end of this one.
    fn inlined(&mut self, source: &Graph, args: &[Arg], loc: LocId) -> Result<Vec<Arg>> {
        let mut at: Vec<Option<Arg>> = vec![None; source.value_count()];
        for (&p, &a) in source.params().iter().zip(args) {
            at[p.0 as usize] = Some(a);
        }
        for (_, data) in source.ops() {
            let args: Option<Vec<Arg>> = data.operands.iter().map(|v| at[v.0 as usize]).collect();
            let args = args.ok_or_else(|| self.broken("an operand is not defined before its use"))?;
            let alike: Option<Vec<ValueId>> = args
                .iter()
                .map(|a| match a {
                    Arg::Alike(v) => Some(*v),
                    Arg::Stacked(_) => None,
                })
                .collect();
            let made: Vec<Arg> = match alike {
                Some(operands) => {
                    let made = self.out.add(self.module, data.op.clone(), &operands, loc)?;
                    made.into_iter().map(Arg::Alike).collect()
                }
                None => self.apply(&data.op, &args, loc)?.into_iter().map(Arg::Stacked).collect(),
            };
            for (&r, a) in data.results.iter().zip(made) {
                at[r.0 as usize] = Some(a);
            }
        }
        let results: Option<Vec<Arg>> = source.results().iter().map(|v| at[v.0 as usize]).collect();
        results.ok_or_else(|| self.broken("a result is not defined"))
    }
}

/// Whether a named op is what it says with one more dimension in front.
fn keeps_meaning(kind: &FusedKind, args: &[Arg]) -> bool {
    use FusedKind::*;
    match kind {
        Activation { .. } | ActivationGrad { .. } | AdamW(_) | Sgd(_) | Lion(_) | Dropout { .. } => true,
        Softmax | SoftmaxGrad => true,
        // Its weights have one dimension, and are then the same for all lanes.
        RmsNorm { scale, .. } => !scale || matches!(args.get(1), Some(Arg::Alike(_))),
        _ => false,
    }
}

/// Whether an operand of a named op stays as it is.
fn stays_alike(kind: &FusedKind, operand: usize) -> bool {
    matches!(kind, FusedKind::RmsNorm { scale: true, .. }) && operand == 1
}
