//! Entry points for fuzzers: whatever the bytes, reading a plan ends in a plan or in an error.

use super::container::{self, Section};
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
