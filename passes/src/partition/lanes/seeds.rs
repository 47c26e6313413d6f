//! Where lanes begin: sums over experts.
//!
//! A group of terms of one sum is a seed if the terms are isomorphic, use state of their own, and differ by a number
//! besides: the expert's, which orders them. Gradients by the projections of one activation, say, are isomorphic too, but
//! nothing numbers them.

use super::super::sums::{inner_nodes, leaves, roots};
use super::tie::Bundles;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::slice::Slice;
use msc_ir::{Graph, GraphId, Op, ValueDef};
use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Finds the sums over experts of all graphs. The number of lanes is the first one's.
pub(super) fn plant(bundles: &mut Bundles<'_>) {
    for id in bundles.graphs.clone() {
        let g = bundles.graph(id);
        let inner = inner_nodes(g);
        let form = forms(g);
        for op in roots(g, &inner) {
            let mut groups: Vec<(u64, Vec<ValueId>)> = Vec::new();
            for v in leaves(g, op, &inner) {
                let f = form[v.0 as usize];
                match groups.iter_mut().find(|(known, _)| *known == f) {
                    Some((_, list)) => list.push(v),
                    None => groups.push((f, vec![v])),
                }
            }
            for (_, terms) in groups {
                if terms.len() > 1 && (bundles.lanes == 0 || bundles.lanes == terms.len()) {
                    seed(bundles, id, &terms);
                }
            }
        }
    }
}

/// The last additions of trees that meet several lanes; `of` gives a value's bundle and lane.
pub(super) fn over_lanes(
    g: &Graph,
    inner: &[bool],
    of: impl Fn(ValueId) -> Option<(usize, usize)>,
) -> BTreeSet<OpId> {
    let lanes = |root: OpId| -> BTreeSet<usize> {
        leaves(g, root, inner).into_iter().filter_map(|v| Some(of(v)?.1)).collect()
    };
    roots(g, inner).filter(|&root| lanes(root).len() > 1).collect()
}

fn seed(bundles: &mut Bundles<'_>, g: GraphId, terms: &[ValueId]) {
    let mark = bundles.mark();
    if bundles.tie(g, terms).is_none() {
        return;
    }
    let Some(order) = bundles.numbers[mark.1..].iter().find_map(|n| ranked(n)) else {
        return bundles.back(mark);
    };
    if !order.is_sorted() {
        bundles.back(mark);
        let terms: Vec<ValueId> = order.iter().map(|&i| terms[i]).collect();
        if bundles.tie(g, &terms).is_none() {
            return;
        }
    }
    let entry = bundles.entry;
    let g = bundles.graph(entry);
    let matrix = |v: &ValueId| matches!(g.value(*v).def, ValueDef::Param(_)) && g.ty(*v).rank() > 1;
    if bundles.list[mark.0..].iter().any(|b| b.graph == entry && b.values.first().is_some_and(matrix)) {
        bundles.lanes = terms.len();
    } else {
        bundles.back(mark);
    }
}

/// The order of the lanes by their numbers, if these follow each other at equal distances.
fn ranked(numbers: &[i64]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by_key(|&i| numbers[i]);
    let steps: Vec<i64> = order.windows(2).map(|w| numbers[w[1]] - numbers[w[0]]).collect();
    let even = steps.iter().all(|&s| s > 0 && s == steps[0]);
    even.then_some(order)
}

/// For each value a number that is equal for values of one form: the same ops down to parameters and constants of the
/// same types. It only proposes; [`Bundles::tie`] proves.
fn forms(g: &Graph) -> Vec<u64> {
    let mut out = vec![0; g.value_count()];
    for &p in g.params() {
        out[p.0 as usize] = number(&g.ty(p));
    }
    for (_, data) in g.ops() {
        let operands: Vec<u64> = data.operands.iter().map(|v| out[v.0 as usize]).collect();
        let op = match &data.op {
            Op::Constant(_) => 0,
            Op::Slice(Slice::Static { stride, .. }) => number(stride),
            op => number(op),
        };
        for (n, &r) in data.results.iter().enumerate() {
            out[r.0 as usize] = number(&(op, &operands, n, g.ty(r)));
        }
    }
    out
}

fn number(x: &impl Hash) -> u64 {
    let mut h = DefaultHasher::new();
    x.hash(&mut h);
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::ranked;

    #[test]
    fn lanes_are_ordered_by_their_numbers() {
        assert_eq!(ranked(&[2, 0, 1]), Some(vec![1, 2, 0]));
        assert_eq!(ranked(&[8, 4, 0]), Some(vec![2, 1, 0]));
        assert_eq!(ranked(&[0, 1, 3]), None);
        assert_eq!(ranked(&[1, 1]), None);
    }
}
