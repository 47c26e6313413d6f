//! Building the segment graphs and the entry that calls them.

use super::cut::execution_order;
use super::nodes::Nodes;
use super::order::{Unit, ranks};
use super::relation::{Candidate, Relation};
use super::search::Found;
use super::segments::Rank;
use super::types::{ParamSource, Role, Segment, Template};
use crate::error::{PassError, Result};
use crate::simplify::values::share;
use msc_ir::constant::ConstData;
use msc_ir::op::Op;
use msc_ir::ops::broadcast::BroadcastInDim;
use msc_ir::ops::call::Call;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{ConstId, Graph, GraphId, LocId, Module, OpId, TensorType, ValueId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Shared expressions of constants that are rebuilt inside a segment, at most this many ops deep: a broadcast is
/// cheaper made again than passed.
const REBUILD_DEPTH: usize = 4;

/// The outlined entry.
pub(super) struct Outlined {
    pub entry: Graph,
    pub template: Template,
    /// Where each op of the old entry went, if it is still one of the entry's own.
    pub moved: FxHashMap<OpId, OpId>,
    pub prologue: Vec<OpId>,
}

/// One parameter of a segment: its value in every instance.
struct Param {
    values: Vec<Argument>,
    ty: TensorType,
    source: ParamSource,
}

/// What a call passes.
#[derive(Clone, Copy)]
enum Argument {
    Value(ValueId),
    /// A scalar constant: a splat that differs from instance to instance is passed as a scalar.
    Scalar(ConstId),
}

struct Built {
    graph: Graph,
    params: Vec<Param>,
    /// The chain members that are results.
    results: Vec<(u32, u32)>,
}

/// Outlines a template: adds its graphs to the module and returns the new entry.
pub(super) fn outline(
    module: &mut Module,
    nodes: &Nodes<'_>,
    same: &[GraphId],
    found: &Found,
    name: &str,
) -> Result<Outlined> {
    let candidate = Candidate::new(nodes, &found.chains, found.range).restricted(&found.rank);
    let ranks = ranks(&found.rank);
    let roles = roles(&ranks, &found.recurrent);
    let cx = Context { nodes, candidate: &candidate, found, ranks: &ranks };
    let results = cx.results();
    let mut built = Vec::new();
    for (&rank, role) in ranks.keys().zip(&roles) {
        let graph = Graph::new(format!("{name}_{}", role.name()));
        built.push(Builder::build(&cx, module, rank, &results, graph)?);
    }
    let mut segments: Vec<Segment> = Vec::new();
    for (b, &role) in built.iter_mut().zip(&roles) {
        let graph = module.add_graph(share(&b.graph, same)?);
        let params = b.params.iter().map(|p| p.source).collect();
        segments.push(Segment { graph, role, calls: Vec::new(), params });
    }
    let (entry, moved, prologue) = entry(module, &cx, &built, &mut segments)?;
    let template = Template { name: name.to_string(), segments, instances: found.range.instances() };
    Ok(Outlined { entry, template, moved, prologue })
}

/// Recurrences say which way a segment runs; a segment without one is an update if it waits for all layers.
fn roles(ranks: &BTreeMap<Rank, usize>, recurrent: &[Rank]) -> Vec<Role> {
    let mut behind = false;
    ranks
        .keys()
        .map(|r| {
            let role = match (recurrent.contains(r), r.1 % 2) {
                (true, 0) => Role::Forward,
                (true, _) => Role::Backward,
                (false, _) if behind || r.0 > 0 => Role::Update,
                (false, _) => Role::Forward,
            };
            behind |= role == Role::Backward;
            role
        })
        .collect()
}

struct Context<'a, 'b, 'g> {
    nodes: &'a Nodes<'g>,
    candidate: &'a Candidate<'b, 'g>,
    found: &'a Found,
    ranks: &'a BTreeMap<Rank, usize>,
}

