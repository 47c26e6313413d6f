//! StableHLO text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    msc_fuzz::imported(msc_frontends::read_stablehlo_text("fuzz.mlir", bytes));
});

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    msc_fuzz::mutate(data, size, max_size, seed)
});
