//! The text form of modules.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match msc_ir::text::parse(text) {
        Ok(m) => msc_fuzz::module(&m),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    msc_fuzz::mutate(data, size, max_size, seed)
});
