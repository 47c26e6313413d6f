//! The ops of a program against the types of their buffers.

use super::check::ProgramError;
use super::{Action, Program};
use crate::graph::OpData;
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::types::TensorType;
use smallvec::SmallVec;

/// Checks that each instruction's op, inferred at the types of the buffers it reads, gives those of the buffers
/// it writes, and that ops of one rank hold no collectives. `module` is the one the ops refer to. The program
/// must have passed [`super::check::check`].
///
/// # Errors
/// [`ProgramError::Form`] for the first op that does not fit.
pub fn check_ops(p: &Program, module: &Module) -> Result<(), ProgramError> {
    let mut local = vec![None; module.graphs().count()];
    for (at, i) in p.instructions.iter().enumerate() {
        let Some(op) = i.action.op() else { continue };
        if !matches!(i.action, Action::Collective { .. }) && communicates(module, op, &mut local) {
            let message = format!("{} holds a collective", op.name());
            return Err(ProgramError::Form { at, action: i.action.name(), message });
        }
        let reads: SmallVec<[&TensorType; 4]> = i.reads.iter().map(|&b| &p.buffer(b).ty).collect();
        let form = |message: String| ProgramError::Form { at, action: i.action.name(), message };
        let inferred = op.infer(&reads, module).map_err(|e| form(e.to_string()))?;
        if !inferred.iter().eq(i.writes.iter().map(|&b| &p.buffer(b).ty)) {
            let writes: Vec<&TensorType> = i.writes.iter().map(|&b| &p.buffer(b).ty).collect();
            return Err(form(format!("{} gives {inferred:?}, the buffers are {writes:?}", op.name())));
        }
    }
    Ok(())
}

/// Whether an op, or a graph it refers to, communicates. `known` remembers what was found for each graph.
fn communicates(module: &Module, op: &Op, known: &mut [Option<bool>]) -> bool {
    if let Op::Collective(c) = op {
        return !c.axes().is_empty();
    }
    op.callees().into_iter().any(|g| graph_communicates(module, g, known))
}

fn graph_communicates(module: &Module, id: GraphId, known: &mut [Option<bool>]) -> bool {
    let Some(graph) = module.try_graph(id) else { return false };
    if let Some(k) = known[id.0 as usize] {
        return k;
    }
    let ops: Vec<&OpData> = graph.ops().map(|(_, o)| o).collect();
    let found = ops.iter().any(|o| communicates(module, &o.op, known));
    known[id.0 as usize] = Some(found);
    found
}
