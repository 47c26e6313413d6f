//! The independent check of a program: nothing here is shared with the code that made it.
//!
//! Happens-before is computed afresh from stream order and waits; liveness from reads and writes. A program
//! passes only if no instruction can read bytes that another one may be writing or has reused.

use super::{Action, BufferId, InstructionId, Placement, Program};
use thiserror::Error;

/// Why a program is refused. Always a bug in msc or a damaged plan, never the user's model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// An index names nothing.
    #[error("MSC-P0101: instruction {at}: {message}")]
    Dangling {
        /// Position in the list.
        at: usize,
        /// What is missing.
        message: String,
    },
    /// A wait for a later instruction, or for one of the same stream: a deadlock or a mistake.
    #[error("MSC-P0102: instruction {at} waits for instruction {on}, which is not earlier on another stream")]
    Wait {
        /// The wait.
        at: usize,
        /// What it waits for.
        on: usize,
    },
    /// A read that no write happens before.
    #[error("MSC-P0103: instruction {at} reads buffer {buffer} ({name}), which nothing wrote before it")]
    Unwritten {
        /// The reader.
        at: usize,
        /// The buffer.
        buffer: u32,
        /// Its name.
        name: String,
    },
    /// Two accesses to the same bytes, one of them a write, that nothing orders.
    #[error(
        "MSC-P0104: instructions {first} and {second} touch the same bytes {bytes:?} and nothing orders them"
    )]
    Race {
        /// The earlier in the list.
        first: usize,
        /// The later.
        second: usize,
        /// The bytes.
        bytes: (u64, u64),
    },
    /// A value is overwritten while it is still needed.
    #[error(
        "MSC-P0105: instruction {writer} overwrites buffer {buffer} ({name}), which {reader} still reads"
    )]
    Clobbered {
        /// The overwriting instruction.
        writer: usize,
        /// The buffer whose value is lost.
        buffer: u32,
        /// Its name.
        name: String,
        /// Who still needs it.
        reader: String,
    },
    /// A buffer outside the arena, or not aligned.
    #[error("MSC-P0106: buffer {buffer} lies outside the arena or is not aligned")]
    Placement {
        /// The buffer.
        buffer: u32,
    },
}

/// For each instruction and stream, how many instructions of that stream (by list position + 1) are complete
/// when it starts: a vector clock.
fn clocks(p: &Program) -> Result<Vec<Vec<usize>>, ProgramError> {
    let streams = p.streams.len();
    let mut now = vec![vec![0usize; streams]; streams];
    let mut at_start = Vec::with_capacity(p.instructions.len());
    // The clock of an instruction's completion: its start plus itself.
    let mut done: Vec<Vec<usize>> = Vec::with_capacity(p.instructions.len());
    for (at, i) in p.instructions.iter().enumerate() {
        let s = i.stream.0 as usize;
        if s >= streams {
            return Err(ProgramError::Dangling { at, message: format!("stream {s} does not exist") });
        }
        if let Action::Wait(InstructionId(on)) = i.action {
            let on = on as usize;
            if on >= at || p.instructions[on].stream == i.stream {
                return Err(ProgramError::Wait { at, on });
            }
            for (mine, theirs) in now[s].iter_mut().zip(&done[on]) {
                *mine = (*mine).max(*theirs);
            }
        }
        at_start.push(now[s].clone());
        now[s][s] = at + 1;
        done.push(now[s].clone());
    }
    Ok(at_start)
}

struct Access {
    at: usize,
    write: bool,
    range: (u64, u64),
    buffer: BufferId,
}

