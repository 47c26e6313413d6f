//! VHLO's types.

use crate::error::Code;
use crate::mlir_bytecode::builtin::{complex, dims};
use crate::mlir_bytecode::cursor::Cursor;
use crate::mlir_bytecode::decode::{Decoder, integer};
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::raw::{Elem, Type};

/// The scalar types by code.
fn scalar(code: u64) -> Option<Elem> {
    Some(match code {
        0 => Elem::Int(1),
        2 => Elem::BF16,
        3 => Elem::F16,
        4 => Elem::F32,
        5 => Elem::F64,
        6 => Elem::Other("f8E4M3FN".into()),
        7 => Elem::Other("f8E5M2".into()),
        9 => Elem::Index,
        10 => Elem::Int(4),
        11 => Elem::Int(8),
        12 => Elem::Int(16),
        13 => Elem::Int(32),
        14 => Elem::Int(64),
        15 => Elem::Uint(4),
        16 => Elem::Uint(8),
        17 => Elem::Uint(16),
        18 => Elem::Uint(32),
        19 => Elem::Uint(64),
        27 => Elem::Other("f8E4M3FNUZ".into()),
        28 => Elem::Other("f8E5M2FNUZ".into()),
        29 => Elem::Other("f8E4M3B11FNUZ".into()),
        31 => Elem::Int(2),
        32 => Elem::Uint(2),
        34 => Elem::Other("tf32".into()),
        35 => Elem::Other("f8E4M3".into()),
        36 => Elem::Other("f8E3M4".into()),
        37 => Elem::Other("f4E2M1FN".into()),
        38 => Elem::Other("f6E2M3FN".into()),
        39 => Elem::Other("f6E3M2FN".into()),
        40 => Elem::Other("f8E8M0FNU".into()),
        _ => return None,
    })
}

/// A type, whose code has been read.
///
/// # Errors
/// For malformed bytes and unknown codes.
pub fn ty<'a>(d: &mut Decoder<'a, '_>, code: u64, c: &mut Cursor<'a>) -> Result<Type> {
    if let Some(e) = scalar(code) {
        return Ok(Type::Scalar(e));
    }
    Ok(match code {
        1 => Type::Scalar(complex(d, c)?),
        8 => Type::Function { inputs: d.type_list(c)?, results: d.type_list(c)? },
        20 => {
            let dims = dims(c)?;
            Type::Tensor { dims, elem: d.elem_ref(c)? }
        }
        21 => {
            d.attr_index(c)?;
            let dims = dims(c)?;
            let elem = d.elem_ref(c)?;
            Type::Other(format!("{} with bounds", tensor_text(&dims, &elem)))
        }
        22 => Type::Token,
        23 => Type::Tuple(d.type_list(c)?),
        24 => quantized(d, c)?,
        25 => Type::Other(format!("tensor<*x{}>", elem_text(&d.elem_ref(c)?))),
        26 => Type::Other("!shape.witness".into()),
        30 => quantized_per_axis(d, c)?,
        33 => Type::None,
        41 => {
            dims(c)?;
            d.type_ref(c)?;
            Type::Other("memref<…>".into())
        }
        42 => {
            d.type_list(c)?;
            Type::Other("!stablehlo.future<…>".into())
        }
        _ => {
            return Err(Fault::new(
                Code::UnsupportedType,
                c.at(),
                format!("VHLO type of unknown code {code}"),
            ));
        }
    })
}

fn quantized<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Type> {
    let flags = c.varint()?;
    let (storage, expressed) = (d.elem_ref(c)?, d.elem_ref(c)?);
    let scale = f64::from_bits(integer(c, 64)?);
    let (zero, min, max) = (c.svarint()?, c.svarint()?, c.svarint()?);
    quant_type(c, flags, &storage, &expressed, (min, max), &format!("{scale:?}:{zero}"))
}

fn quantized_per_axis<'a>(d: &mut Decoder<'a, '_>, c: &mut Cursor<'a>) -> Result<Type> {
    let flags = c.varint()?;
    let (storage, expressed) = (d.elem_ref(c)?, d.elem_ref(c)?);
    let axis = c.varint()?;
    let (min, max) = (c.svarint()?, c.svarint()?);
    for _ in 0..c.count("scales")? {
        integer(c, 64)?;
    }
    d.ints(c)?;
    quant_type(c, flags, &storage, &expressed, (min, max), &format!("{axis}, {{…}}"))
}

/// A quantised element type as MLIR writes it; the scales of the axes are left out.
fn quant_type(
    c: &Cursor<'_>,
    flags: u64,
    storage: &Elem,
    expressed: &Elem,
    range: (i64, i64),
    rest: &str,
) -> Result<Type> {
    let (Elem::Int(width) | Elem::Uint(width)) = storage else {
        return c.bad("a quantised type whose storage is not an integer");
    };
    let sign = if flags & 1 == 1 { "i" } else { "u" };
    let expressed = elem_text(expressed);
    Ok(Type::Other(format!("!quant.uniform<{sign}{width}<{}:{}>:{expressed}, {rest}>", range.0, range.1)))
}

fn tensor_text(dims: &[Option<u64>], elem: &Elem) -> String {
    let dims: String = dims.iter().map(|d| d.map_or("?x".into(), |n| format!("{n}x"))).collect();
    format!("tensor<{dims}{}>", elem_text(elem))
}

fn elem_text(e: &Elem) -> String {
    match e {
        Elem::Int(w) => format!("i{w}"),
        Elem::Uint(w) => format!("ui{w}"),
        Elem::F16 => "f16".into(),
        Elem::BF16 => "bf16".into(),
        Elem::F32 => "f32".into(),
        Elem::F64 => "f64".into(),
        Elem::Index => "index".into(),
        Elem::Complex(e) => format!("complex<{}>", elem_text(e)),
        // Quantised types nest at most once, so that a name never grows with each reference to it.
        Elem::Other(s) if s.len() <= 32 => s.clone(),
        Elem::Other(_) => "…".into(),
    }
}
