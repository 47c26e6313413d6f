//! Decoding of table entries: attributes, types and locations, on demand.

use super::builtin;
use super::cursor::{Cursor, checked_index};
use super::fault::{Fault, Result};
use super::resource::Resource;
use super::tables::{Entry, Tables};
use crate::error::Code;
use crate::raw::{Attr, Attrs, Elem, LocRef, RawLoc, Type, TypeId, TypeTable};
use crate::vhlo;
use std::borrow::Cow;

/// Deepest nesting of attributes and types in each other. Real files reach 10 (locations are not counted).
pub const MAX_DEPTH: usize = 256;

/// A dialect whose entries can be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialect {
    Builtin,
    Vhlo,
    Sdy,
    Chlo,
    Stablehlo,
    Unknown,
}

/// Decodes entries. Types and locations are decoded once; attributes each time they are asked for, because the
/// raw form holds them as trees, and charged against a budget each time.
pub struct Decoder<'a, 'f> {
    /// The file's tables.
    pub tables: &'f Tables<'a>,
    /// What resource handles refer to.
    pub resources: &'f [Resource<'a>],
    /// Types made so far.
    pub types: TypeTable,
    /// Locations made so far; 0 is the unknown one.
    pub locs: Vec<RawLoc<'a>>,
    dialects: Vec<Dialect>,
    type_ids: Vec<Option<TypeId>>,
    loc_refs: Vec<LocRef>,
    /// Entries being decoded: (is a type, index).
    open: Vec<(bool, u32)>,
    budget: u64,
}

