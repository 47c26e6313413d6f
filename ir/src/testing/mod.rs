//! Generators and checkers for tests: random ops of every family, the splitting test of factor rules, random
//! graphs. Built with the feature `testing`.

pub mod cases;
pub mod rng;
pub mod split;

pub use cases::Case;
pub use rng::Rng;

use crate::interp::{Mode, run};
use crate::{Graph, LocId, Module, Op, Tensor};

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
