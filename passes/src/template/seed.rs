//! Where to start: pairs of ops that may stand for each other in two consecutive layers.
//!
//! An op's *colour* is a hash of what it computes, seen a few operands deep, with parameters known by their types
//! only. Ops that occur once in every layer form colour classes whose size is the number of layers; the size that
//! most classes have is tried first: a layer has more different ops than an expert or a norm.

use super::nodes::{LEAF, Nodes};
use msc_ir::op::Op;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How many operands deep a colour looks: enough to tell the projections and norms of one layer apart, little
/// enough that layers near an end of the model look like the others.
const COLOUR_DEPTH: usize = 5;

/// Class sizes that are tried.
const SIZES: usize = 5;

/// Classes of products, and of other ops, that are tried per size.
const CLASSES: usize = 3;

/// Members of one class, in order, whose consecutive pairs are candidates.
pub(super) type Class = Vec<u32>;

/// Colours of all nodes: equal for ops that compute alike, seen [`COLOUR_DEPTH`] operands deep.
pub(super) fn colours(nodes: &Nodes<'_>) -> Vec<u64> {
    let base: Vec<u64> = (0..nodes.len() as u32)
        .map(|n| match nodes.op(n).map(|d| &d.op) {
            Some(Op::Constant(c)) => mix(1, u64::from(c.id.0)),
            Some(op @ Op::Call(_)) => mix(2, op_index(op)),
            _ => mix(3, u64::from(nodes.label[n as usize])),
        })
        .collect();
    let mut colour = base.clone();
    let mut next = base.clone();
    for _ in 0..COLOUR_DEPTH {
        for (n, (h, &base)) in next.iter_mut().zip(&base).enumerate() {
            *h = nodes
                .operands(n as u32)
                .iter()
                .fold(base, |h, v| mix(h, colour[v.producer as usize].wrapping_add(u64::from(v.result))));
        }
        std::mem::swap(&mut colour, &mut next);
    }
    colour
}

fn op_index(op: &Op) -> u64 {
    match op {
        Op::Call(c) => u64::from(c.graph.0),
        _ => 0,
    }
}

fn mix(h: u64, x: u64) -> u64 {
    let y = (h ^ x.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    y ^ (y >> 32)
}

/// Candidate classes, most promising first.
pub(super) fn classes(nodes: &Nodes<'_>, colours: &[u64]) -> Vec<Class> {
    let mut by_colour: FxHashMap<u64, Class> = FxHashMap::default();
    for n in nodes.in_order() {
        let i = n as usize;
        if nodes.is_op(n) && nodes.label[i] != LEAF && !nodes.scalar[i] {
            by_colour.entry(colours[i]).or_default().push(n);
        }
    }
    let mut by_size: BTreeMap<usize, Vec<Class>> = BTreeMap::new();
    for class in by_colour.into_values() {
        // Copies of one value are not layers.
        let distinct = class.windows(2).all(|w| !nodes.equal(nodes.results(w[0])[0], nodes.results(w[1])[0]));
        if class.len() >= 2 && distinct {
            by_size.entry(class.len()).or_default().push(class);
        }
    }
    let mut sizes: Vec<(usize, usize)> = by_size.iter().map(|(&n, c)| (c.len(), n)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let (mut products, mut others) = (Vec::new(), Vec::new());
    for (_, n) in sizes.into_iter().take(SIZES) {
        let mut of_size = by_size.remove(&n).unwrap_or_default();
        of_size.sort_unstable_by_key(|c| nodes.position[c[0] as usize]);
        let (dots, rest): (Vec<Class>, Vec<Class>) = of_size.into_iter().partition(|c| is_product(nodes, c));
        products.extend(dots.into_iter().take(CLASSES));
        others.extend(rest.into_iter().take(CLASSES));
    }
    // Products first: they say most about where in a layer one is, and the early ones come in the layers' order.
    products.extend(others);
    products
}

/// Whether a class is one of matrix products.
pub(super) fn is_product(nodes: &Nodes<'_>, class: &Class) -> bool {
    matches!(nodes.op(class[0]).map(|d| &d.op), Some(Op::DotGeneral(_)))
}
