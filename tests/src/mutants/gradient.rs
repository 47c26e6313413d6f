//! Gradients that are lost, doubled, negated, transposed, or of a part of the batch.

use super::Found;
use super::edit::{Change, make, splat, times};
use super::facts::{Facts, Role};
use msc_ir::ops::binary::BinaryKind;
use msc_ir::ops::permute::Permute;
use msc_ir::{Tensor, ValueId};
use std::collections::BTreeMap;

/// The layer that a name speaks of: the first number in its path. What stands before the quote counts the containers
/// of an argument or of an optimizer's state.
fn layer(name: &str) -> Option<u32> {
    let (_, path) = name.split_once('\'')?;
    path.split(|c: char| !c.is_ascii_digit()).find(|w| !w.is_empty())?.parse().ok()
}

/// The value with the elements set to zero for which `lost` holds of their index along `dim`.
fn without(dim: usize, lost: impl Fn(usize, usize) -> bool + Send + Sync + 'static) -> super::edit::Make {
    make(move |e, v| {
        let ty = e.ty(v);
        let inner: usize = ty.shape[dim + 1..].iter().product();
        let n = ty.shape[dim];
        let keep: Vec<f64> =
            (0..ty.elements()).map(|i| if lost(i / inner % n, n) { 0.0 } else { 1.0 }).collect();
        let mask = e.constant(&Tensor::from_f64s(&ty, &keep))?;
        e.op(BinaryKind::Multiply, &[v, mask])
    })
}

pub(super) fn mutants(f: &Facts<'_>, out: &mut Found<'_>) {
    let states = f.states();
    let mut layers: BTreeMap<u32, Vec<Change>> = BTreeMap::new();
    let mut seen: Vec<ValueId> = Vec::new();
    for m in f.moments(&states).iter().filter(|m| m.state.role == Role::First) {
        let Some(g) = m.gradient else { continue };
        if seen.contains(&g) || super::edit::is_param(f.graph, g) {
            continue;
        }
        seen.push(g);
        let name = f.subject.entry.results[m.state.result].name.as_str();
        let one = |c: super::edit::Make| vec![Change::Value(g, c)];
        out.add("one gradient zeroed", name, one(splat(0.0)));
        out.add("one gradient doubled", name, one(times(2.0)));
        out.add("one gradient negated", name, one(times(-1.0)));
        let shape = f.graph.ty(g).shape.clone();
        if let [a, b] = shape.as_slice()
            && a == b
        {
            let t = make(|e, v| e.op(Permute::Transpose([1, 0].into_iter().collect()), &[v]));
            out.add("one gradient transposed", name, one(t));
        }
        if let Some(dim) = (0..shape.len()).find(|&d| shape[d] > 1) {
            out.add("half of a gradient lost", name, one(without(dim, |i, n| i < n / 2)));
            if shape.len() > 2 {
                out.add("one layer's gradient zeroed", name, one(without(0, |i, n| i + 1 == n)));
            }
        }
        if let Some(l) = layer(name) {
            layers.entry(l).or_default().push(Change::Value(g, splat(0.0)));
        }
    }
    if layers.len() > 1 {
        for (l, changes) in layers {
            out.add("one layer's gradient zeroed", format!("layer {l}"), changes);
        }
    }
}

/// `v` without the first half along its first dimension: what half of the batch adds is lost.
pub(super) fn half_lost() -> super::edit::Make {
    without(0, |i, n| i < n / 2)
}