impl Context<'_, '_, '_> {
    fn instances(&self) -> std::ops::RangeInclusive<i32> {
        self.found.range.low..=self.found.range.high
    }

    fn rank(&self, chain: u32) -> Option<Rank> {
        self.found.rank[chain as usize]
    }

    fn execution_order(&self, rank: Rank) -> Vec<u32> {
        execution_order(self.candidate, &self.found.rank, rank)
    }

    /// Results of each segment: what anything but the same instance of the segment uses, in any instance.
    fn results(&self) -> Vec<Vec<(u32, u32)>> {
        let (nodes, candidate) = (self.nodes, self.candidate);
        let mut leaves: BTreeSet<(u32, u32)> = BTreeSet::new();
        for c in candidate.chosen() {
            for j in 0..candidate.chains.links.count(c) {
                if let Relation::Chain { chain, distance, result } = candidate.relation(c, j)
                    && (distance != 0 || self.rank(chain) != self.rank(c))
                {
                    leaves.insert((chain, result));
                }
            }
        }
        let outside = candidate.outside();
        let used = outside.iter().flat_map(|&n| nodes.operands(n).iter().map(|v| (v.producer, v.result)));
        let given = nodes.graph.results().iter().map(|&v| nodes.producer(v));
        leaves.extend(used.chain(given).filter_map(|(n, r)| Some((candidate.slot(n)?.chain, r))));
        let of = |&rank: &Rank| -> Vec<(u32, u32)> {
            let counted = |c: u32| {
                let count = nodes.results(candidate.chains.member(c, self.found.range.low)).len() as u32;
                (0..count).map(move |r| (c, r))
            };
            let all = self.execution_order(rank).into_iter().flat_map(counted);
            all.filter(|k| leaves.contains(k)).collect()
        };
        self.ranks.keys().map(of).collect()
    }
}

struct Builder<'a, 'b, 'c, 'g> {
    cx: &'a Context<'b, 'c, 'g>,
    rank: Rank,
    /// Results of all segments, by index.
    all_results: &'a [Vec<(u32, u32)>],
    graph: Graph,
    params: Vec<Param>,
    /// Parameters by their values' numbers.
    by_numbers: FxHashMap<Vec<u32>, ValueId>,
    /// Values of the graph: results of chains.
    inner: FxHashMap<(u32, u32), ValueId>,
    /// Shared values rebuilt inside, by number.
    rebuilt: FxHashMap<u32, ValueId>,
}

impl<'a, 'b, 'c, 'g> Builder<'a, 'b, 'c, 'g> {
    fn build(
        cx: &'a Context<'b, 'c, 'g>,
        module: &mut Module,
        rank: Rank,
        all_results: &'a [Vec<(u32, u32)>],
        graph: Graph,
    ) -> Result<Built> {
        let mut b = Builder {
            cx,
            rank,
            all_results,
            graph,
            params: Vec::new(),
            by_numbers: FxHashMap::default(),
            inner: FxHashMap::default(),
            rebuilt: FxHashMap::default(),
        };
        let nodes = cx.nodes;
        for chain in cx.execution_order(rank) {
            let head = cx.candidate.chains.member(chain, cx.found.range.low);
            let Some(data) = nodes.op(head) else { continue };
            let mut operands = Vec::with_capacity(data.operands.len());
            for index in 0..data.operands.len() {
                operands.push(b.operand(module, chain, index)?);
            }
            let types = data.results.iter().map(|&r| nodes.graph.ty(r).clone());
            let results = b.graph.add_typed(data.op.clone(), &operands, types, data.loc);
            for (r, v) in results.into_iter().enumerate() {
                b.inner.insert((chain, r as u32), v);
            }
        }
        let results = all_results[cx.ranks[&rank]].clone();
        let values = results
            .iter()
            .map(|k| b.inner.get(k).copied().ok_or_else(|| broken("a result is not computed")))
            .collect::<Result<_>>()?;
        b.graph.set_results(values);
        Ok(Built { graph: b.graph, params: b.params, results })
    }

    fn operand(&mut self, module: &mut Module, chain: u32, index: usize) -> Result<ValueId> {
        let cx = self.cx;
        let source = match cx.candidate.relation(chain, index) {
            Relation::Chain { chain: c, distance, result } => {
                if distance == 0 && cx.rank(c) == Some(self.rank) {
                    let v = self.inner.get(&(c, result)).copied();
                    return v.ok_or_else(|| broken("an op comes before its operand"));
                }
                let segment = cx.rank(c).map(|r| cx.ranks[&r]).unwrap_or(0);
                let at = self.all_results[segment].iter().position(|&k| k == (c, result));
                let result = at.ok_or_else(|| broken("a value between segments is no result"))?;
                match distance {
                    0 => ParamSource::FromSegment { segment, result },
                    offset => ParamSource::Carry { segment, result, offset },
                }
            }
            _ => ParamSource::Instance,
        };
        let value = |i| cx.nodes.operands(cx.candidate.chains.member(chain, i))[index].value;
        let values: Vec<ValueId> = cx.instances().map(value).collect();
        if cx.candidate.is_shared(chain, index) {
            return self.shared(&values, REBUILD_DEPTH);
        }
        self.param(module, values, source)
    }

