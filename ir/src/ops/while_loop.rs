//! `while`.

use super::call::signature;
use crate::attr::{AttrMap, AttrReader, AttrValue};
use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::factor::region::{self, Region};
use crate::factor::{FactorRule, Starts};
use crate::graph::{Graph, OpId, ValueId};
use crate::interp::{EvalCx, RanksCx, Row};
use crate::location::LocId;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::ops::binary::BinaryKind;
use crate::ops::compare::Direction;
use crate::tensor::Tensor;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// `while`: runs the body on the carries as long as the condition holds of them (StableHLO specification,
/// "while"). Operands, results, and the parameters of both graphs are the carries; the condition gives `i1[]`.
/// A value of outside that the body uses is a carry that the body returns as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct While {
    /// The condition.
    pub cond: GraphId,
    /// The body.
    pub body: GraphId,
}

impl While {
    /// Reads the op if `name` is of this family.
    pub(crate) fn from_attrs(name: &str, a: &mut AttrReader, module: &Module) -> Result<Option<While>> {
        if name != "while" {
            return Ok(None);
        }
        Ok(Some(While { cond: a.known_graph("cond", module)?, body: a.known_graph("body", module)? }))
    }

    /// Whether the body returns carry `i` as it is.
    pub fn is_invariant(&self, module: &Module, i: usize) -> bool {
        let body = module.graph(self.body);
        body.results().get(i) == body.params().get(i)
    }
}

impl Operation for While {
    fn name(&self) -> &'static str {
        "while"
    }

    fn attrs(&self, module: &Module) -> AttrMap {
        let name = |g| AttrValue::Graph(module.graph(g).name.clone());
        AttrMap::from([("cond", name(self.cond)), ("body", name(self.body))])
    }

    fn infer(&self, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
        let decides = signature(self.name(), self.cond, operands, module)?;
        if decides != [TensorType::scalar(DType::I1)] {
            return Err(IrError::ty(self.name(), format!("the condition gives {decides:?}, not i1[]")));
        }
        let results = signature(self.name(), self.body, operands, module)?;
        if !results.iter().eq(operands.iter().copied()) {
            return Err(IrError::ty(
                self.name(),
                format!("the body gives {results:?} for carries {operands:?}"),
            ));
        }
        Ok(results)
    }

    fn eval(&self, inputs: &[&Tensor], results: &[TensorType], cx: &EvalCx<'_>) -> Result<Vec<Tensor>> {
        cx.lockstep(inputs, |cx, rows| self.eval_ranks(rows, results, cx))
    }

    /// Ranks whose condition no longer holds wait for the others.
    fn eval_ranks(&self, inputs: Vec<Row>, _: &[TensorType], cx: &RanksCx<'_>) -> Result<Vec<Row>> {
        let mut carries = inputs;
        let mut active: Vec<usize> = (0..carries.len()).collect();
        while !active.is_empty() {
            let ranks: Vec<usize> = active.iter().map(|&i| cx.ranks()[i]).collect();
            let rows: Vec<Row> = active.iter().map(|&i| carries[i].clone()).collect();
            let holds = cx.subset(&ranks).run(self.cond, rows)?;
            let mut holds = holds.iter().map(|row| row[0].data.get_i64(0) != 0);
            active.retain(|_| holds.next().unwrap_or(false));
            let ranks: Vec<usize> = active.iter().map(|&i| cx.ranks()[i]).collect();
            let rows: Vec<Row> = active.iter().map(|&i| std::mem::take(&mut carries[i])).collect();
            for (&i, row) in active.iter().zip(cx.subset(&ranks).run(self.body, rows)?) {
                carries[i] = row;
            }
        }
        Ok(carries)
    }

    fn factor_rule(&self, _: &[&TensorType], _: &[TensorType], module: &Module) -> FactorRule {
        region::rule(module, Region::Loop, &[self.body, self.cond])
    }

    fn resized(&self, _: &[&TensorType], _: &[TensorType]) -> Result<Op> {
        Ok((*self).into())
    }

    fn callees(&self) -> SmallVec<[GraphId; 2]> {
        smallvec![self.cond, self.body]
    }

    fn callees_mut(&mut self) -> SmallVec<[&mut GraphId; 2]> {
        smallvec![&mut self.cond, &mut self.body]
    }

    /// A loop over local carries.
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
        if module.graph(self.body).param_types() == types {
            return graph.add(module, *self, operands, loc);
        }
        let graphs = [self.body, self.cond];
        let local = region::shards(module, Region::Loop, &graphs, &types, results, starts)?;
        graph.add(module, While { body: local[0], cond: local[1] }, operands, loc)
    }
}

