//! A graph at other sizes.

use super::Starts;
use super::graph::graph_factors;
use super::solve::{AtomId, AtomList, Atoms};
use crate::error::{IrError, Result};
use crate::graph::{Graph, ValueId};
use crate::module::Module;
use crate::op::Operation;
use crate::types::{Shape, TensorType};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Re-derives a graph for parameters of other sizes: each atom takes the size the parameters give it, ops take
/// the sizes of theirs. In a composite dimension that leaves a choice the outermost atom takes the change.
///
/// # Errors
/// [`IrError::Unsupported`] where the sizes contradict each other, where an atom that some op needs whole would
/// change, or where an op has no form at the new sizes.
pub fn resize_graph(module: &mut Module, source: &Graph, params: &[TensorType]) -> Result<Graph> {
    let atoms = Atoms::solve(module, source);
    rebuild(module, source, &atoms, 0, BTreeMap::new(), params, &[])
}

/// A graph at other sizes of its atoms, as [`Atoms::solve`] found them; atoms that `sizes` does not name keep theirs.
///
/// # Errors
/// As [`resize_graph`].
pub fn resize_atoms(
    module: &mut Module,
    source: &Graph,
    atoms: &Atoms,
    sizes: &BTreeMap<AtomId, usize>,
) -> Result<Graph> {
    let size = |a: AtomId| sizes.get(&a).copied().unwrap_or_else(|| atoms.size(a));
    let known: BTreeMap<AtomId, usize> = atoms.all().into_iter().map(|a| (a, size(a))).collect();
    let params: Vec<TensorType> = source
        .params()
        .iter()
        .map(|&v| {
            let ty = source.ty(v);
            ty.with_shape((0..ty.rank()).map(|d| match atoms.dim(v, d).as_slice() {
                [] => ty.shape[d],
                list => list.iter().map(|&a| size(a)).product(),
            }))
        })
        .collect();
    rebuild(module, source, atoms, 0, known, &params, &[])
}

/// A graph at the sizes of one shard: `starts` names the factors of [`graph_rule`](super::solve::graph_rule)
/// that are split, all others keep their size. Where it is empty the sizes decide, as in [`resize_graph`].
///
/// # Errors
/// As [`resize_graph`].
pub fn shard_graph(
    module: &mut Module,
    source: &Graph,
    params: &[TensorType],
    results: &[TensorType],
    starts: &Starts,
) -> Result<Graph> {
    let atoms = Atoms::solve(module, source);
    let (_, known) = graph_factors(source, &atoms);
    rebuild(module, source, &atoms, 0, unsplit(&atoms, &known, starts), params, results)
}

/// The sizes of the atoms behind factors that are not split; none where nothing is said to be split.
pub(super) fn unsplit(atoms: &Atoms, known: &[AtomId], starts: &Starts) -> BTreeMap<AtomId, usize> {
    let whole = |(f, &a): (usize, &AtomId)| {
        (!starts.is_empty() && !starts.contains_key(&f)).then(|| (a, atoms.size(a)))
    };
    known.iter().enumerate().filter_map(whole).collect()
}

/// A graph solved as scope `scope` at the sizes that `known` and the types say.
pub(super) fn rebuild(
    module: &mut Module,
    source: &Graph,
    atoms: &Atoms,
    scope: usize,
    known: BTreeMap<AtomId, usize>,
    params: &[TensorType],
    results: &[TensorType],
) -> Result<Graph> {
    let refuse = |m: String| IrError::unsupported(format!("resize @{}", source.name), m);
    let sizes = atom_sizes(source, atoms, scope, known, params, results).map_err(refuse)?;
    let local = |v: ValueId| -> TensorType {
        let t = source.ty(v);
        let shape: Shape = (0..t.rank())
            .map(|d| {
                let list = atoms.dim_in(scope, v, d);
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

/// The new size of every atom that a parameter (or a result, where given) has, some of them `known` before.
fn atom_sizes(
    source: &Graph,
    atoms: &Atoms,
    scope: usize,
    known: BTreeMap<AtomId, usize>,
    params: &[TensorType],
    results: &[TensorType],
) -> std::result::Result<BTreeMap<AtomId, usize>, String> {
    let mut dims: Vec<(AtomList, usize, usize)> = Vec::new();
    for (&v, new) in source.params().iter().zip(params).chain(source.results().iter().zip(results)) {
        let old = source.ty(v);
        if new.dtype != old.dtype || new.rank() != old.rank() {
            return Err(format!("{old} cannot become {new}"));
        }
        for d in 0..old.rank() {
            let list = atoms.dim_in(scope, v, d);
            if list.is_empty() && old.shape[d] != new.shape[d] {
                return Err(format!("dimension {d} of {old} has no factor to resize"));
            }
            dims.push((list, old.shape[d], new.shape[d]));
        }
    }
    let mut sizes = known;
    // Beside others, what is needed whole keeps its size.
    for a in dims.iter().filter(|(l, ..)| l.len() > 1).flat_map(|(l, ..)| l).filter(|a| atoms.is_whole(**a)) {
        sizes.entry(*a).or_insert_with(|| atoms.size(*a));
    }
    // Simple dimensions first, then composite ones as long as one atom is unknown, then by choice.
    loop {
        let mut choice: Option<(AtomId, usize)> = None;
        let mut progress = false;
        for (list, _, new) in &dims {
            let unknown: AtomList = list.iter().copied().filter(|a| !sizes.contains_key(a)).collect();
            let known: usize = list.iter().filter_map(|a| sizes.get(a)).product();
            match unknown.as_slice() {
                [] => {}
                [one] => {
                    let n = new.checked_div(known).unwrap_or(atoms.size(*one));
                    sizes.insert(*one, n);
                    progress = true;
                }
                [.., last] => {
                    choice.get_or_insert((*last, atoms.size(*last)));
                }
            }
        }
        if !progress {
            let Some((atom, n)) = choice else { break };
            sizes.insert(atom, n);
        }
    }
    for (list, old, new) in &dims {
        if !list.is_empty() && list.iter().map(|a| sizes[a]).product::<usize>() != *new {
            return Err(format!("a dimension of {old} cannot take size {new} beside the others"));
        }
        if let Some(a) = list.iter().find(|&&a| sizes[&a] != atoms.size(a) && atoms.is_whole(a)) {
            return Err(format!("a dimension of size {} is needed whole", atoms.size(*a)));
        }
    }
    Ok(sizes)
}
