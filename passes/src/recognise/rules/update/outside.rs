//! What a step takes from other graphs: whether that is made of state there.

use super::super::clip::flow::{Flow, Path, Place};
use super::MAX_ABOVE;
use crate::recognise::engine::region::{At, Region};
use msc_ir::{Module, Op, OpId, ValueId};
use std::collections::BTreeSet;

/// The values of a region as the entry sees them.
pub struct Outside<'m> {
    flow: Option<Flow<'m>>,
    /// For each part the calls of its graph, none for the entry itself.
    calls: Vec<Vec<Option<OpId>>>,
    /// Parameters of the entry that a result replaces.
    state: BTreeSet<ValueId>,
}

impl<'m> Outside<'m> {
    /// The values of a region of a module.
    pub fn new(module: &'m Module, region: &Region) -> Outside<'m> {
        let Ok(entry) = module.entry() else {
            return Outside { flow: None, calls: Vec::new(), state: BTreeSet::new() };
        };
        let main = module.graph(entry.graph);
        let calls = |graph| {
            if graph == entry.graph {
                return vec![None];
            }
            let of = |(id, d): (OpId, &msc_ir::OpData)| match &d.op {
                Op::Call(c) if c.graph == graph => Some(Some(id)),
                _ => None,
            };
            main.ops().filter_map(of).collect()
        };
        let state = main.params().iter().zip(&entry.params).filter(|(_, info)| info.alias.is_some());
        Outside {
            flow: Some(Flow::new(module, entry.graph)),
            calls: region.parts.iter().map(|p| calls(p.spec.graph)).collect(),
            state: state.map(|(&v, _)| v).collect(),
        }
    }

    /// Whether a value that comes from outside its part is computed from state element by element, in whatever graph.
    pub fn is_made_of_state(&self, at: At) -> bool {
        let Some(flow) = &self.flow else { return false };
        let calls = self.calls.get(at.part).into_iter().flatten();
        calls.into_iter().any(|call| {
            let start = flow.home(Place { path: call.iter().copied().collect::<Path>(), value: at.value });
            let shape = flow.ty(&start).shape.clone();
            let (mut todo, mut seen) = (vec![start.clone()], BTreeSet::from([start]));
            while let Some(place) = todo.pop() {
                if seen.len() > MAX_ABOVE || place.path.is_empty() && self.state.contains(&place.value) {
                    return true;
                }
                let Some((op, operands)) = flow.op(&place) else { continue };
                if matches!(
                    op,
                    Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Convert(_)
                ) {
                    let same = |o: &Place| flow.ty(o).shape == shape && seen.insert(o.clone());
                    todo.extend(operands.into_iter().filter(same));
                }
            }
            false
        })
    }
}
