//! What a rule built for an operand, as a formula of values of the program.

use super::derive::{Count, Leaf, Way, cheapest};
use super::region::At;
use super::term::{Graph, Node};
use egg::Id;
use msc_ir::{Op, TensorType};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How something that a rule built is made of values of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// A value of this type: the values that it is, as in [`super::run::CutValue::values`].
    Value(TensorType, Vec<At>),
    /// An op on others.
    Op(Box<Op>, Vec<Made>),
}

/// Ops of the largest formula. A residual gradient has a term for every use of a layer's input; what is used twice is
/// written twice, so a formula may be far larger than its classes.
const MOST_OPS: usize = 512;

/// How a class is made of values of the program by ops that a rule builds, if it is.
pub(super) fn made(graph: &Graph, values: &BTreeMap<Id, Vec<At>>, class: Id) -> Option<Made> {
    let class = graph.find(class);
    let found: RefCell<BTreeMap<Id, Vec<At>>> = RefCell::default();
    let leaf = |c: Id| {
        let at = values.get(&c).cloned().unwrap_or_else(|| reshaped(graph, values, c));
        if at.is_empty() {
            return Leaf::Made;
        }
        found.borrow_mut().insert(c, at);
        Leaf::Given(0)
    };
    if leaf(class) == Leaf::Given(0) {
        return value(graph, &found.borrow(), class);
    }
    let ways = cheapest(graph, class, Count::Ops, leaf, built);
    (ways.get(&class)?.cost <= MOST_OPS).then(|| formula(graph, &found.borrow(), &ways, class))?
}

fn built(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(_) | Op::Unary(_) | Op::Broadcast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Constant(_)
    )
}

fn value(graph: &Graph, found: &BTreeMap<Id, Vec<At>>, class: Id) -> Option<Made> {
    Some(Made::Value(graph[class].data.types.first()?.clone(), found.get(&class)?.clone()))
}

/// A class's formula; not deeper than its cost.
fn formula(
    graph: &Graph,
    found: &BTreeMap<Id, Vec<At>>,
    ways: &BTreeMap<Id, Way>,
    class: Id,
) -> Option<Made> {
    let Some(term) = ways.get(&class)?.term else { return value(graph, found, class) };
    let Node::Op { op, args } = &graph[class].nodes[term] else { return None };
    let args: Option<Vec<Made>> = args.iter().map(|&a| formula(graph, found, ways, graph.find(a))).collect();
    Some(Made::Op(Box::new(graph.analysis.op(*op).clone()), args?))
}

/// Values of the program that hold a class's elements under another shape.
pub(super) fn reshaped(graph: &Graph, values: &BTreeMap<Id, Vec<At>>, class: Id) -> Vec<At> {
    let count = |c: Id| graph[c].data.types.first().map(|t| t.elements());
    let layout = |c: Id, of: Id| {
        count(c) == count(of)
            && graph[c].nodes.iter().any(|n| match n {
                Node::Op { op, args } if args.len() == 1 && graph.find(args[0]) == graph.find(of) => {
                    match graph.analysis.op(*op) {
                        Op::Broadcast(b) => b.dims.is_sorted(),
                        Op::Reshape(_) => true,
                        _ => false,
                    }
                }
                _ => false,
            })
    };
    let same = |c: &Id| layout(*c, class) || layout(class, *c);
    let mut out: Vec<At> = values.iter().filter(|(c, _)| same(c)).flat_map(|(_, v)| v.clone()).collect();
    out.sort();
    out
}
