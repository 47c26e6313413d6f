//! A training step under test: the program, its data, and what the unchanged program computes.

use super::edit::Edited;
use crate::meta;
use msc_ir::interp::{EvalCx, Mode};
use msc_ir::module::{Entry, GraphId};
use msc_ir::op::{Op, Operation};
use msc_ir::{Graph, IrError, Module, Result, Tensor, TensorType, ValueId};
use msc_runtime::check::{Compute, Report, check_outputs};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// All values of the entry graph in one run of it.
pub struct Record {
    graph: Graph,
    values: Vec<Option<Arc<Tensor>>>,
    /// Results of the entry graph, floats as f64 in wide mode.
    pub outputs: Vec<Arc<Tensor>>,
}

impl Record {
    /// The value as it was in this run.
    pub fn value(&self, v: ValueId) -> Option<&Tensor> {
        self.values.get(v.0 as usize)?.as_deref()
    }
}

/// A training step with its data and the record of a run.
pub struct Subject {
    /// The fixture's name.
    pub name: String,
    /// The program after `simplify`: calls inlined, no dead op, the same bits.
    pub module: Module,
    /// The entry.
    pub entry: Entry,
    /// Inputs in the entry's order.
    pub inputs: Vec<Tensor>,
    /// What the reference computed.
    pub reference: Vec<Tensor>,
    /// Results that become parameters again: (result, parameter).
    pub carried: Vec<(usize, usize)>,
    /// What the step computes in.
    pub compute: Compute,
    /// The unchanged program in its own types.
    pub spec: Record,
    /// The unchanged program in f64.
    pub wide: Record,
    /// The verdict on the unchanged program.
    pub baseline: Report,
    /// How far rounding moves each output; [`super::judge`] fills it in.
    pub(super) noise: OnceLock<Vec<f64>>,
}

impl Subject {
    /// Reads a fixture's folder and runs the unchanged program twice.
    ///
    /// # Errors
    /// What is wrong with the fixture, as text.
    pub fn open(dir: &Path) -> std::result::Result<Subject, String> {
        let name = dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let mut module = msc_frontends::read_file(&dir.join("model.mlir")).map_err(|e| e.to_string())?.module;
        let compute = Compute::of_module(&module);
        msc_passes::simplify::simplify(&mut module).map_err(|e| e.to_string())?;
        let entry = module.entry().map_err(|e| e.to_string())?.clone();
        let graph = module.graph(entry.graph);
        let inputs = meta::tensors(&dir.join("inputs.npz"), &graph.param_types())?;
        let reference = meta::tensors(&dir.join("outputs.npz"), &graph.result_types())?;
        let carried = meta::carried(&entry, dir);
        let run = |mode| {
            let edited = Edited { graph: graph.clone(), origin: vec![None; graph.op_count()] };
            execute(&module, &edited, &inputs, mode, None, &|_| true).map_err(|e| format!("{name}: {e}"))
        };
        let (spec, wide) = (run(Mode::Spec)?, run(Mode::Wide)?);
        let outputs: Vec<Tensor> = spec.outputs.iter().map(|t| (**t).clone()).collect();
        let baseline = check_outputs(&entry, &carried, &inputs, &outputs, &reference, compute);
        let noise = OnceLock::new();
        Ok(Subject { name, module, entry, inputs, reference, carried, compute, spec, wide, baseline, noise })
    }

    /// Runs a mutant: what the changes do not reach is taken from the unchanged program's record.
    ///
    /// # Errors
    /// Those of the interpreter.
    pub fn run(&self, module: &Module, changed: GraphId, edited: &Edited, mode: Mode) -> Result<Vec<Tensor>> {
        let record = if mode == Mode::Spec { &self.spec } else { &self.wide };
        let reached = |op: &Op| op.callees().iter().any(|&g| reaches(module, g, changed));
        let out = if changed == self.entry.graph {
            execute(module, edited, &self.inputs, mode, Some(record), &|_| false)?
        } else {
            let graph = module.graph(self.entry.graph).clone();
            let mut origin = vec![None; graph.op_count()];
            graph.order().iter().for_each(|&id| origin[id.0 as usize] = Some(id));
            execute(module, &Edited { graph, origin }, &self.inputs, mode, Some(record), &reached)?
        };
        Ok(out.outputs.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// The verdict of `msc run --check` on outputs.
    pub fn check(&self, outputs: &[Tensor]) -> Report {
        check_outputs(&self.entry, &self.carried, &self.inputs, outputs, &self.reference, self.compute)
    }
}

fn reaches(module: &Module, from: GraphId, to: GraphId) -> bool {
    from == to
        || module.graph(from).ops().any(|(_, d)| d.op.callees().iter().any(|&g| reaches(module, g, to)))
}

/// Runs a graph op by op. An op that copies one of `record`'s graph and gets the very tensors that it got there
/// gives what it gave there, unless it is `dirty`.
fn execute(
    module: &Module,
    edited: &Edited,
    inputs: &[Tensor],
    mode: Mode,
    record: Option<&Record>,
    dirty: &dyn Fn(&Op) -> bool,
) -> Result<Record> {
    let g = &edited.graph;
    let cx = EvalCx::new(module, mode, 0);
    let recorded = |v: ValueId| record.and_then(|r| r.values.get(v.0 as usize)?.clone());
    let mut values: Vec<Option<Arc<Tensor>>> = vec![None; g.value_count()];
    for (&p, t) in g.params().iter().zip(inputs) {
        // A graph and its mutant number their parameters alike.
        let held = || Arc::new(t.converted(cx.held(&t.ty()).dtype));
        values[p.0 as usize] = Some(recorded(p).unwrap_or_else(held));
    }
    let missing = || IrError::Structure { graph: g.name.clone(), message: "a value is missing".into() };
    for (id, data) in g.ops() {
        let operands: Vec<Arc<Tensor>> = data
            .operands
            .iter()
            .map(|v| values[v.0 as usize].clone().ok_or_else(missing))
            .collect::<Result<_>>()?;
        let copied = edited.origin.get(id.0 as usize).copied().flatten();
        let before = record.zip(copied).map(|(r, o)| r.graph.op(o));
        if let Some(b) = before
            && !dirty(&data.op)
            && b.operands.iter().zip(&operands).all(|(&v, t)| recorded(v).is_some_and(|r| Arc::ptr_eq(&r, t)))
        {
            for (&new, &old) in data.results.iter().zip(&b.results) {
                values[new.0 as usize] = recorded(old);
            }
            continue;
        }
        let types: Vec<TensorType> = data.results.iter().map(|&r| g.ty(r).clone()).collect();
        let refs: Vec<&Tensor> = operands.iter().map(|t| &**t).collect();
        for (i, t) in cx.eval(&data.op, &refs, &types)?.into_iter().enumerate() {
            // A result that came out the same stops the change from spreading.
            let same = before
                .and_then(|b| recorded(b.results[i]))
                .filter(|r| r.shape == t.shape && r.data.bytes() == t.data.bytes());
            values[data.results[i].0 as usize] = Some(same.unwrap_or_else(|| Arc::new(t)));
        }
    }
    let outputs: Result<Vec<Arc<Tensor>>> =
        g.results().iter().map(|r| values[r.0 as usize].clone().ok_or_else(missing)).collect();
    Ok(Record { graph: g.clone(), outputs: outputs?, values })
}
