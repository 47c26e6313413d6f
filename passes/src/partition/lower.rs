//! Rewrites the entry and the graphs it calls at local sizes, with collectives.

use super::assign::{Assignment, Problem};
use super::sums::{inner_nodes, leaves};
use super::{CollectiveReport, assign};
use crate::cost::DeviceModel;
use crate::error::{PassError, Result};
use msc_ir::factor::{FactorKind, Start, Starts};
use msc_ir::graph::{OpId, ValueId};
use msc_ir::module::AxisId;
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::ops::constant::ConstantOp;
use msc_ir::ops::while_loop::trip_count;
use msc_ir::{DType, Graph, GraphId, LocId, Module, Monoid, Op, Operation, TensorType};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The program for one rank.
#[derive(Debug)]
pub struct Lowered {
    /// The module.
    pub module: Module,
    /// Its collectives.
    pub collectives: Vec<CollectiveReport>,
    /// Predicted time of a step, in picoseconds.
    pub predicted_ps: u64,
}

/// Lowers a module under a layout.
///
/// # Errors
/// Where an op has no local form; that is a bug in its factor rule.
pub fn lower(
    module: &Module,
    problem: &Problem,
    assignment: &Assignment,
    device: &DeviceModel,
) -> Result<Lowered> {
    let mut out = module.clone();
    let mut collectives = Vec::new();
    let mut partial_results = PartialResults::new();
    let runs = executions(module, problem.entry);
    let mut predicted = 0u64;
    for id in msc_ir::ops::call::reachable(module) {
        let Some(&executed) = runs.get(&id) else { continue };
        let Some(scope) = problem.atoms.scope_of(id) else { continue };
        let source = module.graph(id);
        let mut l = Lowering {
            problem,
            assignment,
            device,
            scope,
            source,
            graph: Graph::new(source.name.clone()),
            locals: vec![None; source.value_count()],
            positions: BTreeMap::new(),
            collectives: Vec::new(),
            partial_results: &partial_results,
            executed,
            ps: 0,
        };
        // The outside and the carries of a loop are whole; a caller may combine several partial results at once.
        let left = l.run(&mut out, !called_only(module, id))?;
        let Lowering { graph, collectives: mut made, ps, .. } = l;
        partial_results.insert(id, left);
        predicted = predicted.saturating_add(ps.saturating_mul(executed as u64));
        collectives.append(&mut made);
        // Under the same id: calls of it now find the local signature.
        out.set_graph(id, graph);
    }
    let g = module.graph(problem.entry);
    let entry = &mut out.entries[0];
    for (p, &v) in entry.params.iter_mut().zip(g.params()) {
        p.sharding = problem.sharding(g, v, assignment);
    }
    for (r, &v) in entry.results.iter_mut().zip(g.results()) {
        r.sharding = problem.sharding(g, v, assignment);
    }
    out.drop_unreachable_graphs();
    Ok(Lowered { module: out, collectives, predicted_ps: predicted })
}

/// Whether a graph is run by calls only: not as an entry, and not as part of a loop or branch.
fn called_only(module: &Module, graph: GraphId) -> bool {
    let run_by_op =
        |g: &Graph| g.ops().any(|(_, o)| !matches!(o.op, Op::Call(_)) && o.op.callees().contains(&graph));
    !module.entries.iter().any(|e| e.graph == graph) && !module.graphs().any(|(_, g)| run_by_op(g))
}

/// How often one run of the entry runs each graph it calls. Loops count by their trips where these are known.
fn executions(module: &Module, entry: GraphId) -> BTreeMap<GraphId, usize> {
    let mut runs = BTreeMap::from([(entry, 1usize)]);
    let mut order = msc_ir::ops::call::reachable(module);
    order.reverse();
    for g in order {
        let Some(&mine) = runs.get(&g) else { continue };
        for (id, o) in module.graph(g).ops() {
            let trips = trip_count(module, module.graph(g), id).unwrap_or(1) as usize;
            for callee in o.op.callees() {
                *runs.entry(callee).or_insert(0) += mine.saturating_mul(trips);
            }
        }
    }
    runs
}

/// In which way a value is still partial.
#[derive(Clone, Debug)]
struct Partial {
    monoid: Monoid,
    axes: Axes,
    /// The op that made it so, in words.
    because: String,
    /// Where that op is.
    loc: LocId,
}

