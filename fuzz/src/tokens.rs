//! Mutations of text by whole tokens and lines.
//!
//! A byte flipped in a program mostly gives a program that ends at its first error. Removing, doubling, exchanging
//! and replacing whole tokens and lines gives programs that reach further.

use msc_ir::testing::Rng;

/// Numbers at the edges of what readers count with.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "2",
    "255",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e400",
];

/// Mutates the first `size` bytes of `data` in place; returns the new size.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Rng::new(seed.into());
    if size == 0 || random.below(0, 3) == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let source = data[..size].to_vec();
    let lines = random.below(0, 3) == 0;
    let mut parts: Vec<&[u8]> =
        if lines { source.split_inclusive(|&b| b == b'\n').collect() } else { tokens(&source) };
    for _ in 0..=random.below(0, 3) {
        if parts.is_empty() {
            break;
        }
        let (i, j) = (random.below(0, parts.len()), random.below(0, parts.len()));
        match random.below(0, 6) {
            0 => {
                parts.remove(i);
            }
            1 => parts.insert(i, parts[j]),
            2 => parts.swap(i, j),
            3 => parts[i] = parts[j],
            4 if !lines => parts[i] = NUMBERS[random.below(0, NUMBERS.len())].as_bytes(),
            _ => {
                // A run of parts moves elsewhere.
                let n = random.below(0, 8).min(parts.len() - i);
                let run: Vec<&[u8]> = parts.drain(i..i + n).collect();
                let to = random.below(0, parts.len() + 1);
                parts.splice(to..to, run);
            }
        }
    }
    let out = parts.concat();
    let n = out.len().min(max_size).min(data.len());
    data[..n].copy_from_slice(&out[..n]);
    n
}

/// Words, runs of spaces, and single other bytes.
fn tokens(text: &[u8]) -> Vec<&[u8]> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'%' | b'@' | b'#' | b'!');
    let class = |b: u8| {
        if word(b) {
            1
        } else if b == b' ' {
            2
        } else {
            0
        }
    };
    text.chunk_by(|&a, &b| class(a) == class(b) && class(a) != 0).collect()
}
