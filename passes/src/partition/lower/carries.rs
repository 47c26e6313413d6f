//! Sums that a loop carries.
//!
//! A carry that begins as zero, and that the body only adds to or writes into, may stay partial over all trips: zero is the
//! sum of zeros, and adding and writing are linear. Gradients over microbatches, and those of scanned layers, are so
//! combined once, behind the loop.

use msc_ir::graph::ValueId;
use msc_ir::ops::binary::{Binary, BinaryKind};
use msc_ir::ops::slice::Slice;
use msc_ir::ops::while_loop::While;
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Bodies of loops, and which of their parameters carry such a sum.
pub(super) fn sums(module: &Module) -> BTreeSet<(GraphId, usize)> {
    // A body may be that of several loops, which all have to begin with zero.
    let mut found: BTreeMap<(GraphId, usize), bool> = BTreeMap::new();
    for (_, g) in module.graphs() {
        for (_, data) in g.ops() {
            let Op::While(w) = &data.op else { continue };
            for (i, &v) in data.operands.iter().enumerate() {
                let is_sum = is_zero(module, g, v) && only_sums(module, w, i);
                *found.entry((w.body, i)).or_insert(true) &= is_sum;
            }
        }
    }
    found.into_iter().filter_map(|(carry, is_sum)| is_sum.then_some(carry)).collect()
}

fn is_zero(module: &Module, g: &Graph, v: ValueId) -> bool {
    let Some((def, _)) = g.def(v) else { return false };
    match &g.op(def).op {
        Op::Constant(c) => module.constants.splat_value(c.id) == Some(0.0),
        Op::Broadcast(_) | Op::Reshape(_) | Op::Convert(_) => is_zero(module, g, g.op(def).operands[0]),
        _ => false,
    }
}

/// Whether the body does nothing with a carry but to add to it, or to write into it, and to carry that on.
fn only_sums(module: &Module, w: &While, i: usize) -> bool {
    let unused = |g: &Graph, v: ValueId| g.value(v).uses.is_empty() && !g.results().contains(&v);
    let (cond, body) = (module.graph(w.cond), module.graph(w.body));
    if !cond.params().get(i).is_some_and(|&v| unused(cond, v)) {
        return false;
    }
    let (Some(&param), Some(&result)) = (body.params().get(i), body.results().get(i)) else { return false };
    let [only] = body.value(param).uses.as_slice() else { return false };
    let data = body.op(only.op);
    let is_linear = match &data.op {
        Op::Binary(Binary { kind: BinaryKind::Add }) => true,
        Op::Slice(Slice::Update) => only.index == 0,
        _ => false,
    };
    let times = body.results().iter().filter(|r| **r == result).count();
    is_linear
        && data.results[0] == result
        && body.value(result).uses.is_empty()
        && times == 1
        && !body.results().contains(&param)
}
