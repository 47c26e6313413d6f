//! Resources: named blobs beside the IR, which `dense_resource` attributes refer to.

use super::container::{Container, section};
use super::cursor::{Cursor, utf8};
use super::fault::Result;
use super::tables::Tables;

/// A resource's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceValue<'a> {
    /// Declared without a value.
    None,
    /// Bytes.
    Blob(&'a [u8]),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(&'a [u8]),
}

/// A resource that a dialect owns.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: ResourceValue<'a>,
}

/// Reads the resource sections; the result is what resource handles index.
///
/// Resources of external owners (the reproducer of a pass pipeline …) are checked and dropped.
///
/// # Errors
/// Where the sections are malformed.
pub fn read_resources<'a>(file: &Container<'a>, tables: &Tables<'a>) -> Result<Vec<Resource<'a>>> {
    let mut names = file.section(section::RESOURCE_OFFSET);
    let mut data = file.section(section::RESOURCE);
    let mut out = Vec::new();
    if names.left() == 0 {
        return Ok(out);
    }
    for _ in 0..names.count("external resource groups")? {
        tables.string(&mut names)?;
        read_group(&mut names, &mut data, tables, &mut Vec::new())?;
    }
    while names.left() > 0 {
        names.index(tables.dialects.len(), "dialect")?;
        read_group(&mut names, &mut data, tables, &mut out)?;
    }
    Ok(out)
}

fn read_group<'a>(
    names: &mut Cursor<'a>,
    data: &mut Cursor<'a>,
    tables: &Tables<'a>,
    out: &mut Vec<Resource<'a>>,
) -> Result<()> {
    for _ in 0..names.count("resources")? {
        let at = names.at();
        let key = utf8(tables.string(names)?, at)?;
        let size = names.varint()?;
        let kind = names.byte()?;
        let mut c = data.sub(size)?;
        let value = match (size, kind) {
            (0, _) => ResourceValue::None,
            (_, 0) => {
                let alignment = c.varint()?;
                let length = c.varint()?;
                c.align(alignment)?;
                ResourceValue::Blob(c.take(length)?)
            }
            (_, 1) => ResourceValue::Bool(c.byte()? != 0),
            (_, 2) => ResourceValue::Text(tables.string(&mut c)?),
            _ => return names.bad(format!("resource {key:?} is of unknown kind {kind}")),
        };
        c.finish("a resource")?;
        out.push(Resource { key, value });
    }
    Ok(())
}
