//! Donated state in place.
//!
//! A result that replaces donated state may be written over it where nothing touches the state after that write:
//! every access of the state stands at or before the instruction that first writes the result, on the same stream.
//! Only interpreted instructions read all operands before they write, so only they may do both at once.

use msc_ir::program::{Action, BufferId, Placement, Program};

struct Span {
    first_write: Option<usize>,
    /// All accesses, in list order.
    accesses: Vec<usize>,
}

/// Lets results write into the buffers of the state they replace, where that is safe.
pub(super) fn run(p: &mut Program) {
    let mut spans: Vec<Span> =
        p.buffers.iter().map(|_| Span { first_write: None, accesses: Vec::new() }).collect();
    for (at, i) in p.instructions.iter().enumerate() {
        for b in i.reads.iter().chain(&i.writes) {
            spans[b.0 as usize].accesses.push(at);
        }
        for b in &i.writes {
            spans[b.0 as usize].first_write.get_or_insert(at);
        }
    }
    let mut rename: Vec<BufferId> = (0..p.buffers.len() as u32).map(BufferId).collect();
    for (info, &state) in p.entry.params.iter().zip(&p.inputs) {
        let Some(&result) = info.alias.and_then(|r| p.outputs.get(r as usize)) else { continue };
        let arena = matches!(p.buffer(result).placement, Placement::Arena(_));
        let once = p.outputs.iter().filter(|&&b| b == result).count() == 1;
        let free = !p.inputs.contains(&result) && !p.outputs.contains(&state);
        if !arena || !once || !free || p.buffer(result).ty != p.buffer(state).ty {
            continue;
        }
        let Some(write) = spans[result.0 as usize].first_write else { continue };
        let interpreted = matches!(p.instructions[write].action, Action::Interpret(_));
        let stream = p.instructions[write].stream;
        let over = spans[state.0 as usize]
            .accesses
            .iter()
            .all(|&a| p.instructions[a].stream == stream && (a < write || (a == write && interpreted)));
        if over {
            rename[result.0 as usize] = state;
        }
    }
    for b in
        p.instructions.iter_mut().flat_map(|i| i.reads.iter_mut().chain(&mut i.writes)).chain(&mut p.outputs)
    {
        *b = rename[b.0 as usize];
    }
}
