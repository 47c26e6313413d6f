//! Calls of graphs.

use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::error::{IrError, Result};
use crate::factor::resize::shard_graph;
use crate::factor::solve::graph_rule;
use crate::factor::{FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::{EvalCx, RanksCx, Row};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::ops::while_loop::trip_count;
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// A call of another graph of the module. Calls form no cycle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Call {
    /// The graph.
    pub graph: GraphId,
}

impl Call {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Call>> {
        if name != "call" {
            return Ok(None);
        }
        let g = a.graph("graph")?;
        let graph = module
            .graph_by_name(&g)
            .ok_or_else(|| IrError::attr(name, "graph", format!("there is no graph @{g} before this one")))?;
        Ok(Some(Call { graph }))
    }
}

/// Checks operand types against a graph's parameters and returns its result types.
pub(crate) fn signature(
    op: &str,
    graph: GraphId,
    operands: &[&TensorType],
    module: &Module,
) -> Result<Vec<TensorType>> {
    let g =
        module.try_graph(graph).ok_or_else(|| IrError::attr(op, "graph", "is not a graph of the module"))?;
    let params = g.param_types();
    if params.len() != operands.len() || params.iter().zip(operands).any(|(p, o)| p != *o) {
        return Err(IrError::ty(op, format!("operands {operands:?} do not fit @{}{params:?}", g.name)));
    }
    Ok(g.result_types())
}

impl Operation for Call {
    fn name(&self) -> &'static str {
        "call"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        AttrMap::from([("graph", AttrValue::Graph(module.graph(self.graph).name.clone()))])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        signature(self.name(), self.graph, operands, module)
    }

    fn eval(&self, inputs: &[&Tensor], _: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.run(self.graph, inputs)
    }

    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        cx.run(self.graph, inputs)
    }

    fn factor_rule(&self, _: &[&TensorType], _: &[TensorType], module: &Module) -> FactorRule {
        graph_rule(module, module.graph(self.graph))
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }

    /// A call of the graph at the local sizes.
    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let types: Vec<TensorType> = operands.iter().map(|&v| graph.ty(v).clone()).collect();
        let local = localised(module, self.graph, &types, results, starts)?;
        graph.add(module, Call { graph: local }, operands, loc)
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.graph]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.graph]
    }
}

/// The graph `callee` at the sizes of one shard; itself if those are its own.
pub(crate) fn localised(
    module: &mut Module,
    callee: GraphId,
    operands: &[TensorType],
    results: &[TensorType],
    starts: &Starts,
) -> Result<GraphId> {
    let source = module.graph(callee);
    if source.param_types() == operands && source.result_types() == results {
        return Ok(callee);
    }
    let source = source.clone();
    let local = shard_graph(module, &source, operands, results, starts)?;
    Ok(module.add_graph(local))
}

/// How the values of a graph that an op runs on its own operands are the op's: its parameters are the operands
/// from `first_operand` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// The graph.
    pub graph: GraphId,
    /// The operand that is the graph's first parameter.
    pub first_operand: usize,
    /// Whether the graph's results are the op's.
    pub results: bool,
    /// Whether the graph's results are its next parameters.
    pub carries: bool,
}

/// The graphs that an op runs on its own operands: those of calls, loops and branches. Definitions of fused ops
/// and reducers are not among them.
pub fn wires(op: &Op) -> SmallVec<[Wire; 2]> {
    match op {
        Op::Call(c) => smallvec![Wire { graph: c.graph, first_operand: 0, results: true, carries: false }],
        Op::While(w) => smallvec![
            Wire { graph: w.body, first_operand: 0, results: true, carries: true },
            Wire { graph: w.cond, first_operand: 0, results: false, carries: false },
        ],
        Op::Branch(b) => b
            .callees()
            .into_iter()
            .map(|graph| Wire { graph, first_operand: 1, results: true, carries: false })
            .collect(),
        _ => SmallVec::new(),
    }
}

/// Graphs that entries reach, callees before callers.
pub fn reachable(module: &Module) -> Vec<GraphId> {
    fn visit(module: &Module, g: GraphId, seen: &mut [bool], out: &mut Vec<GraphId>) {
        if std::mem::replace(&mut seen[g.0 as usize], true) {
            return;
        }
        for (_, op) in module.graph(g).ops() {
            for c in op.op.callees() {
                visit(module, c, seen, out);
            }
        }
        out.push(g);
    }
    let mut seen = vec![false; module.graphs().count()];
    let mut out = Vec::new();
    for e in &module.entries {
        visit(module, e.graph, &mut seen, &mut out);
    }
    out
}

/// How often one run of a graph runs each graph that it runs, itself among them. Loops count by their trips where these are
/// known; definitions of fused ops are not run.
pub fn executions(module: &Module, entry: GraphId) -> BTreeMap<GraphId, usize> {
    let mut runs = BTreeMap::from([(entry, 1usize)]);
    // Callers before callees.
    for id in reachable(module).into_iter().rev() {
        let (g, Some(&mine)) = (module.graph(id), runs.get(&id)) else { continue };
        for (op, data) in g.ops() {
            let wires = wires(&data.op);
            if wires.is_empty() {
                continue;
            }
            let trips = trip_count(module, g, op).unwrap_or(1) as usize;
            for w in wires {
                let of = runs.entry(w.graph).or_insert(0);
                *of = of.saturating_add(mine.saturating_mul(trips));
            }
        }
    }
    runs
}

pub(crate) fn drop_unreachable(module: &mut Module) {
    let order = reachable(module);
    let mut remap = vec![None; module.graphs().count()];
    for (new, old) in order.iter().enumerate() {
        remap[old.0 as usize] = Some(GraphId(new as u32));
    }
    let mut graphs: Vec<Graph> = order.iter().map(|&g| module.take_graph(g)).collect();
    for g in &mut graphs {
        g.map_callees(|c| remap[c.0 as usize].unwrap_or(c));
    }
    module.replace_graphs(graphs, &remap);
}
