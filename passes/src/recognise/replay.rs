//! Replaying a reason: the slice of the program between a named op's inputs and outputs, on random inputs,
//! against the op's definition.
//!
//! Nothing of the engine takes part: the slice is cut out of the original program by its own operand edges.

use super::check::random::Random;
use super::engine::region::{At, Region};
use super::engine::run::{CutValue, Reason};
use super::report::RegionReport;
use crate::error::{PassError, Result};
use msc_ir::factor::resize::resize_graph;
use msc_ir::interp::{self, Mode};
use msc_ir::ops::reshape::Reshape;
use msc_ir::{Graph, LocId, Module, Tensor, TensorType, ValueDef, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Elements of the largest input beyond which rows are left out: the interpreter is slow, and rows are alike.
const LARGE: usize = 1 << 14;

/// Rows kept of a dimension that is cut.
const FEW: usize = 2;

/// Replays a reason on the graphs as they were when its region was built (`recognised` is what the module became,
/// and holds the definitions of named ops): the largest difference of an output, relative to
/// its largest element (at least 1), over all seeds, in wide mode. A `real` equality shows rounded literals only,
/// see [`super::check::tolerance`].
///
/// # Errors
/// If the slice is not closed: an output depends on something that is not an input. Then the union was wrong, or
/// an input is a sum that the rule made and no value of the program.
pub fn replay(recognised: &Module, report: &RegionReport, reason: &Reason) -> Result<f64> {
    // Recognition only adds graphs and constants, so the old graphs fit in the new module.
    let mut module = recognised.clone();
    for (spec, source) in report.specs.iter().zip(&report.sources) {
        module.set_graph(spec.graph, source.clone());
    }
    let (egraph, region) = Region::build(module, &report.specs);
    let mut module = egraph.analysis.module;
    let slice = Slice::new(&region, report, reason)?;
    let (program, named) = slice.graphs(&mut module)?;
    let mut worst = 0.0f64;
    for &seed in &reason.seeds {
        let mut rng = Random::new(seed);
        let inputs: Vec<Tensor> = module
            .graph(program)
            .param_types()
            .iter()
            .map(|t| Tensor::from_f64s(t, &(0..t.elements()).map(|_| rng.small()).collect::<Vec<_>>()))
            .collect();
        let before = interp::run(&module, program, &inputs, Mode::Wide)?;
        let after = interp::run(&module, named, &inputs, Mode::Wide)?;
        for (a, b) in before.iter().zip(&after) {
            worst = worst.max(super::check::difference(a, b));
        }
    }
    Ok(worst)
}

struct Slice<'r> {
    region: &'r Region,
    report: &'r RegionReport,
    reason: &'r Reason,
    /// Inputs that are values of the program: the op's, and those of ops that give it inputs.
    inputs: Vec<&'r CutValue>,
    /// Inputs that get random values: they depend on something other than the other inputs.
    free: Vec<usize>,
    /// For each value of a free input, which.
    cut: BTreeMap<At, usize>,
}

