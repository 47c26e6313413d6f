//! The slice of a reason: its program and its named op as graphs with the same parameters and results.

use super::program::{Place, Program, place};
use super::small::small;
use crate::error::{PassError, Result};
use crate::recognise::engine::run::{CutValue, Made, Reason};
use crate::recognise::report::RegionReport;
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Graph, GraphId, LocId, Module, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The part of the program that a reason is about.
pub(super) struct Slice<'r> {
    program: &'r Program<'r>,
    report: &'r RegionReport,
    reason: &'r Reason,
    /// The values that inputs are, and those that what a rule built is made of.
    leaves: Vec<Vec<Place>>,
    /// Leaves that get random values: they depend on something other than the other leaves.
    free: Vec<usize>,
    /// For each value of a free leaf, which.
    cut: BTreeMap<Place, usize>,
    /// Parameters of the program that outputs are computed from and the op is not: by way of a factor of zero, if the
    /// reason is right. They get random values too, so that an output that does depend on one differs.
    strangers: BTreeSet<Place>,
}

impl<'r> Slice<'r> {
    /// The slice of a reason.
    ///
    /// # Errors
    /// If an input is no value of the program.
    pub fn new(program: &'r Program<'r>, report: &'r RegionReport, reason: &'r Reason) -> Result<Slice<'r>> {
        let unknown = |v: &&CutValue| v.values.is_empty() && v.given_by.is_none() && v.made_of.is_none();
        if let Some(v) = reason.inputs.iter().find(unknown) {
            return Err(broken(format!("{} of {} is no value of the program", v.name, reason.rule)));
        }
        let leaves = leaves(report, reason);
        let free: Vec<usize> = (0..leaves.len()).filter(|&i| !closed(program, &leaves, i)).collect();
        let mut cut = BTreeMap::new();
        for &i in &free {
            let all = leaves[i].iter().flat_map(|&at| reshaped(program, at));
            cut.extend(all.map(|at| (at, i)).collect::<Vec<_>>());
        }
        let derived =
            (0..leaves.len()).filter(|i| !free.contains(i)).filter_map(|i| leaves[i].first().copied());
        let strangers = strangers(program, outputs(reason).into_iter().chain(derived).collect(), &cut);
        Ok(Slice { program, report, reason, leaves, free, cut, strangers })
    }

    /// The program's slice and the named op, as graphs with the same parameters and results.
    ///
    /// # Errors
    /// If the record does not fit the program.
    pub fn graphs(&self, module: &mut Module) -> Result<(GraphId, GraphId)> {
        let mut program = Graph::new("slice");
        let mut made = self.params(module, &mut program)?;
        let outputs = outputs(self.reason);
        let results: Vec<ValueId> = outputs
            .iter()
            .map(|&at| self.copy(module, &mut program, &mut made, at))
            .collect::<Result<_>>()?;
        program.set_results(results);
        let mut named = Graph::new("named");
        let mut made = self.params(module, &mut named)?;
        let given = self.apply(module, &mut named, &mut made, self.reason)?;
        let mut results = Vec::new();
        for (o, &at) in self.reason.outputs.iter().filter(|o| !o.values.is_empty()).zip(&outputs) {
            let want = self.program.graph(at.0).ty(at.1).clone();
            let mut v = *given.get(o.result as usize).ok_or_else(|| broken("no such result"))?;
            for op in &o.layout {
                v = named.add1(module, op.clone(), &[v], LocId::UNKNOWN)?;
            }
            if *named.ty(v) != want {
                v = named.add1(module, Reshape { shape: want.shape }, &[v], LocId::UNKNOWN)?;
            }
            results.push(v);
        }
        named.set_results(results);
        let (program, named) = small(module, program, named)?;
        Ok((module.add_graph(program), module.add_graph(named)))
    }

    /// The named op of a reason, on inputs that are values of the program or results of other named ops.
    fn apply(
        &self,
        module: &mut Module,
        g: &mut Graph,
        made: &mut BTreeMap<Place, ValueId>,
        reason: &Reason,
    ) -> Result<Vec<ValueId>> {
        let mut operands = Vec::new();
        for input in &reason.inputs {
            let mut v = match (input.values.first(), input.given_by) {
                (Some(at), _) => self.copy(module, g, made, place(at))?,
                (None, Some((op, index))) => {
                    let other = given(self.report, reason, op);
                    let other = other.ok_or_else(|| broken("an input is given by an unknown op"))?;
                    let given = self.apply(module, g, made, other)?;
                    *given.get(index as usize).ok_or_else(|| broken("no such result"))?
                }
                (None, None) => {
                    let of = input.made_of.as_ref();
                    let of =
                        of.ok_or_else(|| broken(format!("{} is no value of the program", input.name)))?;
                    self.built(module, g, made, of)?
                }
            };
            for op in &input.layout {
                v = g.add1(module, op.clone(), &[v], LocId::UNKNOWN)?;
            }
            if *g.ty(v) != input.ty {
                v = g.add1(module, Reshape { shape: input.ty.shape.clone() }, &[v], LocId::UNKNOWN)?;
            }
            operands.push(v);
        }
        Ok(g.add(module, reason.fused.clone(), &operands, LocId::UNKNOWN)?.to_vec())
    }

    /// What a rule built.
    fn built(
        &self,
        module: &mut Module,
        g: &mut Graph,
        made: &mut BTreeMap<Place, ValueId>,
        of: &Made,
    ) -> Result<ValueId> {
        match of {
            Made::Value(ty, values) => {
                let at = values.first().ok_or_else(|| broken("an input is made of nothing"))?;
                let v = self.copy(module, g, made, place(at))?;
                if g.ty(v).shape == ty.shape {
                    return Ok(v);
                }
                Ok(g.add1(module, Reshape { shape: ty.shape.clone() }, &[v], LocId::UNKNOWN)?)
            }
            Made::Op(op, args) => {
                let args: Vec<ValueId> =
                    args.iter().map(|a| self.built(module, g, made, a)).collect::<Result<_>>()?;
                Ok(g.add1(module, (**op).clone(), &args, LocId::UNKNOWN)?)
            }
        }
    }

    fn params(&self, module: &Module, g: &mut Graph) -> Result<BTreeMap<Place, ValueId>> {
        let mut params = BTreeMap::new();
        for &i in &self.free {
            if let Some(&(part, v)) = self.leaves[i].first() {
                params.insert(i, g.add_param(self.program.graph(part).ty(v).clone()));
            }
        }
        let mut made: BTreeMap<Place, ValueId> = BTreeMap::new();
        for (&at, i) in &self.cut {
            let Some(&param) = params.get(i) else { continue };
            let ty = self.program.graph(at.0).ty(at.1);
            let v = match g.ty(param) == ty {
                true => param,
                false => g.add1(module, Reshape { shape: ty.shape.clone() }, &[param], LocId::UNKNOWN)?,
            };
            made.insert(at, v);
        }
        for &(part, v) in &self.strangers {
            made.insert((part, v), g.add_param(self.program.graph(part).ty(v).clone()));
        }
        Ok(made)
    }

    /// Copies the ops that a value is computed by, down to the cut.
    fn copy(
        &self,
        module: &mut Module,
        g: &mut Graph,
        made: &mut BTreeMap<Place, ValueId>,
        at: Place,
    ) -> Result<ValueId> {
        let mut todo = vec![at];
        while let Some(&next) = todo.last() {
            if made.contains_key(&next) {
                todo.pop();
                continue;
            }
            let operands = self.program.operands(next);
            let missing: Vec<Place> = operands.iter().copied().filter(|o| !made.contains_key(o)).collect();
            if !missing.is_empty() {
                todo.extend(missing);
                continue;
            }
            todo.pop();
            let part = self.program.graph(next.0);
            let Some((op, _)) = part.def(next.1) else {
                // A parameter: of its source, or a mask. Others are made.
                let v = match (self.program.known(next), operands.first()) {
                    (Some(band), _) => band.build(module, g, part.ty(next.1))?,
                    (None, Some(o)) => made[o],
                    (None, None) => {
                        return Err(broken(format!("{} needs a parameter of no source", self.reason.rule)));
                    }
                };
                made.insert(next, v);
                continue;
            };
            let data = part.op(op);
            if let (Op::Barrier(_), Some(o)) = (&data.op, operands.first()) {
                made.insert(next, made[o]);
                continue;
            }
            let args: Vec<ValueId> = operands.iter().map(|o| made[o]).collect();
            let types = data.results.iter().map(|&r| part.ty(r).clone());
            let new = g.add_typed(data.op.clone(), &args, types, data.loc);
            for (&r, v) in data.results.iter().zip(new) {
                // A value of the cut stays what the cut says.
                made.entry((next.0, r)).or_insert(v);
            }
        }
        Ok(made[&at])
    }
}

