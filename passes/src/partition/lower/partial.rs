//! Partial values: what leaves a value partial along the axis, how far it may stay so, and what makes it whole.

use super::{Local, Lowering, Partial};
use crate::error::Result;
use crate::partition::facts::Fact;
use msc_ir::factor::FactorKind;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::{Module, Monoid, Op};

impl Lowering<'_> {
    /// Whether a value is a sum that a loop carries, as it comes to the body.
    pub(super) fn is_sum(&self, v: ValueId) -> bool {
        self.source.params().iter().position(|p| *p == v).is_some_and(|i| self.sums.contains(&(self.id, i)))
    }

    /// Whether an op only puts elements elsewhere, each once.
    pub(super) fn only_moves(&self, id: OpId) -> bool {
        let data = self.source.op(id);
        let elements = |v: ValueId| self.source.ty(v).elements();
        match &data.op {
            Op::Reshape(_) | Op::Permute(_) => true,
            Op::Broadcast(_) => elements(data.operands[0]) == elements(data.results[0]),
            _ => false,
        }
    }

    /// The operand of an update of a slice that may stay a partial sum: what is written into a sum that a loop carries,
    /// and used for nothing else.
    pub(super) fn written(&self, id: OpId) -> Result<Option<(usize, Partial)>> {
        let data = self.source.op(id);
        if !self.is_sum(data.operands[0]) {
            return Ok(None);
        }
        let mut v = data.operands[1];
        let partial = self.local(v)?.partial.filter(|p| p.monoid == Monoid::Sum);
        // Somebody else who needs it whole combines it anyway.
        loop {
            if self.source.value(v).uses.len() != 1 || self.source.results().contains(&v) {
                return Ok(None);
            }
            match self.source.def(v) {
                Some((def, _)) if self.only_moves(def) => {
                    v = self.source.op(def).operands[0];
                }
                _ => return Ok(partial.map(|p| (1, p))),
            }
        }
    }

    /// The operand of a product, quotient or sum that may stay a partial sum, because every part is scaled or summed
    /// alike: it has no other use, and what scales it is whole.
    pub(super) fn scaled(&self, id: OpId) -> Result<Option<(usize, Partial)>> {
        let data = self.source.op(id);
        let may = match &data.op {
            Op::Binary(b) if b.kind == BinaryKind::Multiply => 0..2,
            Op::Binary(b) if b.kind == BinaryKind::Divide => 0..1,
            Op::Reduce(r) if r.monoid == Monoid::Sum => 0..1,
            _ => return Ok(None),
        };
        let mut found = None;
        for i in may {
            let v = data.operands[i];
            let Some(p) = self.local(v)?.partial else { continue };
            let float = self.source.ty(v).dtype.is_float();
            let once = self.source.value(v).uses.len() == 1 && !self.source.results().contains(&v);
            if p.monoid != Monoid::Sum || !float || !once || found.is_some() {
                return Ok(None);
            }
            found = Some((i, p));
        }
        Ok(found)
    }

    /// Lowers a combination of what is partial along this axis too, as one; false if `id` is not that.
    pub(super) fn all_reduce(
        &mut self,
        module: &mut Module,
        id: OpId,
        monoid: Monoid,
        axes: &Axes,
    ) -> Result<bool> {
        let data = self.source.op(id);
        let Local { value, partial: Some(p) } = self.local(data.operands[0])? else { return Ok(false) };
        if p.monoid != monoid {
            return Ok(false);
        }
        let mut axes = axes.clone();
        axes.push(self.split.axis);
        axes.sort();
        let v = self.graph.add1(module, Collective::AllReduce { monoid, axes }, &[value], data.loc)?;
        self.keep_fact(data.results[0], v);
        self.locals[data.results[0].0 as usize] = Some(Local { value: v, partial: None });
        Ok(true)
    }

    /// The monoid by which result `r` of an op comes out partial.
    pub(super) fn reduced(&self, id: OpId, r: usize) -> Result<Option<Monoid>> {
        let rule = self.problem.atoms.rule_in(self.scope, id);
        let mut out: Option<Monoid> = None;
        for (f, factor) in rule.factors.iter().enumerate() {
            let monoid = match factor.kind {
                FactorKind::Reduce(m) => m,
                FactorKind::Range => Monoid::Sum,
                _ => continue,
            };
            if rule.in_result(r, f) || !self.is_split(id, f) {
                continue;
            }
            match out {
                Some(m) if m != monoid => {
                    return Err(self.broken("an op reduces split dimensions by two monoids"));
                }
                _ => out = Some(monoid),
            }
        }
        Ok(out)
    }

    /// Whether the split cuts a factor of an op.
    pub(super) fn is_split(&self, id: OpId, f: usize) -> bool {
        self.problem.atoms.factor_in(self.scope, id, f).iter().any(|a| self.split.atoms.contains(a))
    }

    /// The whole form of a value: combined once, where it is first needed.
    pub(super) fn whole(&mut self, module: &mut Module, v: ValueId, by: Option<OpId>) -> Result<ValueId> {
        let local = self.local(v)?;
        let Some(partial) = local.partial else { return Ok(local.value) };
        let value = self.combine(module, local.value, &partial, by)?;
        self.locals[v.0 as usize] = Some(Local { value, partial: None });
        Ok(value)
    }

    /// What op `id` leaves partial.
    pub(super) fn partial(&self, module: &Module, id: OpId, monoid: Monoid) -> Partial {
        let split = self.split_names(module, id).join(", ");
        let because = format!("{} reduces a split dimension: {split}", self.place(module, id));
        Partial { monoid, because, loc: self.source.op(id).loc }
    }

    pub(super) fn combine(
        &mut self,
        module: &mut Module,
        v: ValueId,
        partial: &Partial,
        needed_by: Option<OpId>,
    ) -> Result<ValueId> {
        let axes = Axes::from_slice(&[self.split.axis]);
        let op = Collective::AllReduce { monoid: partial.monoid, axes };
        let needed = needed_by.map(|o| format!("{} needs it whole", self.place(module, o)));
        let needed = needed.unwrap_or_else(|| "it is a result of the program".into());
        let made = self.graph.add1(module, op, &[v], partial.loc)?;
        self.facts.insert(made, Fact { comes: partial.because.clone(), needed });
        Ok(made)
    }

    /// The split dimensions that an op reduces, by the parameters that have them.
    pub(super) fn split_names(&self, module: &Module, id: OpId) -> Vec<String> {
        let rule = self.problem.atoms.rule_in(self.scope, id);
        let mut out = Vec::new();
        for (f, factor) in rule.factors.iter().enumerate() {
            if !matches!(factor.kind, FactorKind::Reduce(_) | FactorKind::Range) {
                continue;
            }
            for atom in self.problem.atoms.factor_in(self.scope, id, f) {
                if self.split.atoms.contains(&atom) {
                    out.push(self.problem.name(module, atom));
                }
            }
        }
        out
    }
}
