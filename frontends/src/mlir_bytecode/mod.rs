//! MLIR bytecode: the container that StableHLO's portable artifacts are written in.
//!
//! [`read`] makes the [raw form](crate::raw) of an artifact. The order of work: [`container`] (header, sections),
//! [`tables`] (strings, dialects, op names, and where each attribute, type and property entry is), [`resource`],
//! then [`ops`] walks the operations and asks [`decode`] for the entries they refer to. What the entries of a
//! dialect mean stands in [`builtin`] and in [`crate::vhlo`].
//!
//! **Hostile input.** Every count is held against the bytes left before anything is reserved for it, nesting is
//! limited, entries that contain themselves are refused, and since one entry can be used by many ops, the
//! attributes made are counted against a budget in the size of the file ([`decode::Decoder::charge`]).

pub mod builtin;
pub mod container;
pub mod cursor;
pub mod decode;
pub mod export;
pub mod fault;
pub mod ops;
mod properties;
pub mod resource;
pub mod tables;
mod text_entry;
mod values;

use crate::error::Result;
use crate::raw::RawModule;
use container::{Container, MAGIC};

/// Whether bytes are MLIR bytecode, bare or in `jax.export`'s container.
pub fn is_bytecode(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || export::locate(bytes).is_some()
}

/// Reads a portable artifact, bare or in `jax.export`'s container. `file` is its name for messages.
///
/// # Errors
/// With the byte offset and the op's name, for anything that is not an artifact of a known StableHLO version.
pub fn read<'a>(file: &str, bytes: &'a [u8]) -> Result<RawModule<'a>> {
    let (base, artifact) = match export::locate(bytes) {
        Some(range) if !bytes.starts_with(&MAGIC) => (range.start, &bytes[range]),
        _ => (0, bytes),
    };
    read_artifact(file, bytes, base, artifact).map_err(|f| f.into_error(file, base))
}

/// Reads bytes and imports what was read, for tests with damaged files: it must return, whatever the bytes are.
pub fn fuzz_bytecode(bytes: &[u8]) {
    if let Ok(raw) = read("fuzz", bytes) {
        // What the importer says of a damaged module is its own business.
        let _ = crate::import::import(&raw);
    }
}

fn read_artifact<'a>(
    file: &str,
    source: &'a [u8],
    base: usize,
    artifact: &'a [u8],
) -> fault::Result<RawModule<'a>> {
    let container = Container::open(artifact)?;
    let tables = tables::Tables::read(&container)?;
    crate::vhlo::check_portable(&container, &tables)?;
    let resources = resource::read_resources(&container, &tables)?;
    ops::read_module(file, source, base, &container, &tables, &resources)
}