impl<'r> Slice<'r> {
    fn new(region: &'r Region, report: &'r RegionReport, reason: &'r Reason) -> Result<Slice<'r>> {
        let unknown = |v: &&CutValue| v.values.is_empty() && v.given_by.is_none();
        if let Some(v) = reason.inputs.iter().find(unknown) {
            return Err(broken(format!("{} of {} is no value of the program", v.name, reason.rule)));
        }
        let mut inputs: Vec<&CutValue> = Vec::new();
        let mut todo = vec![reason];
        while let Some(r) = todo.pop() {
            for v in &r.inputs {
                match v.given_by {
                    Some((op, _)) if v.values.is_empty() => todo.extend(given(report, r, op)),
                    _ if inputs.iter().any(|i| i.values == v.values) => {}
                    _ => inputs.push(v),
                }
            }
        }
        let values = |skip: usize| -> BTreeSet<At> {
            let others = inputs.iter().enumerate().filter(|(i, _)| *i != skip);
            others.flat_map(|(_, v)| v.values.iter().copied()).collect()
        };
        let closed = |i: usize| {
            let cut = values(i);
            let Some(&first) = inputs[i].values.first() else { return true };
            let mut todo = vec![first];
            let mut seen = BTreeSet::new();
            while let Some(at) = todo.pop() {
                if cut.contains(&at) || !seen.insert(at) {
                    continue;
                }
                let operands = region.operands(at);
                let part = &region.parts[at.part].graph;
                let leaf = operands.is_empty() && matches!(part.value(at.value).def, ValueDef::Param(_));
                if leaf && region.known(at).is_none() {
                    return false;
                }
                todo.extend(operands);
            }
            true
        };
        let free: Vec<usize> = (0..inputs.len()).filter(|&i| !closed(i)).collect();
        let mut cut = BTreeMap::new();
        for &i in &free {
            for &at in &inputs[i].values {
                cut.insert(at, i);
            }
        }
        Ok(Slice { region, report, reason, inputs, free, cut })
    }

    /// The program's slice and the named op, as graphs with the same parameters and results.
    fn graphs(&self, module: &mut Module) -> Result<(msc_ir::GraphId, msc_ir::GraphId)> {
        let small = |g: Graph, module: &mut Module| -> Result<Graph> {
            let types = g.param_types();
            if types.iter().all(|t| t.elements() <= LARGE) {
                return Ok(g);
            }
            let few: Vec<TensorType> = types
                .iter()
                .map(|t| {
                    let last = t.rank().saturating_sub(1);
                    t.with_shape(
                        t.shape.iter().enumerate().map(|(d, &n)| if d < last { n.min(FEW) } else { n }),
                    )
                })
                .collect();
            Ok(resize_graph(module, &g, &few)?)
        };
        let mut program = Graph::new("slice");
        let mut made = self.params(&mut program);
        let outputs: Vec<At> = self.outputs();
        let results: Vec<ValueId> = outputs
            .iter()
            .map(|&at| self.copy(module, &mut program, &mut made, at))
            .collect::<Result<_>>()?;
        program.set_results(results);
        let mut named = Graph::new("named");
        let mut made = self.params(&mut named);
        let given = self.apply(module, &mut named, &mut made, self.reason)?;
        let mut results = Vec::new();
        for o in self.reason.outputs.iter().filter(|o| !o.values.is_empty()) {
            let at = o.values[0];
            let want = self.region.parts[at.part].graph.ty(at.value).clone();
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
        let (program, named) = (small(program, module)?, small(named, module)?);
        Ok((module.add_graph(program), module.add_graph(named)))
    }

    /// The named op of a reason, on inputs that are values of the program or results of other named ops.
    fn apply(
        &self,
        module: &mut Module,
        g: &mut Graph,
        made: &mut BTreeMap<At, ValueId>,
        reason: &Reason,
    ) -> Result<Vec<ValueId>> {
        let mut operands = Vec::new();
        for input in &reason.inputs {
            let mut v = match (input.values.first(), input.given_by) {
                (Some(&at), _) => self.copy(module, g, made, at)?,
                (None, Some((op, index))) => {
                    let other = given(self.report, reason, op);
                    let other = other.ok_or_else(|| broken("an input is given by an unknown op"))?;
                    let given = self.apply(module, g, made, other)?;
                    *given.get(index as usize).ok_or_else(|| broken("no such result"))?
                }
                (None, None) => return Err(broken(format!("{} is no value of the program", input.name))),
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

    fn outputs(&self) -> Vec<At> {
        self.reason.outputs.iter().filter_map(|o| o.values.first().copied()).collect()
    }

    fn params(&self, g: &mut Graph) -> BTreeMap<At, ValueId> {
        let params: BTreeMap<usize, ValueId> = self
            .free
            .iter()
            .map(|&i| {
                let at = self.inputs[i].values[0];
                (i, g.add_param(self.region.parts[at.part].graph.ty(at.value).clone()))
            })
            .collect();
        self.cut.iter().map(|(&at, i)| (at, params[i])).collect()
    }

    /// Copies the ops that a value is computed by, down to the cut.
    fn copy(
        &self,
        module: &mut Module,
        g: &mut Graph,
        made: &mut BTreeMap<At, ValueId>,
        at: At,
    ) -> Result<ValueId> {
        let mut todo = vec![at];
        while let Some(&next) = todo.last() {
            if made.contains_key(&next) {
                todo.pop();
                continue;
            }
            let operands = self.region.operands(next);
            let missing: Vec<At> = operands.iter().copied().filter(|o| !made.contains_key(o)).collect();
            if !missing.is_empty() {
                todo.extend(missing);
                continue;
            }
            let part = &self.region.parts[next.part].graph;
            match part.def(next.value) {
                None => {
                    if let Some(band) = self.region.known(next) {
                        let made_here = band.build(module, g, part.ty(next.value))?;
                        made.insert(next, made_here);
                        todo.pop();
                        continue;
                    }
                    // A parameter: of its source, or a leaf that is no input.
                    let source = operands.first().and_then(|o| made.get(o)).copied();
                    let source = source.ok_or_else(|| {
                        broken(format!("{} depends on more than its inputs", self.reason.rule))
                    })?;
                    made.insert(next, source);
                }
                Some((op, _)) => {
                    let data = part.op(op);
                    let args: Vec<ValueId> = operands.iter().map(|o| made[o]).collect();
                    let types = data.results.iter().map(|&r| part.ty(r).clone()).collect();
                    let new = g.add_typed(data.op.clone(), &args, types, data.loc);
                    for (&r, v) in data.results.iter().zip(new) {
                        // A value of the cut stays what the cut says.
                        made.entry(self.region.at(next.part, r)).or_insert(v);
                    }
                }
            }
            todo.pop();
        }
        Ok(made[&at])
    }
}

/// The reason of the op that gives an input.
fn given<'r>(report: &'r RegionReport, of: &Reason, op: egg::Id) -> Option<&'r Reason> {
    let mut all = report.reasons.iter().chain(&report.unused);
    all.find(|r| r.op == op && r.fused != of.fused)
}

fn broken(message: impl Into<String>) -> PassError {
    PassError::Broken { pass: "recognise", message: message.into() }
}
