//! From what is tied to what uses it, until nothing is left to tie.
//!
//! An op that uses one lane is tied to those that use the others alike. Calls carry ties into the graphs they call, and
//! results back out. Additions that meet several lanes are sums over them, and end the lanes.

use super::super::sums::{inner_nodes, tree};
use super::batch;
use super::seeds::over_lanes;
use super::tie::Bundles;
use msc_ir::graph::{OpId, ValueId};
use msc_ir::{GraphId, Op, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// What an op does with which bundles, whatever the lane.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Form<'a> {
    op: &'a Op,
    operands: Vec<Operand<'a>>,
    results: Vec<&'a TensorType>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Operand<'a> {
    Bundle(usize),
    Value(ValueId),
    Any(&'a TensorType),
}

/// Ties all that follows from what is tied.
pub(super) fn grow(bundles: &mut Bundles<'_>) {
    loop {
        let before = bundles.list.len();
        for id in bundles.graphs.clone() {
            // What works on the same values besides comes first: it leaves no choice which op is which lane's.
            users(bundles, id, true);
            users(bundles, id, false);
            calls(bundles, id);
            results(bundles, id);
        }
        if bundles.list.len() == before {
            return;
        }
    }
}

/// The one lane that an op uses, if it can be tied at all.
fn lane(bundles: &Bundles<'_>, id: GraphId, op: OpId) -> Option<usize> {
    let data = bundles.graph(id).op(op);
    let free = data.results.iter().all(|&r| bundles.of(id, r).is_none());
    if !free || !batch::can(&data.op, bundles.module) {
        return None;
    }
    let mut lanes = data.operands.iter().filter_map(|&v| Some(bundles.of(id, v)?.1));
    let first = lanes.next()?;
    lanes.all(|l| l == first).then_some(first)
}

fn users(bundles: &mut Bundles<'_>, id: GraphId, same: bool) {
    let g = bundles.graph(id);
    let inner = inner_nodes(g);
    let roots = over_lanes(g, &inner, |v| bundles.of(id, v));
    let sums: BTreeSet<OpId> = roots.iter().flat_map(|&root| tree(g, root, &inner)).collect();
    let mut forms: BTreeMap<Form<'_>, Vec<Vec<OpId>>> = BTreeMap::new();
    let mut order: Vec<(OpId, Vec<Vec<OpId>>)> = Vec::new();
    for (op, data) in g.ops().filter(|(op, _)| !sums.contains(op)) {
        let Some(lane) = lane(bundles, id, op) else { continue };
        let operand = |&v: &ValueId| match bundles.of(id, v) {
            Some((b, _)) => Operand::Bundle(b),
            None if same => Operand::Value(v),
            None => Operand::Any(g.ty(v)),
        };
        let form = Form {
            op: &data.op,
            operands: data.operands.iter().map(operand).collect(),
            results: data.results.iter().map(|&r| g.ty(r)).collect(),
        };
        forms.entry(form).or_insert_with(|| vec![Vec::new(); bundles.lanes])[lane].push(op);
    }
    for lanes in forms.into_values() {
        let n = lanes[0].len();
        if n > 0 && lanes.iter().all(|l| l.len() == n) {
            order.push((lanes[0][0], lanes));
        }
    }
    order.sort();
    for (_, lanes) in order {
        for k in 0..lanes[0].len() {
            let ops: Vec<OpId> = lanes.iter().map(|l| l[k]).collect();
            bundles.ops(id, &ops);
        }
    }
}

/// Bundles that a call passes become parameters of what it calls; those that a barrier takes, its results.
fn calls(bundles: &mut Bundles<'_>, id: GraphId) {
    let g = bundles.graph(id);
    for (op, data) in g.ops() {
        let callee = match &data.op {
            Op::Call(c) => Some(c.graph),
            Op::Barrier(_) => None,
            _ => continue,
        };
        let passed: BTreeSet<usize> =
            data.operands.iter().filter_map(|&v| Some(bundles.of(id, v)?.0)).collect();
        for b in passed {
            for row in bundles.passed(id, op, b) {
                let Some(callee) = callee else {
                    let values: Vec<ValueId> = row.iter().map(|&p| data.results[p]).collect();
                    if values.iter().all(|&v| bundles.of(id, v).is_none()) {
                        bundles.add(id, values);
                    }
                    continue;
                };
                let params = bundles.graph(callee).params();
                if row.iter().all(|&p| bundles.of(callee, params[p]).is_none()) {
                    let mark = bundles.mark();
                    if bundles.params(callee, &row).is_none() {
                        bundles.back(mark);
                    }
                }
            }
        }
    }
}

/// Bundles among a graph's results are bundles of those who call it.
fn results(bundles: &mut Bundles<'_>, id: GraphId) {
    if !bundles.is_open(id) {
        return;
    }
    let given: BTreeSet<usize> =
        bundles.graph(id).results().iter().filter_map(|&v| Some(bundles.of(id, v)?.0)).collect();
    for b in given {
        for row in bundles.given(id, b) {
            for (caller, op) in bundles.sites(id).to_vec() {
                let made = &bundles.graph(caller).op(op).results;
                let values: Vec<ValueId> = row.iter().map(|&r| made[r]).collect();
                if values.iter().all(|&v| bundles.of(caller, v).is_none()) {
                    bundles.add(caller, values);
                }
            }
        }
    }
}
