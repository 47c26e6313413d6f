//! Definite assignment, and what loops carry.

use std::collections::BTreeSet;

use super::{Fault, VerifyError, here, whole};
use crate::tile::{BufferId, Kernel, Loop, Role, Step};

pub(super) fn check(k: &Kernel) -> Result<(), VerifyError> {
    let mut assigned = BTreeSet::new();
    steps(k, &k.body, &mut assigned)?;
    let mut stored = BTreeSet::new();
    k.walk(&mut |step| {
        if let Step::Store { to, .. } = step {
            stored.insert(to.param.0 as usize);
        }
    });
    match k.params.iter().enumerate().find(|(n, p)| p.role != Role::In && !stored.contains(n)) {
        Some((_, p)) => Err(whole(k, Fault::NeverStored(p.name.clone()))),
        None => Ok(()),
    }
}

fn steps(k: &Kernel, list: &[Step], assigned: &mut BTreeSet<BufferId>) -> Result<(), VerifyError> {
    for step in list {
        if let Some(id) = step.reads().iter().find(|id| !assigned.contains(id)) {
            return Err(here(k, step, Fault::Unassigned(k.buffer(*id).name.clone())));
        }
        if let Step::For(l) = step {
            enter(k, step, l, assigned)?;
        }
        assigned.extend(step.writes());
    }
    Ok(())
}

/// Inside and behind a loop, a buffer that the body writes has a value only if it is carried, or behind
/// its own write.
fn enter(k: &Kernel, step: &Step, l: &Loop, assigned: &mut BTreeSet<BufferId>) -> Result<(), VerifyError> {
    let written = written_in(&l.body);
    let mut seen = BTreeSet::new();
    for id in &l.carries {
        let why = if !assigned.contains(id) {
            "has no value before the loop"
        } else if !written.contains(id) {
            "the body never writes"
        } else if !seen.insert(*id) {
            "is listed twice"
        } else {
            continue;
        };
        let buffer = k.buffer(*id).name.clone();
        return Err(here(k, step, Fault::Carry { id: l.id.0, buffer, why }));
    }
    assigned.retain(|id| !written.contains(id) || l.carries.contains(id));
    let mut inside = assigned.clone();
    steps(k, &l.body, &mut inside)
}

/// All buffers that steps write, loops included.
fn written_in(list: &[Step]) -> BTreeSet<BufferId> {
    let mut written = BTreeSet::new();
    for step in list {
        written.extend(step.writes());
        if let Step::For(l) = step {
            written.extend(written_in(&l.body));
        }
    }
    written
}
