//! What the arena's bytes hold, followed through the list.
//!
//! Waits refer to earlier instructions only, so the list order is one possible execution. Where every two
//! conflicting accesses are ordered by happens-before, all executions leave the same values as that one; it is
//! therefore enough to follow it, and to check at each access that the conflicting ones before it are ordered.
//! Happens-before is transitive: the last write, and the last read of each stream since, stand for all.

use super::super::{BufferId, Placement, Program};
use super::{HappensBefore, ProgramError};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A run of bytes with one history.
#[derive(Clone)]
struct Run {
    /// One past its last byte.
    end: u64,
    /// The buffer through which it was written last.
    owner: BufferId,
    /// The instruction that did; `None` for inputs, which are there at the start.
    writer: Option<usize>,
    /// The last reading instruction of each stream since then, by stream.
    reads: SmallVec<[(u32, usize); 2]>,
}

impl Run {
    /// Notes that an instruction of a stream reads it.
    fn read(&mut self, stream: u32, at: usize) {
        match self.reads.iter_mut().find(|(s, _)| *s == stream) {
            Some((_, last)) => *last = at,
            None => self.reads.push((stream, at)),
        }
    }
}

struct Arena<'a> {
    program: &'a Program,
    order: &'a HappensBefore<'a>,
    /// By first byte; bytes that nothing wrote are in no run.
    runs: BTreeMap<u64, Run>,
    /// For each buffer whether it was written, and by which instruction.
    written: Vec<Option<Option<usize>>>,
}

pub(super) fn check(p: &Program, order: &HappensBefore<'_>) -> Result<(), ProgramError> {
    let mut arena = Arena { program: p, order, runs: BTreeMap::new(), written: vec![None; p.buffers.len()] };
    for (n, b) in p.buffers.iter().enumerate() {
        if matches!(b.placement, Placement::Constant(_)) {
            arena.written[n] = Some(None);
        }
    }
    for &b in &p.inputs {
        arena.place_input(b)?;
    }
    for (at, i) in p.instructions.iter().enumerate() {
        for &b in &i.reads {
            arena.read(at, b)?;
        }
        for &b in &i.writes {
            arena.write(at, b)?;
        }
    }
    for &b in &p.outputs {
        arena.survives(b, "the end of the step")?;
    }
    for (info, &b) in p.entry.params.iter().zip(&p.inputs) {
        if info.alias.is_none() {
            arena.survives(b, "the next step")?;
        }
    }
    Ok(())
}

