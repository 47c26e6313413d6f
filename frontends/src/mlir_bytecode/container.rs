//! The file: header and sections.

use super::cursor::{Cursor, utf8};
use super::fault::{Fault, Result};
use crate::error::Code;

/// The first bytes of MLIR bytecode.
pub const MAGIC: [u8; 4] = [0x4D, 0x4C, 0xEF, 0x52];

/// The newest container version that is read.
pub const NEWEST_BYTECODE: u64 = 6;

/// Ids of sections.
pub mod section {
    /// Strings.
    pub const STRING: u8 = 0;
    /// Dialects and op names.
    pub const DIALECT: u8 = 1;
    /// Attribute and type bytes.
    pub const ATTR_TYPE: u8 = 2;
    /// Sizes of the attribute and type entries.
    pub const ATTR_TYPE_OFFSET: u8 = 3;
    /// Operations; also nested in itself.
    pub const IR: u8 = 4;
    /// Resource bytes.
    pub const RESOURCE: u8 = 5;
    /// Names and sizes of resources.
    pub const RESOURCE_OFFSET: u8 = 6;
    /// A dialect's version, nested in [`DIALECT`].
    pub const DIALECT_VERSION: u8 = 7;
    /// Properties of ops.
    pub const PROPERTIES: u8 = 8;
    /// One more than the largest id.
    pub const COUNT: usize = 9;

    /// A section's name for messages.
    pub fn name(id: u8) -> &'static str {
        const NAMES: [&str; COUNT] = [
            "string",
            "dialect",
            "attribute/type",
            "attribute/type offset",
            "IR",
            "resource",
            "resource offset",
            "dialect version",
            "properties",
        ];
        NAMES.get(id as usize).copied().unwrap_or("unknown")
    }
}

/// The header and where each section is.
#[derive(Debug)]
pub struct Container<'a> {
    /// Version of the container format, 0 to [`NEWEST_BYTECODE`].
    pub version: u64,
    /// Who wrote the file: `StableHLO_v1.17.0` for a portable artifact.
    pub producer: &'a str,
    sections: [Option<Cursor<'a>>; section::COUNT],
}

impl<'a> Container<'a> {
    /// Reads the header and indexes the sections.
    ///
    /// # Errors
    /// For bytes that are not MLIR bytecode, a newer container version, unknown, repeated or missing sections.
    pub fn open(file: &'a [u8]) -> Result<Container<'a>> {
        let mut c = Cursor::new(file);
        if c.left() < 4 || c.take(4)? != MAGIC {
            return Err(Fault::new(
                Code::Format,
                0,
                "the file does not start as MLIR bytecode does (4D 4C EF 52)",
            ));
        }
        let version = c.varint()?;
        if version > NEWEST_BYTECODE {
            return Err(Fault::new(
                Code::Format,
                4,
                format!("MLIR bytecode of version {version}; the newest known is {NEWEST_BYTECODE}"),
            ));
        }
        let at = c.at();
        let producer = utf8(c.cstr()?, at)?;
        let mut sections = [None; section::COUNT];
        while c.left() > 0 {
            let at = c.at();
            let (id, body) = read_section(&mut c)?;
            if sections[id as usize].replace(body).is_some() {
                return Err(Fault::malformed(at, format!("a second {} section", section::name(id))));
            }
        }
        use section::{ATTR_TYPE, ATTR_TYPE_OFFSET, DIALECT, IR, RESOURCE, RESOURCE_OFFSET, STRING};
        for id in [STRING, DIALECT, ATTR_TYPE, ATTR_TYPE_OFFSET, IR] {
            if sections[id as usize].is_none() {
                return c.bad(format!("the file ends without its {} section", section::name(id)));
            }
        }
        if sections[RESOURCE as usize].is_some() != sections[RESOURCE_OFFSET as usize].is_some() {
            return c.bad("only one of the two resource sections is present");
        }
        Ok(Container { version, producer, sections })
    }

    /// A section's content; empty where the section is missing.
    pub fn section(&self, id: u8) -> Cursor<'a> {
        self.sections.get(id as usize).copied().flatten().unwrap_or(Cursor::new(&[]))
    }

    /// The VHLO version `X.Y` of a portable artifact, which only the producer string says.
    pub fn vhlo_version(&self) -> Option<(u32, u32)> {
        let mut parts = self.producer.split("StableHLO_v").nth(1)?.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some((major, minor.parse().ok()?))
    }
}

/// Reads one section's header and returns its id and content.
pub fn read_section<'a>(c: &mut Cursor<'a>) -> Result<(u8, Cursor<'a>)> {
    let at = c.at();
    let head = c.byte()?;
    let id = head & 0x7F;
    if id as usize >= section::COUNT {
        return Err(Fault::malformed(at, format!("a section of unknown id {id}")));
    }
    let length = c.varint()?;
    if head & 0x80 != 0 {
        let alignment = c.varint()?;
        c.align(alignment)?;
    }
    Ok((id, c.sub(length)?))
}
