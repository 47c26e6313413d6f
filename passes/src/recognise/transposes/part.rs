//! One part under construction, and what stays of it.

use super::super::extract::{Extracted, Outcome, Param};
use super::broken;
use super::dots;
use crate::error::Result;
use msc_ir::{Graph, Op, OpId, TensorType, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A part under construction.
pub(super) struct Part<'a> {
    pub old: &'a Extracted,
    pub new: Graph,
    /// Parameters from outside.
    pub own: Vec<(Param, ValueId)>,
    /// For each old value what it is now, and what it is now with dimensions 1 and 2 exchanged.
    pub plain: Vec<Option<ValueId>>,
    pub exchanged: Vec<Option<ValueId>>,
    /// Layout ops made so far: each is there once.
    pub made: BTreeMap<(Op, ValueId), ValueId>,
    /// Parameters for values of earlier parts.
    pub imports: BTreeMap<(usize, ValueId), ValueId>,
    pub moved: BTreeMap<OpId, OpId>,
}

/// What stays of a part.
pub(super) struct Plan {
    pub ops: BTreeSet<OpId>,
    /// Parameters that are values of earlier parts: the part, the value there, the value here.
    pub imports: Vec<(usize, ValueId, ValueId)>,
    pub outcomes: Vec<Outcome>,
    pub results: Vec<ValueId>,
}

impl<'a> Part<'a> {
    /// Nothing of an old part yet, but for its parameters from outside.
    pub fn new(old: &'a Extracted) -> Part<'a> {
        let n = old.graph.value_count();
        let mut part = Part {
            old,
            new: Graph::new(old.graph.name.clone()),
            own: Vec::new(),
            plain: vec![None; n],
            exchanged: vec![None; n],
            made: BTreeMap::new(),
            imports: BTreeMap::new(),
            moved: BTreeMap::new(),
        };
        for (&p, &v) in old.params.iter().zip(old.graph.params()) {
            if !matches!(p, Param::Result { .. }) {
                let new = part.new.add_param(old.graph.ty(v).clone());
                part.plain[v.0 as usize] = Some(new);
                part.own.push((p, new));
            }
        }
        part
    }

    /// Which parameter from outside a value is, as a later part may name it.
    pub fn outside(&self, at: usize, v: ValueId) -> Option<Param> {
        let (p, _) = self.own.iter().find(|(_, own)| *own == v)?;
        Some(match *p {
            Param::Old(index) => Param::Outer { part: at, index },
            p => p,
        })
    }

    /// A parameter from outside.
    pub fn take(&mut self, outer: Param, ty: TensorType) -> ValueId {
        if let Some((_, known)) = self.own.iter().find(|(p, _)| *p == outer) {
            return *known;
        }
        let new = self.new.add_param(ty);
        self.own.push((outer, new));
        new
    }

    /// What stays, if these values are handed on: layout ops and products that nothing needs any more do not.
    pub fn plan(&self, exports: &BTreeSet<ValueId>) -> Result<Plan> {
        let (mut outcomes, mut results) = (Vec::new(), Vec::new());
        for (&v, outcome) in self.old.graph.results().iter().zip(&self.old.results) {
            if matches!(outcome, Outcome::Old(_)) {
                results.push(self.plain[v.0 as usize].ok_or_else(|| broken("a result is gone"))?);
                outcomes.push(*outcome);
            }
        }
        for &v in exports {
            if !results.contains(&v) {
                results.push(v);
                outcomes.push(Outcome::Export);
            }
        }
        let mut needed = vec![false; self.new.value_count()];
        results.iter().for_each(|r| needed[r.0 as usize] = true);
        let mut ops = BTreeSet::new();
        for (id, d) in self.new.ops().rev() {
            if !dots::may_go(&d.op) || d.results.iter().any(|r| needed[r.0 as usize]) {
                ops.insert(id);
                d.operands.iter().for_each(|o| needed[o.0 as usize] = true);
            }
        }
        let given = self.imports.iter().filter(|(_, p)| self.new.def(**p).is_none() && needed[p.0 as usize]);
        let imports = given.map(|(&(part, v), &p)| (part, v, p)).collect();
        Ok(Plan { ops, imports, outcomes, results })
    }

    /// The part as its plan says; parameters first. `given` are the results of all parts.
    pub fn compact(self, plan: Plan, given: &[Vec<ValueId>]) -> Result<Extracted> {
        let new = &self.new;
        let mut out = Graph::new(new.name.clone());
        let mut map: Vec<Option<ValueId>> = vec![None; new.value_count()];
        let mut params = Vec::new();
        for &(p, v) in &self.own {
            map[v.0 as usize] = Some(out.add_param(new.ty(v).clone()));
            params.push(p);
        }
        for &(part, v, p) in &plan.imports {
            let index = given[part].iter().position(|&w| w == v);
            let index = index.ok_or_else(|| broken("a value is not handed on"))?;
            map[p.0 as usize] = Some(out.add_param(new.ty(p).clone()));
            params.push(Param::Result { part, index });
        }
        let mut moved = BTreeMap::new();
        for (id, _) in new.ops().filter(|(id, _)| plan.ops.contains(id)) {
            moved.insert(id, OpId(out.op_count() as u32));
            out.copy_op(new, id, &mut map)?;
        }
        let results: Option<Vec<ValueId>> = plan.results.iter().map(|r| map[r.0 as usize]).collect();
        out.set_results(results.ok_or_else(|| broken("a result is gone"))?);
        let to = |op: &OpId| self.moved.get(op).and_then(|op| moved.get(op)).copied();
        Ok(Extracted {
            graph: out,
            params,
            results: plan.outcomes,
            moved: self.old.moved.iter().filter_map(|(&op, at)| Some((op, to(at)?))).collect(),
            named: self.old.named.iter().filter_map(|(at, &id)| Some((to(at)?, id))).collect(),
        })
    }
}
