//! How classes that no value of the program is are made of those that are: the fewest ops, without a class needing
//! itself.
//!
//! Classes are settled in the order of their costs, each once (Knuth's generalisation of Dijkstra's shortest paths), so
//! the work is linear in the terms looked at, however deep they lie and however often one is used.

use super::term::{Graph, Node};
use egg::{Id, Language};
use msc_ir::Op;
use std::collections::{BTreeMap, BTreeSet};

/// What a class is to a derivation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaf {
    /// It is there, at a cost.
    Given(usize),
    /// It cannot be had.
    Never,
    /// It is made by one of its terms.
    Made,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// What is given and every op that is made: their sum.
    Ops,
    /// The largest of what is given: a term is there when all that it takes is. Projections are terms too.
    Latest,
}

/// How a class comes about, and its cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Way {
    /// As [`Count`] says; what is used twice counts twice in a sum.
    pub cost: usize,
    /// Which of the class's terms makes it; `None` if it is given.
    pub term: Option<usize>,
}

/// The cheapest way of each class that `root` may be made of, `root` itself being made by a term. Among ways of one cost
/// it is the first term. Terms are ops that `usable` accepts.
pub fn cheapest(
    graph: &Graph,
    root: Id,
    count: Count,
    leaf: impl Fn(Id) -> Leaf,
    usable: impl Fn(&Op) -> bool,
) -> BTreeMap<Id, Way> {
    let root = graph.find(root);
    // Terms by the classes that they take, and for each class's term how many of those are not settled yet.
    let mut takers: BTreeMap<Id, Vec<(Id, usize)>> = BTreeMap::new();
    let mut waits: BTreeMap<(Id, usize), usize> = BTreeMap::new();
    let mut ready: BTreeSet<(usize, Id, Option<usize>)> = BTreeSet::new();
    let mut seen = BTreeSet::from([root]);
    let mut todo = vec![root];
    while let Some(class) = todo.pop() {
        let is = if class == root { Leaf::Made } else { leaf(class) };
        match is {
            Leaf::Given(cost) => {
                ready.insert((cost, class, None));
                continue;
            }
            Leaf::Never => continue,
            Leaf::Made => {}
        }
        for (t, node) in graph[class].nodes.iter().enumerate() {
            let fits = match node {
                Node::Op { op, .. } => usable(graph.analysis.op(*op)),
                Node::Project { .. } | Node::Leaf(_) => count == Count::Latest,
            };
            if !fits {
                continue;
            }
            let args: BTreeSet<Id> = node.children().iter().map(|&a| graph.find(a)).collect();
            waits.insert((class, t), args.len());
            if args.is_empty() {
                ready.insert((usize::from(count == Count::Ops), class, Some(t)));
            }
            for a in args {
                takers.entry(a).or_default().push((class, t));
                if seen.insert(a) {
                    todo.push(a);
                }
            }
        }
    }
    let mut out: BTreeMap<Id, Way> = BTreeMap::new();
    while let Some((cost, class, term)) = ready.pop_first() {
        if out.contains_key(&class) {
            continue;
        }
        out.insert(class, Way { cost, term });
        for &(taker, t) in takers.get(&class).into_iter().flatten() {
            let Some(left) = waits.get_mut(&(taker, t)) else { continue };
            *left -= 1;
            if *left == 0 {
                let args = graph[taker].nodes[t].children().iter();
                let costs = args.map(|&a| out.get(&graph.find(a)).map_or(usize::MAX, |w| w.cost));
                let cost = match count {
                    Count::Ops => costs.fold(1, usize::saturating_add),
                    Count::Latest => costs.fold(0, usize::max),
                };
                ready.insert((cost, taker, Some(t)));
            }
        }
    }
    out
}