impl<'a, 'f> Decoder<'a, 'f> {
    /// A decoder for a file of `file_len` bytes.
    pub fn new(tables: &'f Tables<'a>, resources: &'f [Resource<'a>], file_len: usize) -> Decoder<'a, 'f> {
        let dialects = tables
            .dialects
            .iter()
            .map(|d| match *d {
                "builtin" => Dialect::Builtin,
                "vhlo" => Dialect::Vhlo,
                "sdy" => Dialect::Sdy,
                "chlo" => Dialect::Chlo,
                "stablehlo" => Dialect::Stablehlo,
                _ => Dialect::Unknown,
            })
            .collect();
        Decoder {
            tables,
            resources,
            types: TypeTable::default(),
            locs: vec![RawLoc::Unknown],
            dialects,
            type_ids: vec![None; tables.types.len()],
            loc_refs: vec![LocRef::UNKNOWN; tables.attrs.len()],
            open: Vec::new(),
            budget: 8 * file_len as u64 + (1 << 16),
        }
    }

    /// Charges `n` attribute nodes to the budget of the file: eight per byte and 65,536. Real files use at most
    /// one per byte; a file in which ops share attributes to make them explode runs out of it.
    pub fn charge(&mut self, n: usize, at: usize) -> Result<()> {
        match self.budget.checked_sub(n as u64) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(Fault::limit(at, "the file's attributes expand to more than eight times its size")),
        }
    }

    /// Runs `f` on the bytes of an entry, refusing entries within themselves and bytes left over.
    fn entry<T>(
        &mut self,
        key: (bool, u32),
        entry: Entry<'a>,
        f: impl FnOnce(&mut Self, Dialect, &mut Cursor<'a>) -> Result<T>,
    ) -> Result<T> {
        let mut c = entry.body;
        if self.open.contains(&key) {
            return c.bad(format!("{} {} contains itself", if key.0 { "type" } else { "attribute" }, key.1));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(Fault::limit(c.at(), format!("attributes nested deeper than {MAX_DEPTH}")));
        }
        self.open.push(key);
        let out = f(self, self.dialects[entry.dialect as usize], &mut c)?;
        self.open.pop();
        c.finish("an attribute or type")?;
        Ok(out)
    }

    /// The attribute with an index.
    ///
    /// # Errors
    /// Where the entry is malformed, of a code that is not known, or beyond a limit.
    pub fn attr(&mut self, index: u32) -> Result<Attr<'a>> {
        let tables = self.tables;
        let entry = tables.attrs[index as usize];
        self.charge(1, entry.body.at())?;
        if !entry.custom {
            let mut c = entry.body;
            let text = c.cstr()?;
            c.finish("an attribute")?;
            self.charge(text.len() / 8, entry.body.at())?;
            return Ok(self.text_attr(text));
        }
        self.entry((false, index), entry, |d, dialect, c| {
            let at = c.at();
            let code = c.varint()?;
            match dialect {
                Dialect::Builtin => builtin::attr(d, code, c),
                Dialect::Vhlo => vhlo::attrs::attr(d, code, c),
                Dialect::Sdy => vhlo::sdy::attr(d, code, c),
                Dialect::Chlo => vhlo::attrs::chlo_attr(code, c),
                Dialect::Stablehlo | Dialect::Unknown => Err(Fault::new(
                    Code::UnsupportedForm,
                    at,
                    format!("attribute {code} of dialect `{}`", tables.dialects[entry.dialect as usize]),
                )),
            }
        })
    }

    /// The attribute whose index comes next.
    pub fn attr_ref(&mut self, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
        let i = self.attr_index(c)?;
        self.attr(i)
    }

    /// The index of an attribute.
    pub fn attr_index(&self, c: &mut Cursor<'a>) -> Result<u32> {
        c.index(self.tables.attrs.len(), "attribute")
    }

    /// The index of an attribute that may be absent.
    pub fn optional_attr_index(&self, c: &mut Cursor<'a>) -> Result<Option<u32>> {
        let at = c.at();
        let (v, present) = c.flagged()?;
        if !present {
            return Ok(None);
        }
        checked_index(v, self.tables.attrs.len(), "attribute", at).map(Some)
    }

    /// A counted list of attributes.
    pub fn attr_list(&mut self, c: &mut Cursor<'a>) -> Result<Vec<Attr<'a>>> {
        let n = c.count("attributes")?;
        (0..n).map(|_| self.attr_ref(c)).collect()
    }

    /// A counted list of names and values, the names being attributes that hold strings.
    pub fn dict(&mut self, c: &mut Cursor<'a>) -> Result<Attrs<'a>> {
        let n = c.varint()?;
        let n = c.check_count(n, 2, "dictionary entries")?;
        (0..n)
            .map(|_| {
                let at = c.at();
                let Attr::Str(key) = self.attr_ref(c)? else {
                    return Err(Fault::malformed(at, "a dictionary key that is not a string"));
                };
                Ok((key, self.attr_ref(c)?))
            })
            .collect()
    }

    /// A dictionary by the index of its attribute.
    pub fn dict_attr(&mut self, index: u32, at: usize) -> Result<Attrs<'a>> {
        match self.attr(index)? {
            Attr::Dict(d) => Ok(d),
            _ => Err(Fault::malformed(at, "attributes of an op that are not a dictionary")),
        }
    }

    /// The type with an index.
    ///
    /// # Errors
    /// As [`Decoder::attr`].
    pub fn type_id(&mut self, index: u32) -> Result<TypeId> {
        if let Some(id) = self.type_ids[index as usize] {
            return Ok(id);
        }
        let tables = self.tables;
        let entry = tables.types[index as usize];
        let ty = if !entry.custom {
            let mut c = entry.body;
            let text = c.cstr()?;
            c.finish("a type")?;
            Type::Other(String::from_utf8_lossy(text).into_owned())
        } else {
            self.entry((true, index), entry, |d, dialect, c| {
                let at = c.at();
                let code = c.varint()?;
                match (dialect, code) {
                    (Dialect::Builtin, _) => builtin::ty(d, code, c),
                    (Dialect::Vhlo, _) => vhlo::types::ty(d, code, c),
                    (Dialect::Stablehlo, 0) => Ok(Type::Token),
                    _ => Err(Fault::new(
                        Code::UnsupportedType,
                        at,
                        format!("type {code} of dialect `{}`", tables.dialects[entry.dialect as usize]),
                    )),
                }
            })?
        };
        let id = self.types.intern(ty);
        self.type_ids[index as usize] = Some(id);
        Ok(id)
    }

    /// The type whose index comes next.
    pub fn type_ref(&mut self, c: &mut Cursor<'a>) -> Result<TypeId> {
        let i = c.index(self.tables.types.len(), "type")?;
        self.type_id(i)
    }

    /// A counted list of types.
    pub fn type_list(&mut self, c: &mut Cursor<'a>) -> Result<Vec<TypeId>> {
        let n = c.count("types")?;
        (0..n).map(|_| self.type_ref(c)).collect()
    }

    /// The element type whose index comes next, as of a tensor.
    pub fn elem_ref(&mut self, c: &mut Cursor<'a>) -> Result<Elem> {
        let at = c.at();
        let id = self.type_ref(c)?;
        match self.types.get(id) {
            Type::Scalar(e) => Ok(e.clone()),
            Type::Other(text) => Ok(Elem::Other(text.clone())),
            _ => Err(Fault::malformed(at, "an element type that is not a scalar")),
        }
    }

    /// The type `i64`.
    pub fn i64_type(&mut self) -> TypeId {
        self.types.intern(Type::Scalar(Elem::Int(64)))
    }

    /// An integer attribute of type `i64`.
    pub fn int(&mut self, v: i64) -> Attr<'a> {
        Attr::Int(v, self.i64_type())
    }

    /// A string of the string table as text; bytes that are no UTF-8 become U+FFFD.
    pub fn text(&self, c: &mut Cursor<'a>) -> Result<Cow<'a, str>> {
        Ok(String::from_utf8_lossy(self.tables.string(c)?))
    }

    /// The string in the builtin string attribute whose index comes next, without charge.
    fn string_entry(&self, c: &mut Cursor<'a>) -> Result<Cow<'a, str>> {
        let entry = self.tables.attrs[self.attr_index(c)? as usize];
        let mut body = entry.body;
        let is_string = entry.custom
            && self.dialects[entry.dialect as usize] == Dialect::Builtin
            && matches!(body.varint()?, 2 | 3);
        if !is_string {
            return c.bad("a location's name or file that is not a string");
        }
        self.text(&mut body)
    }

    /// The location with an attribute index. Chains are followed with a list, so their length is not limited.
    ///
    /// # Errors
    /// Where the attribute is not a location or is malformed.
    pub fn loc(&mut self, index: u32) -> Result<LocRef> {
        let mut todo = Vec::new();
        let out = self.loc_slot(index, &mut todo);
        while let Some(i) = todo.pop() {
            let loc = self.read_loc(i, &mut todo)?;
            self.locs[self.loc_refs[i as usize].0 as usize] = loc;
        }
        Ok(out)
    }

    /// The place for a location; a new one is put on the list of those to be read.
    fn loc_slot(&mut self, index: u32, todo: &mut Vec<u32>) -> LocRef {
        let slot = &mut self.loc_refs[index as usize];
        if *slot == LocRef::UNKNOWN {
            *slot = LocRef(self.locs.len() as u32);
            self.locs.push(RawLoc::Unknown);
            todo.push(index);
        }
        *slot
    }

    fn read_loc(&mut self, index: u32, todo: &mut Vec<u32>) -> Result<RawLoc<'a>> {
        let entry = self.tables.attrs[index as usize];
        let mut c = entry.body;
        if !entry.custom || self.dialects[entry.dialect as usize] != Dialect::Builtin {
            return c.bad("a location that is not one");
        }
        let number = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        let loc = match c.varint()? {
            10 => {
                let (callee, caller) = (self.attr_index(&mut c)?, self.attr_index(&mut c)?);
                RawLoc::CallSite { callee: self.loc_slot(callee, todo), caller: self.loc_slot(caller, todo) }
            }
            11 => RawLoc::File {
                file: self.string_entry(&mut c)?,
                line: number(c.varint()?),
                column: number(c.varint()?),
            },
            code @ (12 | 13) => {
                let n = c.count("fused locations")?;
                let mut parts = Vec::with_capacity(n);
                for _ in 0..n {
                    let i = self.attr_index(&mut c)?;
                    parts.push(self.loc_slot(i, todo));
                }
                if code == 13 {
                    self.attr_index(&mut c)?;
                }
                RawLoc::Fused(parts)
            }
            14 => {
                let name = self.string_entry(&mut c)?;
                let child = self.attr_index(&mut c)?;
                RawLoc::Name { name, child: self.loc_slot(child, todo) }
            }
            15 => RawLoc::Unknown,
            22 => {
                let file = self.string_entry(&mut c)?;
                let n = c.varint()?;
                if n > 4 {
                    return c.bad(format!("a location range of {n} numbers"));
                }
                let mut position = [0; 4];
                for p in position.iter_mut().take(n as usize) {
                    *p = number(c.varint()?);
                }
                RawLoc::File { file, line: position[0], column: position[1] }
            }
            _ => return c.bad("a location that is not one"),
        };
        c.finish("a location")?;
        Ok(loc)
    }

    /// A counted list of signed numbers.
    pub fn ints(&mut self, c: &mut Cursor<'a>) -> Result<Vec<i64>> {
        let n = c.count("integers")?;
        self.charge(n, c.at())?;
        (0..n).map(|_| c.svarint()).collect()
    }
}

/// An integer constant of `bits` bits, zero-extended. Constants wider than 64 bits are refused.
pub fn integer(c: &mut Cursor<'_>, bits: u32) -> Result<u64> {
    let v = match bits {
        0..=8 => u64::from(c.byte()?),
        9..=64 => c.svarint()? as u64,
        _ => return Err(Fault::new(Code::UnsupportedForm, c.at(), format!("a number of {bits} bits"))),
    };
    Ok(if bits >= 64 { v } else { v & ((1 << bits) - 1) })
}

/// The value of an integer constant by its type: signless integers and `index` are signed.
pub fn integer_value(bits: u64, elem: &Elem) -> i64 {
    match elem {
        Elem::Int(w @ 1..=63) => (bits << (64 - w)) as i64 >> (64 - w),
        _ => bits as i64,
    }
}
