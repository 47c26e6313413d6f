//! The independent check of a program: nothing here is shared with the code that made it.
//!
//! Happens-before is computed afresh from stream order and waits; what the arena's bytes hold is followed from
//! instruction to instruction. A program passes only if no instruction can read bytes that another one may be
//! writing or has reused. [`super::agree`] then checks the programs of all ranks against each other, and
//! [`super::types`] the ops against the types of their buffers.

mod bytes;
mod structure;

use super::{Action, InstructionId, Program};
use thiserror::Error;

/// The most ranks a mesh may have.
pub const MAX_RANKS: usize = 1 << 16;

/// The most bytes one buffer may have (1 TiB): no device holds more, and sizes derived from it cannot overflow.
pub const MAX_BUFFER_BYTES: usize = 1 << 40;

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
        /// The reader; one past the last instruction for the end of the step.
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
    /// A buffer that is too large, outside the arena, or not aligned.
    #[error("MSC-P0106: buffer {buffer} is too large, lies outside the arena, or is not aligned")]
    Placement {
        /// The buffer.
        buffer: u32,
    },
    /// Operands, stream or communicator do not fit the instruction's action.
    #[error("MSC-P0107: instruction {at} ({action}): {message}")]
    Form {
        /// Position in the list.
        at: usize,
        /// Name of the action.
        action: &'static str,
        /// What does not fit.
        message: String,
    },
    /// Mesh, rank class, communicators, or the description of inputs and outputs are inconsistent.
    #[error("MSC-P0108: {message}")]
    Entry {
        /// What is inconsistent.
        message: String,
    },
    /// A rank of the mesh is in no rank class, or in several; or the programs describe different steps.
    #[error("MSC-P0110: {message}")]
    Coverage {
        /// What is wrong.
        message: String,
    },
    /// Ranks of one group meet in different communication.
    #[error("MSC-P0111: communication does not match: {first}, but {second}")]
    Mismatch {
        /// One rank, its instruction, and what it does there.
        first: String,
        /// Another one.
        second: String,
    },
    /// No rank can go on.
    #[error("MSC-P0112: the ranks wait for each other: {}", waiting.join("; "))]
    Deadlock {
        /// Ranks, the instructions they are at, and what each waits for.
        waiting: Vec<String>,
    },
}

/// The happens-before relation of a program: for each instruction and stream, how many instructions of that
/// stream (as list position + 1) are complete when it starts. A vector clock.
struct HappensBefore<'p> {
    program: &'p Program,
    /// `instructions × streams`, row-major.
    at_start: Vec<usize>,
}

impl<'p> HappensBefore<'p> {
    /// The relation; every stream named by an instruction must exist.
    fn of(p: &'p Program) -> Result<HappensBefore<'p>, ProgramError> {
        let streams = p.streams.len();
        let mut now = vec![vec![0usize; streams]; streams];
        let mut at_start: Vec<usize> = Vec::with_capacity(p.instructions.len() * streams);
        for (at, i) in p.instructions.iter().enumerate() {
            let s = i.stream.0 as usize;
            if let Action::Wait(InstructionId(on)) = i.action {
                let on = on as usize;
                if on >= at || p.instructions[on].stream == i.stream {
                    return Err(ProgramError::Wait { at, on });
                }
                // Complete with `on`: what was complete at its start, and `on` itself.
                for (mine, theirs) in now[s].iter_mut().zip(&at_start[on * streams..]) {
                    *mine = (*mine).max(*theirs);
                }
                let other = p.instructions[on].stream.0 as usize;
                now[s][other] = now[s][other].max(on + 1);
            }
            at_start.extend_from_slice(&now[s]);
            now[s][s] = at + 1;
        }
        Ok(HappensBefore { program: p, at_start })
    }

    /// Whether instruction `a` is complete when `b` starts.
    fn before(&self, a: usize, b: usize) -> bool {
        let streams = self.program.streams.len();
        self.at_start[b * streams + self.program.instructions[a].stream.0 as usize] > a
    }
}

/// Checks a program. Outputs, and inputs that are not donated, must survive to the end of the step; donated
/// inputs as long as they are read.
///
/// # Errors
/// The first violation.
pub fn check(p: &Program) -> Result<(), ProgramError> {
    structure::check(p)?;
    bytes::check(p, &HappensBefore::of(p)?)
}
