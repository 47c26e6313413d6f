//! Trees of additions.
//!
//! A sum of several values of which some are partial needs one collective, not one per partial value: the
//! partial ones are added first, combined once, and added to the rest. That is an equality over the reals; the
//! order of a float sum changes where a tree mixes the two, and nowhere else.

use msc_ir::graph::{OpId, ValueId};
use msc_ir::ops::binary::{Binary, BinaryKind};
use msc_ir::{Graph, Op};

fn is_add(g: &Graph, op: OpId) -> bool {
    matches!(g.op(op).op, Op::Binary(Binary { kind: BinaryKind::Add }))
}

/// For each op, whether it is an addition whose only use is another addition: an inner node of a tree.
pub(super) fn inner_nodes(g: &Graph) -> Vec<bool> {
    let mut inner = vec![false; g.op_count()];
    let is_result = g.result_table();
    for (id, data) in g.ops() {
        if !is_add(g, id) || is_result[data.results[0].0 as usize] {
            continue;
        }
        if let [only] = g.value(data.results[0]).uses.as_slice() {
            inner[id.0 as usize] = is_add(g, only.op);
        }
    }
    inner
}

/// The last addition of each tree.
pub(super) fn roots<'a>(g: &'a Graph, inner: &'a [bool]) -> impl Iterator<Item = OpId> + 'a {
    g.ops().map(|(op, _)| op).filter(|&op| is_add(g, op) && !inner[op.0 as usize])
}

/// The additions of a tree, its last one first and each before those that it adds.
pub(super) fn tree(g: &Graph, root: OpId, inner: &[bool]) -> Vec<OpId> {
    let mut out = vec![root];
    let mut at = 0;
    while at < out.len() {
        let deeper = g.op(out[at]).operands.iter().filter_map(|&v| g.def(v)).map(|(d, _)| d);
        out.extend(deeper.filter(|d| inner[d.0 as usize]));
        at += 1;
    }
    out
}

/// The leaves of the tree of additions under `root`, left to right.
pub(super) fn leaves(g: &Graph, root: OpId, inner: &[bool]) -> Vec<ValueId> {
    let mut out = Vec::new();
    let mut stack = vec![root];
    // Depth first without recursion: operands are visited right to left and the result reversed.
    let mut pending: Vec<ValueId> = Vec::new();
    while let Some(op) = stack.pop() {
        pending.extend(g.op(op).operands.iter().copied());
        while let Some(v) = pending.pop() {
            match g.def(v) {
                Some((d, _)) if inner[d.0 as usize] => pending.extend(g.op(d).operands.iter().copied()),
                _ => out.push(v),
            }
        }
    }
    out.reverse();
    out
}
