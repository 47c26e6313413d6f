//! Shardy's attributes.

use crate::error::Code;
use crate::mlir_bytecode::cursor::Cursor;
use crate::mlir_bytecode::decode::Decoder;
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::raw::{Attr, AxisRef, DimSharding, Mesh, Sharding};
use std::borrow::Cow;

const MESH_AXIS: u64 = 1;
const SUB_AXIS: u64 = 3;
const AXIS_REF: u64 = 4;
const DIMENSION_SHARDING: u64 = 5;

/// An attribute of Shardy, whose code has been read.
///
/// # Errors
/// For malformed bytes and unknown codes.
pub fn attr<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
    Ok(match code {
        0 => Attr::Array(d.attr_list(c)?),
        2 => Attr::Mesh(Box::new(mesh(d, c)?)),
        6 | 15 | 17 => Attr::Sharding(Box::new(sharding(d, code, c)?)),
        7 | 16 => {
            let mut out = Vec::new();
            for a in d.attr_list(c)? {
                match a {
                    Attr::Sharding(s) => out.push(*s),
                    _ => return c.bad("an element of a list of shardings that is not one"),
                }
            }
            Attr::Shardings(out)
        }
        // Parts, decoded by their owners; and what only Shardy's own passes write.
        1 | 3..=5 | 8..=14 => {
            c.take(c.left() as u64)?;
            const NAMES: [&str; 15] = [
                "",
                "mesh_axis",
                "",
                "sub_axis_info",
                "axis_ref",
                "dimension_sharding",
                "",
                "",
                "dim_mapping",
                "tensor_mapping",
                "op_sharding_rule",
                "axis_ref_list",
                "list_of_axis_ref_lists",
                "all_to_all_param",
                "all_to_all_param_list",
            ];
            Attr::Other(Cow::Owned(format!("#sdy.{}<…>", NAMES[code as usize])))
        }
        _ => {
            return Err(Fault::new(
                Code::UnsupportedForm,
                c.at(),
                format!("Shardy attribute of unknown code {code}"),
            ));
        }
    })
}

fn mesh<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Mesh> {
    let axes = parts(d, c, MESH_AXIS, |d, c| Ok((d.text(c)?.into_owned(), c.svarint()?)))?;
    Ok(Mesh { axes, device_ids: d.ints(c)? })
}

fn sharding<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Sharding> {
    let mut out = Sharding::default();
    match d.attr_ref(c)? {
        Attr::Symbol(name) => out.mesh = name.into_owned(),
        Attr::Mesh(mesh) => out.inline_mesh = Some(*mesh),
        _ => return c.bad("a sharding whose mesh is neither a symbol nor a mesh"),
    }
    out.dims = parts(d, c, DIMENSION_SHARDING, |d, c| {
        let axes = axes(d, c)?;
        let open = c.byte()? == 0;
        let (priority, present) = c.flagged()?;
        let priority = if present { u32::try_from(priority).unwrap_or(u32::MAX) } else { 0 };
        Ok(DimSharding { axes, open, priority })
    })?;
    out.replicated = axes(d, c)?;
    if code != 6 {
        out.unreduced = axes(d, c)?;
    }
    if code == 17 && c.svarint()? != 0 {
        return Err(Fault::new(
            Code::UnsupportedForm,
            c.at(),
            "a sharding with axes unreduced by a maximum or minimum",
        ));
    }
    Ok(out)
}

fn axes<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Vec<AxisRef>> {
    parts(d, c, AXIS_REF, |d, c| {
        let name = d.text(c)?.into_owned();
        let sub = match d.optional_attr_index(c)? {
            Some(i) => Some(part(d, i, SUB_AXIS, |_, c| Ok((c.svarint()?, c.svarint()?)))?),
            None => None,
        };
        Ok(AxisRef { name, sub })
    })
}

/// A counted list of parts of one kind.
fn parts<'a, 'f, T>(
    d: &mut Decoder<'a, 'f>,
    c: &mut Cursor<'a>,
    code: u64,
    read: impl Fn(&mut Decoder<'a, 'f>, &mut Cursor<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let n = c.count("parts of a sharding")?;
    let mut out = Vec::new();
    for _ in 0..n {
        let index = d.attr_index(c)?;
        out.push(part(d, index, code, &read)?);
    }
    Ok(out)
}

/// Reads an entry that must be of kind `code`. A kind holds parts of lower kinds only, so nothing contains itself.
fn part<'a, 'f, T>(
    d: &mut Decoder<'a, 'f>,
    index: u32,
    code: u64,
    read: impl Fn(&mut Decoder<'a, 'f>, &mut Cursor<'a>) -> Result<T>,
) -> Result<T> {
    let tables = d.tables;
    let entry = tables.attrs[index as usize];
    let mut c = entry.body;
    d.charge(1, c.at())?;
    if !entry.custom || tables.dialects[entry.dialect as usize] != "sdy" || c.varint()? != code {
        return c.bad(format!("an attribute that should be Shardy's attribute {code} and is not"));
    }
    let out = read(d, &mut c)?;
    c.finish("a part of a sharding")?;
    Ok(out)
}