/// The program's outputs of the slice.
fn outputs(reason: &Reason) -> Vec<Place> {
    reason.outputs.iter().filter_map(|o| o.values.first()).map(place).collect()
}

/// The values that inputs are: the op's, and those of ops that give it inputs.
fn leaves(report: &RegionReport, reason: &Reason) -> Vec<Vec<Place>> {
    let mut leaves: Vec<Vec<Place>> = Vec::new();
    let mut todo = vec![reason];
    while let Some(r) = todo.pop() {
        for v in &r.inputs {
            if let (Some((op, _)), true) = (v.given_by, v.values.is_empty()) {
                todo.extend(given(report, r, op));
                continue;
            }
            let mut parts = vec![&v.values];
            let mut built: Vec<&Made> = v.made_of.iter().collect();
            while let Some(m) = built.pop() {
                match m {
                    Made::Value(_, values) => parts.push(values),
                    Made::Op(_, args) => built.extend(args.iter().rev()),
                }
            }
            for all in parts.into_iter().filter(|v| !v.is_empty()) {
                let leaf: Vec<Place> = all.iter().map(place).collect();
                if !leaves.contains(&leaf) {
                    leaves.push(leaf);
                }
            }
        }
    }
    leaves
}

/// Whether a leaf is computed from the other leaves, and from scalars of which nothing is known: a statistic from its
/// rows and an epsilon. Random, it would contradict whatever else the program computes from both.
fn closed(program: &Program<'_>, leaves: &[Vec<Place>], i: usize) -> bool {
    let others = leaves.iter().enumerate().filter(|(k, _)| *k != i);
    let cut: BTreeSet<Place> = others.flat_map(|(_, v)| v.iter().copied()).collect();
    let mut todo: Vec<Place> = leaves[i].first().copied().into_iter().collect();
    let mut seen = BTreeSet::new();
    let (mut of_leaves, mut of_scalars) = (false, false);
    while let Some(at) = todo.pop() {
        if cut.contains(&at) {
            of_leaves = true;
            continue;
        }
        if !seen.insert(at) {
            continue;
        }
        let operands = program.operands(at);
        if is_unknown(program, at, &operands) {
            of_scalars = true;
            if program.graph(at.0).ty(at.1).rank() > 0 {
                return false;
            }
        }
        todo.extend(operands);
    }
    of_leaves || !of_scalars
}

