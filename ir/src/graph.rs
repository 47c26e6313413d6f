//! Graphs: arenas of ops and values in SSA form.

use crate::error::{IrError, Result};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::types::TensorType;
use smallvec::SmallVec;

/// Index of a value in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

/// Index of an op in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpId(pub u32);

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueDef {
    /// The graph's parameter with this index.
    Param(u32),
    /// A result of an op.
    Result(OpId, u32),
}

/// One use of a value: operand `index` of `op`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The using op.
    pub op: OpId,
    /// Which of its operands.
    pub index: u32,
}

/// A value.
#[derive(Clone, Debug)]
pub struct ValueData {
    /// Type.
    pub ty: TensorType,
    /// Definition.
    pub def: ValueDef,
    /// Uses by live ops, in no particular order. Uses as graph results are not listed here.
    pub uses: SmallVec<[Use; 4]>,
}

/// An op of a graph.
#[derive(Clone, Debug)]
pub struct OpData {
    /// What it computes.
    pub op: Op,
    /// Operands.
    pub operands: SmallVec<[ValueId; 3]>,
    /// Results.
    pub results: SmallVec<[ValueId; 1]>,
    /// Source location.
    pub loc: LocId,
}

/// A computation: parameters, ops in an order in which every definition precedes its uses, results.
///
/// Invariants (checked by [`crate::verify`]): each value is defined once; [`Graph::order`] lists every live op
/// once, definitions first; use lists hold exactly the operand positions of live ops; operand and result types
/// satisfy the op's inference.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name, unique in the module.
    pub name: String,
    ops: Vec<OpData>,
    values: Vec<ValueData>,
    params: Vec<ValueId>,
    results: Vec<ValueId>,
    order: Vec<OpId>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Makes room for as many ops and values as another graph has.
    pub fn reserve_as(&mut self, other: &Graph) {
        self.ops.reserve(other.order.len());
        self.order.reserve(other.order.len());
        self.values.reserve(other.values.len());
    }

    /// Adds a parameter.
    pub fn add_param(&mut self, ty: TensorType) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(ValueData {
            ty,
            def: ValueDef::Param(self.params.len() as u32),
            uses: SmallVec::new(),
        });
        self.params.push(id);
        id
    }

    /// Adds an op at the end of the order; result types are inferred.
    ///
    /// # Errors
    /// What the op's inference says of operands that do not fit.
    pub fn add(
        &mut self,
        module: &Module,
        op: impl Into<Op>,
        operands: &[ValueId],
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let op = op.into();
        let results = {
            let types: SmallVec<[&TensorType; 4]> = operands.iter().map(|&v| self.ty(v)).collect();
            op.infer(&types, module)?
        };
        Ok(self.add_typed(op, operands, results, loc))
    }

    /// [`Graph::add`] for an op with one result.
    pub fn add1(
        &mut self,
        module: &Module,
        op: impl Into<Op>,
        operands: &[ValueId],
        loc: LocId,
    ) -> Result<ValueId> {
        let r = self.add(module, op, operands, loc)?;
        match r.as_slice() {
            [v] => Ok(*v),
            other => Err(IrError::Structure {
                graph: self.name.clone(),
                message: format!("an op with {} results where one was expected", other.len()),
            }),
        }
    }

    /// Adds an op whose result types the caller already knows to be right (copied from another graph).
    pub fn add_typed(
        &mut self,
        op: Op,
        operands: &[ValueId],
        types: impl IntoIterator<Item = TensorType>,
        loc: LocId,
    ) -> SmallVec<[ValueId; 1]> {
        let id = OpId(self.ops.len() as u32);
        for (index, v) in operands.iter().enumerate() {
            self.values[v.0 as usize].uses.push(Use { op: id, index: index as u32 });
        }
        let results: SmallVec<[ValueId; 1]> = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                let v = ValueId(self.values.len() as u32);
                self.values.push(ValueData {
                    ty,
                    def: ValueDef::Result(id, i as u32),
                    uses: SmallVec::new(),
                });
                v
            })
            .collect();
        let (operands, own) = (SmallVec::from_slice(operands), SmallVec::from_slice(&results));
        self.ops.push(OpData { op, operands, results: own, loc });
        self.order.push(id);
        results
    }

    /// Sets the graph's results.
    pub fn set_results(&mut self, results: Vec<ValueId>) {
        self.results = results;
    }

    /// Parameters.
    pub fn params(&self) -> &[ValueId] {
        &self.params
    }

    /// Results.
    pub fn results(&self) -> &[ValueId] {
        &self.results
    }

    /// For each value id whether it is a result.
    pub fn result_table(&self) -> Vec<bool> {
        let mut out = vec![false; self.values.len()];
        self.results.iter().for_each(|r| out[r.0 as usize] = true);
        out
    }

    /// Live ops, definitions first.
    pub fn order(&self) -> &[OpId] {
        &self.order
    }

    /// Live ops with their ids, definitions first.
    pub fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &OpData)> + ExactSizeIterator {
        self.order.iter().map(|&id| (id, &self.ops[id.0 as usize]))
    }

    /// An op.
    pub fn op(&self, id: OpId) -> &OpData {
        &self.ops[id.0 as usize]
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &ValueData {
        &self.values[id.0 as usize]
    }

    /// Type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.values[id.0 as usize].ty
    }

    /// The op that defines a value, or `None` for a parameter.
    pub fn def(&self, id: ValueId) -> Option<(OpId, u32)> {
        match self.value(id).def {
            ValueDef::Param(_) => None,
            ValueDef::Result(op, i) => Some((op, i)),
        }
    }

    /// Number of value ids given out, dead ones included: the size for a table indexed by [`ValueId`].
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Number of op ids given out, dead ones included: the size for a table indexed by [`OpId`].
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// Types of the parameters.
    pub fn param_types(&self) -> Vec<TensorType> {
        self.params.iter().map(|&v| self.ty(v).clone()).collect()
    }

    /// Types of the results.
    pub fn result_types(&self) -> Vec<TensorType> {
        self.results.iter().map(|&v| self.ty(v).clone()).collect()
    }

    /// Lets every use of `old` (results included) use `new`. The types must be equal.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        let uses = std::mem::take(&mut self.values[old.0 as usize].uses);
        for u in &uses {
            self.ops[u.op.0 as usize].operands[u.index as usize] = new;
        }
        self.values[new.0 as usize].uses.extend(uses);
        for r in &mut self.results {
            if *r == old {
                *r = new;
            }
        }
    }

    /// Keeps the live ops for which `keep` says so; their ids stay. The caller guarantees that no kept op and
    /// no result uses a removed one.
    pub fn retain_ops(&mut self, keep: impl Fn(OpId, &OpData) -> bool) {
        let ops = &self.ops;
        self.order.retain(|&id| keep(id, &ops[id.0 as usize]));
        let mut live = vec![false; self.ops.len()];
        for id in &self.order {
            live[id.0 as usize] = true;
        }
        for v in &mut self.values {
            v.uses.retain(|u| live[u.op.0 as usize]);
        }
    }

    /// Copies a live op of `source` to the end of this graph, operands translated by `map`, and records its
    /// results in `map`.
    ///
    /// # Errors
    /// [`IrError::Structure`] if an operand has no translation yet.
    pub fn copy_op(&mut self, source: &Graph, id: OpId, map: &mut [Option<ValueId>]) -> Result<()> {
        let data = source.op(id);
        let operands: SmallVec<[ValueId; 3]> = data
            .operands
            .iter()
            .map(|v| {
                map[v.0 as usize].ok_or_else(|| IrError::Structure {
                    graph: source.name.clone(),
                    message: format!("operand {} of {} is not defined before it", v.0, data.op.name()),
                })
            })
            .collect::<Result<_>>()?;
        let types = data.results.iter().map(|&r| source.ty(r).clone());
        let results = self.add_typed(data.op.clone(), &operands, types, data.loc);
        for (old, new) in data.results.iter().zip(results) {
            map[old.0 as usize] = Some(new);
        }
        Ok(())
    }

    /// Points the references of all ops to graphs elsewhere.
    pub fn map_callees(&mut self, f: impl Fn(GraphId) -> GraphId) {
        for c in self.ops.iter_mut().flat_map(|d| d.op.callees_mut()) {
            *c = f(*c);
        }
    }

    /// Rewrites every op in place; operands, results and their types stay, so the new op must fit them.
    pub fn map_ops(&mut self, f: impl Fn(&Op) -> Op) {
        for data in &mut self.ops {
            data.op = f(&data.op);
        }
    }

    /// Sets an op's source location.
    pub fn set_loc(&mut self, id: OpId, loc: LocId) {
        self.ops[id.0 as usize].loc = loc;
    }
}
