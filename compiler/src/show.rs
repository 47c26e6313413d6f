//! Text for the terminal: a program, for `--emit schedule` and `--emit memory`; and how text gets there.

use crate::error::{Error, Result};
use msc_ir::program::{Action, BufferId, Placement, Program};
use msc_ir::{Module, Operation};
use std::fmt::Write;
use std::io;

/// Prints. A closed pipe ends the output and nothing else.
///
/// # Errors
/// [`Error::Io`] for anything else.
pub fn print(out: &mut dyn io::Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::Io { path: "standard output".into(), error })
        }
        _ => Ok(()),
    }
}

/// One line per instruction: position, stream, action, what it reads and writes, where it comes from.
pub fn program(p: &Program, module: &Module) -> String {
    let mut out = String::new();
    let place = |b: BufferId| {
        let buffer = p.buffer(b);
        match buffer.placement {
            Placement::Arena(at) => format!("{}@{at}", buffer.ty),
            Placement::Constant(c) => format!("{}#{}", buffer.ty, c.0),
        }
    };
    let list = |v: &[BufferId]| v.iter().map(|&b| place(b)).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, "program: {} ranks, arena {} bytes", p.mesh.ranks(), p.arena_bytes);
    for (n, i) in p.instructions.iter().enumerate() {
        let what = match &i.action {
            Action::Interpret(op) => format!("interpret {}", op.name()),
            Action::Kernel(k) => format!("kernel {}", k.0),
            Action::LibraryCall { library, op } => format!("call {library} {}", op.name()),
            Action::Collective { communicator, op } => {
                format!("{} over communicator {}", op.name(), communicator.0)
            }
            Action::Send { offset, .. } => format!("send {offset:+}"),
            Action::Receive { offset, .. } => format!("receive {offset:+}"),
            Action::Copy => "copy".to_string(),
            Action::Wait(on) => format!("wait {}", on.0),
        };
        let stream = p.streams.get(i.stream.0 as usize).map_or("?", |s| s.name());
        let _ = write!(out, "{n:>5} {stream:<13} {what}");
        if !i.reads.is_empty() || !i.writes.is_empty() {
            let _ = write!(out, "  {} -> {}", list(&i.reads), list(&i.writes));
        }
        if i.loc != msc_ir::LocId::UNKNOWN {
            let _ = write!(out, "  ; {}", module.locations.describe(i.loc));
        }
        out.push('\n');
    }
    out
}
