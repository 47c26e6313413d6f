//! `simplify`: the canonical form that every later stage reads.
//!
//! **Before:** any verified module.
//! **After:** entries hold no `call`; no op that can be folded within the limits, no dead op, no op that is an
//! identity *bit for bit*; each constant is one op per graph, before its first use, and none that an expression
//! over its indices gives ([`tables`]); graphs that nothing reaches
//! are gone (graph ids change); a loop uses one of the carries that are always the same ([`carries`]). Order, source locations and results' bits are the source's.
//!
//! One walk over a graph does the work: ops are copied in order into a new graph, calls are replaced by the
//! callee's ops, and each op passes the rules of [`fold`] and [`identity`] before it is emitted. Graphs are walked
//! callees first, so a body is simplified once and copied flat.
//!
//! What is *not* done here, and why: no common subexpressions beyond constants (merging across layers would make
//! the first layer unlike the others; see [`crate::template`]), no rule that moves a rounding or changes a zero's
//! sign, nothing across an `optimization_barrier`.

mod carries;
pub mod compact;
pub mod fold;
pub mod identity;
mod rewrite;
mod tables;
pub mod values;

use crate::error::{PassError, Result};
use msc_ir::op::{Op, Operation};
use msc_ir::{GraphId, Module};

/// Most ops that inlining may produce in one module. Eight times the largest step known to us (llama-2-70b,
/// unrolled: 97,000) needs under a million; a file that nests calls to reach this is refused.
pub const INLINE_OPS: usize = 1 << 23;

/// What the pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Simplified {
    /// Ops of entry graphs and the graphs they reach, before; calls count one.
    pub ops_before: usize,
    /// The same after.
    pub ops_after: usize,
    /// Calls replaced by their callee's body.
    pub inlined: usize,
    /// Ops replaced by a constant.
    pub folded: usize,
    /// Constant tables that became expressions over their indices.
    pub tables: usize,
    /// Ops replaced by an existing value or by a simpler op.
    pub rewritten: usize,
}

/// Brings every graph that an entry reaches into canonical form. Definitions of fused ops stay as they are.
///
/// # Errors
/// [`PassError::TooLarge`] where inlining passes [`INLINE_OPS`]; what the IR says of a
/// broken module.
pub fn simplify(module: &mut Module) -> Result<Simplified> {
    let _span = tracing::info_span!("simplify").entered();
    let order = msc_ir::ops::call::reachable(module);
    let mut done = Simplified { ops_before: ops(module, &order), ..Simplified::default() };
    expect_bounded(module, &order)?;
    let definitions = definitions(module, &order);
    for &id in order.iter().filter(|id| !definitions.contains(id)) {
        rewrite::graph(module, id, &mut done)?;
    }
    let callers_first: Vec<GraphId> =
        order.iter().rev().filter(|id| !definitions.contains(id)).copied().collect();
    carries::merge(module, &callers_first);
    module.drop_unreachable_graphs();
    done.ops_after = ops(module, &msc_ir::ops::call::reachable(module));
    Ok(done)
}

/// Adds up what inlining will produce before anything is built; `order` lists callees first.
fn expect_bounded(module: &Module, order: &[GraphId]) -> Result<()> {
    let mut flat = vec![0usize; module.graphs().count()];
    for &g in order {
        let size = |op: &Op| match op {
            Op::Call(c) => flat[c.graph.0 as usize],
            _ => 1,
        };
        let total = module.graph(g).ops().fold(0usize, |n, (_, d)| n.saturating_add(size(&d.op)));
        if total > INLINE_OPS {
            return Err(PassError::TooLarge {
                message: format!(
                    "inlining the calls in @{} gives more than {INLINE_OPS} ops",
                    module.graph(g).name
                ),
                help: "export the step without nesting functions so deeply, or with its layers as a loop"
                    .into(),
            });
        }
        flat[g.0 as usize] = total;
    }
    Ok(())
}

fn ops(module: &Module, graphs: &[GraphId]) -> usize {
    graphs.iter().map(|&g| module.graph(g).order().len()).sum()
}

/// Graphs that define fused ops: they are the op's meaning and keep their form.
fn definitions(module: &Module, graphs: &[GraphId]) -> Vec<GraphId> {
    let mut out: Vec<GraphId> = Vec::new();
    for &g in graphs {
        for (_, data) in module.graph(g).ops() {
            if matches!(data.op, Op::Fused(_)) {
                out.extend(data.op.callees());
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}
