//! Attributes and types of the builtin dialect.

use super::cursor::Cursor;
use super::decode::{Decoder, integer, integer_value};
use super::fault::{Fault, Result};
use super::resource::ResourceValue;
use crate::error::Code;
use crate::raw::{Attr, DenseData, Elem, Type};
use smallvec::SmallVec;
use std::borrow::Cow;

/// A dimension of unknown size.
pub const DYNAMIC: i64 = i64::MIN;

/// An attribute, whose code has been read.
///
/// # Errors
/// For malformed bytes, unknown codes, and the forms that the raw form has no place for.
pub fn attr<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
    Ok(match code {
        0 => Attr::Array(d.attr_list(c)?),
        1 => Attr::Dict(d.dict(c)?),
        2 => Attr::Str(d.text(c)?),
        3 => {
            let s = d.text(c)?;
            d.type_ref(c)?;
            Attr::Str(s)
        }
        4 => Attr::Symbol(symbol_part(d, c)?),
        5 => {
            let mut name = symbol_part(d, c)?;
            for part in d.attr_list(c)? {
                let Attr::Symbol(part) = part else {
                    return c.bad("a nested symbol reference that is not one");
                };
                d.charge(name.len() + part.len(), c.at())?;
                name = Cow::Owned(format!("{name}::{part}"));
            }
            Attr::Symbol(name)
        }
        6 => Attr::Type(d.type_ref(c)?),
        7 => Attr::Unit,
        8 => {
            let ty = d.type_ref(c)?;
            let elem = match d.types.get(ty) {
                Type::Scalar(e) => e.clone(),
                _ => return c.bad("an integer attribute whose type is not an integer"),
            };
            let Some(width) = integer_bits(&elem) else {
                return c.bad("an integer attribute whose type is not an integer");
            };
            let bits = integer(c, width)?;
            match elem {
                Elem::Int(1) => Attr::Bool(bits != 0),
                elem => Attr::Int(integer_value(bits, &elem), ty),
            }
        }
        9 => {
            let ty = d.type_ref(c)?;
            let elem = match d.types.get(ty) {
                Type::Scalar(e) => e.clone(),
                _ => return c.bad("a float attribute whose type is not a float"),
            };
            float(c, &elem)?.map_or_else(|text| Attr::Other(text.into()), |v| Attr::Float(v, ty))
        }
        10..=15 | 22 => {
            // A location as an attribute says nothing that a reader of programs needs.
            c.take(c.left() as u64)?;
            Attr::Other(Cow::Borrowed("loc(unknown)"))
        }
        16 => {
            let ty = d.type_ref(c)?;
            let i = c.index(d.resources.len(), "resource")?;
            let r = &d.resources[i as usize];
            match r.value {
                ResourceValue::Blob(_) => Attr::Dense(ty, DenseData::Resource(Cow::Borrowed(r.key))),
                _ => return c.bad(format!("the resource `{}` has no blob", r.key)),
            }
        }
        17 => dense_array(d, c)?,
        18 => {
            let ty = d.type_ref(c)?;
            Attr::Dense(ty, DenseData::Bytes(Cow::Borrowed(c.blob()?)))
        }
        19 | 20 | 21 | 23 | 24 | 25 => {
            c.take(c.left() as u64)?;
            const NAMES: [&str; 7] = [
                "dense<\"…\">",
                "sparse<…>",
                "distinct[…]<…>",
                "",
                "affine_map<…>",
                "affine_set<…>",
                "strided<…>",
            ];
            Attr::Other(Cow::Borrowed(NAMES[code as usize - 19]))
        }
        _ => {
            return Err(Fault::new(
                Code::UnsupportedForm,
                c.at(),
                format!("builtin attribute of unknown code {code}"),
            ));
        }
    })
}

fn symbol_part<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Cow<'a, str>> {
    match d.attr_ref(c)? {
        Attr::Str(s) => Ok(s),
        _ => c.bad("a symbol that is not a string"),
    }
}

/// Width of an integer element type; `None` for others.
pub fn integer_bits(elem: &Elem) -> Option<u32> {
    match elem {
        Elem::Int(w) | Elem::Uint(w) => Some(*w),
        Elem::Index => Some(64),
        Elem::Other(name) => name.strip_prefix("si")?.parse().ok(),
        _ => None,
    }
}

/// Width of a float element type; `None` for others.
fn float_bits(elem: &Elem) -> Option<u32> {
    Some(match elem {
        Elem::F16 | Elem::BF16 => 16,
        Elem::F32 => 32,
        Elem::F64 => 64,
        Elem::Other(name) => match name.as_str() {
            "tf32" => 19,
            "f80" => 80,
            "f128" => 128,
            n if n.starts_with("f8") => 8,
            n if n.starts_with("f6") => 6,
            n if n.starts_with("f4") => 4,
            _ => return None,
        },
        _ => return None,
    })
}

/// A float constant of an element type: its value, or its bits as text where the type has no exact place in f64
/// arithmetic here.
pub fn float(c: &mut Cursor<'_>, elem: &Elem) -> Result<std::result::Result<f64, String>> {
    let Some(width) = float_bits(elem) else {
        return c.bad("a float attribute whose type is not a float");
    };
    let bits = integer(c, width)?;
    Ok(match elem {
        Elem::F16 => Ok(half::f16::from_bits(bits as u16).to_f64()),
        Elem::BF16 => Ok(half::bf16::from_bits(bits as u16).to_f64()),
        Elem::F32 => Ok(f64::from(f32::from_bits(bits as u32))),
        Elem::F64 => Ok(f64::from_bits(bits)),
        _ => Err(format!("0x{bits:X}")),
    })
}

