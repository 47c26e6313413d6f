//! Memory: every buffer gets its place.
//!
//! Before: a scheduled program, no buffer placed. After: arena offsets for all buffers that are no constants,
//! and the arena's size. Two buffers share bytes only if every access of the one happens before the write that
//! defines the other, where happens-before is stream order and waits; a wait that is there for data is never
//! assumed to be more than it is. [`msc_ir::program::check`] verifies the outcome with code of its own.
//!
//! Inputs and outputs keep their bytes for the whole step. Buffers are placed in the order of their definition,
//! each at the lowest offset where it meets nobody. Only buffers whose accesses are all issued are asked whether they
//! are over, and neighbours count as one: what is live for long costs nothing, so a deep model costs no more per
//! instruction than a shallow one.

mod cover;

use cover::Cover;
use msc_ir::program::{ALIGNMENT, Action, Placement, Program};

/// What the planner found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of inputs and outputs, which live for the whole step.
    pub persistent_bytes: u64,
    /// Sum of all other buffers' sizes: what a planner without reuse would add.
    pub transient_bytes: u64,
    /// The most transient bytes live at one position of the list: no planner can do with less.
    pub peak_live_bytes: u64,
}

/// Ends a list of buffers.
const NONE: u32 = u32::MAX;

fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// When the buffers of a program are touched.
struct Accesses {
    streams: usize,
    /// By buffer and stream: one more than the position of the last access; 0 where the stream never touches it.
    last: Vec<usize>,
    /// By buffer: the position of the first access.
    first: Vec<Option<u32>>,
}

impl Accesses {
    fn of(p: &Program) -> Accesses {
        let streams = p.streams.len();
        let mut out = Accesses {
            streams,
            last: vec![0; p.buffers.len() * streams],
            first: vec![None; p.buffers.len()],
        };
        for (at, i) in p.instructions.iter().enumerate() {
            for &b in i.reads.iter().chain(&i.writes) {
                out.first[b.0 as usize].get_or_insert(at as u32);
                out.last[b.0 as usize * streams + i.stream.0 as usize] = at + 1;
            }
        }
        out
    }

    /// The last accesses of a buffer, by stream.
    fn last(&self, buffer: usize) -> &[usize] {
        &self.last[buffer * self.streams..(buffer + 1) * self.streams]
    }

    /// The position after that of the last access of a buffer.
    fn end(&self, buffer: usize) -> usize {
        self.last(buffer).iter().max().copied().unwrap_or(0)
    }
}

/// Places all buffers of a program.
pub fn plan(p: &mut Program) -> Report {
    let streams = p.streams.len();
    let accesses = Accesses::of(p);
    let mut report = Report::default();
    let mut next = 0u64;
    let mut placed = vec![false; p.buffers.len()];
    p.inputs.iter().chain(&p.outputs).for_each(|b| placed[b.0 as usize] = true);
    for (b, placed) in p.buffers.iter_mut().zip(&mut placed) {
        match b.placement {
            // Constants are where they are.
            Placement::Constant(_) => *placed = true,
            Placement::Arena(_) if *placed => {
                b.placement = Placement::Arena(next);
                next += aligned(b.ty.bytes() as u64);
            }
            Placement::Arena(_) => {}
        }
    }
    report.persistent_bytes = next;
    let base = next;
    let mut top = base;
    // For each position the buffers whose last access is the one before it, as lists.
    let mut ending_at = vec![NONE; p.instructions.len() + 1];
    let mut after = vec![NONE; p.buffers.len()];
    for n in (0..p.buffers.len()).rev().filter(|&n| !placed[n] && accesses.first[n].is_some()) {
        after[n] = std::mem::replace(&mut ending_at[accesses.end(n)], n as u32);
    }
    // For each stream what is not free for it: what it has passed is, whatever others still do.
    let mut covers: Vec<Cover> = (0..streams).map(|_| Cover::default()).collect();
    // For each stream, the buffers whose accesses are all issued, and that it has not passed.
    let mut ending: Vec<Vec<u32>> = vec![Vec::new(); streams];
    let mut clock = Clock::new(streams);
    let mut alive = 0u64;
    for at in 0..p.instructions.len() {
        clock.start(p, at);
        let mut over = ending_at[at];
        while over != NONE {
            ending.iter_mut().for_each(|e| e.push(over));
            over = after[over as usize];
        }
        for n in 0..p.instructions[at].writes.len() {
            let b = p.instructions[at].writes[n].0 as usize;
            if placed[b] || accesses.first[b] != Some(at as u32) {
                continue;
            }
            placed[b] = true;
            let size = aligned(p.buffers[b].ty.bytes() as u64);
            let stream = p.instructions[at].stream.0 as usize;
            let cover = &mut covers[stream];
            ending[stream].retain(|&x| {
                let over = clock.passed_by(stream, accesses.last(x as usize));
                if over {
                    cover.remove(range(p, x as usize));
                }
                !over
            });
            let offset = cover.lowest_gap(base, size);
            top = top.max(offset + size);
            p.buffers[b].placement = Placement::Arena(offset);
            report.transient_bytes += size;
            alive += size;
            covers.iter_mut().for_each(|c| c.add((offset, offset + size)));
        }
        report.peak_live_bytes = report.peak_live_bytes.max(alive);
        let mut over = ending_at[at + 1];
        while over != NONE {
            alive = alive.saturating_sub(aligned(p.buffers[over as usize].ty.bytes() as u64));
            over = after[over as usize];
        }
        clock.finish(p, at);
    }
    p.arena_bytes = top;
    report.arena_bytes = top;
    report
}

/// The bytes that a placed buffer takes.
fn range(p: &Program, buffer: usize) -> (u64, u64) {
    let b = &p.buffers[buffer];
    match b.placement {
        Placement::Arena(at) => (at, at + aligned(b.ty.bytes() as u64)),
        Placement::Constant(_) => (0, 0),
    }
}

/// Which instructions are known to be complete, per stream.
struct Clock {
    now: Vec<Vec<usize>>,
    /// At the completion of each instruction, one number for each stream.
    done: Vec<usize>,
}

impl Clock {
    fn new(streams: usize) -> Clock {
        Clock { now: vec![vec![0; streams]; streams], done: Vec::new() }
    }

    fn start(&mut self, p: &Program, at: usize) {
        if let Action::Wait(on) = p.instructions[at].action {
            let theirs = &self.done[on.0 as usize * self.now.len()..];
            let mine = &mut self.now[p.instructions[at].stream.0 as usize];
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m = (*m).max(*t));
        }
    }

    fn finish(&mut self, p: &Program, at: usize) {
        let s = p.instructions[at].stream.0 as usize;
        self.now[s][s] = at + 1;
        self.done.extend_from_slice(&self.now[s]);
    }

    /// Whether all accesses are complete for stream `s` now.
    fn passed_by(&self, s: usize, last: &[usize]) -> bool {
        self.now[s].iter().zip(last).all(|(now, last)| now >= last)
    }
}
