//! The verifier: what every pass may rely on, and must leave behind.
//!
//! Checked: every live op's operands are defined before it in the order; use lists hold exactly the operand
//! positions of live ops; each op's inference gives its result types; sizes fit in memory; entries describe
//! every parameter and result, and donated state has the type of the result that replaces it; calls form no
//! cycle and fused ops' definitions contain plain ops only.

use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueDef, ValueId};
use crate::module::{GraphId, Module};
use crate::op::{Op, Operation};
use crate::ops::call::wires;
use crate::outside::Outside;
use crate::types::TensorType;
use smallvec::SmallVec;

/// Verifies a module.
///
/// # Errors
/// The first violation found.
pub fn verify(module: &Module) -> Result<()> {
    let n = module.graphs().count();
    let mut state = vec![0u8; n];
    for (id, _) in module.graphs() {
        no_cycle(module, id, &mut state)?;
    }
    for (_, g) in module.graphs() {
        verify_graph(module, g)?;
    }
    for (kind, id) in module.definitions() {
        let g = module.graph(id);
        let plain = |op: &Op| !matches!(op, Op::Fused(_) | Op::Collective(_)) && wires(op).is_empty();
        if !g.ops().all(|(_, o)| plain(&o.op)) {
            return Err(broken(g, format!("the definition of {} holds ops that are not plain", kind.name())));
        }
    }
    for e in &module.entries {
        let g = module.try_graph(e.graph).ok_or_else(|| IrError::Structure {
            graph: e.name.clone(),
            message: "the entry's graph does not exist".into(),
        })?;
        if e.params.len() != g.params().len() || e.results.len() != g.results().len() {
            return Err(broken(g, "the entry does not describe every parameter and result".into()));
        }
        let params = e.params.iter().map(|p| (&p.stack, &p.sharding)).zip(g.params());
        let results = e.results.iter().map(|r| (&r.stack, &r.sharding)).zip(g.results());
        for ((stack, sharding), &v) in params.chain(results).filter(|((s, _), _)| !s.is_empty()) {
            let ranks: usize = sharding.axes(0).iter().map(|&a| module.mesh.size(a)).product();
            if g.ty(v).shape.first().and_then(|n| n.checked_mul(ranks)) != Some(stack.len()) {
                let names: Vec<&str> = stack.iter().map(|m| m.name.as_str()).collect();
                return Err(broken(g, format!("{} does not hold {}", g.ty(v), names.join(", "))));
            }
        }
        for (p, &v) in e.params.iter().zip(g.params()) {
            if let Some(r) = p.alias {
                let result = g.results().get(r as usize).map(|&r| g.ty(r));
                if result != Some(g.ty(v)) {
                    return Err(IrError::ty(
                        format!("@{}", g.name),
                        format!("donated argument {} is {}, result {r} is {result:?}", p.name, g.ty(v)),
                    ));
                }
            }
        }
        Outside::check(e).map_err(|message| broken(g, message))?;
    }
    Ok(())
}

fn broken(g: &Graph, message: String) -> IrError {
    IrError::Structure { graph: g.name.clone(), message }
}

fn no_cycle(module: &Module, id: GraphId, state: &mut [u8]) -> Result<()> {
    match state[id.0 as usize] {
        2 => return Ok(()),
        1 => return Err(broken(module.graph(id), "the graph calls itself".into())),
        _ => state[id.0 as usize] = 1,
    }
    for (_, o) in module.graph(id).ops() {
        for c in o.op.callees() {
            if module.try_graph(c).is_none() {
                return Err(broken(module.graph(id), "a callee does not exist".into()));
            }
            no_cycle(module, c, state)?;
        }
    }
    state[id.0 as usize] = 2;
    Ok(())
}

/// Verifies one graph of a module.
///
/// # Errors
/// The first violation found.
pub fn verify_graph(module: &Module, g: &Graph) -> Result<()> {
    let mut defined = vec![false; g.value_count()];
    for (i, &p) in g.params().iter().enumerate() {
        if g.value(p).def != ValueDef::Param(i as u32) {
            return Err(broken(g, format!("parameter {i} is not defined as one")));
        }
        if g.ty(p).checked_bytes().is_none() {
            return Err(IrError::ty(
                format!("@{}", g.name),
                format!("parameter {i} of type {} is too large", g.ty(p)),
            ));
        }
        defined[p.0 as usize] = true;
    }
    for (id, data) in g.ops() {
        for &v in &data.operands {
            if !defined[v.0 as usize] {
                return Err(broken(g, format!("{} uses a value before its definition", data.op.name())));
            }
        }
        let types: SmallVec<[&TensorType; 4]> = data.operands.iter().map(|&v| g.ty(v)).collect();
        let inferred = data.op.infer(&types, module)?;
        if !inferred.iter().eq(data.results.iter().map(|&v| g.ty(v))) {
            let held: Vec<&TensorType> = data.results.iter().map(|&v| g.ty(v)).collect();
            return Err(broken(
                g,
                format!("{} has results {held:?}, inference says {inferred:?}", data.op.name()),
            ));
        }
        for (i, &r) in data.results.iter().enumerate() {
            if g.value(r).def != ValueDef::Result(id, i as u32) || defined[r.0 as usize] {
                return Err(broken(g, format!("result {i} of {} is defined elsewhere", data.op.name())));
            }
            if g.ty(r).checked_bytes().is_none() {
                return Err(IrError::ty(
                    data.op.name(),
                    format!("result of type {} does not fit in memory", g.ty(r)),
                ));
            }
            defined[r.0 as usize] = true;
        }
    }
    uses(g, &defined)?;
    if g.results().iter().any(|r| !defined[r.0 as usize]) {
        return Err(broken(g, "a result is not defined".into()));
    }
    Ok(())
}

/// The use lists of defined values hold every operand position of the live ops, each once, and nothing else.
fn uses(g: &Graph, defined: &[bool]) -> Result<()> {
    // Where each live op's operands begin among those of all.
    let mut first: Vec<Option<usize>> = vec![None; g.op_count()];
    let mut positions = 0;
    for (id, data) in g.ops() {
        first[id.0 as usize] = Some(positions);
        positions += data.operands.len();
    }
    let mut listed = vec![false; positions];
    for v in (0..g.value_count() as u32).map(ValueId).filter(|v| defined[v.0 as usize]) {
        for u in &g.value(v).uses {
            let at = first.get(u.op.0 as usize).copied().flatten();
            let at = at.filter(|_| g.op(u.op).operands.get(u.index as usize) == Some(&v));
            match at.map(|at| &mut listed[at + u.index as usize]) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(broken(g, format!("the use list of value {} has what is no use", v.0))),
            }
        }
    }
    for (id, data) in g.ops() {
        let from = first[id.0 as usize].unwrap_or(0);
        if !listed[from..from + data.operands.len()].iter().all(|&l| l) {
            return Err(broken(g, format!("a use by {} is not in the use list", data.op.name())));
        }
    }
    Ok(())
}
