//! Why a program communicates: for each collective, and each place where a layout may change, the two facts that
//! make it necessary.

use msc_ir::graph::{OpId, ValueId};
use msc_ir::{Graph, GraphId, Module, Operation};
use std::collections::BTreeMap;

/// Two facts that do not go together without communication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// How the value comes.
    pub comes: String,
    /// How it is needed.
    pub needed: String,
}

/// An op in words: its name, and where it is.
pub fn op_at(module: &Module, g: &Graph, op: OpId) -> String {
    let data = g.op(op);
    format!("{} at {}", data.op.name(), module.locations.describe(data.loc))
}

/// Facts by the result of the op that communicates.
pub type Facts = BTreeMap<(GraphId, ValueId), Fact>;

/// A module on its way through the mesh axes.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Local for the axes that are done.
    pub module: Module,
    /// What is known of its collectives.
    pub facts: Facts,
}
