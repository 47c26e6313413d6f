//! Places in a run, as messages name them.

use crate::plan::Plan;
use msc_ir::Operation;
use msc_ir::program::{Action, CommunicatorId, Instruction, Program};
use std::fmt;

/// A place in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The rank.
    pub rank: usize,
    /// The step, from 0. Between steps it is the next one.
    pub step: usize,
    /// Position in the rank's instruction list; none between steps.
    pub instruction: Option<usize>,
    /// What is done there: an action, the op or kernel, and the communicator with its ranks.
    pub what: String,
    /// Where the source says so, with the user's name; empty between steps.
    pub source: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { rank, step, instruction, what, source } = self;
        match instruction {
            Some(i) => write!(f, "rank {rank}, step {step}, instruction {i} ({what}), {source}"),
            None => write!(f, "rank {rank}, before step {step} ({what})"),
        }
    }
}

impl Place {
    /// Where a rank is that executes an instruction.
    pub(super) fn of(plan: &Plan, rank: usize, step: usize, instruction: usize) -> Box<Place> {
        let p = plan.program_of(rank);
        let (what, source) = match p.instructions.get(instruction) {
            Some(i) => (what(plan, p, rank, i), source(plan, p, instruction, i)),
            None => (String::new(), String::new()),
        };
        Box::new(Place { rank, step, instruction: Some(instruction), what, source })
    }

    /// Where a rank is that executes none.
    pub(super) fn between(rank: usize, step: usize, what: &str) -> Box<Place> {
        Box::new(Place { rank, step, instruction: None, what: what.to_string(), source: String::new() })
    }
}

/// The communicator that an action uses.
pub(super) fn communicator(a: &Action) -> Option<CommunicatorId> {
    match a {
        Action::Collective { communicator, .. }
        | Action::Send { communicator, .. }
        | Action::Receive { communicator, .. } => Some(*communicator),
        _ => None,
    }
}

/// The ranks that an instruction of a rank communicates with, this one among them.
pub(super) fn group(plan: &Plan, rank: usize, instruction: usize) -> Vec<usize> {
    let p = plan.program_of(rank);
    let c = p.instructions.get(instruction).and_then(|i| communicator(&i.action));
    c.map_or(Vec::new(), |c| plan.mesh().group(rank, &p.communicators[c.0 as usize].axes))
}

fn what(plan: &Plan, p: &Program, rank: usize, i: &Instruction) -> String {
    let name = i.action.name();
    let what = match &i.action {
        Action::Interpret(op) => format!("{name} {}", op.name()),
        Action::Collective { op, .. } => format!("{name} {}", op.name()),
        Action::LibraryCall { library, op } => format!("{name} {library} for {}", op.name()),
        Action::Kernel(k) => {
            let kernel = plan.kernels.get(k.0 as usize);
            format!("{name} {}", kernel.map_or("?", |k| &k.name))
        }
        Action::Wait(on) => format!("{name} for instruction {}", on.0),
        _ => name.to_string(),
    };
    match communicator(&i.action) {
        None => what,
        Some(c) => {
            let axes = &p.communicators[c.0 as usize].axes;
            let names: Vec<&str> =
                axes.iter().map(|a| plan.mesh().axes[a.0 as usize].name.as_str()).collect();
            format!("{what} over {}, ranks {}", names.join("+"), ranks(&plan.mesh().group(rank, axes)))
        }
    }
}

/// Ranks as text; of many the first and the last.
fn ranks(list: &[usize]) -> String {
    const SHOWN: usize = 8;
    let text = |l: &[usize]| l.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    match list {
        [first @ .., last] if list.len() > SHOWN => format!("{} … {last}", text(&first[..SHOWN - 2])),
        _ => text(list),
    }
}

/// Source line and the user's name: that of the location, or else of a buffer. What the compiler added has no line of
/// its own; that of the nearest instruction before it that has one says where to look.
fn source(plan: &Plan, p: &Program, at: usize, i: &Instruction) -> String {
    let locations = &plan.module.locations;
    let located = |i: &&Instruction| !locations.get(i.loc).file.is_empty();
    let mut source = locations.describe(i.loc);
    if !located(&i)
        && let Some(near) = p.instructions[..at].iter().rev().chain(&p.instructions[at..]).find(located)
    {
        let loc = locations.get(near.loc);
        let name = &locations.get(i.loc).name;
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        source = format!("near {}:{}:{}{name}", loc.file, loc.line, loc.column);
    }
    let named = |b: &&msc_ir::program::BufferId| !p.buffer(**b).name.is_empty();
    match i.writes.iter().chain(&i.reads).find(named) {
        Some(&b) if locations.get(i.loc).name.is_empty() => format!("{source} ({})", p.buffer(b).name),
        _ => source,
    }
}
