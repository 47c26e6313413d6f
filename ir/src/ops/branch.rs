//! `if` and `case`.

use super::call::signature;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::region::{self, Region};
use crate::factor::{FactorRule, Starts};
use crate::graph::{Graph, ValueId};
use crate::interp::{EvalCx, RanksCx, Row};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// Branches: the first operand decides, the others are the parameters of every branch, whose results are the
/// op's. A value of outside that a branch uses is such an operand.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Branch {
    /// `i1[], args → results` (StableHLO specification, "if").
    If {
        /// Runs where the predicate holds.
        then: GraphId,
        /// Runs where it does not.
        otherwise: GraphId,
    },
    /// `i32[], args → results`: an index out of range takes the last branch (StableHLO specification, "case").
    Case {
        /// At least one.
        branches: SmallVec<[GraphId; 2]>,
    },
}

impl Branch {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<Branch>> {
        Ok(match name {
            "if" => Some(Branch::If {
                then: a.known_graph("then", module)?,
                otherwise: a.known_graph("else", module)?,
            }),
            "case" => Some(Branch::Case { branches: a.known_graphs("branches", module)?.into() }),
            _ => None,
        })
    }

    /// Which of [`Operation::callees`] runs for a value of the first operand.
    pub(crate) fn chosen(&self, decider: &Tensor) -> GraphId {
        let i = decider.data.get_i64(0);
        match self {
            Branch::If { then, otherwise } => {
                if i != 0 {
                    *then
                } else {
                    *otherwise
                }
            }
            Branch::Case { branches } => {
                let last = branches.len() - 1;
                branches[usize::try_from(i).map_or(last, |i| i.min(last))]
            }
        }
    }
}

impl Operation for Branch {
    fn name(&self) -> &'static str {
        match self {
            Branch::If { .. } => "if",
            Branch::Case { .. } => "case",
        }
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let name = |g: &GraphId| module.graph(*g).name.clone();
        match self {
            Branch::If { then, otherwise } => AttrMap::from([
                ("then", AttrValue::Graph(name(then))),
                ("else", AttrValue::Graph(name(otherwise))),
            ]),
            Branch::Case { branches } => {
                AttrMap::from([("branches", AttrValue::Graphs(branches.iter().map(name).collect()))])
            }
        }
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let Some((decider, args)) = operands.split_first() else {
            return Err(IrError::ty(self.name(), "has no operand"));
        };
        let want = match self {
            Branch::If { .. } => TensorType::scalar(DType::I1),
            Branch::Case { .. } => TensorType::scalar(DType::I32),
        };
        if **decider != want {
            return Err(IrError::ty(self.name(), format!("is decided by {decider}, not {want}")));
        }
        let mut results: Option<Vec<TensorType>> = None;
        for g in self.callees() {
            let mine = signature(self.name(), g, args, module)?;
            match &results {
                Some(r) if *r != mine => {
                    return Err(IrError::ty(self.name(), format!("branches give {r:?} and {mine:?}")));
                }
                _ => results = Some(mine),
            }
        }
        results.ok_or_else(|| IrError::attr(self.name(), "branches", "is empty"))
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.lockstep(inputs, |cx, rows| self.eval_ranks(rows, results, cx))
    }

    /// The ranks that take one branch run it together.
    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        let chosen: Vec<GraphId> = inputs.iter().map(|row| self.chosen(&row[0])).collect();
        let mut out: Vec<Row> = vec![Row::new(); inputs.len()];
        let mut done: Vec<GraphId> = Vec::new();
        for &g in &chosen {
            if done.contains(&g) {
                continue;
            }
            done.push(g);
            let mine: Vec<usize> = (0..inputs.len()).filter(|&i| chosen[i] == g).collect();
            let ranks: Vec<usize> = mine.iter().map(|&i| cx.ranks()[i]).collect();
            let rows: Vec<Row> = mine.iter().map(|&i| inputs[i][1..].to_vec()).collect();
            for (&i, row) in mine.iter().zip(cx.subset(&ranks).run(g, rows)?) {
                out[i] = row;
            }
        }
        Ok(out)
    }

    fn factor_rule(&self, operands: &[&TensorType], results: &[TensorType], module: &Module) -> FactorRule {
        let inner = region::rule(module, Region::Branches, &self.callees());
        let mut rule = FactorRule::empty(operands, results);
        rule.factors = inner.factors;
        rule.results = inner.results;
        for (mine, theirs) in rule.operands[1..].iter_mut().zip(inner.operands) {
            *mine = theirs;
        }
        rule
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok(self.clone().into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        match self {
            Branch::If { then, otherwise } => smallvec![*then, *otherwise],
            Branch::Case { branches } => branches.clone(),
        }
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        match self {
            Branch::If { then, otherwise } => smallvec![then, otherwise],
            Branch::Case { branches } => branches.iter_mut().collect(),
        }
    }

    fn build_shard(
        &self,
        module: &mut Module,
        graph: &mut Graph,
        operands: &[ValueId],
        results: &[TensorType],
        starts: &Starts,
        loc: LocId,
    ) -> Result<SmallVec<[ValueId; 1]>> {
        let types: Vec<TensorType> = operands[1..].iter().map(|&v| graph.ty(v).clone()).collect();
        let same = |g: &GraphId| {
            let g = module.graph(*g);
            g.param_types() == types && g.result_types() == results
        };
        let mut op = self.clone();
        if !self.callees().iter().all(same) {
            let local = region::shards(module, Region::Branches, &self.callees(), &types, results, starts)?;
            for (mine, new) in op.callees_mut().into_iter().zip(local) {
                *mine = new;
            }
        }
        graph.add(module, op, operands, loc)
    }
}
