//! The factor rule of a graph seen as one op.

use super::solve::{AtomId, Atoms};
use super::{DimFactors, FactorKind, FactorRule};
use crate::graph::{Graph, OpId, ValueId};
use crate::module::Module;
use crate::monoid::Monoid;
use crate::types::TensorType;

/// The factor rule of a graph seen as one op.
///
/// An atom of a parameter or result is a factor. It passes unless some op needs it whole; it is reduced by a
/// monoid if every result without it is directly the result of a reduction over it; otherwise, where a result
/// lacks it, it is whole, unless it passes and the result does not depend on any value that has it.
pub fn graph_rule(module: &Module, graph: &Graph) -> FactorRule {
    graph_factors(graph, &Atoms::solve(module, graph)).0
}

/// [`graph_rule`] of solved atoms, and the atom behind each factor.
pub fn graph_factors(graph: &Graph, atoms: &Atoms) -> (FactorRule, Vec<AtomId>) {
    factors_by(graph, atoms, |atom| kind_of(graph, atoms, 0, atom))
}

/// The rule over scope 0's parameters and results with the kinds that `kind` says, and the atom behind each
/// factor.
pub(crate) fn factors_by(
    graph: &Graph,
    atoms: &Atoms,
    kind: impl Fn(AtomId) -> FactorKind,
) -> (FactorRule, Vec<AtomId>) {
    let params: Vec<&TensorType> = graph.params().iter().map(|&v| graph.ty(v)).collect();
    let results = graph.result_types();
    let mut rule = FactorRule::empty(&params, &results);
    let mut known: Vec<AtomId> = Vec::new();
    let sides = graph.params().iter().map(|&v| (true, v)).chain(graph.results().iter().map(|&v| (false, v)));
    let (mut p, mut r) = (0, 0);
    for (is_param, v) in sides {
        for d in 0..graph.ty(v).rank() {
            let mut list = DimFactors::new();
            for atom in atoms.dim(v, d) {
                let f = known.iter().position(|&k| k == atom).unwrap_or_else(|| {
                    known.push(atom);
                    rule.factor(atoms.size(atom), kind(atom))
                });
                list.push(f);
            }
            if is_param {
                rule.operands[p][d] = list;
            } else {
                rule.results[r][d] = list;
            }
        }
        if is_param { p += 1 } else { r += 1 }
    }
    (rule, known)
}

/// The monoid by which op `op` of scope 0 reduces `atom`, if it does.
pub fn reduces(atoms: &Atoms, op: OpId, atom: AtomId) -> Option<Monoid> {
    reduces_in(atoms, 0, op, atom)
}

fn reduces_in(atoms: &Atoms, scope: usize, op: OpId, atom: AtomId) -> Option<Monoid> {
    let rule = atoms.rule_in(scope, op);
    rule.factors.iter().enumerate().find_map(|(f, factor)| match factor.kind {
        FactorKind::Reduce(m) if atoms.factor_in(scope, op, f).contains(&atom) => Some(m),
        _ => None,
    })
}

/// [`reduces`], where the op needs no start for it: with an operand that lacks the factor (the input of a
/// scatter) only one shard may contribute that operand, unless it is the identity.
fn reduces_alone(atoms: &Atoms, scope: usize, op: OpId, atom: AtomId) -> Option<Monoid> {
    let has = |dims: &Vec<DimFactors>| {
        dims.iter().any(|d| d.iter().any(|&f| atoms.factor_in(scope, op, f).contains(&atom)))
    };
    let mut operands = atoms.rule_in(scope, op).operands.iter().enumerate();
    let neutral = atoms.is_neutral_in(scope, op);
    reduces_in(atoms, scope, op, atom).filter(|_| operands.all(|(i, o)| i == 0 && neutral || has(o)))
}

/// The kind of an atom in a graph solved as scope `scope`, seen as one op.
pub(crate) fn kind_of(graph: &Graph, atoms: &Atoms, scope: usize, atom: AtomId) -> FactorKind {
    if atoms.is_whole(atom) {
        return FactorKind::Whole;
    }
    let mut monoid: Option<Monoid> = None;
    let mut direct: Vec<OpId> = Vec::new();
    let lacking: Vec<ValueId> =
        graph.results().iter().copied().filter(|&v| !atoms.value_has_in(scope, v, atom)).collect();
    let depends = if lacking.is_empty() { Vec::new() } else { dependants(graph, atoms, scope, atom) };
    let mut independent = false;
    for v in lacking {
        if !depends[v.0 as usize] {
            independent = true;
            continue;
        }
        let Some((op, _)) = graph.def(v) else { return FactorKind::Whole };
        match reduces_alone(atoms, scope, op, atom) {
            Some(m) if monoid.is_none_or(|old| old == m) => {
                monoid = Some(m);
                direct.push(op);
            }
            _ => return FactorKind::Whole,
        }
        if !graph.value(v).uses.is_empty() {
            return FactorKind::Whole;
        }
    }
    // A reduction inside whose value is used further makes the factor whole.
    let inside = graph.ops().any(|(id, _)| {
        !direct.contains(&id)
            && atoms.rule_in(scope, id).factors.iter().enumerate().any(|(f, factor)| {
                !matches!(factor.kind, FactorKind::Pass) && atoms.factor_in(scope, id, f).contains(&atom)
            })
    });
    match monoid {
        _ if inside => FactorKind::Whole,
        // Combining the shards' results would combine the same value several times.
        Some(_) if independent => FactorKind::Whole,
        Some(m) => FactorKind::Reduce(m),
        None => FactorKind::Pass,
    }
}

/// Which values are computed from values that have the atom.
fn dependants(graph: &Graph, atoms: &Atoms, scope: usize, atom: AtomId) -> Vec<bool> {
    let mut out = vec![false; graph.value_count()];
    for &p in graph.params() {
        out[p.0 as usize] = atoms.value_has_in(scope, p, atom);
    }
    for (_, data) in graph.ops() {
        let any = data.operands.iter().any(|v| out[v.0 as usize]);
        for &r in &data.results {
            out[r.0 as usize] = any || atoms.value_has_in(scope, r, atom);
        }
    }
    out
}
