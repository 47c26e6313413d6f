//! Sizes that do not divide: padding.
//!
//! Before: a program of which some atoms have a size that the ranks of an axis do not divide, a vocabulary of 50257. After:
//! the same program at the next size that they divide. Of a padded dimension the elements behind its true size are
//! arbitrary, in every value: no element before them depends on them. Two things keep that so. What an op reduces it
//! takes masked: a padded element is the monoid's neutral one, and of a product both sides are zero. And an index into
//! a padded table is bounded by the true size first, as the op itself bounds it by the table's.
//!
//! The outside does not see the padding: a layout says the true size ([`Sharding::sizes`]), and what is loaded, saved and
//! compared has that. What is padded, and by how much, says [`worth`](mod@worth): the elements of padding are computed with as
//! all others.
//!
//! [`Sharding::sizes`]: msc_ir::module::Sharding::sizes

mod stages;
mod worth;

pub(super) use stages::OF_BATCH;
pub(super) use worth::{Wanted, is_little, why_no_batch, worth};

use super::facts::{Draft, Facts};
use super::problem::Problem;
use crate::error::Result;
use msc_ir::factor::solve::AtomId;
use msc_ir::factor::{FactorKind, Starts};
use msc_ir::graph::{OpData, OpId, ValueId};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::compare::{Compare, Direction};
use msc_ir::ops::concatenate::Concatenate;
use msc_ir::ops::constant::splat;
use msc_ir::ops::fused::FusedKind;
use msc_ir::ops::iota::Iota;
use msc_ir::ops::reshape::Reshape;
use msc_ir::ops::select::Select;
use msc_ir::ops::slice::Slice;
use msc_ir::{DType, Graph, GraphId, LocId, Module, Monoid, Op, Operation, Shape, TensorType};
use std::collections::BTreeMap;

/// A dimension that is padded: the parameter, the dimension, its true size and the size it gets. The atom lies
/// outermost there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Padding {
    pub param: usize,
    pub dim: usize,
    pub size: usize,
    pub padded: usize,
}

/// Whether an op runs other graphs of the program: those are padded themselves.
fn runs(op: &Op) -> bool {
    !op.callees().is_empty() && !matches!(op, Op::Fused(_))
}

/// Whether a named op adds up rows, and adds nothing for a row of zeros.
fn adds_rows(kind: &FusedKind) -> bool {
    use FusedKind::*;
    matches!(kind, RmsNormGrad { .. } | LayerNormGrad { .. } | EmbeddingGrad { .. })
}

/// How an op takes an atom that is padded.
enum Takes {
    /// As any other.
    Alike,
    /// Masked by the neutral element.
    Masked(Monoid),
    /// With updates, its third operand, that are masked by the neutral element: they change nothing wherever they land.
    Updates(Monoid),
    /// With indices into it that are bounded.
    Bounded,
}

/// How an op takes an atom; `None` if it cannot take padding.
fn takes(problem: &Problem, scope: usize, op: OpId, data: &OpData, atom: AtomId) -> Option<Takes> {
    let rule = problem.atoms.rule_in(scope, op);
    let mut out = Takes::Alike;
    for (f, factor) in rule.factors.iter().enumerate() {
        let list = problem.atoms.factor_in(scope, op, f);
        if !list.contains(&atom) {
            continue;
        }
        match (factor.kind, &data.op) {
            (FactorKind::Pass, _) => {}
            // A number inside another atom is counted on from that atom's last, which would be a padded one.
            (FactorKind::Offset | FactorKind::Range, _) if list.first() != Some(&atom) => return None,
            (FactorKind::Offset, Op::Iota(_)) => {}
            (FactorKind::Reduce(m), Op::Reduce(_)) => out = Takes::Masked(m),
            (FactorKind::Reduce(_), Op::DotGeneral(_)) => out = Takes::Masked(Monoid::Sum),
            (FactorKind::Reduce(Monoid::Sum), Op::Fused(f)) if adds_rows(&f.kind) => {
                out = Takes::Masked(Monoid::Sum);
            }
            (FactorKind::Reduce(m), Op::Scatter(s)) if !s.unique_indices => out = Takes::Updates(m),
            // What is scattered behind the true size lands in the padding.
            (FactorKind::Range, Op::Scatter(_)) => {}
            (FactorKind::Range, Op::Gather(_)) => out = Takes::Bounded,
            _ => return None,
        }
    }
    Some(out)
}

