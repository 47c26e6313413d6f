//! Which values are one position of all lanes: proof from their definitions.
//!
//! A tuple of values, one for each lane, is *tied* if they are one and the same value, if they are constants, or if ops
//! that are alike make them of tied operands, down to parameters of the graph; those are tied if all calls of the graph
//! pass tied values, and the entry's if they are of one type and kind. Results of a call are tied as the called graph's
//! are.

use super::super::lower::called_only;
use super::Bundle;
use super::batch::{self, columns};
use super::found::rows;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::{Graph, GraphId, Module, Op, TensorType, ValueDef};
use std::collections::{BTreeMap, BTreeSet};

/// How deep a proof may go. Layers of a template are some hundred ops deep.
const DEPTH: usize = 1000;

/// What a tuple of values is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tied {
    /// One value.
    Alike(ValueId),
    /// Constants.
    Numbers,
    /// A bundle.
    Bundle(usize),
}

/// What is known to be tied.
pub(super) struct Bundles<'a> {
    pub module: &'a Module,
    pub entry: GraphId,
    pub graphs: Vec<GraphId>,
    /// Number of lanes; 0 until a seed says so.
    pub lanes: usize,
    pub list: Vec<Bundle>,
    /// Numbers that lanes were found to differ by.
    pub numbers: Vec<Vec<i64>>,
    /// Per graph and value its bundle and lane.
    pub of: BTreeMap<GraphId, Vec<Option<(usize, usize)>>>,
    /// Per graph who calls it.
    sites: BTreeMap<GraphId, Vec<(GraphId, OpId)>>,
    /// Graphs whose parameters and results may change: run by calls only, or the entry.
    open: BTreeSet<GraphId>,
    apart: &'a BTreeSet<usize>,
    depth: usize,
}

