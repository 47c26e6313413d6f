//! Donated state in place.
//!
//! A result that replaces donated state may be written over it where nothing touches the state after that write:
//! every access of the state stands at or before the instruction that first writes the result, on the same stream.
//! Only interpreted instructions read all operands before they write, so only they may do both at once.

use msc_ir::program::{Action, BufferId, Placement, Program};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Span {
    first_write: Option<usize>,
    /// All accesses, in list order.
    accesses: Vec<usize>,
}

/// Lets results write into the buffers of the state they replace, where that is safe.
pub(super) fn run(p: &mut Program) {
    // Only state and what replaces it is looked at.
    let mut place: Vec<Option<usize>> = vec![None; p.buffers.len()];
    let mut spans: Vec<Span> = Vec::new();
    for (info, &state) in p.entry.params.iter().zip(&p.inputs) {
        for b in info.alias.and_then(|r| p.outputs.get(r as usize)).into_iter().flat_map(|&r| [state, r]) {
            place[b.0 as usize].get_or_insert_with(|| {
                spans.push(Span::default());
                spans.len() - 1
            });
        }
    }
    for (at, i) in p.instructions.iter().enumerate() {
        for b in i.reads.iter().chain(&i.writes) {
            if let Some(n) = place[b.0 as usize] {
                spans[n].accesses.push(at);
            }
        }
        for b in &i.writes {
            if let Some(n) = place[b.0 as usize] {
                spans[n].first_write.get_or_insert(at);
            }
        }
    }
    let span = |b: BufferId| place[b.0 as usize].map(|n| &spans[n]);
    let inputs: BTreeSet<BufferId> = p.inputs.iter().copied().collect();
    let mut outputs: BTreeMap<BufferId, usize> = BTreeMap::new();
    p.outputs.iter().for_each(|&b| *outputs.entry(b).or_default() += 1);
    // Results with the state that they are written over.
    let mut rename: BTreeMap<BufferId, BufferId> = BTreeMap::new();
    let mut touched: Vec<usize> = Vec::new();
    for (info, &state) in p.entry.params.iter().zip(&p.inputs) {
        let Some(&result) = info.alias.and_then(|r| p.outputs.get(r as usize)) else { continue };
        let arena = matches!(p.buffer(result).placement, Placement::Arena(_));
        let once = outputs.get(&result) == Some(&1);
        let free = !inputs.contains(&result) && !outputs.contains_key(&state);
        if !arena || !once || !free || p.buffer(result).ty != p.buffer(state).ty {
            continue;
        }
        let (Some(new), Some(old)) = (span(result), span(state)) else { continue };
        let Some(write) = new.first_write else { continue };
        let interpreted = matches!(p.instructions[write].action, Action::Interpret(_));
        let stream = p.instructions[write].stream;
        let over = old
            .accesses
            .iter()
            .all(|&a| p.instructions[a].stream == stream && (a < write || (a == write && interpreted)));
        if over {
            rename.insert(result, state);
            touched.extend(&new.accesses);
        }
    }
    let renamed = |b: &mut BufferId| *b = rename.get(b).copied().unwrap_or(*b);
    for at in touched {
        let i = &mut p.instructions[at];
        i.reads.iter_mut().chain(&mut i.writes).for_each(renamed);
    }
    p.outputs.iter_mut().for_each(renamed);
}
