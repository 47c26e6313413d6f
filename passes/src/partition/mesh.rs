//! Splitting a mesh axis in two.
//!
//! Eight ranks that split four heads are two axes, of four ranks and of two: the first splits what the second does not.

use super::facts::Draft;
use msc_ir::module::{AxisId, MeshAxis, Sharding};
use msc_ir::{Graph, Op};

/// Makes of an axis two, the outer one of `outer` ranks. Axes behind it move on by one.
pub(super) fn split_axis(draft: &mut Draft, axis: AxisId, outer: usize) {
    let at = axis.0 as usize;
    let module = &mut draft.module;
    let MeshAxis { name, size } = module.mesh.axes[at].clone();
    // `tp` becomes `tp.0` and `tp.1`, and `tp.1` then `tp.1` and `tp.2`.
    let (base, number) = match name.rsplit_once('.').map(|(b, n)| (b, n.parse::<usize>())) {
        Some((base, Ok(number))) => (base.to_string(), number),
        _ => (name, 0),
    };
    let part = |i: usize, size: usize| MeshAxis { name: format!("{base}.{}", number + i), size };
    module.mesh.axes[at] = part(0, outer);
    module.mesh.axes.insert(at + 1, part(1, size / outer));
    let moved = |a: AxisId| if a.0 > axis.0 { AxisId(a.0 + 1) } else { a };
    let ids: Vec<_> = module.graphs().map(|(id, _)| id).collect();
    for id in ids {
        let uses = |g: &Graph| g.ops().any(|(_, d)| matches!(d.op, Op::Collective(_)));
        if uses(module.graph(id)) {
            let mut g = module.take_graph(id);
            g.map_ops(|op| match op {
                Op::Collective(c) => Op::Collective(c.over(moved)),
                op => op.clone(),
            });
            module.set_graph(id, g);
        }
    }
    let sharding = |s: &mut Sharding| s.dims.iter_mut().flatten().for_each(|a| *a = moved(*a));
    for e in &mut module.entries {
        e.params.iter_mut().for_each(|p| sharding(&mut p.sharding));
        e.results.iter_mut().for_each(|r| sharding(&mut r.sharding));
    }
}
