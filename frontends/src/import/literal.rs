//! Dense constants written out: decimals, hexadecimal literals, nested lists.
//!
//! Exports with baked tables are mostly this, so plain decimals and integers go a short way: digits by eights,
//! one multiplication or division where that rounds rightly, straight into the buffer that the constant store
//! keeps. Everything else (long mantissas, large exponents, bits in hexadecimal) takes the standard parsers.

use super::dense::{Decoded, bad, buffer};
use super::number::{Plain, token_len};
use crate::error::{FrontendError, Result};
use msc_ir::tensor::{bf16_from_f64, f16_from_f64};
use msc_ir::{DType, TensorType};
use std::sync::Arc;

/// Decodes `1.5`, or nested lists of literals.
pub(super) fn decode(ty: &TensorType, text: &[u8]) -> Result<Decoded> {
    let n = ty.elements();
    let splat = text.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|&b| b != b'[');
    if splat {
        return one(ty, text);
    }
    // Every element takes a byte of text and one that ends it, so the file bounds the allocation.
    if n > text.len() / 2 {
        return Err(count_misfit(ty, text));
    }
    let mut out = buffer(n * ty.dtype.size_bytes());
    let Some(bytes) = Arc::get_mut(&mut out) else { return Err(bad("the constant's buffer is shared")) };
    match ty.dtype {
        DType::I1 => list(ty, text, bytes, |t| boolean(t).map(|(b, n)| ([b], n))),
        DType::I8 => list(ty, text, bytes, |t| int(t, i8::MIN.into(), u8::MAX.into(), |v| [v as u8])),
        DType::I16 => {
            list(ty, text, bytes, |t| int(t, i16::MIN.into(), u16::MAX.into(), |v| (v as u16).to_le_bytes()))
        }
        DType::I32 => {
            list(ty, text, bytes, |t| int(t, i32::MIN.into(), u32::MAX.into(), |v| (v as u32).to_le_bytes()))
        }
        DType::I64 => {
            list(ty, text, bytes, |t| int(t, i64::MIN.into(), u64::MAX.into(), |v| (v as u64).to_le_bytes()))
        }
        DType::U8 => list(ty, text, bytes, |t| int(t, 0, u8::MAX.into(), |v| [v as u8])),
        DType::U16 => list(ty, text, bytes, |t| int(t, 0, u16::MAX.into(), |v| (v as u16).to_le_bytes())),
        DType::U32 => list(ty, text, bytes, |t| int(t, 0, u32::MAX.into(), |v| (v as u32).to_le_bytes())),
        DType::U64 => list(ty, text, bytes, |t| int(t, 0, u64::MAX.into(), |v| (v as u64).to_le_bytes())),
        // MLIR rounds the decimal to a double, and the double to the type.
        DType::F16 => list(ty, text, bytes, |t| float(t, |x| f16_from_f64(x).to_le_bytes())),
        DType::BF16 => list(ty, text, bytes, |t| float(t, |x| bf16_from_f64(x).to_le_bytes())),
        DType::F32 => list(ty, text, bytes, |t| float(t, |x| (x as f32).to_le_bytes())),
        DType::F64 => list(ty, text, bytes, |t| float(t, f64::to_le_bytes)),
    }?;
    Ok(Decoded::Full(out))
}

/// One literal, for one element or for all.
fn one(ty: &TensorType, text: &[u8]) -> Result<Decoded> {
    let n = ty.elements();
    let scalar = TensorType::scalar(ty.dtype);
    let text = text.trim_ascii();
    if text.starts_with(b"\"") || text.starts_with(b"(") {
        return Err(no_element(ty, text));
    }
    if token_len(text) < text.len() {
        return Err(bad("expected one literal, or a list in brackets"));
    }
    // As a list of one.
    let Decoded::Full(element) = decode(&scalar, &[b"[", text, b"]"].concat())? else {
        return Err(bad("expected one literal"));
    };
    Ok(match n {
        0 => Decoded::Full(buffer(0)),
        1 => Decoded::Full(element),
        _ => Decoded::Splat(element.to_vec()),
    })
}

/// Fills `out` with the elements of nested lists, each as `element` reads it: its bytes and its length in text.
#[inline]
fn list<const W: usize>(
    ty: &TensorType,
    text: &[u8],
    out: &mut [u8],
    element: impl Fn(&[u8]) -> Option<([u8; W], usize)>,
) -> Result<()> {
    let mut places = out.chunks_exact_mut(W);
    let mut rest = text;
    loop {
        rest = match rest {
            [b',', b' ', tail @ ..] | [b'[' | b']' | b',' | b' ' | b'\n' | b'\t' | b'\r', tail @ ..] => tail,
            [] => break,
            _ => {
                let Some((bytes, length)) = element(rest) else { return Err(no_element(ty, rest)) };
                let Some(place) = places.next() else { return Err(count_misfit(ty, text)) };
                place.copy_from_slice(&bytes);
                &rest[length..]
            }
        };
    }
    if places.len() > 0 { Err(count_misfit(ty, text)) } else { Ok(()) }
}

/// The error for something that is no element.
fn no_element(ty: &TensorType, rest: &[u8]) -> FrontendError {
    match rest[0] {
        b'"' => bad("constants of strings are not held"),
        b'(' => bad("complex constants are not held"),
        _ => {
            let token = String::from_utf8_lossy(&rest[..token_len(rest)]);
            bad(format!("`{token}` is not an element of type {}", ty.dtype))
        }
    }
}

