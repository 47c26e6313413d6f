//! Rewrites the entry and the graphs it calls at the sizes of one rank along one axis, with collectives.

mod carries;
mod partial;
mod reshard;

use super::SplitReport;
use super::facts::{Draft, Fact, Facts, op_at};
use super::problem::{Problem, Split};
use super::sums::{inner_nodes, leaves, tree};
use crate::error::{PassError, Result};
use msc_ir::factor::{FactorKind, Start, Starts};
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::call::{Call, executions};
use msc_ir::ops::collective::Collective;
use msc_ir::ops::constant::splat;
use msc_ir::ops::slice::Slice;
use msc_ir::ops::while_loop::While;
use msc_ir::{DType, Graph, GraphId, LocId, Module, Monoid, Op, Operation, TensorType};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A draft that was split along an axis, and what was split.
#[derive(Debug)]
pub struct Done {
    /// Local for the axis too.
    pub draft: Draft,
    /// In words.
    pub splits: Vec<SplitReport>,
    /// As atoms of the draft that it was made of.
    pub split: Split,
}

impl Done {
    /// What a split makes of a draft.
    ///
    /// # Errors
    /// As [`lower`].
    pub fn by(draft: &Draft, problem: &Problem, split: &Split) -> Result<Done> {
        let splits = problem.describe(&draft.module, split);
        Ok(Done { draft: lower(draft, problem, split)?, splits, split: split.clone() })
    }
}

/// What an axis can do.
#[derive(Debug)]
pub enum Next {
    /// It was split.
    Done(Box<Done>),
    /// The first so many of its ranks can be split along what not all of them can.
    Part(usize),
    /// There is nothing to split.
    Nothing,
}

/// Lowers a draft under a split.
///
/// # Errors
/// Where an op has no local form; that is a bug in its factor rule.
pub fn lower(draft: &Draft, problem: &Problem, split: &Split) -> Result<Draft> {
    let module = &draft.module;
    let mut out = module.clone();
    let mut facts = Facts::new();
    let mut partial_results = PartialResults::new();
    let runs = executions(module, problem.entry);
    let sums = carries::sums(module);
    for id in msc_ir::ops::call::reachable(module) {
        if !runs.contains_key(&id) {
            continue;
        }
        let Some(scope) = problem.atoms.scope_of(id) else { continue };
        let source = module.graph(id);
        let mut l = Lowering {
            problem,
            split,
            known: &draft.facts,
            id,
            scope,
            source,
            graph: Graph::new(source.name.clone()),
            locals: vec![None; source.value_count()],
            positions: BTreeMap::new(),
            facts: BTreeMap::new(),
            partial_results: &partial_results,
            sums: &sums,
        };
        // The outside is whole, and so are the carries of a loop that are no sums; a caller may combine several partial
        // results at once.
        let left = l.run(&mut out, called_only(module, id))?;
        let Lowering { mut graph, facts: made, .. } = l;
        drop_unused(&mut graph);
        partial_results.insert(id, left);
        facts.extend(made.into_iter().map(|(v, f)| ((id, v), f)));
        // Under the same id: calls of it now find the local signature.
        out.set_graph(id, graph);
    }
    let g = module.graph(problem.entry);
    let entry = &mut out.entries[0];
    for (p, &v) in entry.params.iter_mut().zip(g.params()) {
        p.sharding = problem.sharding(v, split, &p.sharding);
    }
    for (r, &v) in entry.results.iter_mut().zip(g.results()) {
        r.sharding = problem.sharding(v, split, &r.sharding);
    }
    Ok(Draft { module: out, facts })
}

/// Drops what a rewrite has left without a use.
pub(super) fn drop_unused(g: &mut Graph) {
    let is_result = g.result_table();
    let mut dead = vec![false; g.op_count()];
    let mut uses: Vec<usize> = (0..g.value_count() as u32).map(|v| g.value(ValueId(v)).uses.len()).collect();
    for &op in g.order().iter().rev() {
        let data = g.op(op);
        if data.results.iter().all(|r| uses[r.0 as usize] == 0 && !is_result[r.0 as usize]) {
            dead[op.0 as usize] = true;
            data.operands.iter().for_each(|v| uses[v.0 as usize] -= 1);
        }
    }
    if dead.contains(&true) {
        g.retain_ops(|op, _| !dead[op.0 as usize]);
    }
}

/// Whether a graph is run by calls only: not as an entry, and not as part of a loop or branch.
pub(super) fn called_only(module: &Module, graph: GraphId) -> bool {
    let run_by_op =
        |g: &Graph| g.ops().any(|(_, o)| !matches!(o.op, Op::Call(_)) && o.op.callees().contains(&graph));
    !module.entries.iter().any(|e| e.graph == graph) && !module.graphs().any(|(_, g)| run_by_op(g))
}

/// In which way a value is still partial along the axis.
#[derive(Clone, Debug)]
struct Partial {
    monoid: Monoid,
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
    split: &'a Split,
    known: &'a Facts,
    id: GraphId,
    scope: usize,
    source: &'a Graph,
    graph: Graph,
    locals: Vec<Option<Local>>,
    /// The rank's shard start per local size.
    positions: BTreeMap<usize, ValueId>,
    /// Facts by the local values of collectives.
    facts: BTreeMap<ValueId, Fact>,
    partial_results: &'a PartialResults,
    /// Sums that loops carry.
    sums: &'a BTreeSet<(GraphId, usize)>,
}