/// How often the body of the `while` at `id` runs, where that is plain to see: the condition compares a counter
/// with a bound, the counter starts at a constant and moves by a constant, and the bound is a constant.
pub fn trip_count(module: &Module, graph: &Graph, id: OpId) -> Option<u64> {
    let data = graph.op(id);
    let Op::While(w) = data.op else { return None };
    let (cond, body) = (module.try_graph(w.cond)?, module.try_graph(w.body)?);
    let position = |g: &Graph, v: ValueId| g.params().iter().position(|&p| p == v);
    // An integer known before the loop: a constant of the condition, or of a carry that stays as it is.
    let known = |g: &Graph, v: ValueId| -> Option<i64> {
        match position(g, v) {
            Some(k) if w.is_invariant(module, k) => constant(module, graph, *data.operands.get(k)?),
            Some(_) => None,
            None => constant(module, g, v),
        }
    };
    let (at, _) = cond.def(*cond.results().first()?)?;
    let Op::Compare(c) = &cond.op(at).op else { return None };
    let [a, b] = cond.op(at).operands[..] else { return None };
    let (direction, counter, bound) = match (known(cond, a), known(cond, b)) {
        (None, Some(n)) => (c.direction, position(cond, a)?, n),
        (Some(n), None) => (c.direction.swapped(), position(cond, b)?, n),
        _ => return None,
    };
    let start = constant(module, graph, *data.operands.get(counter)?)?;
    let (step_op, _) = body.def(*body.results().get(counter)?)?;
    let [x, y] = body.op(step_op).operands[..] else { return None };
    let me = *body.params().get(counter)?;
    let Op::Binary(step) = &body.op(step_op).op else { return None };
    let step = match step.kind {
        BinaryKind::Add if x == me => known(body, y)?,
        BinaryKind::Add if y == me => known(body, x)?,
        BinaryKind::Subtract if x == me => known(body, y)?.checked_neg()?,
        _ => return None,
    };
    count(direction, i128::from(start), i128::from(step), i128::from(bound))
}

/// The number of `k ≥ 0` for which `direction(start + k·step, bound)` holds from 0 on, if it is finite.
fn count(direction: Direction, start: i128, step: i128, bound: i128) -> Option<u64> {
    let holds = |x: i128| match direction {
        Direction::Eq => x == bound,
        Direction::Ne => x != bound,
        Direction::Ge => x >= bound,
        Direction::Gt => x > bound,
        Direction::Le => x <= bound,
        Direction::Lt => x < bound,
    };
    if !holds(start) {
        return Some(0);
    }
    let n = match direction {
        Direction::Eq if step != 0 => 1,
        Direction::Ne if step != 0 && (bound - start) % step == 0 => (bound - start) / step,
        Direction::Lt if step > 0 => (bound - start + step - 1) / step,
        Direction::Le if step > 0 => (bound - start) / step + 1,
        Direction::Gt if step < 0 => (start - bound - step - 1) / -step,
        Direction::Ge if step < 0 => (start - bound) / -step + 1,
        _ => return None,
    };
    u64::try_from(n).ok().filter(|&n| n > 0)
}

/// The value of an integer scalar or splat constant, through conversions and reshapes.
fn constant(module: &Module, graph: &Graph, v: ValueId) -> Option<i64> {
    let (op, _) = graph.def(v)?;
    match &graph.op(op).op {
        Op::Constant(c) => {
            let c = module.constants.try_get(c.id)?;
            let x = c.splat_value()?;
            (c.ty.dtype.is_int() && x.abs() < 9e15).then_some(x as i64)
        }
        Op::Reshape(_) | Op::Broadcast(_) => constant(module, graph, *graph.op(op).operands.first()?),
        Op::Convert(crate::ops::convert::Convert::Value(d)) if d.is_int() => {
            constant(module, graph, *graph.op(op).operands.first()?)
        }
        _ => None,
    }
}
