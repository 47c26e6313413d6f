//! Values that are the same everywhere must not tie their users' layouts.
//!
//! A splat constant, or a scalar broadcast to a shape, is often one value with many users: `0.9` at `[64, 64]` for
//! the moments of two weights whose dimensions have nothing to do with each other. [`split`] gives each use its
//! own copy before factors are solved; [`merge`] joins equal copies again afterwards.

use msc_ir::graph::{OpData, OpId, ValueId};
use msc_ir::{Graph, GraphId, Module, Op};
use std::collections::BTreeMap;

fn is_spread(module: &Module, g: &Graph, data: &OpData) -> bool {
    match &data.op {
        Op::Constant(c) => module.constants.splat_value(c.id).is_some(),
        Op::Broadcast(_) => g.ty(data.operands[0]).elements() == 1,
        _ => false,
    }
}

/// Gives every use of a value that is the same everywhere its own definition.
pub(super) fn split(module: &mut Module, graphs: &[GraphId]) {
    for &id in graphs {
        let source = module.take_graph(id);
        let mut out = Graph::new(source.name.clone());
        let mut map: Vec<Option<ValueId>> = vec![None; source.value_count()];
        for &p in source.params() {
            map[p.0 as usize] = Some(out.add_param(source.ty(p).clone()));
        }
        let is_result = source.result_table();
        for (op, data) in source.ops() {
            // Its users copy it; the definition itself stays for the graph's results.
            for &v in &data.operands {
                let Some((def, _)) = source.def(v) else { continue };
                if is_spread(module, &source, source.op(def)) {
                    // A copy never fails: the definition stood before its user.
                    let _ = out.copy_op(&source, def, &mut map);
                }
            }
            let only_used = is_spread(module, &source, data) && !is_result[data.results[0].0 as usize];
            let _ = if only_used && !source.value(data.results[0]).uses.is_empty() {
                Ok(())
            } else {
                out.copy_op(&source, op, &mut map)
            };
        }
        out.set_results(source.results().iter().filter_map(|r| map[r.0 as usize]).collect());
        module.set_graph(id, out);
    }
}

/// Joins equal constants and equal scalar broadcasts, each at its first place, and drops unused ones.
pub(super) fn merge(module: &mut Module, graphs: &[GraphId]) {
    for &id in graphs {
        let mut g = module.take_graph(id);
        let mut known: BTreeMap<(Op, Vec<ValueId>), ValueId> = BTreeMap::new();
        let order: Vec<_> = g.order().to_vec();
        for op in &order {
            let data = g.op(*op);
            if !is_spread(module, &g, data) {
                continue;
            }
            let (value, key) = (data.results[0], (data.op.clone(), data.operands.to_vec()));
            match known.get(&key) {
                Some(&first) => g.replace_uses(value, first),
                None => {
                    known.insert(key, value);
                }
            }
        }
        let is_result = g.result_table();
        let is_used = |data: &OpData| {
            data.results.iter().any(|&v| is_result[v.0 as usize] || !g.value(v).uses.is_empty())
        };
        let dead = |data: &OpData| is_spread(module, &g, data) && !is_used(data);
        let keep: Vec<bool> = (0..g.op_count() as u32).map(|op| !dead(g.op(OpId(op)))).collect();
        g.retain_ops(|op, _| keep[op.0 as usize]);
        module.set_graph(id, g);
    }
}
