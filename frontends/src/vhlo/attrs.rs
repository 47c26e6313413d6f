//! VHLO's attributes, and the two that CHLO stores by code.
//!
//! An attribute is decoded to what it says by itself; which form the field of an op takes in StableHLO is decided
//! in [`super::canonical`].

use crate::error::Code;
use crate::mlir_bytecode::builtin::{float, integer_bits};
use crate::mlir_bytecode::cursor::Cursor;
use crate::mlir_bytecode::decode::{Decoder, integer, integer_value};
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::raw::{Attr, Attrs, DenseData, Type};
use std::borrow::Cow;

const COMPARISON_DIRECTION: [&str; 6] = ["EQ", "NE", "GE", "GT", "LE", "LT"];
const COMPARISON_TYPE: [&str; 5] = ["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"];

/// `api_version` of `custom_call`; the index is the number that StableHLO uses.
pub const API_VERSIONS: [&str; 5] = [
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
];

/// The keywords of an enum by the code of its attribute; an empty keyword is no value.
fn keywords(code: u64) -> Option<&'static [&'static str]> {
    Some(match code {
        3 => &COMPARISON_DIRECTION,
        4 => &COMPARISON_TYPE,
        5 => &API_VERSIONS,
        7 => &["FFT", "IFFT", "RFFT", "IRFFT"],
        11 => &["DEFAULT", "HIGH", "HIGHEST"],
        12 => &["DEFAULT", "THREE_FRY", "PHILOX"],
        13 => &["", "UNIFORM", "NORMAL"],
        16 => &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"],
        19 => &["DEFAULT", "HIGHEST", "TOLERANCE"],
        _ => return None,
    })
}

fn keyword<'a>(c: &mut Cursor<'a>, words: &'static [&'static str]) -> Result<Attr<'a>> {
    let v = c.varint()?;
    match usize::try_from(v).ok().and_then(|v| words.get(v)) {
        Some(&w) if !w.is_empty() => Ok(Attr::Word(Cow::Borrowed(w))),
        _ => c.bad(format!("{v} is no value of the enum {}", words.join(" | "))),
    }
}

fn fields<'a, const N: usize>(named: [(&'static str, Attr<'a>); N]) -> Attrs<'a> {
    named.into_iter().map(|(k, v)| (Cow::Borrowed(k), v)).collect()
}

/// An attribute of VHLO, whose code has been read.
///
/// # Errors
/// For malformed bytes and unknown codes.
pub fn attr<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
    if let Some(words) = keywords(code) {
        return keyword(c, words);
    }
    Ok(match code {
        1 => Attr::Array(d.attr_list(c)?),
        2 => match c.varint()? {
            0 => Attr::Bool(false),
            1 => Attr::Bool(true),
            v => return c.bad(format!("a boolean of value {v}")),
        },
        6 => Attr::Dict(d.dict(c)?),
        8 => {
            let ty = d.type_ref(c)?;
            let Type::Scalar(elem) = d.types.get(ty).clone() else {
                return c.bad("a float whose type is not a float");
            };
            float(c, &elem)?.map_or_else(|text| Attr::Other(text.into()), |v| Attr::Float(v, ty))
        }
        9 => {
            let ty = d.type_ref(c)?;
            let width = match d.types.get(ty) {
                Type::Scalar(e) => integer_bits(e).map(|w| (w, e.clone())),
                _ => None,
            };
            let Some((width, elem)) = width else {
                return c.bad("an integer whose type is not an integer");
            };
            Attr::Int(integer_value(integer(c, width)?, &elem), ty)
        }
        10 => {
            let (out, index, operand) = (d.ints(c)?, c.svarint()?, d.ints(c)?);
            Attr::Struct(
                "output_operand_alias",
                fields([
                    ("output_tuple_indices", Attr::Ints(out)),
                    ("operand_index", d.int(index)),
                    ("operand_tuple_indices", Attr::Ints(operand)),
                ]),
            )
        }
        14 => Attr::Str(d.text(c)?),
        15 => {
            let ty = d.type_ref(c)?;
            Attr::Dense(ty, DenseData::Bytes(Cow::Borrowed(c.blob()?)))
        }
        17 => Attr::Type(d.type_ref(c)?),
        18 => Attr::Struct("type_extensions", fields([("bounds", Attr::Ints(d.ints(c)?))])),
        20 => {
            let f64_type = d.types.intern(Type::Scalar(crate::raw::Elem::F64));
            let (atol, rtol) = (f64::from_bits(integer(c, 64)?), f64::from_bits(integer(c, 64)?));
            let ulps = c.svarint()?;
            Attr::Struct(
                "result_accuracy",
                fields([
                    ("atol", Attr::Float(atol, f64_type)),
                    ("rtol", Attr::Float(rtol, f64_type)),
                    ("ulps", d.int(ulps)),
                    ("mode", d.attr_ref(c)?),
                ]),
            )
        }
        21 => {
            let (pre, size) = (c.svarint()?, c.svarint()?);
            Attr::Struct("sub_axis_info", fields([("pre_size", d.int(pre)), ("size", d.int(size))]))
        }
        22 => {
            let name = d.attr_ref(c)?;
            let mut f = fields([("name", name)]);
            if c.varint()? != 0 {
                f.push((Cow::Borrowed("sub_axis_info"), d.attr_ref(c)?));
            }
            Attr::Struct("axis_ref", f)
        }
        23 => {
            let (mesh, axes) = (d.attr_ref(c)?, d.attr_ref(c)?);
            Attr::Struct("replica_group_mesh_axes", fields([("mesh", mesh), ("axes", axes)]))
        }
        24 => {
            let name = d.attr_ref(c)?;
            let size = c.svarint()?;
            Attr::Struct("mesh_axis", fields([("name", name), ("size", d.int(size))]))
        }
        25 => {
            let mut f = fields([("axes", d.attr_ref(c)?)]);
            if let Some(ids) = d.optional_attr_index(c)? {
                f.push((Cow::Borrowed("device_ids"), d.attr(ids)?));
            }
            Attr::Struct("mesh", f)
        }
        _ => {
            return Err(Fault::new(
                Code::UnsupportedForm,
                c.at(),
                format!("VHLO attribute of unknown code {code}"),
            ));
        }
    })
}

/// An attribute of CHLO, whose code has been read.
///
/// # Errors
/// For malformed bytes and unknown codes.
pub fn chlo_attr<'a>(code: u64, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
    match code {
        0 => keyword(c, &COMPARISON_DIRECTION),
        1 => keyword(c, &COMPARISON_TYPE),
        _ => Err(Fault::new(Code::UnsupportedForm, c.at(), format!("CHLO attribute of unknown code {code}"))),
    }
}
