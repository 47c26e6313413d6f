//! The tables that ops refer to by index: strings, dialects, op names, attribute and type entries, properties.

use super::container::{Container, read_section, section};
use super::cursor::{Cursor, checked_index, utf8};
use super::fault::{Fault, Result};

/// An entry of the op name table.
#[derive(Debug)]
pub struct OpName {
    /// Full name with the dialect, e.g. `vhlo.add_v1`.
    pub full: String,
    /// Length of the dialect's name in `full`.
    dialect_len: usize,
    /// Whether the writer knew the op, which decides how its properties are stored. True before version 5.
    pub registered: bool,
}

impl OpName {
    /// The dialect's name.
    pub fn dialect(&self) -> &str {
        &self.full[..self.dialect_len]
    }

    /// The name without the dialect.
    pub fn name(&self) -> &str {
        &self.full[self.dialect_len + 1..]
    }
}

/// An attribute or type whose bytes are not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Index of its dialect.
    pub dialect: u32,
    /// Whether it is in the dialect's own encoding; otherwise it is MLIR text, closed by a zero byte.
    pub custom: bool,
    /// Its bytes.
    pub body: Cursor<'a>,
}

/// All tables of a file.
#[derive(Debug)]
pub struct Tables<'a> {
    /// Container version.
    pub version: u64,
    /// Strings, without their closing zero byte.
    pub strings: Vec<&'a [u8]>,
    /// Dialect names.
    pub dialects: Vec<&'a str>,
    /// Op names.
    pub op_names: Vec<OpName>,
    /// Attribute entries.
    pub attrs: Vec<Entry<'a>>,
    /// Type entries.
    pub types: Vec<Entry<'a>>,
    /// Property entries, to be read by the kind of the op that refers to them.
    pub properties: Vec<Cursor<'a>>,
}

impl<'a> Tables<'a> {
    /// Reads the tables.
    ///
    /// # Errors
    /// Where a table is malformed or refers to what does not exist.
    pub fn read(file: &Container<'a>) -> Result<Tables<'a>> {
        let mut t = Tables {
            version: file.version,
            strings: read_strings(file.section(section::STRING))?,
            dialects: Vec::new(),
            op_names: Vec::new(),
            attrs: Vec::new(),
            types: Vec::new(),
            properties: read_properties(file.section(section::PROPERTIES))?,
        };
        t.read_dialects(file.section(section::DIALECT))?;
        t.read_entries(file.section(section::ATTR_TYPE_OFFSET), file.section(section::ATTR_TYPE))?;
        Ok(t)
    }

    /// The string whose index comes next.
    pub fn string(&self, c: &mut Cursor<'a>) -> Result<&'a [u8]> {
        Ok(self.strings[c.index(self.strings.len(), "string")? as usize])
    }

    /// The name whose string index is `index`.
    fn name(&self, index: u64, at: usize) -> Result<&'a str> {
        let i = checked_index(index, self.strings.len(), "string", at)?;
        utf8(self.strings[i as usize], at)
    }

    fn read_dialects(&mut self, mut c: Cursor<'a>) -> Result<()> {
        for _ in 0..c.count("dialects")? {
            let at = c.at();
            let (name, has_version) = if self.version == 0 { (c.varint()?, false) } else { c.flagged()? };
            self.dialects.push(self.name(name, at)?);
            if has_version {
                let at = c.at();
                // A dialect's version says nothing that decoding needs: codes are unique over versions.
                if read_section(&mut c)?.0 != section::DIALECT_VERSION {
                    return Err(Fault::malformed(at, "a section that should be a dialect version section"));
                }
            }
        }
        let total = if self.version >= 4 { Some(c.count("op names")?) } else { None };
        while c.left() > 0 {
            let dialect = self.dialects[c.index(self.dialects.len(), "dialect")? as usize];
            for _ in 0..c.count("op names of a dialect")? {
                let at = c.at();
                let (name, registered) = if self.version < 5 { (c.varint()?, true) } else { c.flagged()? };
                let full = format!("{dialect}.{}", self.name(name, at)?);
                self.op_names.push(OpName { full, dialect_len: dialect.len(), registered });
            }
        }
        match total {
            Some(n) if n != self.op_names.len() => {
                c.bad(format!("{} op names where {n} are announced", self.op_names.len()))
            }
            _ => Ok(()),
        }
    }

    fn read_entries(&mut self, mut c: Cursor<'a>, mut data: Cursor<'a>) -> Result<()> {
        let attrs = c.count("attributes")?;
        let types = c.count("types")?;
        c.check_count(attrs as u64 + types as u64, 1, "attributes and types")?;
        self.attrs = self.read_table(attrs, &mut c, &mut data)?;
        self.types = self.read_table(types, &mut c, &mut data)?;
        c.finish("the attribute/type offset section")?;
        data.finish("the attribute/type section")
    }

    fn read_table(&self, n: usize, c: &mut Cursor<'a>, data: &mut Cursor<'a>) -> Result<Vec<Entry<'a>>> {
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            let dialect = c.index(self.dialects.len(), "dialect")?;
            let group = c.count("entries of a dialect")?;
            if group == 0 || group > n - out.len() {
                return c.bad(format!("a group of {group} entries where {} are left", n - out.len()));
            }
            for _ in 0..group {
                let (size, custom) = c.flagged()?;
                out.push(Entry { dialect, custom, body: data.sub(size)? });
            }
        }
        Ok(out)
    }
}

/// Lengths come last string first and count the closing zero byte; the bytes come in order.
fn read_strings(mut c: Cursor<'_>) -> Result<Vec<&[u8]>> {
    let n = c.count("strings")?;
    let mut lengths = Vec::with_capacity(n);
    for _ in 0..n {
        lengths.push(c.varint()?);
    }
    let mut out = Vec::with_capacity(n);
    for length in lengths.into_iter().rev() {
        let at = c.at();
        match c.take(length)?.split_last() {
            Some((0, text)) => out.push(text),
            _ => return Err(Fault::malformed(at, "a string that does not end in a zero byte")),
        }
    }
    c.finish("the string section")?;
    Ok(out)
}

fn read_properties(mut c: Cursor<'_>) -> Result<Vec<Cursor<'_>>> {
    if c.left() == 0 {
        return Ok(Vec::new());
    }
    let n = c.count("properties")?;
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let length = c.varint()?;
        out.push(c.sub(length)?);
    }
    c.finish("the properties section")?;
    Ok(out)
}
