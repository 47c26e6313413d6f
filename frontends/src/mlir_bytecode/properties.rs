//! Attributes of ops: inherent ones from the properties section (or, before bytecode version 5, from the op's
//! dictionary), discardable ones from the dictionary.

use super::cursor::Cursor;
use super::decode::Decoder;
use super::fault::{Fault, Result};
use super::tables::Tables;
use crate::error::Code;
use crate::raw::{Attr, Attrs};
use crate::vhlo::canonical;
use crate::vhlo::table::{OpRow, rows_of};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Op name, property entry, dictionary.
type Key = (u32, Option<u32>, Option<u32>);

/// Makes the attributes of ops, once for each combination of kind, property entry and dictionary.
pub(super) struct Properties<'a, 'f> {
    tables: &'f Tables<'a>,
    vhlo_version: Option<(u32, u32)>,
    /// Rows by op name.
    rows: Vec<SmallVec<[&'static OpRow; 2]>>,
    /// What was made, and its size in attributes.
    made: FxHashMap<Key, (Attrs<'a>, usize)>,
}

impl<'a, 'f> Properties<'a, 'f> {
    pub(super) fn new(tables: &'f Tables<'a>, vhlo_version: Option<(u32, u32)>) -> Properties<'a, 'f> {
        let rows = tables.op_names.iter().map(|n| rows_of(&n.full).collect()).collect();
        Properties { tables, vhlo_version, rows, made: FxHashMap::default() }
    }

    /// The canonical name and the attributes of an op of the kind `name`.
    ///
    /// # Errors
    /// For an unknown kind, and for attributes that are malformed.
    pub(super) fn attributes(
        &mut self,
        d: &mut Decoder<'a, 'f>,
        name: u32,
        properties: Option<u32>,
        dict: Option<u32>,
        at: usize,
    ) -> Result<(&'static str, Attrs<'a>)> {
        let rows = &self.rows[name as usize];
        let Some(&first) = rows.first() else {
            return Err(Fault::new(Code::UnknownOp, at, "no StableHLO operation of this name is known")
                .help(crate::vhlo::version_note(self.vhlo_version)));
        };
        if properties.is_none() && dict.is_none() && first.properties.is_empty() {
            return Ok((first.canonical, Attrs::new()));
        }
        let key = (name, properties, dict);
        if let Some((attrs, size)) = self.made.get(&key) {
            d.charge(*size, at)?;
            return Ok((first.canonical, attrs.clone()));
        }
        let attrs = self.make(d, name, properties, dict, at)?;
        let size = attrs.iter().map(|(_, v)| size(v)).sum();
        self.made.insert(key, (attrs.clone(), size));
        Ok((first.canonical, attrs))
    }

    fn make(
        &self,
        d: &mut Decoder<'a, 'f>,
        name: u32,
        properties: Option<u32>,
        dict: Option<u32>,
        at: usize,
    ) -> Result<Attrs<'a>> {
        let registered = self.tables.op_names[name as usize].registered;
        let rows = &self.rows[name as usize];
        let mut row = rows[0];
        let mut fields = Attrs::new();
        let mut discardable = match dict {
            Some(i) => d.dict_attr(i, at)?,
            None => Attrs::new(),
        };
        match properties {
            Some(i) if registered => {
                let entry = self.tables.properties[i as usize];
                row = pick_row(rows, entry)?;
                fields = read_fields(d, row, entry)?;
            }
            // The writer did not know the op and stored one attribute, a dictionary.
            Some(i) => {
                let mut c = self.tables.properties[i as usize];
                let index = d.attr_index(&mut c)?;
                fields = d.dict_attr(index, at)?;
                c.finish("the properties of an unregistered op")?;
            }
            None if self.tables.version < 5 => {
                let inherent =
                    |k: &str| rows.iter().any(|r| r.properties.iter().any(|p| field_name(p).0 == k));
                (fields, discardable) = discardable.into_iter().partition(|(k, _)| inherent(k));
            }
            None => {}
        }
        for p in row.properties {
            let (field, optional) = field_name(p);
            if !optional && !fields.iter().any(|(k, _)| k == field) {
                return Err(Fault::new(Code::Attribute, at, format!("attribute {field} is missing")));
            }
        }
        let mut out = canonical::attributes(d, row, fields, at)?;
        out.extend(discardable);
        Ok(out)
    }
}

/// A property's name and whether it is optional.
fn field_name(property: &'static str) -> (&'static str, bool) {
    match property.strip_suffix('?') {
        Some(name) => (name, true),
        None => (property, false),
    }
}

/// The layout by the number of stored properties.
fn pick_row(rows: &[&'static OpRow], entry: Cursor<'_>) -> Result<&'static OpRow> {
    if let [row] = rows {
        return Ok(row);
    }
    let (mut n, mut c) = (0, entry);
    while c.left() > 0 {
        c.varint()?;
        n += 1;
    }
    match rows.iter().find(|r| r.properties.len() == n) {
        Some(row) => Ok(row),
        None => entry.bad(format!("{n} properties, which is not the op's number in any known version")),
    }
}

fn read_fields<'a>(d: &mut Decoder<'a, '_>, row: &'static OpRow, mut c: Cursor<'a>) -> Result<Attrs<'a>> {
    let mut out = Attrs::with_capacity(row.properties.len());
    for p in row.properties {
        let (name, optional) = field_name(p);
        let index = match optional {
            true => d.optional_attr_index(&mut c)?,
            false => Some(d.attr_index(&mut c)?),
        };
        if let Some(i) = index {
            out.push((Cow::Borrowed(name), d.attr(i)?));
        }
    }
    c.finish("an op's properties")?;
    Ok(out)
}

/// Number of attributes and list elements in an attribute.
fn size(a: &Attr<'_>) -> usize {
    1 + match a {
        Attr::Array(v) => v.iter().map(size).sum(),
        Attr::Dict(f) | Attr::Struct(_, f) => f.iter().map(|(_, v)| size(v)).sum(),
        Attr::Ints(v) => v.len(),
        Attr::Floats(v) => v.len(),
        Attr::Sharding(s) => sharding_size(s),
        Attr::Shardings(v) => v.iter().map(sharding_size).sum(),
        Attr::Mesh(m) => m.axes.len() + m.device_ids.len(),
        Attr::Str(s) | Attr::Word(s) | Attr::Symbol(s) | Attr::Other(s) => match s {
            Cow::Borrowed(_) => 0,
            Cow::Owned(s) => s.len() / 8,
        },
        _ => 0,
    }
}

fn sharding_size(s: &crate::raw::Sharding) -> usize {
    let axes = |v: &[crate::raw::AxisRef]| v.iter().map(|a| 4 + a.name.len() / 8).sum::<usize>();
    1 + s.mesh.len() / 8
        + s.inline_mesh.as_ref().map_or(0, |m| m.axes.len() + m.device_ids.len())
        + s.dims.iter().map(|d| 2 + axes(&d.axes)).sum::<usize>()
        + axes(&s.replicated)
        + axes(&s.unreduced)
}