    /// A value that all instances share: rebuilt if it is cheap, else a parameter.
    fn shared(&mut self, values: &[ValueId], depth: usize) -> Result<ValueId> {
        let nodes = self.cx.nodes;
        let number = nodes.number[values[0].0 as usize];
        if let Some(&v) = self.rebuilt.get(&number) {
            return Ok(v);
        }
        let cheap = |op: &Op| match op {
            Op::Constant(_) | Op::Iota(_) => true,
            Op::Broadcast(_) | Op::Reshape(_) => depth > 0,
            _ => false,
        };
        let rebuilt = match nodes.op(nodes.producer(values[0]).0) {
            Some(data) if cheap(&data.op) => {
                let mut operands = Vec::new();
                for &v in &data.operands {
                    operands.push(self.shared(&vec![v; values.len()], depth.saturating_sub(1))?);
                }
                let types = data.results.iter().map(|&r| nodes.graph.ty(r).clone());
                self.graph.add_typed(data.op.clone(), &operands, types, data.loc)[0]
            }
            _ => self.add_param(
                vec![number; values.len()],
                values.iter().map(|&v| Argument::Value(v)).collect(),
                nodes.graph.ty(values[0]).clone(),
                ParamSource::Shared,
            ),
        };
        self.rebuilt.insert(number, rebuilt);
        Ok(rebuilt)
    }

    /// A parameter that differs from instance to instance.
    fn param(&mut self, module: &mut Module, values: Vec<ValueId>, source: ParamSource) -> Result<ValueId> {
        let nodes = self.cx.nodes;
        let ty = nodes.graph.ty(values[0]).clone();
        let numbers: Vec<u32> = values.iter().map(|v| nodes.number[v.0 as usize]).collect();
        if let Some(&v) = self.by_numbers.get(&numbers) {
            return Ok(v);
        }
        if ty.rank() > 0
            && let Some(scalars) = splats(module, nodes, &values)
        {
            let scalar = TensorType::scalar(ty.dtype);
            let arguments = scalars.into_iter().map(Argument::Scalar).collect();
            let loc = nodes.op(nodes.producer(values[0]).0).map_or(LocId::UNKNOWN, |d| d.loc);
            let p = self.add_param(Vec::new(), arguments, scalar, source);
            let spread = BroadcastInDim::scalar(&ty.shape).into();
            let v = self.graph.add_typed(spread, &[p], vec![ty], loc)[0];
            self.by_numbers.insert(numbers, v);
            return Ok(v);
        }
        Ok(self.add_param(numbers, values.into_iter().map(Argument::Value).collect(), ty, source))
    }

    fn add_param(
        &mut self,
        numbers: Vec<u32>,
        values: Vec<Argument>,
        ty: TensorType,
        source: ParamSource,
    ) -> ValueId {
        let v = self.graph.add_param(ty.clone());
        self.params.push(Param { values, ty, source });
        if !numbers.is_empty() {
            self.by_numbers.insert(numbers, v);
        }
        v
    }
}

/// The scalars of values that are splat constants, all of them.
fn splats(module: &mut Module, nodes: &Nodes<'_>, values: &[ValueId]) -> Option<Vec<ConstId>> {
    let mut out = Vec::with_capacity(values.len());
    for &v in values {
        let Some(Op::Constant(c)) = nodes.op(nodes.producer(v).0).map(|d| &d.op) else { return None };
        let held = module.constants.get(c.id);
        let ConstData::Splat(element) = held.data.clone() else { return None };
        let ty = TensorType::scalar(held.ty.dtype);
        out.push(module.constants.intern_splat_bytes(ty, &element));
    }
    Some(out)
}