/// A value, and those above it of which it is the same elements in another shape.
fn reshaped(program: &Program<'_>, at: Place) -> Vec<Place> {
    let mut all = vec![at];
    loop {
        let at = all[all.len() - 1];
        let graph = program.graph(at.0);
        let Some((op, _)) = graph.def(at.1) else { return all };
        let same = match &graph.op(op).op {
            Op::Reshape(_) => true,
            Op::Broadcast(b) => b.dims.is_sorted(),
            _ => false,
        };
        match program.operands(at).first() {
            Some(&from)
                if same && graph.ty(at.1).elements() == program.graph(from.0).ty(from.1).elements() =>
            {
                all.push(from);
            }
            _ => return all,
        }
    }
}

/// Parameters that nothing is known of, between some values and the cut.
fn strangers(program: &Program<'_>, mut todo: Vec<Place>, cut: &BTreeMap<Place, usize>) -> BTreeSet<Place> {
    let (mut out, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while let Some(at) = todo.pop() {
        if cut.contains_key(&at) || !seen.insert(at) {
            continue;
        }
        let operands = program.operands(at);
        if is_unknown(program, at, &operands) {
            out.insert(at);
        }
        todo.extend(operands);
    }
    out
}

/// Whether a value, made of `operands`, is a parameter from outside that nothing is known of.
fn is_unknown(program: &Program<'_>, at: Place, operands: &[Place]) -> bool {
    operands.is_empty() && program.graph(at.0).def(at.1).is_none() && program.known(at).is_none()
}

/// The reason of the op that gives an input.
fn given<'r>(report: &'r RegionReport, of: &Reason, op: egg::Id) -> Option<&'r Reason> {
    let mut all = report.reasons.iter().chain(&report.unused);
    all.find(|r| r.op == op && r.fused != of.fused)
}

fn broken(message: impl Into<String>) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}
