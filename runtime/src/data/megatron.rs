//! Megatron-LM's indexed datasets: `x.bin` holds the tokens of all sequences, `x.idx` says where they are.
//!
//! The index, little-endian: the magic `MMIDIDX\0\0`, a version (`u64`, 1), a code of the element type (`u8`), the
//! number of sequences and of document boundaries (`u64` each); then per sequence its length (`i32`) and the byte
//! where it begins (`i64`), and the document boundaries as numbers of sequences (`i64`). What may follow (modes of
//! multimodal data) is not read.

use msc_ir::DType;

/// First bytes of an index.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// A parsed index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Element type of the tokens.
    pub dtype: DType,
    /// Sequences: the token that each begins with, counted over all sequences, and its byte in the `.bin` file.
    /// One more marks the end.
    pub sequences: Vec<(u64, u64)>,
    /// Documents.
    pub documents: u64,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        if n > self.0.len() {
            return Err("the index is cut off".into());
        }
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(head)
    }

    fn u64(&mut self) -> Result<u64, String> {
        let b = self.take(8)?;
        Ok(b.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    /// A list of little-endian integers of this width, none negative.
    fn list(
        &mut self,
        count: u64,
        width: usize,
    ) -> Result<impl Iterator<Item = Option<u64>> + use<'a>, String> {
        let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(width));
        let bytes = self.take(bytes.ok_or("the index is cut off")?)?;
        Ok(bytes.chunks_exact(width).map(move |b| {
            let n = b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
            (n >> (8 * width - 1) == 0).then_some(n)
        }))
    }
}

impl Index {
    /// Reads an index for a `.bin` file of `data` bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], data: u64) -> Result<Index, String> {
        let mut r = Reader(bytes);
        if r.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err("is no Megatron index: it does not begin with MMIDIDX".into());
        }
        let version = r.u64()?;
        if version != 1 {
            return Err(format!("the index has version {version}, msc reads version 1"));
        }
        let dtype = match r.take(1)?[0] {
            1 => DType::U8,
            2 => DType::I8,
            3 => DType::I16,
            4 => DType::I32,
            5 => DType::I64,
            8 => DType::U16,
            other => return Err(format!("element type {other} is none of integers")),
        };
        let (count, boundaries) = (r.u64()?, r.u64()?);
        let (sizes, pointers) = (r.list(count, 4)?, r.list(count, 8)?);
        let mut sequences = Vec::new();
        let (mut first, mut end) = (0u64, 0u64);
        for (n, (size, pointer)) in sizes.zip(pointers).enumerate() {
            let (Some(size), Some(pointer)) = (size, pointer) else {
                return Err(format!("sequence {n} has a negative length or position"));
            };
            sequences.push((first, pointer));
            let stop = pointer.checked_add(size * dtype.size_bytes() as u64);
            match stop.filter(|&s| s <= data) {
                Some(s) => end = s,
                None => return Err(format!("sequence {n} ends behind the {data} bytes of the data")),
            }
            first += size;
        }
        sequences.push((first, end));
        let mut last = 0;
        for b in r.list(boundaries, 8)? {
            match b.filter(|&b| b >= last && b <= count) {
                Some(b) => last = b,
                None => return Err("the document boundaries are not ascending".into()),
            }
        }
        Ok(Index { dtype, sequences, documents: boundaries.saturating_sub(1) })
    }

    /// Tokens in all sequences.
    pub fn tokens(&self) -> u64 {
        self.sequences.last().map_or(0, |s| s.0)
    }

    /// The byte of a token in the `.bin` file, and how many tokens lie together from there.
    pub fn locate(&self, token: u64) -> (u64, u64) {
        let n = self.sequences.partition_point(|s| s.0 <= token).saturating_sub(1);
        let (first, byte) = self.sequences[n];
        let next = self.sequences.get(n + 1).map_or(token, |s| s.0);
        (byte + (token - first) * self.dtype.size_bytes() as u64, next.saturating_sub(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two documents of sequences of 3, 0 and 2 tokens, the last one first in the data.
    fn index() -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend(1u64.to_le_bytes());
        b.push(8);
        b.extend(3u64.to_le_bytes());
        b.extend(3u64.to_le_bytes());
        [3i32, 0, 2].iter().for_each(|n| b.extend(n.to_le_bytes()));
        [4i64, 10, 0].iter().for_each(|n| b.extend(n.to_le_bytes()));
        [0i64, 1, 3].iter().for_each(|n| b.extend(n.to_le_bytes()));
        b
    }

    #[test]
    fn tokens_are_found() {
        let x = Index::parse(&index(), 10).expect("an index");
        assert_eq!((x.dtype, x.tokens(), x.documents), (DType::U16, 5, 2));
        let at: Vec<(u64, u64)> = (0..5).map(|t| x.locate(t)).collect();
        assert_eq!(at, [(4, 3), (6, 2), (8, 1), (0, 2), (2, 1)]);
    }

    #[test]
    fn damaged_indices_are_refused() {
        let good = index();
        for n in 0..good.len() {
            assert!(Index::parse(&good[..n], 10).is_err(), "cut at {n}");
        }
        let message = |b: &[u8], data| Index::parse(b, data).expect_err("damaged");
        assert!(message(&good, 9).contains("sequence 0 ends behind"));
        let patched = |at: usize, value: u8| {
            let mut b = good.clone();
            b[at] = value;
            message(&b, 10)
        };
        assert!(patched(0, 0).contains("MMIDIDX"));
        assert!(patched(9, 2).contains("version 2"));
        assert!(patched(17, 7).contains("element type 7"));
        assert!(patched(25, 0xff).contains("cut off"));
        assert!(patched(37, 0x80).contains("negative"));
        assert!(patched(good.len() - 8, 9).contains("boundaries"));
    }
}
