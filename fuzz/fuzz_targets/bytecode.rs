//! Portable StableHLO bytecode, bare or in `jax.export`'s container.
#![no_main]

use msc_frontends::{import, mlir_bytecode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    msc_fuzz::imported(mlir_bytecode::read("fuzz.mlirbc", bytes).and_then(|raw| import::import(&raw)));
});