/// The first op that cannot take an atom padded.
fn obstacle(problem: &Problem, module: &Module, atom: AtomId) -> Option<(GraphId, OpId)> {
    problem.atoms.scope_graphs().enumerate().find_map(|(scope, id)| {
        let g = module.graph(id?);
        let refuses = |op: OpId, data: &OpData| {
            if runs(&data.op) {
                return false;
            }
            let times = |v: &ValueId| {
                let dims = 0..g.ty(*v).rank();
                dims.flat_map(|d| problem.atoms.dim_in(scope, *v, d)).filter(|a| *a == atom).count()
            };
            let most = data.operands.iter().chain(&data.results).map(times).max().unwrap_or(0);
            let fits = most == 0 || most == 1 && !problem.atoms.is_torn_in(scope, op);
            !fits || takes(problem, scope, op, data, atom).is_none()
        };
        g.ops().find(|(op, data)| refuses(*op, data)).and_then(|(op, _)| Some((id?, op)))
    })
}

/// A draft with dimensions padded; `None` where some op has no form at the new sizes.
///
/// # Errors
/// If a graph does not define operands before uses.
pub(super) fn pad(draft: &Draft, paddings: &[Padding]) -> Result<Option<Draft>> {
    let problem = Problem::new(&draft.module)?;
    let module = &draft.module;
    let g = module.graph(problem.entry);
    let mut sizes: BTreeMap<AtomId, usize> = BTreeMap::new();
    for p in paddings {
        let list = g.params().get(p.param).map(|&v| problem.atoms.dim(v, p.dim));
        if let Some(&atom) = list.as_ref().and_then(|l| l.first()) {
            sizes.insert(atom, p.padded);
        }
    }
    let mut out = Draft { module: module.clone(), facts: Facts::new() };
    for id in msc_ir::ops::call::reachable(module) {
        let Some(scope) = problem.atoms.scope_of(id) else { continue };
        let source = module.graph(id);
        let mut padded = Padded {
            problem: &problem,
            sizes: &sizes,
            scope,
            source,
            graph: Graph::new(source.name.clone()),
            map: vec![None; source.value_count()],
            masked: BTreeMap::new(),
        };
        if !padded.run(&mut out.module)? {
            return Ok(None);
        }
        let Padded { graph, map, .. } = padded;
        for ((_, v), fact) in draft.facts.range((id, ValueId(0))..=(id, ValueId(u32::MAX))) {
            out.facts.extend(map[v.0 as usize].map(|v| ((id, v), fact.clone())));
        }
        out.module.set_graph(id, graph);
    }
    let new = out.module.graph(problem.entry).clone();
    let entry = &mut out.module.entries[0];
    let params = entry.params.iter_mut().map(|p| &mut p.sharding).zip(g.params()).zip(new.params());
    let results = entry.results.iter_mut().map(|r| &mut r.sharding).zip(g.results()).zip(new.results());
    for ((s, &old), &v) in params.chain(results) {
        for (d, &n) in g.ty(old).shape.iter().enumerate() {
            if new.ty(v).shape[d] != n {
                s.dims.resize(g.ty(old).rank(), Vec::new());
                s.sizes.resize(g.ty(old).rank(), 0);
                s.sizes[d] = n;
            }
        }
    }
    Ok(Some(out))
}

