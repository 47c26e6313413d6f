//! Factor rules and local forms of ops that run graphs on their own operands: loops and branches.

use super::graph::{factors_by, kind_of};
use super::resize::{rebuild, unsplit};
use super::solve::{AtomId, Atoms};
use super::{FactorKind, FactorRule, Starts};
use crate::error::Result;
use crate::graph::Graph;
use crate::module::{GraphId, Module};
use crate::types::TensorType;

/// What the graphs of such an op have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Region {
    /// A body whose results are its next parameters, and a condition on the same parameters.
    Loop,
    /// Alternatives of one signature.
    Branches,
}

/// The graphs' rule as one op, over scope 0's parameters and results, and the atom behind each factor.
///
/// A carry's layout must survive the body: its parameter and its result are the same atoms, to a fix-point over
/// all carries. A factor passes if it passes in every graph; a loop cannot leave a carry partial.
fn solve(module: &Module, region: Region, graphs: &[GraphId]) -> (Atoms, FactorRule, Vec<AtomId>) {
    let atoms = Atoms::solve_together(module, graphs, region == Region::Branches);
    let kind = |atom| {
        let mut kinds = graphs.iter().enumerate().map(|(s, &g)| kind_of(module.graph(g), &atoms, s, atom));
        let first = kinds.next().unwrap_or(FactorKind::Whole);
        let same = kinds.all(|k| k == first);
        match first {
            FactorKind::Pass if same => first,
            FactorKind::Reduce(_) if same && region == Region::Branches => first,
            _ => FactorKind::Whole,
        }
    };
    let (rule, known) = factors_by(module.graph(graphs[0]), &atoms, kind);
    (atoms, rule, known)
}

/// The rule over scope 0's parameters and results.
pub(crate) fn rule(module: &Module, region: Region, graphs: &[GraphId]) -> FactorRule {
    solve(module, region, graphs).1
}

/// The graphs at the sizes of one shard, added to the module, in the same order.
pub(crate) fn shards(
    module: &mut Module,
    region: Region,
    graphs: &[GraphId],
    operands: &[TensorType],
    results: &[TensorType],
    starts: &Starts,
) -> Result<Vec<GraphId>> {
    let (atoms, _, known) = solve(module, region, graphs);
    let fixed = unsplit(&atoms, &known, starts);
    let mut made: Vec<Graph> = Vec::new();
    for (s, &g) in graphs.iter().enumerate() {
        let source = module.graph(g).clone();
        let mine = if region == Region::Loop && s > 0 { &[] } else { results };
        made.push(rebuild(module, &source, &atoms, s, fixed.clone(), operands, mine)?);
    }
    Ok(made.into_iter().map(|g| module.add_graph(g)).collect())
}
