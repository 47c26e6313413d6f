//! Definitions in the place of fused ops.

use crate::error::Result;
use crate::graph::{Graph, OpId, ValueId};
use crate::module::Module;
use crate::op::Op;

/// A graph in which the fused ops that `which` names are the ops that define them, at the fused op's place in the source.
/// Parameters and results stay; fused ops inside of definitions do too.
///
/// # Errors
/// If a graph does not define operands before uses.
pub fn inline(module: &Module, source: &Graph, which: impl Fn(&Op) -> bool) -> Result<Graph> {
    let mut out = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for &p in source.params() {
        map[p.0 as usize] = Some(out.add_param(source.ty(p).clone()));
    }
    for (id, data) in source.ops() {
        let definition = match &data.op {
            Op::Fused(fused) if which(&data.op) => fused.definition,
            _ => {
                out.copy_op(source, id, &mut map)?;
                continue;
            }
        };
        let inner = module.graph(definition);
        let mut here: Vec<Option<ValueId>> = vec![None; inner.value_count()];
        for (&p, &v) in inner.params().iter().zip(&data.operands) {
            here[p.0 as usize] = map[v.0 as usize];
        }
        let from = out.op_count();
        for &op in inner.order() {
            out.copy_op(inner, op, &mut here)?;
        }
        for i in from..out.op_count() {
            out.set_loc(OpId(i as u32), data.loc);
        }
        for (&r, &v) in data.results.iter().zip(inner.results()) {
            map[r.0 as usize] = here[v.0 as usize];
        }
    }
    out.set_results(source.results().iter().filter_map(|r| map[r.0 as usize]).collect());
    Ok(out)
}
