//! The outermost layer of a plan file: header, section table, hashes.
//!
//! ```text
//! 0    magic "MSCPLAN\0"
//! 8    format version, u32          12   number of sections, u32
//! 16   length of the file, u64      24   BLAKE3 of bytes 0..24 and of the section table
//! 56   zero
//! 64   section table: for each section kind u32, zero u32, offset u64, length u64, BLAKE3 of its bytes, zero u64
//! …    sections in table order, each at the next multiple of its alignment, gaps zero
//! ```
//!
//! Numbers are little-endian. The file ends with its last section. Every byte is covered by a hash or must be
//! zero, so any flipped bit is found.

use super::PlanError;
use memmap2::Mmap;
use std::io::{self, Write};
use std::ops::Range;

/// First bytes of every plan.
pub(super) const MAGIC: [u8; 8] = *b"MSCPLAN\0";

/// The format this msc writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 2;

/// Bytes of the header, and of an entry of the section table.
const RECORD: usize = 64;

/// The most sections a plan may have; rank classes have one each.
const MAX_SECTIONS: usize = 1 << 12;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Meta = 1,
    Tables = 2,
    Module = 3,
    Program = 4,
    Kernels = 5,
    Constants = 6,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Meta, Kind::Tables, Kind::Module, Kind::Program, Kind::Kernels, Kind::Constants];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Meta => "meta",
            Kind::Tables => "tables",
            Kind::Module => "module",
            Kind::Program => "program",
            Kind::Kernels => "kernels",
            Kind::Constants => "constants",
        }
    }

    /// Constants are used in place, as the arena is.
    fn alignment(self) -> u64 {
        match self {
            Kind::Constants => msc_ir::program::ALIGNMENT,
            _ => 8,
        }
    }
}

/// A section to be written: pieces that follow each other, each at the next multiple of the kind's alignment
/// after the one before.
pub(super) struct Section<'a> {
    pub kind: Kind,
    pub pieces: Vec<&'a [u8]>,
}

impl Section<'_> {
    fn length(&self) -> u64 {
        self.pieces.iter().fold(0, |at, p| align(at, self.kind.alignment()) + p.len() as u64)
    }

    fn each(&self, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut at = 0u64;
        for p in &self.pieces {
            let start = align(at, self.kind.alignment());
            zeros(start - at, f)?;
            f(p)?;
            at = start + p.len() as u64;
        }
        Ok(())
    }
}

fn align(at: u64, to: u64) -> u64 {
    at.div_ceil(to) * to
}

fn zeros(n: u64, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    const ZERO: [u8; 512] = [0; 512];
    debug_assert!(n <= 512);
    f(&ZERO[..n as usize])
}

/// Where the pieces of a constants section start, relative to it.
pub(super) fn constant_offsets<'a>(lengths: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut at = 0;
    lengths
        .map(|p| {
            let start = align(at, Kind::Constants.alignment());
            at = start + p.len() as u64;
            start
        })
        .collect()
}

