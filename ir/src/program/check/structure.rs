//! Indices, operand counts, streams, placements, and the description of inputs and outputs.

use super::super::{Action, BufferId, Instruction, Placement, Program, StreamKind};
use super::{MAX_BUFFER_BYTES, MAX_RANKS, ProgramError};
use crate::module::{AxisId, Member, Sharding};
use crate::op::Op;
use crate::outside::Outside;
use crate::types::TensorType;

pub(super) fn check(p: &Program) -> Result<(), ProgramError> {
    mesh(p).map_err(|message| ProgramError::Entry { message })?;
    for (n, b) in p.buffers.iter().enumerate() {
        let fits = match (b.ty.checked_bytes(), b.placement) {
            (Some(bytes), Placement::Arena(at)) => {
                bytes <= MAX_BUFFER_BYTES
                    && at % super::super::ALIGNMENT == 0
                    && at.checked_add(bytes as u64).is_some_and(|end| end <= p.arena_bytes)
            }
            (Some(bytes), Placement::Constant(_)) => bytes <= MAX_BUFFER_BYTES,
            (None, _) => false,
        };
        if !fits {
            return Err(ProgramError::Placement { buffer: n as u32 });
        }
    }
    entry(p).map_err(|message| ProgramError::Entry { message })?;
    let mut stream_of = vec![None; p.communicators.len()];
    for (at, i) in p.instructions.iter().enumerate() {
        instruction(p, at, i, &mut stream_of)?;
    }
    Ok(())
}

fn mesh(p: &Program) -> Result<(), String> {
    let mut ranks = 1usize;
    if p.mesh.axes.len() > u8::MAX as usize {
        return Err(format!("the mesh has {} axes", p.mesh.axes.len()));
    }
    for a in &p.mesh.axes {
        ranks = ranks.checked_mul(a.size).filter(|&n| n > 0 && n <= MAX_RANKS).ok_or_else(|| {
            format!("mesh axis {} of {} ranks: the mesh may have 1 to {MAX_RANKS} ranks", a.name, a.size)
        })?;
    }
    let known = |a: AxisId| (a.0 as usize) < p.mesh.axes.len();
    for (n, &(a, c)) in p.class.fixed.iter().enumerate() {
        if !known(a) || c >= p.mesh.size(a) || p.class.fixed[..n].iter().any(|&(b, _)| b == a) {
            return Err(format!("the rank class fixes axis {} at {c}, which is no coordinate of it", a.0));
        }
    }
    for (n, c) in p.communicators.iter().enumerate() {
        if c.axes.is_empty() || !c.axes.iter().all(|&a| known(a)) || has_repeats(&c.axes) {
            return Err(format!("communicator {n} does not name axes of the mesh"));
        }
    }
    Ok(())
}

fn has_repeats(axes: &[AxisId]) -> bool {
    axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a))
}

fn entry(p: &Program) -> Result<(), String> {
    let e = &p.entry;
    if e.params.len() != p.inputs.len() || e.results.len() != p.outputs.len() {
        return Err(format!(
            "entry {} has {} parameters and {} results, the program {} inputs and {} outputs",
            e.name,
            e.params.len(),
            e.results.len(),
            p.inputs.len(),
            p.outputs.len()
        ));
    }
    let ty = |what: &str, b: &BufferId| -> Result<&TensorType, String> {
        p.buffers.get(b.0 as usize).map(|b| &b.ty).ok_or_else(|| format!("{what} has no buffer"))
    };
    let mut taken = vec![false; e.results.len()];
    let mut given = vec![false; p.buffers.len()];
    for (info, b) in e.params.iter().zip(&p.inputs) {
        let t = ty(&info.name, b)?;
        if matches!(p.buffer(*b).placement, Placement::Constant(_))
            || std::mem::replace(&mut given[b.0 as usize], true)
        {
            return Err(format!("parameter {} has no buffer of its own in the arena", info.name));
        }
        sharding(p, &info.name, &info.sharding, t)?;
        stack(p, &info.name, &info.stack, &info.sharding, t)?;
        let Some(r) = info.alias else { continue };
        let (Some(out), Some(result)) = (p.outputs.get(r as usize), e.results.get(r as usize)) else {
            return Err(format!("parameter {} is replaced by result {r}, which does not exist", info.name));
        };
        if ty(&result.name, out)? != t || !info.sharding.same(&result.sharding) {
            return Err(format!(
                "parameter {} and result {}, which replaces it, differ in type or layout",
                info.name, result.name
            ));
        }
        if std::mem::replace(&mut taken[r as usize], true) {
            return Err(format!("result {} replaces several parameters", result.name));
        }
    }
    for (info, b) in e.results.iter().zip(&p.outputs) {
        sharding(p, &info.name, &info.sharding, ty(&info.name, b)?)?;
        stack(p, &info.name, &info.stack, &info.sharding, ty(&info.name, b)?)?;
    }
    Outside::check(e)
}

/// A stack has a member for each place of its whole first dimension, which is of one part.
fn stack(
    p: &Program,
    name: &str,
    members: &[Member],
    s: &Sharding,
    local: &TensorType,
) -> Result<(), String> {
    if members.is_empty() {
        return Ok(());
    }
    let ranks: usize = s.axes(0).iter().map(|&a| p.mesh.size(a)).product();
    let whole = local.shape.first().and_then(|n| n.checked_mul(ranks));
    match whole == Some(members.len()) && s.parts(0) == 1 {
        true => Ok(()),
        false => {
            Err(format!("{name} holds {} tensors, which does not fit {local} and its layout", members.len()))
        }
    }
}

