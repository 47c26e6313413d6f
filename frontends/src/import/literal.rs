//! Dense constants written out: decimals, hexadecimal literals, nested lists.

use super::dense::{Decoded, bad, buffer};
use crate::error::Result;
use half::{bf16, f16};
use msc_ir::{DType, TensorType};

/// Decodes `1.5`, or nested lists of literals.
pub(super) fn decode(ty: &TensorType, text: &[u8]) -> Result<Decoded> {
    let n = ty.elements();
    let width = ty.dtype.size_bytes();
    let splat = text.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|&b| b != b'[');
    // Every element takes at least two bytes of text, so the file bounds the allocation.
    let expected = if splat { 1 } else { n.min(text.len() / 2 + 1) };
    let mut out = Vec::with_capacity(expected.saturating_mul(width));
    let mut count = 0usize;
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match first {
            b'[' | b']' | b',' | b' ' | b'\n' | b'\t' | b'\r' => rest = tail,
            b'"' => return Err(bad("constants of strings are not held")),
            b'(' => return Err(bad("complex constants are not held")),
            _ => {
                rest = element(ty.dtype, rest, &mut out).ok_or_else(|| {
                    let token = &rest[..token_len(rest)];
                    let token = String::from_utf8_lossy(token);
                    bad(format!("`{token}` is not an element of type {}", ty.dtype))
                })?;
                count += 1;
            }
        }
    }
    if splat && n != 1 && n != 0 {
        if count != 1 {
            return Err(bad("expected one literal, or a list in brackets"));
        }
        return Ok(Decoded::Splat(out));
    }
    if n == 0 && splat {
        return Ok(Decoded::Full(buffer(0)));
    }
    if count != n {
        return Err(bad(format!("a constant of type {ty} has {n} elements, there are {count}")));
    }
    Ok(Decoded::Full(out.into()))
}

/// Whether a literal ends before this byte.
fn ends(b: u8) -> bool {
    matches!(b, b',' | b']' | b'[' | b' ' | b'\n' | b'\t' | b'\r')
}

fn token_len(text: &[u8]) -> usize {
    text.iter().position(|&b| ends(b)).unwrap_or(text.len())
}

/// Appends the element at the start of `text` and returns what is behind it; `None` if there is no element.
fn element<'t>(dtype: DType, text: &'t [u8], out: &mut Vec<u8>) -> Option<&'t [u8]> {
    if let Some((plain, rest)) = Plain::read(text) {
        if dtype.is_float() {
            if let Some(x) = plain.exact() {
                push_float(dtype, x, out);
                return Some(rest);
            }
        } else if dtype != DType::I1 && plain.is_int() {
            let value = plain.mantissa as i64;
            push_int(dtype, i128::from(if plain.negative { -value } else { value }), out)?;
            return Some(rest);
        }
    }
    let (token, rest) = text.split_at(token_len(text));
    let token = std::str::from_utf8(token).ok()?;
    match dtype {
        DType::I1 => out.push(match token {
            "true" | "1" | "-1" => 1,
            "false" | "0" => 0,
            _ => return None,
        }),
        d if d.is_float() => float(d, token, out)?,
        d => {
            let value = match (token.strip_prefix("0x"), token.strip_prefix("-0x")) {
                (Some(h), _) => i128::from_str_radix(h, 16).ok()?,
                (_, Some(h)) => i128::from_str_radix(h, 16).ok()?.checked_neg()?,
                _ => token.parse().ok()?,
            };
            push_int(d, value, out)?;
        }
    }
    Some(rest)
}

/// An integer that fits the type. Signless integers may be written with or without a sign.
fn push_int(dtype: DType, value: i128, out: &mut Vec<u8>) -> Option<()> {
    let bits = dtype.size_bytes() as u32 * 8;
    let low = if dtype.is_unsigned() { 0 } else { -(1i128 << (bits - 1)) };
    if value < low || value >= 1i128 << bits {
        return None;
    }
    out.extend_from_slice(&value.to_le_bytes()[..dtype.size_bytes()]);
    Some(())
}

/// A decimal, or the bits in hexadecimal.
fn float(dtype: DType, token: &str, out: &mut Vec<u8>) -> Option<()> {
    if let Some(h) = token.strip_prefix("0x") {
        let bits = u64::from_str_radix(h, 16).ok()?;
        let width = dtype.size_bytes();
        if width < 8 && bits >> (width * 8) != 0 {
            return None;
        }
        out.extend_from_slice(&bits.to_le_bytes()[..width]);
        return Some(());
    }
    // `inf` and `nan` are words to Rust's parser but not to MLIR.
    if !token.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    push_float(dtype, token.parse().ok()?, out);
    Some(())
}

/// Rounds as MLIR does: the decimal to a double, the double to the type.
fn push_float(dtype: DType, x: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => out.extend_from_slice(&f16::from_f64(x).to_le_bytes()),
        DType::BF16 => out.extend_from_slice(&bf16::from_f64(x).to_le_bytes()),
        DType::F32 => out.extend_from_slice(&(x as f32).to_le_bytes()),
        _ => out.extend_from_slice(&x.to_le_bytes()),
    }
}

/// A decimal of at most 18 digits: `mantissa · 10^exponent`.
struct Plain {
    negative: bool,
    mantissa: u64,
    exponent: i32,
    /// Whether there was neither point nor exponent.
    int: bool,
}

/// Most digits whose value surely fits an `i64`.
const MAX_DIGITS: u32 = 18;

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

impl Plain {
    /// Reads one at the start of `text`; `None` for anything else.
    fn read(text: &[u8]) -> Option<(Plain, &[u8])> {
        let negative = text.first() == Some(&b'-');
        let mut p = Plain { negative, mantissa: 0, exponent: 0, int: true };
        let mut i = usize::from(negative);
        let mut digits = 0;
        while let Some(&b) = text.get(i) {
            match b {
                b'0'..=b'9' => {
                    p.mantissa = p.mantissa.wrapping_mul(10).wrapping_add(u64::from(b - b'0'));
                    digits += 1;
                    p.exponent -= i32::from(!p.int);
                }
                b'.' if p.int && digits > 0 => p.int = false,
                _ => break,
            }
            i += 1;
        }
        if digits == 0 || digits > MAX_DIGITS {
            return None;
        }
        if let Some(b'e' | b'E') = text.get(i) {
            p.int = false;
            i += 1;
            let down = text.get(i) == Some(&b'-');
            i += usize::from(matches!(text.get(i), Some(b'+' | b'-')));
            let (mut e, start) = (0i32, i);
            while let Some(b @ b'0'..=b'9') = text.get(i) {
                e = e.saturating_mul(10).saturating_add(i32::from(b - b'0'));
                i += 1;
            }
            if i == start {
                return None;
            }
            p.exponent = p.exponent.saturating_add(if down { -e } else { e });
        }
        match text.get(i) {
            Some(&b) if !ends(b) => None,
            _ => Some((p, &text[i..])),
        }
    }

    fn is_int(&self) -> bool {
        self.int
    }

    /// The value where one rounding gives it: both mantissa and power are exact doubles.
    fn exact(&self) -> Option<f64> {
        if self.mantissa >> 53 != 0 {
            return None;
        }
        let m = self.mantissa as f64;
        let power = POWERS.get(usize::try_from(self.exponent.unsigned_abs()).ok()?)?;
        let x = if self.exponent < 0 { m / power } else { m * power };
        Some(if self.negative { -x } else { x })
    }
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