/// A value in the local graph.
#[derive(Clone, Debug)]
struct Local {
    value: ValueId,
    partial: Option<Partial>,
}

/// What each result of each lowered graph leaves to its caller to combine.
type PartialResults = BTreeMap<GraphId, Vec<Option<Partial>>>;

struct Lowering<'a> {
    problem: &'a Problem,
    assignment: &'a Assignment,
    device: &'a DeviceModel,
    scope: usize,
    source: &'a Graph,
    graph: Graph,
    locals: Vec<Option<Local>>,
    /// The rank's shard start per axis and local size.
    positions: BTreeMap<(AxisId, usize), ValueId>,
    collectives: Vec<CollectiveReport>,
    partial_results: &'a PartialResults,
    executed: usize,
    ps: u64,
}

impl Lowering<'_> {
    fn run(&mut self, module: &mut Module, all_whole: bool) -> Result<Vec<Option<Partial>>> {
        for &p in self.source.params() {
            let t = self.local_type(p, module);
            let value = self.graph.add_param(t);
            self.locals[p.0 as usize] = Some(Local { value, partial: None });
        }
        let inner = inner_nodes(self.source);
        let order: Vec<OpId> = self.source.order().to_vec();
        for id in order {
            if !inner[id.0 as usize] {
                self.op(module, id, &inner)?;
            }
        }
        let (mut results, mut left) = (Vec::new(), Vec::new());
        for &r in self.source.results() {
            let local = self.local(r)?;
            if all_whole || local.partial.is_none() {
                results.push(self.whole(module, r, None)?);
                left.push(None);
            } else {
                results.push(local.value);
                left.push(local.partial);
            }
        }
        self.graph.set_results(results);
        Ok(left)
    }

    fn broken(&self, message: impl Into<String>) -> PassError {
        PassError::Broken { pass: "partition", message: format!("@{}: {}", self.source.name, message.into()) }
    }

    fn local_type(&self, v: ValueId, module: &Module) -> TensorType {
        self.problem.local(self.scope, self.source, v, self.assignment, &module.mesh)
    }

    fn local(&self, v: ValueId) -> Result<Local> {
        self.locals[v.0 as usize]
            .clone()
            .ok_or_else(|| self.broken(format!("value {} has no local form", v.0)))
    }

    fn op(&mut self, module: &mut Module, id: OpId, inner: &[bool]) -> Result<()> {
        if self.sum(module, id, inner)? {
            return Ok(());
        }
        // A tree without partial leaves keeps its shape: its inner nodes are built here, deepest first.
        let mut tree = vec![id];
        let mut at = 0;
        while at < tree.len() {
            let deeper = self.source.op(tree[at]).operands.iter().filter_map(|&v| self.source.def(v));
            tree.extend(deeper.map(|(d, _)| d).filter(|d| inner[d.0 as usize]));
            at += 1;
        }
        for &op in tree.iter().rev() {
            self.plain(module, op)?;
        }
        Ok(())
    }

    /// Lowers an addition with partial leaves; false if `id` is no such op.
    fn sum(&mut self, module: &mut Module, id: OpId, inner: &[bool]) -> Result<bool> {
        let data = self.source.op(id);
        if !matches!(&data.op, Op::Binary(b) if b.kind == BinaryKind::Add) {
            return Ok(false);
        }
        let loc = data.loc;
        let mut groups: BTreeMap<Axes, (Vec<ValueId>, Partial)> = BTreeMap::new();
        let mut rest = Vec::new();
        for v in leaves(self.source, id, inner) {
            match self.local(v)? {
                Local { value, partial: Some(p) } if p.monoid == Monoid::Sum => {
                    groups.entry(p.axes.clone()).or_insert((Vec::new(), p)).0.push(value);
                }
                _ => rest.push(v),
            }
        }
        if groups.is_empty() {
            return Ok(false);
        }
        let only = rest.is_empty() && groups.len() == 1;
        let mut terms = Vec::new();
        let mut last = None;
        for (values, partial) in groups.into_values() {
            let mut acc = values[0];
            for &v in &values[1..] {
                acc = self.graph.add1(module, BinaryKind::Add, &[acc, v], loc)?;
            }
            if !only {
                acc = self.combine(module, acc, &partial, Some(id))?;
            }
            last = Some(partial);
            terms.push(acc);
        }
        for v in rest {
            let w = self.whole(module, v, Some(id))?;
            terms.push(w);
        }
        let mut acc = terms[0];
        for &t in &terms[1..] {
            acc = self.graph.add1(module, BinaryKind::Add, &[acc, t], loc)?;
        }
        let partial = if only { last } else { None };
        self.locals[data.results[0].0 as usize] = Some(Local { value: acc, partial });
        Ok(true)
    }

    fn plain(&mut self, module: &mut Module, id: OpId) -> Result<()> {
        let data = self.source.op(id);
        let (op, loc) = (data.op.clone(), data.loc);
        // Shape changes carry a partial value along; everything else needs it whole.
        let carries = matches!(op, Op::Reshape(_) | Op::Permute(_));
        let carried = if carries { self.local(data.operands[0])?.partial } else { None };
        let mut operands: SmallVec<[ValueId; 4]> = SmallVec::new();
        for &v in &data.operands {
            let local = match &carried {
                Some(_) => self.local(v)?.value,
                None => self.whole(module, v, Some(id))?,
            };
            operands.push(local);
        }
        let results: Vec<TensorType> = data.results.iter().map(|&r| self.local_type(r, module)).collect();
        let made = match &op {
            _ if !op.callees().is_empty() && !matches!(op, Op::Fused(_)) => {
                self.graph.add(module, op.clone(), &operands, loc)?
            }
            _ => {
                let starts = self.starts(module, id, loc)?;
                let from = self.graph.op_count();
                let made = op.build_shard(module, &mut self.graph, &operands, &results, &starts, loc)?;
                self.predict(from);
                made
            }
        };
        for (i, (&r, &v)) in data.results.iter().zip(&made).enumerate() {
            if *self.graph.ty(v) != results[i] {
                return Err(self.broken(format!(
                    "{} gives {} where its rule says {}",
                    op.name(),
                    self.graph.ty(v),
                    results[i]
                )));
            }
            let partial = match &carried {
                Some(p) => Some(p.clone()),
                None => match &op {
                    Op::Call(c) => {
                        self.partial_results.get(&c.graph).and_then(|r| r.get(i).cloned()).flatten()
                    }
                    _ => self.reduced(id, i)?.map(|(monoid, axes)| self.partial(module, id, monoid, axes)),
                },
            };
            self.locals[r.0 as usize] = Some(Local { value: v, partial });
        }
        Ok(())
    }

    /// Adds the predicted time of the ops built since `from`.
    fn predict(&mut self, from: usize) {
        for op in from..self.graph.op_count() {
            let data = self.graph.op(OpId(op as u32));
            let operands: Vec<&TensorType> = data.operands.iter().map(|&v| self.graph.ty(v)).collect();
            let results: Vec<&TensorType> = data.results.iter().map(|&v| self.graph.ty(v)).collect();
            self.ps = self.ps.saturating_add(self.device.op_ps(&data.op, &operands, &results));
        }
    }

    /// The axes over which result `r` of an op comes out partial.
    fn reduced(&self, id: OpId, r: usize) -> Result<Option<(Monoid, Axes)>> {
        let rule = self.problem.atoms.rule_in(self.scope, id);
        let mut out: Option<(Monoid, Axes)> = None;
        for (f, factor) in rule.factors.iter().enumerate() {
            let monoid = match factor.kind {
                FactorKind::Reduce(m) => m,
                FactorKind::Range => Monoid::Sum,
                _ => continue,
            };
            if rule.in_result(r, f) {
                continue;
            }
            for atom in self.problem.atoms.factor_in(self.scope, id, f) {
                let Some(&axis) = self.assignment.atoms.get(&atom) else { continue };
                match &mut out {
                    None => out = Some((monoid, Axes::from_slice(&[axis]))),
                    Some((m, axes)) if *m == monoid => {
                        if !axes.contains(&axis) {
                            axes.push(axis);
                            axes.sort();
                        }
                    }
                    Some(_) => return Err(self.broken("an op reduces split dimensions by two monoids")),
                }
            }
        }
        Ok(out)
    }

    /// Where this rank's shard of each split factor of an op starts.
    fn starts(&mut self, module: &mut Module, id: OpId, loc: LocId) -> Result<Starts> {
        let rule = self.problem.atoms.rule_in(self.scope, id);
        let mut out = Starts::new();
        let mut wanted = Vec::new();
        for (f, factor) in rule.factors.iter().enumerate() {
            let reduced = matches!(factor.kind, FactorKind::Reduce(_));
            let needs = matches!(factor.kind, FactorKind::Offset | FactorKind::Range)
                || (reduced && matches!(self.source.op(id).op, Op::Scatter(_)));
            let atoms = self.problem.atoms.factor_in(self.scope, id, f);
            if let Some(&axis) = atoms.first().and_then(|a| self.assignment.atoms.get(a))
                && needs
            {
                wanted.push((f, axis, factor.size, reduced));
            }
        }
        for (f, axis, global, reduced) in wanted {
            let size = global / module.mesh.size(axis);
            let value = self.position(module, axis, size, loc)?;
            out.insert(f, Start { value, global, reduced });
        }
        Ok(out)
    }

    /// The rank's coordinate along an axis times `size`, an `i32[]`.
    fn position(&mut self, module: &mut Module, axis: AxisId, size: usize, loc: LocId) -> Result<ValueId> {
        if let Some(&v) = self.positions.get(&(axis, size)) {
            return Ok(v);
        }
        let index = self.graph.add1(module, Collective::AxisIndex { axis }, &[], loc)?;
        let id = module.constants.intern_splat(TensorType::scalar(DType::I32), size as f64);
        let by = self.graph.add1(module, ConstantOp { id }, &[], loc)?;
        let v = self.graph.add1(module, BinaryKind::Multiply, &[index, by], loc)?;
        self.positions.insert((axis, size), v);
        Ok(v)
    }

    /// The whole form of a value: combined once, where it is first needed.
    fn whole(&mut self, module: &mut Module, v: ValueId, by: Option<OpId>) -> Result<ValueId> {
        let local = self.local(v)?;
        let Some(partial) = local.partial else { return Ok(local.value) };
        let value = self.combine(module, local.value, &partial, by)?;
        self.locals[v.0 as usize] = Some(Local { value, partial: None });
        Ok(value)
    }

    fn place(&self, module: &Module, op: OpId) -> String {
        let d = self.source.op(op);
        format!("{} at {}", d.op.name(), module.locations.describe(d.loc))
    }

    /// What op `id` leaves partial.
    fn partial(&self, module: &Module, id: OpId, monoid: Monoid, axes: Axes) -> Partial {
        let split = self.split_names(module, id).join(", ");
        let because = format!("{} reduces a split dimension: {split}", self.place(module, id));
        Partial { monoid, axes, because, loc: self.source.op(id).loc }
    }

    fn combine(
        &mut self,
        module: &mut Module,
        v: ValueId,
        partial: &Partial,
        needed_by: Option<OpId>,
    ) -> Result<ValueId> {
        let Partial { monoid, axes, because, loc } = partial;
        let op = Collective::AllReduce { monoid: *monoid, axes: axes.clone() };
        let ty = self.graph.ty(v).clone();
        let n: usize = axes.iter().map(|&a| module.mesh.size(a)).product();
        let predicted_ps = self.device.collective_ps(&op, &ty, n);
        self.ps = self.ps.saturating_add(predicted_ps);
        let needed = needed_by.map(|o| format!("{} needs it whole", self.place(module, o)));
        self.collectives.push(CollectiveReport {
            graph: self.source.name.clone(),
            kind: op.name(),
            monoid: *monoid,
            axes: axes.iter().map(|a| module.mesh.axes[a.0 as usize].name.clone()).collect(),
            bytes: ty.bytes() as u64,
            executed: self.executed,
            predicted_ps,
            partial_because: because.clone(),
            whole_because: needed.unwrap_or_else(|| "it is a result of the program".into()),
        });
        Ok(self.graph.add1(module, op, &[v], *loc)?)
    }

    /// The split dimensions that an op reduces, by the parameters that have them.
    fn split_names(&self, module: &Module, id: OpId) -> Vec<String> {
        let rule = self.problem.atoms.rule_in(self.scope, id);
        let mut out = Vec::new();
        for (f, factor) in rule.factors.iter().enumerate() {
            if !matches!(factor.kind, FactorKind::Reduce(_) | FactorKind::Range) {
                continue;
            }
            for atom in self.problem.atoms.factor_in(self.scope, id, f) {
                if self.assignment.atoms.contains_key(&atom) {
                    let names = assign::Problem::parameters_with(self.problem, module, atom);
                    out.push(names.first().cloned().unwrap_or_else(|| format!("size {}", factor.size)));
                }
            }
        }
        out
    }
}
