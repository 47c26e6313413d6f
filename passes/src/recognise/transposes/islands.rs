//! Named operations that hand each other values which may be exchanged, across parts: they change together.

use super::super::extract::{Extracted, Param};
use super::laws::{Exchanged, Law, law};
use egg::Id;
use msc_ir::{Op, OpId, TensorType, ValueDef, ValueId};
use std::collections::BTreeMap;

/// An op of a part.
pub(super) type Place = (usize, OpId);

/// The named operations that have a law, and which of them belong together.
pub(super) struct Islands {
    /// The law of each.
    pub laws: BTreeMap<Place, Law>,
    /// The ops of each island, in order.
    pub all: Vec<Vec<Place>>,
}

/// The value that a parameter from an earlier part is there.
pub(super) fn origin(parts: &[Extracted], (part, v): (usize, ValueId)) -> (usize, ValueId) {
    let mut at = (part, v);
    while let ValueDef::Param(i) = parts[at.0].graph.value(at.1).def {
        let Some(&Param::Result { part, index }) = parts[at.0].params.get(i as usize) else { break };
        let Some(&from) = parts.get(part).and_then(|p| p.graph.results().get(index)) else { break };
        at = (part, from);
    }
    at
}

/// What ties ops together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tie {
    /// One value is a result or an operand of each.
    Value(usize, ValueId),
    /// They are one named op, computed in several parts.
    Named(Id),
}

impl Islands {
    /// Of the parts of an extraction.
    pub fn new(parts: &[Extracted]) -> Islands {
        let mut laws = BTreeMap::new();
        let mut ties: BTreeMap<Tie, Vec<Place>> = BTreeMap::new();
        for (part, p) in parts.iter().enumerate() {
            for (id, d) in p.graph.ops() {
                let Op::Fused(f) = &d.op else { continue };
                let types: Vec<&TensorType> = d.operands.iter().map(|&v| p.graph.ty(v)).collect();
                let Some(law) = law(&f.kind, &types) else { continue };
                let taken = d.operands.iter().zip(&law.operands).filter(|(_, e)| **e == Exchanged::Yes);
                let given = d.results.iter().zip(&law.results).filter(|(_, e)| **e);
                for v in taken.map(|(v, _)| v).chain(given.map(|(v, _)| v)) {
                    let (part_of, v) = origin(parts, (part, *v));
                    ties.entry(Tie::Value(part_of, v)).or_default().push((part, id));
                }
                if let Some(&tuple) = p.named.get(&id) {
                    ties.entry(Tie::Named(tuple)).or_default().push((part, id));
                }
                laws.insert((part, id), law);
            }
        }
        let places: Vec<Place> = laws.keys().copied().collect();
        let index = |p: &Place| places.binary_search(p).unwrap_or_default();
        let mut root: Vec<usize> = (0..places.len()).collect();
        fn find(root: &mut [usize], mut i: usize) -> usize {
            while root[i] != i {
                root[i] = root[root[i]];
                i = root[i];
            }
            i
        }
        for tied in ties.values() {
            for pair in tied.windows(2) {
                let (a, b) = (find(&mut root, index(&pair[0])), find(&mut root, index(&pair[1])));
                // The least is the root, so that islands are in the order of their first ops.
                let (low, high) = (a.min(b), a.max(b));
                root[high] = low;
            }
        }
        let mut all: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for (i, &p) in places.iter().enumerate() {
            all.entry(find(&mut root, i)).or_default().push(p);
        }
        Islands { laws, all: all.into_values().collect() }
    }
}