impl<'a> Bundles<'a> {
    pub fn new(
        module: &'a Module,
        entry: GraphId,
        graphs: &[GraphId],
        apart: &'a BTreeSet<usize>,
    ) -> Bundles<'a> {
        let mut sites: BTreeMap<GraphId, Vec<(GraphId, OpId)>> = BTreeMap::new();
        for &id in graphs {
            for (op, data) in module.graph(id).ops() {
                if let Op::Call(c) = &data.op {
                    sites.entry(c.graph).or_default().push((id, op));
                }
            }
        }
        let of = graphs.iter().map(|&id| (id, vec![None; module.graph(id).value_count()])).collect();
        let open = graphs.iter().copied().filter(|&g| g == entry || called_only(module, g)).collect();
        Bundles {
            module,
            entry,
            graphs: graphs.to_vec(),
            lanes: 0,
            list: Vec::new(),
            numbers: Vec::new(),
            of,
            sites,
            open,
            apart,
            depth: 0,
        }
    }

    pub fn graph(&self, id: GraphId) -> &'a Graph {
        self.module.graph(id)
    }

    /// The bundle and lane of a value.
    pub fn of(&self, g: GraphId, v: ValueId) -> Option<(usize, usize)> {
        self.of.get(&g).and_then(|l| l[v.0 as usize])
    }

    /// A point to come back to.
    pub fn mark(&self) -> (usize, usize) {
        (self.list.len(), self.numbers.len())
    }

    /// Forgets what was found since.
    pub fn back(&mut self, (list, numbers): (usize, usize)) {
        for b in self.list.drain(list..) {
            if let Some(of) = self.of.get_mut(&b.graph) {
                b.values.iter().for_each(|v| of[v.0 as usize] = None);
            }
        }
        self.numbers.truncate(numbers);
    }

    pub fn add(&mut self, graph: GraphId, values: Vec<ValueId>) -> usize {
        let b = self.list.len();
        if let Some(of) = self.of.get_mut(&graph) {
            for (lane, v) in values.iter().enumerate() {
                of[v.0 as usize] = Some((b, lane));
            }
        }
        self.list.push(Bundle { graph, values });
        b
    }

    /// Ties a tuple; nothing is kept of what was tried in vain.
    pub fn tie(&mut self, g: GraphId, values: &[ValueId]) -> Option<Tied> {
        let mark = self.mark();
        self.depth += 1;
        let tied = if self.depth > DEPTH { None } else { self.try_tie(g, values) };
        self.depth -= 1;
        if tied.is_none() {
            self.back(mark);
        }
        tied
    }

    fn try_tie(&mut self, g: GraphId, values: &[ValueId]) -> Option<Tied> {
        let first = *values.first()?;
        if values.iter().all(|&v| v == first) {
            return Some(Tied::Alike(first));
        }
        let of: Vec<Option<(usize, usize)>> = values.iter().map(|&v| self.of(g, v)).collect();
        if let Some((b, _)) = of[0] {
            let whole = of.iter().enumerate().all(|(lane, o)| *o == Some((b, lane)));
            return whole.then_some(Tied::Bundle(b));
        }
        let graph = self.graph(g);
        let distinct = values.iter().collect::<BTreeSet<_>>().len() == values.len();
        let one_type = values.iter().all(|&v| graph.ty(v) == graph.ty(first));
        if of.iter().any(Option::is_some) || !distinct || !one_type {
            return None;
        }
        let mut params = Vec::new();
        let mut made: Vec<(OpId, u32)> = Vec::new();
        for &v in values {
            match graph.value(v).def {
                ValueDef::Param(n) => params.push(n as usize),
                ValueDef::Result(op, n) => made.push((op, n)),
            }
        }
        if params.len() == values.len() {
            return self.params(g, &params).map(Tied::Bundle);
        }
        if made.len() != values.len() {
            return None;
        }
        let ops: Vec<OpId> = made.iter().map(|m| m.0).collect();
        if ops.iter().all(|&op| op == ops[0]) {
            let positions: Vec<usize> = made.iter().map(|m| m.1 as usize).collect();
            return self.results(g, ops[0], &positions).map(Tied::Bundle);
        }
        if let Some(numbers) = splats(self.module, graph, values) {
            self.numbers.extend(numbers);
            return Some(Tied::Numbers);
        }
        if !self.ops(g, &ops) || made.iter().any(|m| m.1 != made[0].1) {
            return None;
        }
        self.of(g, first).map(|(b, _)| Tied::Bundle(b))
    }

    /// Ties what ops that are alike make, one of each lane.
    pub fn ops(&mut self, g: GraphId, ops: &[OpId]) -> bool {
        let mark = self.mark();
        let done = self.try_ops(g, ops).is_some();
        if !done {
            self.back(mark);
        }
        done
    }

    fn try_ops(&mut self, g: GraphId, ops: &[OpId]) -> Option<()> {
        let graph = self.graph(g);
        let first = graph.op(ops[0]);
        let kinds: Vec<&Op> = ops.iter().map(|&o| &graph.op(o).op).collect();
        let columns = columns(&kinds);
        let alike = kinds.iter().all(|k| *k == kinds[0]);
        let distinct = ops.iter().collect::<BTreeSet<_>>().len() == ops.len();
        if !alike && columns.is_none() || !distinct || !batch::can(kinds[0], self.module) {
            return None;
        }
        let same = |o: &OpId| {
            let d = graph.op(*o);
            let types =
                |l: &[ValueId]| -> Vec<TensorType> { l.iter().map(|&v| graph.ty(v).clone()).collect() };
            types(&d.operands) == types(&first.operands) && types(&d.results) == types(&first.results)
        };
        let free = |o: &OpId| graph.op(*o).results.iter().all(|&r| self.of(g, r).is_none());
        if !ops.iter().all(same) || !ops.iter().all(free) {
            return None;
        }
        for i in 0..first.operands.len() {
            let operands: Vec<ValueId> = ops.iter().map(|&o| graph.op(o).operands[i]).collect();
            match self.tie(g, &operands)? {
                Tied::Alike(_) => {}
                _ if columns.is_some() => return None,
                _ => {}
            }
        }
        self.numbers.extend(columns.map(|c| c.numbers));
        for r in 0..first.results.len() {
            self.add(g, ops.iter().map(|&o| graph.op(o).results[r]).collect());
        }
        Some(())
    }

    /// Ties parameters of a graph.
    pub fn params(&mut self, g: GraphId, positions: &[usize]) -> Option<usize> {
        if !self.open.contains(&g) {
            return None;
        }
        let params = self.graph(g).params();
        let values: Vec<ValueId> = positions.iter().map(|&p| params[p]).collect();
        if g == self.entry {
            let info = &self.module.entry().ok()?.params;
            let donated = positions.iter().filter(|&&p| info[p].alias.is_some()).count();
            let alone = positions.iter().any(|p| self.apart.contains(p));
            if alone || donated % positions.len() != 0 || !self.graph(g).ty(values[0]).dtype.is_float() {
                return None;
            }
        } else {
            for (caller, op) in self.sites.get(&g).cloned().unwrap_or_default() {
                let operands = &self.graph(caller).op(op).operands;
                let passed: Vec<ValueId> = positions.iter().map(|&p| operands[p]).collect();
                match self.tie(caller, &passed)? {
                    Tied::Bundle(_) => {}
                    Tied::Alike(_) | Tied::Numbers => return None,
                }
            }
        }
        Some(self.add(g, values))
    }

    /// Ties results of a call, or of a barrier.
    fn results(&mut self, g: GraphId, op: OpId, positions: &[usize]) -> Option<usize> {
        let data = self.graph(g).op(op);
        match &data.op {
            Op::Call(c) if self.open.contains(&c.graph) => {
                let given = self.graph(c.graph).results();
                let inner: Vec<ValueId> = positions.iter().map(|&p| given[p]).collect();
                match self.tie(c.graph, &inner)? {
                    Tied::Bundle(b) if self.given(c.graph, b).iter().any(|p| p == positions) => {}
                    _ => return None,
                }
            }
            // It gives what it takes.
            Op::Barrier(_) => {
                let taken: Vec<ValueId> = positions.iter().map(|&p| data.operands[p]).collect();
                let Tied::Bundle(_) = self.tie(g, &taken)? else { return None };
            }
            _ => return None,
        }
        Some(self.add(g, positions.iter().map(|&p| data.results[p]).collect()))
    }

    /// The positions, by lane, at which a graph's results are a bundle: each time that all lanes are there once more.
    pub fn given(&self, g: GraphId, b: usize) -> Vec<Vec<usize>> {
        self.positions(g, self.graph(g).results(), b)
    }

    /// The positions, by lane, at which a call's operands are a bundle.
    pub fn passed(&self, g: GraphId, op: OpId, b: usize) -> Vec<Vec<usize>> {
        self.positions(g, &self.graph(g).op(op).operands, b)
    }

    /// The positions, by lane, at which a list of values is a bundle.
    pub fn positions(&self, g: GraphId, list: &[ValueId], b: usize) -> Vec<Vec<usize>> {
        let lanes = self.list.get(b).map_or(0, |b| b.values.len());
        let mut at: Vec<Vec<usize>> = vec![Vec::new(); lanes];
        for (n, &v) in list.iter().enumerate() {
            if let Some((_, lane)) = self.of(g, v).filter(|o| o.0 == b) {
                at[lane].push(n);
            }
        }
        rows(&at)
    }

    /// Who calls a graph.
    pub fn sites(&self, g: GraphId) -> &[(GraphId, OpId)] {
        self.sites.get(&g).map_or(&[], |s| s)
    }

    /// Whether a graph's parameters and results may change.
    pub fn is_open(&self, g: GraphId) -> bool {
        self.open.contains(&g)
    }
}

/// The numbers that constants repeat, if all values are such.
fn splats(module: &Module, g: &Graph, values: &[ValueId]) -> Option<Option<Vec<i64>>> {
    let mut out = Vec::new();
    for &v in values {
        let (op, _) = g.def(v)?;
        let Op::Constant(c) = &g.op(op).op else { return None };
        out.push(module.constants.splat_value(c.id)?);
    }
    let whole = out.iter().all(|x| x.fract() == 0.0 && x.abs() < 1e9);
    Some(whole.then(|| out.iter().map(|&x| x as i64).collect()))
}
