//! Damaged files: every truncation, every byte overwritten, and random edits. None may panic, hang or take memory
//! out of proportion.

use crate::artifact::Artifact;
use crate::fixture;
use crate::memory::peak_bytes;
use msc_frontends::mlir_bytecode::fuzz_bytecode;

/// Reads and imports, and checks the memory: 1 KiB for each byte of the file, and 32 MiB.
fn check(bytes: &[u8]) {
    let ((), peak) = peak_bytes(|| fuzz_bytecode(bytes));
    assert!(peak < (32 << 20) + 1024 * bytes.len(), "{peak} bytes for a file of {}", bytes.len());
}

fn overwrite_every_byte(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    for i in 0..file.len() {
        let old = file[i];
        for new in [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF, old ^ 0x02, old.wrapping_add(2)] {
            file[i] = new;
            check(&file);
        }
        file[i] = old;
    }
}

#[test]
fn truncated_anywhere() {
    for bytes in [Artifact::identity().build(), fixture("versions/export.bin")] {
        for n in 0..bytes.len() {
            check(&bytes[..n]);
        }
    }
    let bytes = fixture("versions/ops.1.17.0.mlirbc");
    for n in (0..bytes.len()).step_by(7) {
        check(&bytes[..n]);
    }
}

#[test]
fn every_byte_of_small_files() {
    overwrite_every_byte(&Artifact::identity().build());
    overwrite_every_byte(&fixture("versions/export.bin"));
}

/// Both ways of storing attributes: in dictionaries (0.9) and in the properties section (1.17).
#[test]
fn random_edits() {
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |n: usize| {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % n as u64) as usize
    };
    for name in [
        "versions/ops.0.9.0.mlirbc",
        "versions/ops.1.17.0.mlirbc",
        "llama_maxtext_fsdp2_tp2_tiny/model.mlirbc",
        "llama_torchax_tiny/model.mlirbc",
    ] {
        let good = fixture(name);
        let rounds = if good.len() > 10_000 { 600 } else { 4_000 };
        for _ in 0..rounds {
            let mut file = good.clone();
            for _ in 0..1 + next(4) {
                let i = next(file.len());
                match next(4) {
                    0 => file[i] = next(256) as u8,
                    1 => file[i] ^= 1 << next(8),
                    2 => {
                        file.remove(i);
                    }
                    _ => file.insert(i, next(256) as u8),
                }
            }
            check(&file);
        }
    }
}
