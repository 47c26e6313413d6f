//! Files of tensors: `.npz`, `.npy`, `.safetensors`.
#![no_main]

use std::cell::RefCell;
use std::io::{Seek, SeekFrom, Write};
use tempfile::NamedTempFile;

thread_local! {
    /// Readers take paths; the file is rewritten for each input.
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| {
        let f = file.as_file_mut();
        f.set_len(0)
            .and_then(|()| f.seek(SeekFrom::Start(0)))
            .and_then(|_| f.write_all(bytes))
            .expect("written");
        match msc_runtime::data::read(file.path()) {
            Ok(tensors) => {
                for t in tensors.values() {
                    assert_eq!(t.data.bytes().len(), t.ty().bytes());
                }
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
        let _ = msc_frontends::npz::read(file.path());
    });
});