impl Lowering<'_> {
    fn run(&mut self, module: &mut Module, may_be_partial: bool) -> Result<Vec<Option<Partial>>> {
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
        for (i, &r) in self.source.results().iter().enumerate() {
            let local = self.local(r)?;
            let may = may_be_partial || self.sums.contains(&(self.id, i));
            if !may || local.partial.is_none() {
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
        self.problem.local(self.scope, self.source, v, self.split, &module.mesh)
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
        for &op in tree(self.source, id, inner).iter().rev() {
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
        let (mut partial, mut terms, mut rest) = (None, Vec::new(), Vec::new());
        for v in leaves(self.source, id, inner) {
            match self.local(v)? {
                Local { value, partial: Some(p) } if p.monoid == Monoid::Sum => {
                    partial.get_or_insert(p);
                    terms.push(value);
                }
                _ => rest.push(v),
            }
        }
        let Some(found) = partial else { return Ok(false) };
        if let [carry] = rest[..]
            && self.is_sum(carry)
        {
            terms.insert(0, self.local(carry)?.value);
            rest.clear();
        }
        let mut acc = terms[0];
        for &v in &terms[1..] {
            acc = self.graph.add1(module, BinaryKind::Add, &[acc, v], loc)?;
        }
        let partial = rest.is_empty().then(|| found.clone());
        if !rest.is_empty() {
            acc = self.combine(module, acc, &found, Some(id))?;
        }
        for v in rest {
            let w = self.whole(module, v, Some(id))?;
            acc = self.graph.add1(module, BinaryKind::Add, &[acc, w], loc)?;
        }
        self.locals[data.results[0].0 as usize] = Some(Local { value: acc, partial });
        Ok(true)
    }

    fn plain(&mut self, module: &mut Module, id: OpId) -> Result<()> {
        let data = self.source.op(id);
        let (op, loc) = (data.op.clone(), data.loc);
        if matches!(op, Op::Reshard(_)) {
            return self.reshard(module, id);
        }
        if let Op::Collective(Collective::AllReduce { monoid, axes }) = &op
            && self.all_reduce(module, id, *monoid, axes)?
        {
            return Ok(());
        }
        // What only moves elements carries a partial value along; everything else needs it whole.
        let carries = match &op {
            _ if self.only_moves(id) => true,
            Op::Collective(c) => match c {
                Collective::AllGather { .. } | Collective::AllToAll { .. } => true,
                Collective::ReduceScatter { monoid, .. } => {
                    self.local(data.operands[0])?.partial.is_some_and(|p| p.monoid == *monoid)
                }
                _ => false,
            },
            _ => false,
        };
        let carried = match &op {
            Op::Slice(Slice::Update) => self.written(id)?,
            _ if carries => self.local(data.operands[0])?.partial.map(|p| (0, p)),
            _ => self.scaled(id)?,
        };
        let mut operands: SmallVec<[ValueId; 4]> = SmallVec::new();
        for (i, &v) in data.operands.iter().enumerate() {
            let local = match &carried {
                Some((at, _)) if *at == i => self.local(v)?.value,
                _ => self.whole(module, v, Some(id))?,
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
                op.build_shard(module, &mut self.graph, &operands, &results, &starts, loc)?
            }
        };
        for (i, (&r, &v)) in data.results.iter().zip(&made).enumerate() {
            self.keep_fact(r, v);
            if *self.graph.ty(v) != results[i] {
                return Err(self.broken(format!(
                    "{} gives {} where its rule says {}",
                    op.name(),
                    self.graph.ty(v),
                    results[i]
                )));
            }
            let partial = match &carried {
                Some((_, p)) => Some(p.clone()),
                None => match &op {
                    Op::Call(Call { graph }) | Op::While(While { body: graph, .. }) => {
                        self.partial_results.get(graph).and_then(|r| r.get(i).cloned()).flatten()
                    }
                    _ => self.reduced(id, i)?.map(|monoid| self.partial(module, id, monoid)),
                },
            };
            self.locals[r.0 as usize] = Some(Local { value: v, partial });
        }
        Ok(())
    }

    /// What is known of a collective holds of its local form.
    fn keep_fact(&mut self, source: ValueId, local: ValueId) {
        if let Some(f) = self.known.get(&(self.id, source)) {
            self.facts.insert(local, f.clone());
        }
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
            let outermost = atoms.first().is_some_and(|a| self.split.atoms.contains(a));
            if needs && self.is_split(id, f) {
                if !outermost {
                    return Err(self.broken(format!(
                        "{} has no start for its inner split",
                        self.source.op(id).op.name()
                    )));
                }
                wanted.push((f, factor.size, reduced));
            }
        }
        for (f, global, reduced) in wanted {
            let size = global / module.mesh.size(self.split.axis);
            let value = self.position(module, size, loc)?;
            out.insert(f, Start { value, global, reduced });
        }
        Ok(out)
    }

    /// The rank's coordinate along the axis times `size`, an `i32[]`.
    fn position(&mut self, module: &mut Module, size: usize, loc: LocId) -> Result<ValueId> {
        if let Some(&v) = self.positions.get(&size) {
            return Ok(v);
        }
        let index = self.graph.add1(module, Collective::AxisIndex { axis: self.split.axis }, &[], loc)?;
        let by = splat(module, &mut self.graph, TensorType::scalar(DType::I32), size as f64, loc)?;
        let v = self.graph.add1(module, BinaryKind::Multiply, &[index, by], loc)?;
        self.positions.insert(size, v);
        Ok(v)
    }

    fn place(&self, module: &Module, op: OpId) -> String {
        op_at(module, self.source, op)
    }
}
