//! The walk: ops are copied in order into a new graph, inlined, folded and simplified on the way.

use super::Simplified;
use super::compact::compact;
use super::fold::fold;
use super::identity::{Rewrite, View, identity};
use super::tables;
use super::tables::emit::{Sink, emit};
use crate::error::{PassError, Result};
use msc_ir::op::Op;
use msc_ir::ops::constant::ConstantOp;
use msc_ir::{ConstId, Graph, GraphId, LocId, Module, TensorType, ValueId};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// A rule's result is looked at again this often; every rule shortens what it looks through, so few are needed.
const REWRITES_PER_OP: usize = 16;

/// Brings one graph of the module into canonical form; the graphs it calls are in canonical form already.
pub(super) fn graph(module: &mut Module, id: GraphId, done: &mut Simplified) -> Result<()> {
    let source = module.take_graph(id);
    let mut new = Graph::new(source.name.clone());
    new.reserve_as(&source);
    let params: Vec<ValueId> = source.params().iter().map(|&p| new.add_param(source.ty(p).clone())).collect();
    let mut w =
        Walk { module, graph: new, constants: FxHashMap::default(), tables: FxHashMap::default(), done };
    let results = w.body(&source, &params)?;
    let mut new = w.graph;
    new.set_results(results);
    // Of a deep step's graphs no more are held than two.
    drop(source);
    module.set_graph(id, compact(&new)?);
    Ok(())
}

struct Walk<'a> {
    module: &'a mut Module,
    graph: Graph,
    constants: FxHashMap<ConstId, ValueId>,
    /// The constants that became expressions, by what stands for them.
    tables: FxHashMap<ValueId, ConstId>,
    done: &'a mut Simplified,
}

/// The ops of a table's expression, at the place of its constant.
struct At<'w, 'a> {
    walk: &'w mut Walk<'a>,
    loc: LocId,
}

impl Sink for At<'_, '_> {
    fn op(&mut self, op: Op, operands: &[ValueId], ty: TensorType) -> ValueId {
        self.walk.emit(op, operands, &[&ty], self.loc)[0]
    }

    fn splat(&mut self, ty: TensorType, element: &[u8]) -> ValueId {
        let id = self.walk.module.constants.intern_splat_bytes(ty, element);
        self.walk.constant(id, self.loc)
    }

    fn data(&mut self, ty: TensorType, bytes: &[u8]) -> ValueId {
        let id = self.walk.module.constants.intern_bytes(ty, bytes);
        self.walk.constant(id, self.loc)
    }
}

impl Walk<'_> {
    /// Copies the ops of `source` with its parameters bound to `args`; returns its results.
    fn body(&mut self, source: &Graph, args: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
        for (&p, &a) in source.params().iter().zip(args) {
            map[p.0 as usize] = Some(a);
        }
        let lookup = |map: &[Option<ValueId>], v: ValueId| {
            map[v.0 as usize].ok_or_else(|| PassError::Broken {
                pass: "simplify",
                message: format!("value {} of @{} is used before it is defined", v.0, source.name),
            })
        };
        for (_, data) in source.ops() {
            let operands: SmallVec<[ValueId; 3]> =
                data.operands.iter().map(|&v| lookup(&map, v)).collect::<Result<_>>()?;
            let results: SmallVec<[ValueId; 1]> = match &data.op {
                Op::Call(c) => {
                    self.done.inlined += 1;
                    let callee = self.module.take_graph(c.graph);
                    let results = self.body(&callee, &operands);
                    self.module.set_graph(c.graph, callee);
                    results?.into()
                }
                op => {
                    let types: SmallVec<[&TensorType; 2]> =
                        data.results.iter().map(|&r| source.ty(r)).collect();
                    self.op(op, operands, &types, data.loc)
                }
            };
            for (&r, v) in data.results.iter().zip(results) {
                map[r.0 as usize] = Some(v);
            }
        }
        source.results().iter().map(|&r| lookup(&map, r)).collect()
    }

    /// Emits one op in its simplest form and returns the values that stand for its results.
    fn op(
        &mut self,
        op: &Op,
        operands: SmallVec<[ValueId; 3]>,
        types: &[&TensorType],
        loc: LocId,
    ) -> SmallVec<[ValueId; 1]> {
        if let Op::Constant(c) = op {
            return smallvec![self.constant(c.id, loc)];
        }
        let [ty] = types else { return self.emit(op.clone(), &operands, types, loc) };
        let mut next: Option<(Op, SmallVec<[ValueId; 3]>)> = None;
        for _ in 0..REWRITES_PER_OP {
            let (op, operands) = next.as_ref().map_or((op, &operands), |(o, v)| (o, v));
            if let Some(id) = fold(self.module, &self.graph, op, operands, ty) {
                self.done.folded += 1;
                return smallvec![self.constant(id, loc)];
            }
            let view = View { module: self.module, graph: &self.graph, tables: &self.tables };
            match identity(&view, op, operands, ty) {
                Some(Rewrite::Value(v)) => {
                    self.done.rewritten += 1;
                    return smallvec![v];
                }
                Some(Rewrite::Op(op, operands)) => next = Some((op, operands)),
                None => break,
            }
        }
        match next {
            Some((op, operands)) => {
                self.done.rewritten += 1;
                self.emit(op, &operands, types, loc)
            }
            None => self.emit(op.clone(), &operands, types, loc),
        }
    }

    fn constant(&mut self, id: ConstId, loc: LocId) -> ValueId {
        if let Some(&v) = self.constants.get(&id) {
            return v;
        }
        let constant = self.module.constants.get(id);
        let ty = constant.ty.clone();
        let v = match tables::expression(constant) {
            Some(table) => {
                self.done.tables += 1;
                let v = emit(&table, &ty, &mut At { walk: self, loc });
                self.tables.insert(v, id);
                v
            }
            None => self.emit(ConstantOp { id }.into(), &[], &[&ty], loc)[0],
        };
        self.constants.insert(id, v);
        v
    }

    fn emit(
        &mut self,
        op: Op,
        operands: &[ValueId],
        types: &[&TensorType],
        loc: LocId,
    ) -> SmallVec<[ValueId; 1]> {
        self.graph.add_typed(op, operands, types.iter().map(|&t| t.clone()), loc)
    }
}