/// Checks a program. Outputs must survive to the end, inputs as long as they are read.
///
/// # Errors
/// The first violation in list order.
pub fn check(p: &Program) -> Result<(), ProgramError> {
    let start = clocks(p)?;
    let before = |a: usize, b: usize| start[b][p.instructions[a].stream.0 as usize] > a;
    for (n, b) in p.buffers.iter().enumerate() {
        if let Placement::Arena(at) = b.placement {
            let end = at.checked_add(b.ty.bytes() as u64);
            if at % super::ALIGNMENT != 0 || end.is_none_or(|e| e > p.arena_bytes) {
                return Err(ProgramError::Placement { buffer: n as u32 });
            }
        }
    }
    let name = |b: BufferId| p.buffers[b.0 as usize].name.clone();
    let mut accesses: Vec<Access> = Vec::new();
    // The instruction whose write a buffer holds in list order; inputs are written before the first.
    let mut writer: Vec<Option<Option<usize>>> = vec![None; p.buffers.len()];
    for (n, b) in p.buffers.iter().enumerate() {
        if matches!(b.placement, Placement::Constant(_)) || p.inputs.contains(&BufferId(n as u32)) {
            writer[n] = Some(None);
        }
    }
    // For every value: who wrote it, who reads it.
    let mut values: Vec<(BufferId, Option<usize>, Vec<usize>)> = Vec::new();
    let mut value_of: Vec<Option<usize>> = vec![None; p.buffers.len()];
    for &b in &p.inputs {
        value_of[b.0 as usize] = Some(values.len());
        values.push((b, None, Vec::new()));
    }
    for (at, i) in p.instructions.iter().enumerate() {
        for (&b, write) in i.reads.iter().map(|b| (b, false)).chain(i.writes.iter().map(|b| (b, true))) {
            let Some(buffer) = p.buffers.get(b.0 as usize) else {
                return Err(ProgramError::Dangling { at, message: format!("buffer {} does not exist", b.0) });
            };
            if write {
                if matches!(buffer.placement, Placement::Constant(_)) {
                    return Err(ProgramError::Dangling {
                        at,
                        message: format!("constant {} is written", name(b)),
                    });
                }
                writer[b.0 as usize] = Some(Some(at));
                value_of[b.0 as usize] = Some(values.len());
                values.push((b, Some(at), Vec::new()));
            } else {
                match writer[b.0 as usize] {
                    Some(w) if w.is_none_or(|w| before(w, at)) => {}
                    _ => return Err(ProgramError::Unwritten { at, buffer: b.0, name: name(b) }),
                }
                if let Some(v) = value_of[b.0 as usize] {
                    values[v].2.push(at);
                }
            }
            if let Some(r) = p.arena_range(b)
                && r.start < r.end
            {
                accesses.push(Access { at, write, range: (r.start, r.end), buffer: b });
            }
        }
    }
    races(&accesses, &before)?;
    clobbered(p, &values, &value_of, &accesses, &before)
}

/// Conflicting accesses must be ordered. Accesses are swept by their first byte.
fn races(accesses: &[Access], before: &impl Fn(usize, usize) -> bool) -> Result<(), ProgramError> {
    let mut by_start: Vec<&Access> = accesses.iter().collect();
    by_start.sort_by_key(|a| (a.range.0, a.at));
    let mut open: Vec<&Access> = Vec::new();
    for a in by_start {
        open.retain(|o| o.range.1 > a.range.0);
        for o in &open {
            let (x, y) = if o.at <= a.at { (*o, a) } else { (a, *o) };
            // Within one instruction, reading and writing the same buffer is its own business; two different
            // overlapping buffers are not.
            let conflict =
                (x.write || y.write) && (x.at != y.at || (x.buffer != y.buffer && x.write && y.write));
            if conflict && !before(x.at, y.at) {
                return Err(ProgramError::Race { first: x.at, second: y.at, bytes: a.range });
            }
        }
        open.push(a);
    }
    Ok(())
}

/// No overlapping write may fall between a value's write and one of its reads (or the end, for outputs).
fn clobbered(
    p: &Program,
    values: &[(BufferId, Option<usize>, Vec<usize>)],
    value_of: &[Option<usize>],
    accesses: &[Access],
    before: &impl Fn(usize, usize) -> bool,
) -> Result<(), ProgramError> {
    let mut writes: Vec<&Access> = accesses.iter().filter(|a| a.write).collect();
    writes.sort_by_key(|a| a.range.0);
    let longest = writes.iter().map(|a| a.range.1 - a.range.0).max().unwrap_or(0);
    for (n, (b, written, reads)) in values.iter().enumerate() {
        let Some(range) = p.arena_range(*b) else { continue };
        let is_output = p.outputs.contains(b) && value_of[b.0 as usize] == Some(n);
        let first = writes.partition_point(|w| w.range.0 + longest <= range.start);
        for w in writes[first..].iter().take_while(|w| w.range.0 < range.end) {
            if w.range.1 <= range.start || Some(w.at) == *written {
                continue;
            }
            let after_write = written.is_none_or(|d| before(d, w.at));
            if !after_write {
                continue;
            }
            let needed =
                reads.iter().find(|&&r| r != w.at && !before(r, w.at)).map(|r| format!("instruction {r}"));
            let needed = needed.or_else(|| is_output.then(|| "the end of the step".to_string()));
            // A read by the overwriting instruction itself is fine only from the very same buffer (in place).
            let needed = needed.or_else(|| {
                (reads.contains(&w.at) && w.buffer != *b).then(|| format!("instruction {} itself", w.at))
            });
            if let Some(reader) = needed {
                return Err(ProgramError::Clobbered {
                    writer: w.at,
                    buffer: b.0,
                    name: p.buffers[b.0 as usize].name.clone(),
                    reader,
                });
            }
        }
    }
    for &b in &p.outputs {
        if p.buffers.get(b.0 as usize).is_none()
            || (value_of[b.0 as usize].is_none() && p.arena_range(b).is_some())
        {
            return Err(ProgramError::Unwritten {
                at: p.instructions.len(),
                buffer: b.0,
                name: String::new(),
            });
        }
    }
    Ok(())
}