/// One graph at its padded sizes.
struct Padded<'a> {
    problem: &'a Problem,
    sizes: &'a BTreeMap<AtomId, usize>,
    scope: usize,
    source: &'a Graph,
    graph: Graph,
    map: Vec<Option<ValueId>>,
    /// Masked values by atom, and by which neutral element.
    masked: BTreeMap<(ValueId, AtomId, u64), ValueId>,
}

impl Padded<'_> {
    fn padded_type(&self, v: ValueId) -> TensorType {
        let ty = self.source.ty(v);
        ty.with_shape((0..ty.rank()).map(|d| {
            let list = self.problem.atoms.dim_in(self.scope, v, d);
            if !list.iter().any(|a| self.sizes.contains_key(a)) {
                return ty.shape[d];
            }
            list.iter().map(|a| self.size(*a)).product()
        }))
    }

    fn size(&self, a: AtomId) -> usize {
        self.sizes.get(&a).copied().unwrap_or_else(|| self.problem.atoms.size(a))
    }

    /// Rebuilds the graph; false where an op has no form at the new sizes.
    fn run(&mut self, module: &mut Module) -> Result<bool> {
        for &p in self.source.params() {
            let ty = self.padded_type(p);
            self.map[p.0 as usize] = Some(self.graph.add_param(ty));
        }
        for (id, data) in self.source.ops() {
            let mut operands = Vec::with_capacity(data.operands.len());
            for i in 0..data.operands.len() {
                let Some(v) = self.operand(module, id, data, i)? else { return Ok(false) };
                operands.push(v);
            }
            let results: Vec<TensorType> = data.results.iter().map(|&r| self.padded_type(r)).collect();
            let made = match runs(&data.op) {
                true => self.graph.add(module, data.op.clone(), &operands, data.loc),
                false => {
                    let starts = Starts::new();
                    data.op.build_shard(module, &mut self.graph, &operands, &results, &starts, data.loc)
                }
            };
            let Ok(made) = made else { return Ok(false) };
            for (i, (&r, &v)) in data.results.iter().zip(&made).enumerate() {
                if *self.graph.ty(v) != results[i] {
                    return Ok(false);
                }
                self.map[r.0 as usize] = Some(v);
            }
        }
        let results = self.source.results().iter().filter_map(|r| self.map[r.0 as usize]).collect();
        self.graph.set_results(results);
        Ok(true)
    }

    /// What an op takes as its operand `i`.
    fn operand(&mut self, module: &mut Module, id: OpId, data: &OpData, i: usize) -> Result<Option<ValueId>> {
        let v = data.operands[i];
        let Some(mut value) = self.map[v.0 as usize] else { return Ok(None) };
        if runs(&data.op) {
            return Ok(Some(value));
        }
        let sizes = self.sizes;
        for &atom in sizes.keys() {
            match takes(self.problem, self.scope, id, data, atom) {
                None => return Ok(None),
                Some(Takes::Alike) => {}
                Some(Takes::Updates(_)) if i != 2 => {}
                Some(Takes::Masked(monoid) | Takes::Updates(monoid)) => {
                    if let Some(place) = self.place(v, atom) {
                        value = self.mask(module, value, atom, place, monoid, data.loc)?;
                    }
                }
                Some(Takes::Bounded) => {
                    if let (1, Op::Gather(g)) = (i, &data.op) {
                        let dim = self.place(data.operands[0], atom).map(|p| p.dim);
                        let component = g.start_index_map.iter().position(|m| Some(*m) == dim);
                        let (Some(component), Some(dim)) = (component, dim) else { continue };
                        let size = self.source.ty(data.operands[0]).shape[dim];
                        value = self.bound(module, value, g.index_vector_dim, component, size, data.loc)?;
                    }
                }
            }
        }
        Ok(Some(value))
    }

    /// Where an atom lies in a value.
    fn place(&self, v: ValueId, atom: AtomId) -> Option<Inside> {
        let (dim, list, at) = self.problem.find(self.scope, v, |a| a == atom)?;
        let outer = list[..at].iter().map(|&a| self.size(a)).product();
        let inner = list[at + 1..].iter().map(|&a| self.size(a)).product();
        Some(Inside { dim, outer, inner })
    }

    /// A value whose padding along an atom is the neutral element.
    fn mask(
        &mut self,
        module: &mut Module,
        v: ValueId,
        atom: AtomId,
        at: Inside,
        monoid: Monoid,
        loc: LocId,
    ) -> Result<ValueId> {
        let ty = self.graph.ty(v).clone();
        let neutral = monoid.identity(ty.dtype);
        if let Some((def, _)) = self.graph.def(v)
            && let Op::Constant(c) = &self.graph.op(def).op
            && module.constants.splat_value(c.id) == Some(neutral)
        {
            return Ok(v);
        }
        let key = (v, atom, neutral.to_bits());
        if let Some(&known) = self.masked.get(&key) {
            return Ok(known);
        }
        let (size, padded) = (self.problem.atoms.size(atom), self.size(atom));
        // The atom as a dimension of its own.
        let mut open: Shape = ty.shape.clone();
        open[at.dim] = at.outer;
        open.insert(at.dim + 1, padded);
        open.insert(at.dim + 2, at.inner);
        let is_alone = at.outer == 1 && at.inner == 1;
        let (shape, dim) = if is_alone { (ty.shape.clone(), at.dim) } else { (open, at.dim + 1) };
        let counted = TensorType { dtype: DType::I32, shape };
        let index = self.graph.add1(module, Iota { ty: counted.clone(), dim }, &[], loc)?;
        let limit = splat(module, &mut self.graph, counted, size as f64, loc)?;
        let inside = Compare { direction: Direction::Lt, total_order: false };
        let mut inside = self.graph.add1(module, inside, &[index, limit], loc)?;
        if !is_alone {
            inside = self.graph.add1(module, Reshape { shape: ty.shape.clone() }, &[inside], loc)?;
        }
        let other = splat(module, &mut self.graph, ty, neutral, loc)?;
        let made = self.graph.add1(module, Select::Select, &[inside, v, other], loc)?;
        self.masked.insert(key, made);
        Ok(made)
    }

    /// Indices of which one component is less than `size`.
    fn bound(
        &mut self,
        module: &mut Module,
        indices: ValueId,
        vector: usize,
        component: usize,
        size: usize,
        loc: LocId,
    ) -> Result<ValueId> {
        let ty = self.graph.ty(indices).clone();
        let last = size as f64 - 1.0;
        if vector >= ty.rank() || ty.shape[vector] == 1 {
            let last = splat(module, &mut self.graph, ty, last, loc)?;
            return Ok(self.graph.add1(module, BinaryKind::Minimum, &[indices, last], loc)?);
        }
        // The component alone, bounded, between those before and behind it.
        let mut parts = Vec::new();
        for (from, to) in [(0, component), (component, component + 1), (component + 1, ty.shape[vector])] {
            if from == to {
                continue;
            }
            let (mut start, mut limit) = (Shape::from_elem(0, ty.rank()), ty.shape.clone());
            (start[vector], limit[vector]) = (from, to);
            let stride = Shape::from_elem(1, ty.rank());
            let mut part =
                self.graph.add1(module, Slice::Static { start, limit, stride }, &[indices], loc)?;
            if from == component {
                let ty = self.graph.ty(part).clone();
                let last = splat(module, &mut self.graph, ty, last, loc)?;
                part = self.graph.add1(module, BinaryKind::Minimum, &[part, last], loc)?;
            }
            parts.push(part);
        }
        Ok(self.graph.add1(module, Concatenate { dim: vector }, &parts, loc)?)
    }
}

/// Where an atom lies in a dimension: what lies outside and inside of it there.
#[derive(Clone, Copy)]
struct Inside {
    dim: usize,
    outer: usize,
    inner: usize,
}