impl Arena<'_> {
    fn name(&self, b: BufferId) -> String {
        self.program.buffer(b).name.to_string()
    }

    /// Bytes of a buffer, if it has any in the arena.
    fn range(&self, b: BufferId) -> Option<(u64, u64)> {
        let r = self.program.arena_range(b)?;
        (r.start < r.end).then_some((r.start, r.end))
    }

    /// Cuts runs so that none crosses `at`.
    fn cut(&mut self, at: u64) {
        if let Some((&start, run)) = self.runs.range_mut(..at).next_back()
            && run.end > at
        {
            debug_assert!(start < at);
            let tail = run.clone();
            run.end = at;
            self.runs.insert(at, tail);
        }
    }

    fn place_input(&mut self, b: BufferId) -> Result<(), ProgramError> {
        self.written[b.0 as usize] = Some(None);
        let Some((start, end)) = self.range(b) else { return Ok(()) };
        self.cut(start);
        self.cut(end);
        if let Some((_, other)) = self.runs.range(start..end).next() {
            let message =
                format!("inputs {} and {} overlap in the arena", self.name(other.owner), self.name(b));
            return Err(ProgramError::Entry { message });
        }
        self.runs.insert(start, Run { end, owner: b, writer: None, reads: SmallVec::new() });
        Ok(())
    }

    fn read(&mut self, at: usize, b: BufferId) -> Result<(), ProgramError> {
        let unwritten = || ProgramError::Unwritten { at, buffer: b.0, name: self.name(b) };
        let Some(writer) = self.written[b.0 as usize] else { return Err(unwritten()) };
        if writer.is_some_and(|w| !self.order.before(w, at)) {
            return Err(unwritten());
        }
        let Some((start, end)) = self.range(b) else { return Ok(()) };
        let stream = self.program.instructions[at].stream.0;
        // Most often the bytes are one run, as they were written.
        if let Some(run) = self.runs.get_mut(&start)
            && (run.end, run.owner, run.writer) == (end, b, writer)
        {
            run.read(stream, at);
            return Ok(());
        }
        self.cut(start);
        self.cut(end);
        self.still_holds(b, Some(at))?;
        self.runs.range_mut(start..end).for_each(|(_, run)| run.read(stream, at));
        Ok(())
    }

    /// Whether every byte of `b` still holds what was written through `b` last. Runs must be cut at its ends.
    /// `reader` is the instruction that reads it, if one does.
    fn still_holds(&self, b: BufferId, reader: Option<usize>) -> Result<(), ProgramError> {
        let Some((start, end)) = self.range(b) else { return Ok(()) };
        let mine = self.written[b.0 as usize];
        for (&at, run) in self.runs.range(start..end) {
            if run.owner == b && Some(run.writer) == mine {
                continue;
            }
            // Inputs do not overlap and come first, so what replaced a value is an instruction.
            let Some(writer) = run.writer else { continue };
            if let Some(r) = reader
                && !self.order.before(writer, r)
            {
                return Err(ProgramError::Race { first: writer, second: r, bytes: (at, run.end) });
            }
            let reader = reader.map(|r| format!("instruction {r}")).unwrap_or_default();
            return Err(ProgramError::Clobbered { writer, buffer: b.0, name: self.name(b), reader });
        }
        Ok(())
    }

    fn write(&mut self, at: usize, b: BufferId) -> Result<(), ProgramError> {
        self.written[b.0 as usize] = Some(Some(at));
        let Some((start, end)) = self.range(b) else { return Ok(()) };
        // Most often the bytes are one run, written through another buffer of that size.
        if let Some(run) = self.runs.get_mut(&start)
            && run.end == end
        {
            may_overwrite(self.program, self.order, at, b, start, run)?;
            (run.owner, run.writer) = (b, Some(at));
            run.reads.clear();
            return Ok(());
        }
        self.cut(start);
        self.cut(end);
        let mut others = Vec::new();
        for (&from, run) in self.runs.range(start..end) {
            may_overwrite(self.program, self.order, at, b, from, run)?;
            others.extend((from != start).then_some(from));
        }
        for s in others {
            self.runs.remove(&s);
        }
        let run = self.runs.entry(start).or_insert_with(|| Run {
            end,
            owner: b,
            writer: None,
            reads: SmallVec::new(),
        });
        (run.end, run.owner, run.writer) = (end, b, Some(at));
        run.reads.clear();
        Ok(())
    }

    fn survives(&mut self, b: BufferId, until: &str) -> Result<(), ProgramError> {
        if self.written[b.0 as usize].is_none() {
            let at = self.program.instructions.len();
            return Err(ProgramError::Unwritten { at, buffer: b.0, name: self.name(b) });
        }
        let Some((start, end)) = self.range(b) else { return Ok(()) };
        self.cut(start);
        self.cut(end);
        self.still_holds(b, None).map_err(|e| match e {
            ProgramError::Clobbered { writer, buffer, name, .. } => {
                ProgramError::Clobbered { writer, buffer, name, reader: until.to_string() }
            }
            e => e,
        })
    }
}

/// Whether all that touched a run from byte `from` on is complete when instruction `at` writes it through `b`.
fn may_overwrite(
    program: &Program,
    order: &HappensBefore<'_>,
    at: usize,
    b: BufferId,
    from: u64,
    run: &Run,
) -> Result<(), ProgramError> {
    let race = |first: usize| ProgramError::Race { first, second: at, bytes: (from, run.end) };
    if let Some(w) = run.writer
        && !order.before(w, at)
    {
        return Err(race(w));
    }
    for &(_, r) in &run.reads {
        // An instruction may overwrite what it reads only through the very same buffer (in place).
        if r == at && run.owner != b {
            return Err(ProgramError::Clobbered {
                writer: at,
                buffer: run.owner.0,
                name: program.buffer(run.owner).name.to_string(),
                reader: format!("instruction {at} itself"),
            });
        }
        if r != at && !order.before(r, at) {
            return Err(race(r));
        }
    }
    Ok(())
}