fn sharding(p: &Program, name: &str, s: &Sharding, local: &TensorType) -> Result<(), String> {
    let all: Vec<AxisId> = s.dims.iter().flatten().copied().collect();
    let known = all.iter().all(|a| (a.0 as usize) < p.mesh.axes.len());
    let fits = |(d, &n): (usize, &usize)| n > 0 && local.shape.get(d).is_some_and(|m| m.is_multiple_of(n));
    let parts = s.parts.iter().enumerate().all(fits);
    let room = |d: usize| -> Option<usize> {
        let blocks = s.axes(d).iter().try_fold(1usize, |n, &a| n.checked_mul(p.mesh.size(a)));
        local.shape.get(d)?.checked_mul(blocks?)
    };
    let held = |(d, &n): (usize, &usize)| {
        n == 0 || n.is_multiple_of(s.parts(d)) && room(d).is_some_and(|most| n <= most)
    };
    let sizes = s.sizes.iter().enumerate().all(held);
    if s.dims.len() > local.rank() || !known || !parts || !sizes || has_repeats(&all) {
        return Err(format!("the layout of {name} does not fit {local} and the mesh"));
    }
    let ranks: usize = all.iter().map(|&a| p.mesh.size(a)).product();
    if local.bytes().checked_mul(ranks).is_none_or(|b| b > MAX_BUFFER_BYTES * MAX_RANKS) {
        return Err(format!("{name} is too large"));
    }
    Ok(())
}

fn instruction(
    p: &Program,
    at: usize,
    i: &Instruction,
    stream_of: &mut [Option<u32>],
) -> Result<(), ProgramError> {
    let Some(&stream) = p.streams.get(i.stream.0 as usize) else {
        return Err(ProgramError::Dangling { at, message: format!("stream {} does not exist", i.stream.0) });
    };
    for &b in i.reads.iter().chain(&i.writes) {
        if p.buffers.get(b.0 as usize).is_none() {
            return Err(ProgramError::Dangling { at, message: format!("buffer {} does not exist", b.0) });
        }
    }
    for (n, &b) in i.writes.iter().enumerate() {
        let buffer = p.buffer(b);
        if matches!(buffer.placement, Placement::Constant(_)) {
            let message = format!("constant {} is written", buffer.name);
            return Err(ProgramError::Dangling { at, message });
        }
        if i.writes[..n].contains(&b) {
            let message = format!("writes buffer {} ({}) twice", b.0, buffer.name);
            return Err(ProgramError::Form { at, action: i.action.name(), message });
        }
    }
    let form = |message: String| ProgramError::Form { at, action: i.action.name(), message };
    let counts = |r: usize, w: usize| {
        if (i.reads.len(), i.writes.len()) == (r, w) {
            return Ok(());
        }
        Err(form(format!("has {} reads and {} writes, not {r} and {w}", i.reads.len(), i.writes.len())))
    };
    let communicator = match &i.action {
        Action::Collective { communicator, .. }
        | Action::Send { communicator, .. }
        | Action::Receive { communicator, .. } => Some(communicator.0),
        _ => None,
    };
    let group = match communicator {
        Some(c) => {
            let (Some(group), Some(on)) = (p.communicators.get(c as usize), stream_of.get_mut(c as usize))
            else {
                return Err(ProgramError::Dangling {
                    at,
                    message: format!("communicator {c} does not exist"),
                });
            };
            // Then the group's operations have one order on every rank.
            if *on.get_or_insert(i.stream.0) != i.stream.0 {
                return Err(form(format!("communicator {c} is used on two streams")));
            }
            Some(group)
        }
        None => None,
    };
    let runs_here = match &i.action {
        Action::Interpret(_) | Action::Kernel(_) | Action::LibraryCall { .. } => {
            stream == StreamKind::Compute
        }
        Action::Collective { .. } | Action::Send { .. } | Action::Receive { .. } => {
            stream == StreamKind::Communication
        }
        Action::Copy | Action::Wait(_) => true,
    };
    if !runs_here {
        return Err(form(format!("cannot run on a {} stream", stream.name())));
    }
    match &i.action {
        Action::Collective { op, .. } => {
            counts(1, 1)?;
            let axes = match op {
                Op::Collective(c) if !c.axes().is_empty() => Some(c.axes()),
                _ => None,
            };
            let axes = axes.ok_or_else(|| form("the op is not a collective".into()))?;
            let sorted = |a: &[AxisId]| {
                let mut v = a.to_vec();
                v.sort();
                v
            };
            if group.is_none_or(|g| sorted(&g.axes) != sorted(axes)) {
                return Err(form("the op's axes are not those of its communicator".into()));
            }
        }
        Action::Send { offset, .. } | Action::Receive { offset, .. } => {
            let sends = matches!(i.action, Action::Send { .. });
            counts(sends.into(), (!sends).into())?;
            let ranks: usize = group.map_or(1, |g| g.axes.iter().map(|&a| p.mesh.size(a)).product());
            if i64::from(*offset).rem_euclid(ranks as i64) == 0 {
                return Err(form("the peer is the rank itself".into()));
            }
        }
        Action::Copy => {
            counts(1, 1)?;
            let (from, to) = (&p.buffer(i.reads[0]).ty, &p.buffer(i.writes[0]).ty);
            if from != to {
                return Err(form(format!("copies {from} to {to}")));
            }
        }
        Action::Wait(_) => counts(0, 0)?,
        Action::Interpret(_) | Action::Kernel(_) | Action::LibraryCall { .. } => {}
    }
    Ok(())
}