/// Writes a plan.
pub(super) fn write(sections: &[Section<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Vec::with_capacity(sections.len() * RECORD);
    let mut end = (RECORD + sections.len() * RECORD) as u64;
    for s in sections {
        let offset = align(end, s.kind.alignment());
        let mut hash = blake3::Hasher::new();
        s.each(&mut |b| {
            hash.update(b);
            Ok(())
        })?;
        table.extend_from_slice(&(s.kind as u32).to_le_bytes());
        table.extend_from_slice(&[0; 4]);
        table.extend_from_slice(&offset.to_le_bytes());
        table.extend_from_slice(&s.length().to_le_bytes());
        table.extend_from_slice(hash.finalize().as_bytes());
        table.extend_from_slice(&[0; 8]);
        end = offset + s.length();
    }
    let mut header = Vec::with_capacity(RECORD);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    header.extend_from_slice(&end.to_le_bytes());
    let hash = table_hash(&header, &table);
    header.extend_from_slice(&hash);
    header.resize(RECORD, 0);
    out.write_all(&header)?;
    out.write_all(&table)?;
    let mut at = (RECORD + table.len()) as u64;
    for s in sections {
        let offset = align(at, s.kind.alignment());
        zeros(offset - at, &mut |b| out.write_all(b))?;
        s.each(&mut |b| out.write_all(b))?;
        at = offset + s.length();
    }
    Ok(())
}

fn table_hash(header: &[u8], table: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(&header[..24]).update(table).finalize().as_bytes()
}

/// A section as found.
pub(super) struct Found {
    pub kind: Kind,
    pub range: Range<usize>,
}

/// Checks header, table and hashes, and says where the sections are.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Found>, PlanError> {
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(PlanError::NotAPlan);
    }
    let u32_at = |at: usize| -> Result<u32, PlanError> {
        let b = bytes.get(at..at + 4).ok_or(PlanError::Truncated)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let u64_at = |at: usize| -> Result<u64, PlanError> {
        Ok(u64::from(u32_at(at)?) | u64::from(u32_at(at + 4)?) << 32)
    };
    let version = u32_at(8)?;
    if version != FORMAT_VERSION {
        return Err(PlanError::Version { found: version, supported: FORMAT_VERSION });
    }
    let count = u32_at(12)? as usize;
    if u64_at(16)? > bytes.len() as u64 {
        return Err(PlanError::Truncated);
    }
    let damaged = |section: &str| PlanError::Damaged { section: section.to_string() };
    if u64_at(16)? != bytes.len() as u64 || count > MAX_SECTIONS {
        return Err(damaged("header"));
    }
    let table = bytes.get(RECORD..RECORD + count * RECORD).ok_or_else(|| damaged("header"))?;
    if bytes[24..56] != table_hash(bytes, table) || bytes[56..RECORD] != [0; 8] {
        return Err(damaged("header"));
    }
    let mut found = Vec::with_capacity(count);
    let mut end = RECORD + table.len();
    for n in 0..count {
        let at = RECORD + n * RECORD;
        let (kind, offset, length) = (u32_at(at)?, u64_at(at + 8)?, u64_at(at + 16)?);
        let Some(kind) = Kind::ALL.into_iter().find(|k| *k as u32 == kind) else {
            return Err(damaged("section table"));
        };
        let last = offset.checked_add(length).filter(|&l| l <= bytes.len() as u64);
        let Some(last) = last.filter(|_| offset == align(end as u64, kind.alignment())) else {
            return Err(damaged("section table"));
        };
        let range = offset as usize..last as usize;
        let gap_is_zero = bytes[end..range.start].iter().all(|&b| b == 0);
        if !gap_is_zero || blake3::hash(&bytes[range.clone()]).as_bytes()[..] != bytes[at + 24..at + 56] {
            return Err(damaged(kind.name()));
        }
        end = range.end;
        found.push(Found { kind, range });
    }
    if end != bytes.len() {
        return Err(damaged("header"));
    }
    Ok(found)
}

/// The bytes of a loaded plan, at an address that is a multiple of [`msc_ir::program::ALIGNMENT`].
pub(super) enum Backing {
    /// A file, mapped.
    Mapped(Mmap),
    /// A copy in memory.
    Owned(Vec<Block>),
}

/// An aligned piece of memory.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(512))]
pub(super) struct Block([u8; 512]);

impl Backing {
    /// A copy of `bytes` and its length.
    pub fn copy(bytes: &[u8]) -> Backing {
        let mut blocks = vec![Block([0; 512]); bytes.len().div_ceil(512)];
        bytemuck::cast_slice_mut(&mut blocks)[..bytes.len()].copy_from_slice(bytes);
        Backing::Owned(blocks)
    }

    /// All bytes; a copy's are followed by zeros.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Backing::Mapped(m) => m,
            Backing::Owned(v) => bytemuck::cast_slice(v),
        }
    }
}
