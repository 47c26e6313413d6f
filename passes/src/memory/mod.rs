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
use msc_ir::program::{ALIGNMENT, Action, BufferId, Placement, Program};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

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

/// Per stream, one more than the position of the last access of a buffer; 0 where the stream never touches it.
type LastAccess = SmallVec<[usize; 3]>;

/// A buffer by the end of its last access: the end, the buffer, its range.
type Running = (usize, usize, (u64, u64));

/// A buffer whose accesses are all issued, but not yet passed by a stream.
#[derive(Clone)]
struct Ending {
    range: (u64, u64),
    buffer: usize,
}

fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// Places all buffers of a program.
pub fn plan(p: &mut Program) -> Report {
    let persistent: BTreeSet<BufferId> = p.inputs.iter().chain(&p.outputs).copied().collect();
    let streams = p.streams.len();
    let mut first: Vec<Option<usize>> = vec![None; p.buffers.len()];
    let mut last: Vec<LastAccess> = vec![SmallVec::from_elem(0, streams); p.buffers.len()];
    for (at, i) in p.instructions.iter().enumerate() {
        for &b in i.reads.iter().chain(&i.writes) {
            first[b.0 as usize].get_or_insert(at);
            last[b.0 as usize][i.stream.0 as usize] = at + 1;
        }
    }
    let mut report = Report::default();
    let mut next = 0u64;
    for n in 0..p.buffers.len() {
        let b = &mut p.buffers[n];
        if persistent.contains(&BufferId(n as u32)) && matches!(b.placement, Placement::Arena(_)) {
            b.placement = Placement::Arena(next);
            next += aligned(b.ty.bytes() as u64);
        }
    }
    report.persistent_bytes = next;
    let base = next;
    let mut top = base;
    // For each stream what is not free for it: what it has passed is, whatever others still do.
    let mut covers: Vec<Cover> = (0..streams).map(|_| Cover::default()).collect();
    // By the last access; then, for each stream, those that are issued and that it has not passed.
    let mut running: BinaryHeap<Reverse<Running>> = BinaryHeap::new();
    let mut ending: Vec<Vec<Ending>> = vec![Vec::new(); streams];
    let mut clock = Clock::new(streams);
    let mut alive = 0u64;
    let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
    for at in 0..p.instructions.len() {
        clock.start(p, at);
        for n in 0..p.instructions[at].writes.len() {
            let b = p.instructions[at].writes[n];
            let placed = persistent.contains(&b) || first[b.0 as usize] != Some(at);
            if placed || matches!(p.buffers[b.0 as usize].placement, Placement::Constant(_)) {
                continue;
            }
            let size = aligned(p.buffers[b.0 as usize].ty.bytes() as u64);
            let stream = p.instructions[at].stream.0 as usize;
            while let Some(&Reverse((end, buffer, range))) = running.peek()
                && end <= at
            {
                running.pop();
                ending.iter_mut().for_each(|e| e.push(Ending { range, buffer }));
            }
            let cover = &mut covers[stream];
            ending[stream].retain(|x| {
                let over = clock.passed_by(stream, &last[x.buffer]);
                if over {
                    cover.remove(x.range);
                }
                !over
            });
            let offset = cover.lowest_gap(base, size);
            top = top.max(offset + size);
            p.buffers[b.0 as usize].placement = Placement::Arena(offset);
            report.transient_bytes += size;
            alive += size;
            let end = last[b.0 as usize].iter().max().copied().unwrap_or(at + 1);
            *ends.entry(end.saturating_sub(1)).or_default() += size;
            let range = (offset, offset + size);
            covers.iter_mut().for_each(|c| c.add(range));
            running.push(Reverse((end, b.0 as usize, range)));
        }
        report.peak_live_bytes = report.peak_live_bytes.max(alive);
        alive -= ends.remove(&at).unwrap_or(0);
        clock.finish(p, at);
    }
    p.arena_bytes = top;
    report.arena_bytes = top;
    report
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
