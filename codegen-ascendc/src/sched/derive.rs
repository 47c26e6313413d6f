//! The passes in order.

use super::hoist::hoist_loads;
use super::lower::lower;
use super::prune::{assign_ids, prune};
use super::slots::assign_slots;
use super::sync::synchronise;
use super::{Program, SchedError, Unit, UnitProgram, verify};
use crate::tile::{DeviceSpec, Kernel};

/// Schedules a kernel of vector tiles on the device's vector cores.
///
/// The kernel must have passed [`tile::verify`](crate::tile::verify).
///
/// # Errors
/// [`SchedError::Unsupported`] for steps that need more than a vector core; [`SchedError::TooLarge`] and
/// [`SchedError::EventIds`] where the core's resources do not suffice; [`SchedError::Broken`] if the
/// result fails the verifier, which is a fault of this module.
pub fn derive(kernel: &Kernel, device: &DeviceSpec) -> Result<Program, SchedError> {
    // Loads where the kernel has them let computation start early; together they need fewer event ids.
    let fine = attempt(kernel, device, Choice { hoisted: false, slots: 2 });
    let Err(SchedError::EventIds { .. }) = fine else { return fine };
    let together = attempt(kernel, device, Choice { hoisted: true, slots: 2 });
    let Err(SchedError::EventIds { .. }) = together else { return together };
    attempt(kernel, device, Choice { hoisted: true, slots: 1 })
}

/// What an attempt does differently.
struct Choice {
    /// Whether loads are moved together.
    hoisted: bool,
    /// Slots of a transferred tile at most.
    slots: u32,
}

fn attempt(kernel: &Kernel, device: &DeviceSpec, choice: Choice) -> Result<Program, SchedError> {
    let mut lowered = lower(kernel)?;
    if choice.hoisted {
        hoist_loads(&mut lowered.body);
    }
    assign_slots(&mut lowered, &kernel.name, device.vector_usable(), choice.slots)?;
    let mut program = Program {
        name: kernel.name.clone(),
        origin: kernel.origin.clone(),
        grid: kernel.grid.clone(),
        params: kernel.params.clone(),
        scalars: kernel.scalars.clone(),
        tiles: lowered.tiles,
        flags: Vec::new(),
        handovers: Vec::new(),
        units: Vec::new(),
    };
    let body = synchronise(&mut program, lowered.body);
    program.units.push(UnitProgram { unit: Unit::Aiv, body });
    prune(&mut program);
    assign_ids(&mut program)?;
    verify(&program, device)
        .map_err(|violation| SchedError::Broken { kernel: program.name.clone(), violation })?;
    Ok(program)
}
