//! The reference interpreter: the specification in code, and the oracle of every rewrite. Matrix products go through a
//! library and data moves in typed loops, on one thread, so that results depend on nothing but the inputs (products of f64, and so the wide mode, in the last
//! bit on whether the machine multiplies and adds in one rounding).
//!
//! Two modes: [`Mode::Spec`] rounds after every op to the op's own type; [`Mode::Wide`] holds every float as
//! f64, so that what is left of a difference is the program's and not its rounding's.

pub mod lift;

use crate::dtype::DType;
use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueId};
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::tensor::Tensor;
use crate::types::TensorType;
use std::sync::Arc;

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
        self.lockstep(inputs, |cx, rows| cx.run(graph, rows))
    }

    /// Evaluates through [`Operation::eval_ranks`] with this rank alone: `eval` of the ops that run graphs.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn lockstep(
        &self,
        inputs: &[&Tensor],
        f: impl FnOnce(&RanksCx<'_>, Vec<Row>) -> Result<Vec<Row>>,
    ) -> Result<Vec<Tensor>> {
        let ranks = [self.rank];
        let cx = RanksCx { module: self.module, mode: self.mode, ranks: &ranks };
        let row: Row = inputs.iter().map(|&t| Arc::new(t.clone())).collect();
        let out = f(&cx, vec![row])?.pop().unwrap_or_default();
        Ok(out.into_iter().map(Arc::unwrap_or_clone).collect())
    }
}

/// The values that one rank gives to, or gets from, an op or a graph.
pub type Row = Vec<Arc<Tensor>>;

/// What an op may know while it is evaluated on several ranks in lockstep.
#[derive(Clone, Copy, Debug)]
pub struct RanksCx<'a> {
    module: &'a Module,
    mode: Mode,
    ranks: &'a [usize],
}

impl<'a> RanksCx<'a> {
    /// The module.
    pub fn module(&self) -> &'a Module {
        self.module
    }

    /// The ranks, ascending; rows are in this order.
    pub fn ranks(&self) -> &'a [usize] {
        self.ranks
    }

    /// The context of the rank of row `i`.
    pub fn of_row(&self, i: usize) -> EvalCx<'a> {
        EvalCx::new(self.module, self.mode, self.ranks[i])
    }

    /// The same for some of the ranks: those that take one way of a branch.
    pub fn subset<'b>(&self, ranks: &'b [usize]) -> RanksCx<'b>
    where
        'a: 'b,
    {
        RanksCx { module: self.module, mode: self.mode, ranks }
    }

    /// Runs a graph; `inputs[i]` are those of rank `ranks()[i]`, in held form.
    ///
    /// # Errors
    /// Those of its ops.
    pub fn run(&self, graph: GraphId, inputs: Vec<Row>) -> Result<Vec<Row>> {
        run_lockstep(self, graph, inputs)
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
        let mut row = Row::new();
        for (i, (t, w)) in mine.iter().zip(&want).enumerate() {
            if t.ty() != *w && t.ty() != cx.held(w) {
                return Err(IrError::ty(
                    format!("@{}", g.name),
                    format!("input {i} is {}, should be {w}", t.ty()),
                ));
            }
            row.push(Arc::new(t.converted(cx.held(w).dtype)));
        }
        held.push(row);
    }
    let ranks: Vec<usize> = (0..inputs.len()).collect();
    let out = RanksCx { module, mode, ranks: &ranks }.run(graph, held)?;
    Ok(out.into_iter().map(|row| row.into_iter().map(Arc::unwrap_or_clone).collect()).collect())
}

fn run_lockstep(cx: &RanksCx<'_>, graph: GraphId, inputs: Vec<Row>) -> Result<Vec<Row>> {
    let g = cx
        .module
        .try_graph(graph)
        .ok_or_else(|| IrError::attr("call", "graph", "is not a graph of the module"))?;
    let mut last_use = last_uses(g);
    for r in g.results() {
        last_use[r.0 as usize] = usize::MAX;
    }
    let mut env: Vec<Vec<Option<Arc<Tensor>>>> =
        cx.ranks.iter().map(|_| vec![None; g.value_count()]).collect();
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
        let operands: Vec<Row> = env
            .iter_mut()
            .map(|e| {
                let row: Result<Row> = data
                    .operands
                    .iter()
                    .map(|&v| e[v.0 as usize].clone().ok_or_else(|| missing(v)))
                    .collect();
                for &v in &data.operands {
                    if last_use[v.0 as usize] == at {
                        e[v.0 as usize] = None;
                    }
                }
                row
            })
            .collect::<Result<_>>()?;
        let outs = data.op.eval_ranks(operands, &types, cx)?;
        for (e, row) in env.iter_mut().zip(outs) {
            for (&r, t) in data.results.iter().zip(row) {
                if last_use[r.0 as usize] != UNUSED {
                    e[r.0 as usize] = Some(t);
                }
            }
        }
    }
    env.into_iter()
        .map(|e| g.results().iter().map(|&r| e[r.0 as usize].clone().ok_or_else(|| missing(r))).collect())
        .collect()
}

/// The mark of a value that no op uses.
const UNUSED: usize = usize::MAX - 1;

/// For each value the position in the order of the last op that uses it, or [`UNUSED`].
fn last_uses(g: &Graph) -> Vec<usize> {
    let mut last = vec![UNUSED; g.value_count()];
    for (at, (_, data)) in g.ops().enumerate() {
        for v in &data.operands {
            last[v.0 as usize] = at;
        }
    }
    last
}
