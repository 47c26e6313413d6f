//! The reference interpreter: the specification in code, and the oracle of every rewrite. Never fast.
//!
//! Two modes: [`Mode::Spec`] rounds after every op to the op's own type; [`Mode::Wide`] holds every float as
//! f64, so that what is left of a difference is the program's and not its rounding's.

use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueId};
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::ops::collective::Collective;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// How floats are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the op's own type.
    Spec,
    /// In f64.
    Wide,
}

/// What an op may know while it is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct EvalCx<'a> {
    module: &'a Module,
    mode: Mode,
    rank: usize,
}

impl<'a> EvalCx<'a> {
    /// A context of a module.
    pub fn new(module: &'a Module, mode: Mode, rank: usize) -> EvalCx<'a> {
        EvalCx { module, mode, rank }
    }

    /// A context for ops that need none.
    pub(crate) fn detached(module: &'a Module) -> EvalCx<'a> {
        EvalCx::new(module, Mode::Spec, 0)
    }

    /// The module.
    pub fn module(&self) -> &'a Module {
        self.module
    }

    /// Whether floats are held as f64.
    pub fn is_wide(&self) -> bool {
        self.mode == Mode::Wide
    }

    /// The rank that evaluates.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The type in which a value of type `t` is held.
    pub fn held(&self, t: &TensorType) -> TensorType {
        match self.mode {
            Mode::Wide if t.dtype.is_float() => t.with_dtype(DType::F64),
            _ => t.clone(),
        }
    }

    /// Evaluates one op on one rank.
    ///
    /// # Errors
    /// The op's own.
    pub fn eval(&self, op: &Op, inputs: &[&Tensor], results: &[TensorType]) -> Result<Vec<Tensor>> {
        let held: Vec<TensorType> = results.iter().map(|t| self.held(t)).collect();
        op.eval(inputs, &held, self)
    }

    /// Runs a graph on one rank; inputs are already in held form.
    ///
    /// # Errors
    /// Those of its ops; [`IrError::Unsupported`] for a collective of more than one rank.
    pub fn run(&self, graph: GraphId, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let inputs = vec![inputs.iter().map(|&t| t.clone()).collect()];
        let mut out = run_lockstep(self.module, graph, inputs, self.mode, &[self.rank])?;
        Ok(out.pop().unwrap_or_default())
    }
}

/// Runs a graph on one rank.
///
/// # Errors
/// [`IrError::Type`] if the inputs do not fit the parameters; those of its ops.
pub fn run(module: &Module, graph: GraphId, inputs: &[Tensor], mode: Mode) -> Result<Vec<Tensor>> {
    let mut out = run_ranks(module, graph, &[inputs.to_vec()], mode)?;
    Ok(out.pop().unwrap_or_default())
}

/// Runs a graph on several ranks in lockstep: `inputs[r]` are rank `r`'s. Ranks are numbered as in
/// [`Module::mesh`].
///
/// # Errors
/// As [`run`].
pub fn run_ranks(
    module: &Module,
    graph: GraphId,
    inputs: &[Vec<Tensor>],
    mode: Mode,
) -> Result<Vec<Vec<Tensor>>> {
    let g = module.graph(graph);
    let cx = EvalCx::new(module, mode, 0);
    let mut held = Vec::new();
    for mine in inputs {
        let want = g.param_types();
        if mine.len() != want.len() {
            return Err(IrError::ty(
                format!("@{}", g.name),
                format!("takes {} inputs, got {}", want.len(), mine.len()),
            ));
        }
        let mut row = Vec::new();
        for (i, (t, w)) in mine.iter().zip(&want).enumerate() {
            if t.ty() != *w && t.ty() != cx.held(w) {
                return Err(IrError::ty(
                    format!("@{}", g.name),
                    format!("input {i} is {}, should be {w}", t.ty()),
                ));
            }
            row.push(t.converted(cx.held(w).dtype));
        }
        held.push(row);
    }
    let ranks: Vec<usize> = (0..inputs.len()).collect();
    run_lockstep(module, graph, held, mode, &ranks)
}

fn run_lockstep(
    module: &Module,
    graph: GraphId,
    inputs: Vec<Vec<Tensor>>,
    mode: Mode,
    ranks: &[usize],
) -> Result<Vec<Vec<Tensor>>> {
    let g = module
        .try_graph(graph)
        .ok_or_else(|| IrError::attr("call", "graph", "is not a graph of the module"))?;
    let mut last_use = last_uses(g);
    for r in g.results() {
        last_use[r.0 as usize] = usize::MAX;
    }
    let mut env: Vec<Vec<Option<Tensor>>> = ranks.iter().map(|_| vec![None; g.value_count()]).collect();
    for (e, row) in env.iter_mut().zip(inputs) {
        for (&p, t) in g.params().iter().zip(row) {
            e[p.0 as usize] = Some(t);
        }
    }
    let missing = |v: ValueId| IrError::Structure {
        graph: g.name.clone(),
        message: format!("value {} is used before it is defined", v.0),
    };
    for (at, (_, data)) in g.ops().enumerate() {
        let types: Vec<TensorType> = data.results.iter().map(|&r| g.ty(r).clone()).collect();
        let outs: Vec<Vec<Tensor>> = {
            let mut operands: Vec<Vec<&Tensor>> = Vec::with_capacity(ranks.len());
            for e in &env {
                let row: Result<Vec<&Tensor>> = data
                    .operands
                    .iter()
                    .map(|&v| e[v.0 as usize].as_ref().ok_or_else(|| missing(v)))
                    .collect();
                operands.push(row?);
            }
            match &data.op {
                Op::Collective(c) if !c.axes().is_empty() && ranks.len() > 1 => {
                    collective(module, c, &operands, ranks)?
                }
                op => match crate::ops::call::callee(op) {
                    Some(callee) => {
                        let rows = operands.iter().map(|r| r.iter().map(|&t| t.clone()).collect()).collect();
                        run_lockstep(module, callee, rows, mode, ranks)?
                    }
                    None => {
                        let mut rows = Vec::with_capacity(ranks.len());
                        for (&rank, row) in ranks.iter().zip(&operands) {
                            rows.push(EvalCx::new(module, mode, rank).eval(op, row, &types)?);
                        }
                        rows
                    }
                },
            }
        };
        for (e, row) in env.iter_mut().zip(outs) {
            for (&r, t) in data.results.iter().zip(row) {
                e[r.0 as usize] = Some(t);
            }
            for &v in &data.operands {
                if last_use[v.0 as usize] == at {
                    e[v.0 as usize] = None;
                }
            }
        }
    }
    env.into_iter()
        .map(|e| g.results().iter().map(|&r| e[r.0 as usize].clone().ok_or_else(|| missing(r))).collect())
        .collect()
}

/// For each value the position in the order of the last op that uses it.
fn last_uses(g: &Graph) -> Vec<usize> {
    let mut last = vec![usize::MAX; g.value_count()];
    for (at, (_, data)) in g.ops().enumerate() {
        for v in &data.operands {
            last[v.0 as usize] = at;
        }
    }
    last
}

fn collective(
    module: &Module,
    c: &Collective,
    operands: &[Vec<&Tensor>],
    ranks: &[usize],
) -> Result<Vec<Vec<Tensor>>> {
    let mut out: Vec<Vec<Tensor>> = vec![Vec::new(); ranks.len()];
    for (i, &rank) in ranks.iter().enumerate() {
        let group = module.mesh.group(rank, c.axes());
        if group.first() != Some(&rank) {
            continue;
        }
        let at: Vec<usize> = group.iter().filter_map(|r| ranks.iter().position(|x| x == r)).collect();
        debug_assert_eq!(at[0], i);
        let row: Vec<&Tensor> = at.iter().map(|&k| operands[k][0]).collect();
        for (&k, t) in at.iter().zip(c.combine_group(&row)?) {
            out[k] = vec![t];
        }
    }
    Ok(out)
}