/// `array<i64: …>`: elements of whole bytes, booleans one byte each.
fn dense_array<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Attr<'a>> {
    let elem = d.elem_ref(c)?;
    let n = c.varint()?;
    let data = c.blob()?;
    let Some(bits) = integer_bits(&elem).or(float_bits(&elem)) else {
        return c.bad("a dense array of elements that are no numbers");
    };
    let width = bits.div_ceil(8) as usize;
    if n.checked_mul(width as u64) != Some(data.len() as u64) || width > 8 {
        return c.bad(format!("a dense array of {n} elements of {bits} bits in {} bytes", data.len()));
    }
    d.charge(n as usize, c.at())?;
    let elements = data.chunks_exact(width).map(|e| {
        let mut raw = [0; 8];
        raw[..width].copy_from_slice(e);
        u64::from_le_bytes(raw)
    });
    Ok(match elem {
        Elem::Int(1) => Attr::Ints(elements.map(|b| i64::from(b != 0)).collect()),
        Elem::F32 => Attr::Floats(elements.map(|b| f64::from(f32::from_bits(b as u32))).collect()),
        Elem::F64 => Attr::Floats(elements.map(f64::from_bits).collect()),
        Elem::Int(_) | Elem::Uint(_) | Elem::Index => {
            Attr::Ints(elements.map(|b| integer_value(b, &elem)).collect())
        }
        _ => Attr::Other(Cow::Borrowed("array<…>")),
    })
}

/// A type, whose code has been read.
///
/// # Errors
/// For malformed bytes and unknown codes.
pub fn ty<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Type> {
    const SMALL_FLOATS: [&str; 12] = [
        "tf32",
        "f8E5M2",
        "f8E4M3",
        "f8E4M3FN",
        "f8E5M2FNUZ",
        "f8E4M3FNUZ",
        "f8E4M3B11FNUZ",
        "f8E3M4",
        "f4E2M1FN",
        "f6E2M3FN",
        "f6E3M2FN",
        "f8E8M0FNU",
    ];
    Ok(match code {
        0 => {
            let v = c.varint()?;
            let width = u32::try_from(v >> 2).ok().filter(|w| (1..1 << 24).contains(w));
            match (width, v & 3) {
                (Some(w), 0) => Type::Scalar(Elem::Int(w)),
                (Some(w), 1) => Type::Scalar(Elem::Other(format!("si{w}"))),
                (Some(w), 2) => Type::Scalar(Elem::Uint(w)),
                _ => return c.bad(format!("an integer type of {} bits, sign {}", v >> 2, v & 3)),
            }
        }
        1 => Type::Scalar(Elem::Index),
        2 => Type::Function { inputs: d.type_list(c)?, results: d.type_list(c)? },
        3 => Type::Scalar(Elem::BF16),
        4 => Type::Scalar(Elem::F16),
        5 => Type::Scalar(Elem::F32),
        6 => Type::Scalar(Elem::F64),
        7 => Type::Scalar(Elem::Other("f80".into())),
        8 => Type::Scalar(Elem::Other("f128".into())),
        9 => Type::Scalar(complex(d, c)?),
        10 | 11 | 16 | 17 => {
            c.take(c.left() as u64)?;
            Type::Other("memref<…>".into())
        }
        12 => Type::None,
        13 => {
            let dims = dims(c)?;
            Type::Tensor { dims, elem: d.elem_ref(c)? }
        }
        14 => {
            d.attr_index(c)?;
            dims(c)?;
            d.elem_ref(c)?;
            Type::Other("tensor<…> with an encoding".into())
        }
        15 => Type::Tuple(d.type_list(c)?),
        18 => {
            d.elem_ref(c)?;
            Type::Other("tensor<*x…>".into())
        }
        19 | 20 => {
            c.take(c.left() as u64)?;
            Type::Other("vector<…>".into())
        }
        21..=32 => Type::Scalar(Elem::Other(SMALL_FLOATS[code as usize - 21].into())),
        _ => {
            return Err(Fault::new(
                Code::UnsupportedType,
                c.at(),
                format!("builtin type of unknown code {code}"),
            ));
        }
    })
}

/// A complex element type over a float.
pub fn complex<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Elem> {
    match d.elem_ref(c)? {
        e @ (Elem::F16 | Elem::BF16 | Elem::F32 | Elem::F64) => Ok(Elem::Complex(Box::new(e))),
        _ => c.bad("a complex type whose parts are no floats"),
    }
}

/// Dimension sizes.
pub fn dims(c: &mut Cursor<'_>) -> Result<SmallVec<[Option<u64>; 4]>> {
    let n = c.count("dimensions")?;
    (0..n)
        .map(|_| match c.svarint()? {
            DYNAMIC => Ok(None),
            v => match u64::try_from(v) {
                Ok(v) => Ok(Some(v)),
                Err(_) => c.bad(format!("a dimension of size {v}")),
            },
        })
        .collect()
}
