//! Generators and checkers for tests: random ops of every family, the splitting test of factor rules, random
//! graphs. Built with the feature `testing`.

pub mod cases;
pub mod graphs;
pub mod layout;
pub mod models;
pub mod reducers;
pub mod rng;
pub mod split;
pub mod stack;

pub use cases::Case;
pub use rng::Rng;

use crate::interp::{Mode, run};
use crate::{Graph, LocId, Module, Op, Tensor};

/// Makes a random case of one family.
pub type Generator = fn(&mut Rng) -> Case;

/// Every family's generator, by name.
pub fn families() -> Vec<(&'static str, Generator)> {
    [cases::FAMILIES, reducers::FAMILIES, models::FAMILIES].concat()
}

/// Parses a module in text form and runs its last graph.
///
/// # Errors
/// What the parser or the interpreter says.
pub fn run_text(source: &str, inputs: &[Tensor], mode: Mode) -> crate::Result<Vec<Tensor>> {
    let m = crate::text::parse(source)?;
    let last = m
        .graphs()
        .last()
        .map(|(id, _)| id)
        .ok_or_else(|| crate::IrError::unsupported("testing", "the module has no graph"))?;
    run(&m, last, inputs, mode)
}

/// Evaluates one op on tensors by way of a graph of its own.
///
/// # Errors
/// What inference, the verifier or the interpreter says.
pub fn eval(module: &Module, op: impl Into<Op>, inputs: &[Tensor], mode: Mode) -> crate::Result<Vec<Tensor>> {
    let mut m = module.clone();
    let mut g = Graph::new("op");
    let params: Vec<_> = inputs.iter().map(|t| g.add_param(t.ty())).collect();
    let out = g.add(&m, op, &params, LocId::UNKNOWN)?;
    g.set_results(out.to_vec());
    let id = m.add_graph(g);
    crate::verify::verify(&m)?;
    run(&m, id, inputs, mode)
}
