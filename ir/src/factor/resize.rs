//! A graph at other sizes.

use super::solve::{AtomId, Atoms};
use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueId};
use crate::module::Module;
use crate::op::Operation;
use crate::types::{Shape, TensorType};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Re-derives a graph for parameters of other sizes: each atom takes the size the parameters give it, ops take
/// the sizes of theirs.
///
/// # Errors
/// [`IrError::Unsupported`] where the sizes contradict each other, where an atom that some op needs whole would
/// change, or where an op has no form at the new sizes.
pub fn resize_graph(module: &mut Module, source: &Graph, params: &[TensorType]) -> Result<Graph> {
    let refuse = |m: String| IrError::unsupported(format!("resize @{}", source.name), m);
    let atoms = Atoms::solve(module, source);
    let mut sizes: BTreeMap<AtomId, usize> = BTreeMap::new();
    for (&v, new) in source.params().iter().zip(params) {
        let old = source.ty(v);
        if new.dtype != old.dtype || new.rank() != old.rank() {
            return Err(refuse(format!("parameter {old} cannot become {new}")));
        }
        for d in 0..old.rank() {
            // In a composite dimension the outermost atom takes the change.
            let list = atoms.dim(v, d);
            let Some((&first, rest)) = list.split_first() else {
                if old.shape[d] == new.shape[d] {
                    continue;
                }
                return Err(refuse(format!("dimension {d} of {old} has no factor to resize")));
            };
            let inner: usize =
                rest.iter().map(|&a| sizes.get(&a).copied().unwrap_or(atoms.size(a))).product();
            if inner == 0 || !new.shape[d].is_multiple_of(inner) {
                return Err(refuse(format!("dimension {d} of {new} does not divide by {inner}")));
            }
            let n = new.shape[d] / inner;
            if n != atoms.size(first) && atoms.is_whole(first) {
                return Err(refuse(format!("dimension {d} of {old} is needed whole")));
            }
            if *sizes.entry(first).or_insert(n) != n {
                return Err(refuse(format!("dimension {d} of {new} contradicts another parameter")));
            }
        }
    }
    let local = |v: ValueId| -> TensorType {
        let t = source.ty(v);
        let shape: Shape = (0..t.rank())
            .map(|d| {
                let list = atoms.dim(v, d);
                if list.is_empty() {
                    return t.shape[d];
                }
                list.iter().map(|&a| sizes.get(&a).copied().unwrap_or(atoms.size(a))).product()
            })
            .collect();
        TensorType { dtype: t.dtype, shape }
    };
    let mut out = Graph::new(source.name.clone());
    let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
    for (&v, t) in source.params().iter().zip(params) {
        map[v.0 as usize] = Some(out.add_param(t.clone()));
    }
    for (_, data) in source.ops() {
        let operands: SmallVec<[ValueId; 4]> = data
            .operands
            .iter()
            .map(|v| map[v.0 as usize].ok_or_else(|| refuse("a value is used before it is defined".into())))
            .collect::<Result<_>>()?;
        let results: Vec<TensorType> = data.results.iter().map(|&r| local(r)).collect();
        let made =
            data.op.build_shard(module, &mut out, &operands, &results, &Default::default(), data.loc)?;
        for (old, new) in data.results.iter().zip(made) {
            map[old.0 as usize] = Some(new);
        }
    }
    let results: Vec<ValueId> = source.results().iter().filter_map(|r| map[r.0 as usize]).collect();
    out.set_results(results);
    Ok(out)
}