/// For each node of the old entry whether the new one needs it.
fn needed(cx: &Context<'_, '_, '_>, built: &[Built]) -> Vec<bool> {
    let (nodes, candidate, order) = (cx.nodes, cx.candidate, &cx.found.order);
    let mut needed = vec![false; nodes.len()];
    nodes.graph.results().iter().for_each(|&r| needed[nodes.producer(r).0 as usize] = true);
    for unit in order.units.iter().rev() {
        match *unit {
            Unit::Op(node) if needed[node as usize] => {
                nodes.operands(node).iter().for_each(|v| needed[v.producer as usize] = true);
            }
            Unit::Op(_) => {}
            Unit::Call { segment, instance } => {
                for p in &built[segment].params {
                    if let Argument::Value(v) = p.values[instance] {
                        needed[nodes.producer(order.representatives.of(candidate, v)).0 as usize] = true;
                    }
                }
            }
        }
    }
    needed
}

type Entry = (Graph, FxHashMap<OpId, OpId>, Vec<OpId>);

/// The entry with calls for ops; fills in the segments' calls.
fn entry(
    module: &mut Module,
    cx: &Context<'_, '_, '_>,
    built: &[Built],
    segments: &mut [Segment],
) -> Result<Entry> {
    let (nodes, candidate) = (cx.nodes, cx.candidate);
    let old = nodes.graph;
    let representatives = &cx.found.order.representatives;
    let needed = needed(cx, built);
    let mut new = Graph::new(old.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; old.value_count()];
    for &p in old.params() {
        map[p.0 as usize] = Some(new.add_param(old.ty(p).clone()));
    }
    let mut scalars: FxHashMap<ConstId, ValueId> = FxHashMap::default();
    let mut moved = FxHashMap::default();
    let mut prologue = Vec::new();
    for s in segments.iter_mut() {
        s.calls = vec![OpId(u32::MAX); cx.found.range.instances()];
    }
    for (at, unit) in cx.found.order.units.iter().enumerate() {
        match *unit {
            // Copies of what is shared are dead.
            Unit::Op(node) if !needed[node as usize] => {}
            Unit::Op(node) => {
                new.copy_op(old, OpId(node), &mut map)?;
                let id = OpId(new.op_count() as u32 - 1);
                moved.insert(OpId(node), id);
                if at < cx.found.order.prologue {
                    prologue.push(id);
                }
            }
            Unit::Call { segment, instance } => {
                let b = &built[segment];
                let mut operands = Vec::with_capacity(b.params.len());
                for p in &b.params {
                    operands.push(match p.values[instance] {
                        Argument::Value(v) => map[representatives.of(candidate, v).0 as usize]
                            .ok_or_else(|| broken("a call comes before its operand"))?,
                        Argument::Scalar(c) => *scalars.entry(c).or_insert_with(|| {
                            new.add_typed(
                                ConstantOp { id: c }.into(),
                                &[],
                                vec![p.ty.clone()],
                                LocId::UNKNOWN,
                            )[0]
                        }),
                    });
                }
                let graph = segments[segment].graph;
                let i = cx.found.range.low + instance as i32;
                let types = module.graph(graph).result_types();
                let loc = call_location(cx, b, i);
                let results = new.add_typed(Call { graph }.into(), &operands, types, loc);
                segments[segment].calls[instance] = OpId(new.op_count() as u32 - 1);
                for (&(chain, r), v) in b.results.iter().zip(results) {
                    map[nodes.results(candidate.chains.member(chain, i))[r as usize].0 as usize] = Some(v);
                }
            }
        }
    }
    let results = old
        .results()
        .iter()
        .map(|r| map[r.0 as usize].ok_or_else(|| broken("a result of the entry is not computed")))
        .collect::<Result<_>>()?;
    new.set_results(results);
    Ok((new, moved, prologue))
}

/// A call is where the op of its first result is.
fn call_location(cx: &Context<'_, '_, '_>, b: &Built, instance: i32) -> LocId {
    b.results
        .first()
        .and_then(|&(chain, _)| cx.nodes.op(cx.candidate.chains.member(chain, instance)))
        .map_or(LocId::UNKNOWN, |d| d.loc)
}

fn broken(message: &str) -> PassError {
    PassError::Broken { pass: "template", message: message.to_string() }
}
