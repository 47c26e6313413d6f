//! Entry points for fuzzers: whatever the bytes, reading a plan ends in a plan or in an error.

use super::container::{self, Kind, Section};
use super::{Plan, PlanError};

/// Reads `bytes` as a plan.
pub fn fuzz_plan(bytes: &[u8]) -> Result<Plan, PlanError> {
    Plan::from_bytes(bytes)
}

/// Reads a plan whose sections are those of the valid plan `seed` after `mutate`, with hashes made right again:
/// what is met behind the hashes. `mutate` is called once for each section, in order.
///
/// # Errors
/// Those of reading `seed` or the result.
pub fn fuzz_sections(seed: &[u8], mut mutate: impl FnMut(usize, &mut Vec<u8>)) -> Result<Plan, PlanError> {
    let mut parts = Vec::new();
    for (n, found) in container::read(seed)?.into_iter().enumerate() {
        let mut bytes = seed[found.range].to_vec();
        mutate(n, &mut bytes);
        parts.push((found.kind, bytes));
    }
    let sections: Vec<Section<'_>> =
        parts.iter().map(|(kind, b)| Section { kind: *kind, pieces: vec![b] }).collect();
    let mut out = Vec::new();
    container::write(&sections, &mut out).map_err(|error| PlanError::Io { path: "memory".into(), error })?;
    Plan::from_bytes(&out)
}

/// Reads a plan whose sections stand in `frames` one after the other, each as its kind (a byte), its length (three
/// bytes, little-endian; more than there is means the rest) and its bytes. Hashes and offsets are made right.
///
/// # Errors
/// Those of reading the result.
pub fn fuzz_frames(mut frames: &[u8]) -> Result<Plan, PlanError> {
    let mut sections = Vec::new();
    while let [kind, a, b, c, rest @ ..] = frames {
        let Some(kind) = Kind::ALL.into_iter().find(|k| *k as u8 == *kind) else { break };
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let (bytes, next) = rest.split_at(length.min(rest.len()));
        sections.push(Section { kind, pieces: vec![bytes] });
        frames = next;
    }
    let mut out = Vec::new();
    container::write(&sections, &mut out).map_err(|error| PlanError::Io { path: "memory".into(), error })?;
    Plan::from_bytes(&out)
}

/// The sections of a plan as [`fuzz_frames`] takes them.
///
/// # Errors
/// Those of reading `plan`.
pub fn frames(plan: &[u8]) -> Result<Vec<u8>, PlanError> {
    let mut out = Vec::new();
    for found in container::read(plan)? {
        let bytes = &plan[found.range];
        out.push(found.kind as u8);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes()[..3]);
        out.extend_from_slice(bytes);
    }
    Ok(out)
}
