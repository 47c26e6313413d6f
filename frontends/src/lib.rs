//! `msc-frontends`: readers of what users export, into the one IR.
//!
//! StableHLO comes as MLIR text or as MLIR bytecode. Either reader produces the [raw form](raw), and the
//! [importer](import) turns that into a [`msc_ir::Module`]. Every op keeps its place in the user's file, and the
//! user's own names, through to messages and reports.

pub mod error;
mod foreign;
pub mod import;
pub mod layout;
pub mod mlir_bytecode;
pub mod npz;
pub mod raw;
pub mod stablehlo_text;
pub mod vhlo;

pub use error::{Code, FrontendError, Result};
pub use import::{Annotations, Imported, MeshDecl, ShardingHint, Site};

/// A user's file, memory-mapped.
#[derive(Debug)]
pub struct Source {
    name: String,
    map: memmap2::Mmap,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Code::Io`] and [`Code::Format`] for files that cannot be read or are empty.
    pub fn open(path: &std::path::Path) -> Result<Source> {
        let name = path.display().to_string();
        let io = |e: std::io::Error| FrontendError::new(Code::Io, format!("{name}: {e}"));
        let file = std::fs::File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(FrontendError::new(Code::Format, format!("{name} is empty")));
        }
        // SAFETY: the map is read only. A file that another process changes meanwhile gives wrong bytes, which
        // the readers must survive anyway; one that it truncates ends the process, as any reader of maps does.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(Source { name, map })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Parses the file, choosing the reader by content.
    ///
    /// # Errors
    /// The readers' own.
    pub fn parse(&self) -> Result<raw::RawModule<'_>> {
        parse(&self.name, &self.map)
    }
}

/// Parses a program from memory, choosing the reader by content. `name` stands for the file in messages.
///
/// # Errors
/// [`Code::Format`] for other known formats; the readers' own.
pub fn parse<'a>(name: &str, bytes: &'a [u8]) -> Result<raw::RawModule<'a>> {
    if mlir_bytecode::is_bytecode(bytes) {
        return mlir_bytecode::read(name, bytes);
    }
    let foreign = match bytes {
        [0x1F, 0x8B, ..] => Some("gzip: unpack it first"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive: unpack it first"),
        // A protobuf message whose first field, number 1, is a small integer: ONNX's `ir_version`.
        [0x08, 1..=20, ..] => Some("an ONNX model, which is not read: export StableHLO"),
        _ if bytes.starts_with(b"HloModule ") => {
            Some("HLO text, XLA's own form, which is not read: export StableHLO")
        }
        _ => None,
    };
    match foreign {
        Some(what) => Err(FrontendError::new(Code::Format, format!("{name} looks like {what}"))
            .help("StableHLO text (`jax.jit(step).lower(...).as_text()`) and portable bytecode are read")),
        None => stablehlo_text::parse(name, bytes),
    }
}

/// Reads a program from a file, choosing the reader by content.
///
/// # Errors
/// [`Code::Io`] and [`Code::Format`] for files that cannot be read or are of no known format; the readers' own.
pub fn read_file(path: &std::path::Path) -> Result<Imported> {
    import::import(&Source::open(path)?.parse()?)
}

/// Reads a program from memory, choosing the reader by content. `name` stands for the file in messages.
///
/// # Errors
/// As [`read_file`].
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Imported> {
    import::import(&parse(name, bytes)?)
}

/// Reads StableHLO text. `name` stands for the file in messages.
///
/// # Errors
/// Malformed text, and what [`import::import`] refuses.
pub fn read_stablehlo_text(name: &str, bytes: &[u8]) -> Result<Imported> {
    let raw = stablehlo_text::parse(name, bytes)?;
    import::import(&raw)
}

/// Entry for fuzzing: reads any bytes as text and drops the result.
pub fn fuzz_text(bytes: &[u8]) {
    let _ = read_stablehlo_text("fuzz.mlir", bytes);
}