/// The error for a wrong number of elements.
fn count_misfit(ty: &TensorType, text: &[u8]) -> FrontendError {
    let separator = |b: &u8| matches!(b, b'[' | b']' | b',') || b.is_ascii_whitespace();
    let count = text.split(separator).filter(|t| !t.is_empty()).count();
    bad(format!("a constant of type {ty} has {} elements, there are {count}", ty.elements()))
}

/// A boolean and its length.
fn boolean(text: &[u8]) -> Option<(u8, usize)> {
    let length = token_len(text);
    match &text[..length] {
        b"true" | b"1" | b"-1" => Some((1, length)),
        b"false" | b"0" => Some((0, length)),
        _ => None,
    }
}

/// An integer between the bounds, and its length. Signless integers may be written with or without a sign.
#[inline]
fn int<const W: usize>(
    text: &[u8],
    low: i128,
    high: i128,
    bytes: impl Fn(i128) -> [u8; W],
) -> Option<([u8; W], usize)> {
    let (value, length) = match Plain::read(text) {
        Some((plain, length)) if plain.int => {
            let value = plain.mantissa as i64;
            (i128::from(if plain.negative { -value } else { value }), length)
        }
        _ => {
            let length = token_len(text);
            let token = std::str::from_utf8(&text[..length]).ok()?;
            let value = match (token.strip_prefix("0x"), token.strip_prefix("-0x")) {
                (Some(h), _) => i128::from_str_radix(h, 16).ok()?,
                (_, Some(h)) => i128::from_str_radix(h, 16).ok()?.checked_neg()?,
                _ => token.parse().ok()?,
            };
            (value, length)
        }
    };
    (low <= value && value <= high).then(|| (bytes(value), length))
}

/// A decimal, or the bits in hexadecimal, and its length.
#[inline]
fn float<const W: usize>(text: &[u8], bytes: impl Fn(f64) -> [u8; W]) -> Option<([u8; W], usize)> {
    if let Some((plain, length)) = Plain::read(text)
        && let Some(x) = plain.exact()
    {
        return Some((bytes(x), length));
    }
    let length = token_len(text);
    let token = std::str::from_utf8(&text[..length]).ok()?;
    if let Some(h) = token.strip_prefix("0x") {
        let bits = u64::from_str_radix(h, 16).ok()?.to_le_bytes();
        let fits = bits[W..].iter().all(|&b| b == 0);
        return fits.then(|| (std::array::from_fn(|i| bits[i]), length));
    }
    // `inf` and `nan` are words to Rust's parser but not to MLIR.
    if !token.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    Some((bytes(token.parse().ok()?), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(ty: &TensorType, text: &str) -> Vec<u8> {
        decode(ty, text.as_bytes()).unwrap().bytes().to_vec()
    }

    #[test]
    fn decimals_round_as_the_standard_parser_does() {
        let ty = TensorType::scalar(DType::F64);
        let cases = "0 -0.0 1 -2.5 1e22 1e23 123456789012345678 0.1 9.99999997E-7 -3.40282347E+38 2.2250738585072014e-308 \
            1.7976931348623157e308 4.9e-324 9007199254740993 00012.50 1e-22 3.14159265358979323846 5e-5";
        for s in cases.split_whitespace() {
            let want = s.parse::<f64>().unwrap().to_le_bytes();
            assert_eq!(decoded(&ty, s), want, "{s}");
        }
    }

    #[test]
    fn lists_of_every_form() {
        let ty = TensorType::new(DType::I32, [2, 2]);
        assert_eq!(decoded(&ty, "[[1, -2], [0x10, 4294967295]]")[8..], [16, 0, 0, 0, 255, 255, 255, 255]);
        let ty = TensorType::new(DType::F32, [3]);
        let bits: Vec<u8> =
            [0xFF80_0000u32, 0x3F80_0000, 0x8000_0000].iter().flat_map(|b| b.to_le_bytes()).collect();
        assert_eq!(decoded(&ty, "[0xFF800000, 1.0e+00, -0.0]"), bits);
        let ty = TensorType::new(DType::I1, [3]);
        assert_eq!(decoded(&ty, "[true, false, true]"), [1, 0, 1]);
        let ty = TensorType::new(DType::BF16, [4]);
        assert_eq!(decoded(&ty, "1.0"), [0x80, 0x3F]);
    }

    #[test]
    fn misfits_are_refused() {
        let i8s = TensorType::new(DType::I8, [2]);
        for text in
            ["[1, 256]", "[1, -129]", "[1]", "[1, 2, 3]", "[1, 2.5]", "[1, 1e0]", "[1, x]", "[1, 0x]", "1 2"]
        {
            assert!(decode(&i8s, text.as_bytes()).is_err(), "{text}");
        }
        let f32s = TensorType::new(DType::F32, [2]);
        for text in [
            "[1.0, inf]",
            "[1.0, nan]",
            "[1.0, 0x1FFFFFFFF]",
            "[1.0, 1e]",
            "[1.0, --1]",
            "[\"a\", 1.0]",
            "[(1.0, 2.0), 3.0]",
        ] {
            assert!(decode(&f32s, text.as_bytes()).is_err(), "{text}");
        }
    }
}
