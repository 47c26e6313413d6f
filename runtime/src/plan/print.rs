//! A plan as text, for reading.

use super::Plan;
use msc_ir::Operation;
use msc_ir::program::{Action, BufferId, Placement, Program};
use std::fmt::Write;

/// A plan as text: mesh, kernels, and for each rank class its buffers and instructions.
pub fn print(plan: &Plan) -> String {
    let mut out = format!("plan @{} of msc {}\n", plan.module.name, plan.meta.msc_version);
    let axes: Vec<String> = plan.mesh().axes.iter().map(|a| format!("{} = {}", a.name, a.size)).collect();
    let _ = writeln!(out, "mesh [{}]", axes.join(", "));
    for (n, k) in plan.kernels.iter().enumerate() {
        let _ = writeln!(out, "kernel {n} {} ({} bytes)", k.name, k.payload.len());
    }
    for p in &plan.programs {
        program(&mut out, plan, p);
    }
    out
}

fn program(out: &mut String, plan: &Plan, p: &Program) {
    let axis = |a: msc_ir::module::AxisId| p.mesh.axes.get(a.0 as usize).map_or("?", |x| &x.name);
    let fixed: Vec<String> = p.class.fixed.iter().map(|&(a, c)| format!("{} = {c}", axis(a))).collect();
    let _ = writeln!(out, "\nrank class [{}] arena {} bytes", fixed.join(", "), p.arena_bytes);
    for (n, c) in p.communicators.iter().enumerate() {
        let axes: Vec<&str> = c.axes.iter().map(|&a| axis(a)).collect();
        let _ = writeln!(out, "  communicator {n} over {}", axes.join(", "));
    }
    for (n, b) in p.buffers.iter().enumerate() {
        let place = match b.placement {
            Placement::Arena(at) => format!("at {at}"),
            Placement::Constant(c) => format!("constant {}", c.0),
        };
        let _ = writeln!(out, "  buffer {n} {} {place} {:?}", b.ty, b.name);
    }
    let list = |ids: &[BufferId]| ids.iter().map(|b| b.0.to_string()).collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "  inputs {}\n  outputs {}", list(&p.inputs), list(&p.outputs));
    for (at, i) in p.instructions.iter().enumerate() {
        let stream = p.streams.get(i.stream.0 as usize).map_or("?", |s| s.name());
        let what = match &i.action {
            Action::Interpret(op) => format!("interpret {}", op.name()),
            Action::Kernel(k) => {
                format!("kernel {}", plan.kernels.get(k.0 as usize).map_or("?", |k| &k.name))
            }
            Action::LibraryCall { library, op } => format!("library_call {library} {}", op.name()),
            Action::Collective { communicator, op } => {
                format!("collective {} on communicator {}", op.name(), communicator.0)
            }
            Action::Send { communicator, offset } => {
                format!("send to {offset:+} on communicator {}", communicator.0)
            }
            Action::Receive { communicator, offset } => {
                format!("receive from {offset:+} on communicator {}", communicator.0)
            }
            Action::Copy => "copy".to_string(),
            Action::Wait(on) => format!("wait for {}", on.0),
        };
        let _ = write!(out, "  {at}: {stream}.{} {what}", i.stream.0);
        if !i.reads.is_empty() || !i.writes.is_empty() {
            let _ = write!(out, " ({}) -> ({})", list(&i.reads), list(&i.writes));
        }
        out.push('\n');
    }
}
