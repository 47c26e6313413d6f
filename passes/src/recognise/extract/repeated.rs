//! Named ops that would do the work of others again.

use super::super::engine::region::Region;
use super::super::engine::term::{Graph, Node};
use super::select::{Choice, Key, Selection, Thing};
use egg::Id;
use msc_ir::ops::fused::FusedKind;
use msc_ir::{Op, Operation};
use std::collections::{BTreeMap, BTreeSet};

/// A named op that is not to be used: it does all that another of its kind used beside it does, and takes as
/// many inputs or more; or both give one value (the same norm, seen in its own type and in the one that it computes in), and it
/// gives less of what is needed, or as much that the program has earlier: of a gated gradient and its mirror image, which
/// takes the forward's operand for the gradient and so gives the forward's result, the gradient is the later.
pub(super) fn repeated(graph: &Graph, region: &Region, s: &Selection) -> Option<usize> {
    let name = |o: usize| graph.analysis.op(s.named[o].op).name();
    let given = results(graph);
    // Only ops that share an operand or a result can repeat each other; a step has thousands that share none.
    let touched = |o: usize| {
        let results = given.get(&s.named[o].tuple).into_iter().flatten();
        s.named[o].args.iter().chain(results).copied()
    };
    let mut sharing: BTreeMap<(usize, Id), Vec<usize>> = BTreeMap::new();
    for &(p, a) in s.instances.keys() {
        touched(a).for_each(|c| sharing.entry((p, c)).or_default().push(a));
    }
    for &(p, a) in s.instances.keys() {
        let others: BTreeSet<usize> =
            touched(a).filter_map(|c| sharing.get(&(p, c))).flatten().copied().collect();
        for b in others {
            if a == b || name(a) != name(b) {
                continue;
            }
            // Of two that differ in the order of their operands alone, one goes. A norm of what a sum is of is another.
            let in_place_of = |b: usize, a: usize| {
                sum(graph, s, a).is_some() == sum(graph, s, b).is_some()
                    && (s.named[b].args.len(), b) < (s.named[a].args.len(), a)
                    && s.named[b].args.iter().all(|x| s.named[a].args.contains(x))
            };
            if in_place_of(b, a) {
                return Some(a);
            }
            // Which of two gives more says nothing where one only takes more.
            if s.named[a].args.len() < s.named[b].args.len() && in_place_of(a, b) {
                return Some(b);
            }
            let of = |o: usize| given.get(&s.named[o].tuple);
            let gives = |o: usize, x: &BTreeSet<Id>| gives(graph, region, s, (p, o), x);
            if let (Some(x), Some(y)) = (of(a), of(b))
                && !x.is_disjoint(y)
                && !two_of_one(graph, s, a, b)
                && (gives(a, x), b) < (gives(b, y), a)
            {
                return Some(a);
            }
        }
    }
    None
}

/// Whether two ops take one value first, and each takes something that the other does not: two norms of one value,
/// which have its statistic in common.
fn two_of_one(graph: &Graph, s: &Selection, a: usize, b: usize) -> bool {
    let own = |x: &[Id], y: &[Id]| x.iter().any(|c| !y.contains(c));
    let (x, y) = (&s.named[a].args, &s.named[b].args);
    rows(graph, s, a) == rows(graph, s, b) && own(x, y) && own(y, x)
}

/// What an op takes first; of a norm with a residual the sum.
fn rows(graph: &Graph, s: &Selection, o: usize) -> Option<Id> {
    sum(graph, s, o).or_else(|| s.named[o].args.first().copied())
}

/// The rows of a norm with a residual, which it gives too.
fn sum(graph: &Graph, s: &Selection, o: usize) -> Option<Id> {
    use FusedKind::{LayerNorm, RmsNorm};
    let Op::Fused(f) = graph.analysis.op(s.named[o].op) else { return None };
    if !matches!(f.kind, RmsNorm { residual: true, .. } | LayerNorm { residual: true, .. }) {
        return None;
    }
    graph.lookup(Node::Project { index: 2, tuple: [s.named[o].tuple] }).map(|c| graph.find(c))
}

/// For each op of several results the classes that are one of them.
fn results(graph: &Graph) -> BTreeMap<Id, BTreeSet<Id>> {
    let mut out: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    for c in graph.classes() {
        for node in &c.nodes {
            if let Node::Project { tuple, .. } = node {
                out.entry(graph.find(tuple[0])).or_default().insert(c.id);
            }
        }
    }
    out
}

/// How many needed things an op can give in a part, `results` or what is made of them, and how late they are in the program.
/// What another op was chosen for counts too: which of two it is says nothing about them.
fn gives(
    graph: &Graph,
    region: &Region,
    s: &Selection,
    (part, op): (usize, usize),
    results: &BTreeSet<Id>,
) -> (usize, u64) {
    let class = |k: &Key| match k.thing {
        Thing::Value(v) => region.class(graph, k.part, v),
        Thing::Class(c) => Some(graph.find(c)),
    };
    let given = s.choices.iter().filter(|(k, c)| match c {
        Choice::Named { op: chosen, .. } if k.part == part => {
            *chosen == op || class(k).is_some_and(|c| results.contains(&c))
        }
        _ => false,
    });
    given.fold((0, 0), |(n, late), (k, _)| (n + 1, late + u64::from(k.position)))
}
