//! Plan files: as they are, and by their sections behind right hashes.
#![no_main]

use msc_runtime::plan::{fuzz_frames, fuzz_plan, print};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let plan = if bytes.starts_with(b"MSCPLAN\0") { fuzz_plan(bytes) } else { fuzz_frames(bytes) };
    match plan {
        Ok(p) => assert!(!print(&p).is_empty()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
