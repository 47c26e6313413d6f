//! Text of numbers, index expressions and types.

use crate::tile::{Affine, DType, Num, Var};

/// C++ name of an element type.
pub(super) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "half",
        DType::BF16 => "bfloat16_t",
        DType::I32 => "int32_t",
    }
}

/// C++ name of the type that transfers of an element type use.
pub(super) fn moved_type(dtype: DType) -> &'static str {
    if dtype.is_half() { "uint16_t" } else { type_name(dtype) }
}

/// A float literal that reads back to the same bits (but for a NaN's payload).
pub(super) fn float(value: f32) -> String {
    match value {
        v if v.is_nan() => "__builtin_nanf(\"\")".to_owned(),
        f32::INFINITY => "__builtin_inff()".to_owned(),
        f32::NEG_INFINITY => "-__builtin_inff()".to_owned(),
        v => format!("{v:?}f"),
    }
}

/// A fill value as a literal of [`moved_type`].
pub(super) fn moved_literal(dtype: DType, fill: Num) -> String {
    match dtype {
        DType::F32 => float(fill.get()),
        DType::I32 => format!("{}", fill.get() as i32),
        DType::F16 => format!("{:#06x}", half::f16::from_f32(fill.get()).to_bits()),
        DType::BF16 => format!("{:#06x}", half::bf16::from_f32(fill.get()).to_bits()),
    }
}

/// An index function; variables are `g0`, `i0` as the IR prints them. Positive terms come first.
pub(super) fn affine(f: &Affine) -> String {
    let name = |var: &Var| match var {
        Var::Grid(g) => format!("g{}", g.0),
        Var::Loop(l) => format!("i{}", l.0),
    };
    let mut terms: Vec<(i64, String)> = f.terms().iter().map(|(var, c)| (*c, name(var))).collect();
    if f.offset() != 0 || terms.is_empty() {
        terms.push((f.offset(), String::new()));
    }
    let (positive, negative): (Vec<_>, Vec<_>) = terms.into_iter().partition(|(c, _)| *c >= 0);
    let mut out = String::new();
    positive.iter().chain(&negative).for_each(|(c, name)| join(&mut out, *c, name));
    out
}

fn join(out: &mut String, c: i64, name: &str) {
    let magnitude = c.unsigned_abs();
    let term = match (magnitude, name) {
        (n, "") => n.to_string(),
        (1, name) => name.to_owned(),
        (n, name) => format!("{name} * {n}"),
    };
    *out = match (out.is_empty(), c < 0) {
        (true, false) => term,
        (true, true) => format!("-{term}"),
        (false, false) => format!("{out} + {term}"),
        (false, true) => format!("{out} - {term}"),
    };
}

/// `var · scale + offset`, without what is zero or one. No variable: just the offset.
pub(super) fn linear(var: &str, scale: i64, offset: i64) -> String {
    match (var.is_empty() || scale == 0, scale, offset) {
        (true, _, offset) => offset.to_string(),
        (false, 1, 0) => var.to_owned(),
        (false, 1, offset) => format!("{var} + {offset}"),
        (false, scale, 0) => format!("{var} * {scale}"),
        (false, scale, offset) => format!("{var} * {scale} + {offset}"),
    }
}

/// The sum of two expressions, either of which may be `0`.
pub(super) fn sum(a: &str, b: &str) -> String {
    match (a, b) {
        ("0", b) => b.to_owned(),
        (a, "0") => a.to_owned(),
        (a, b) => format!("{a} + {b}"),
    }
}

/// A tensor from an element on.
pub(super) fn at(tensor: &str, offset: &str) -> String {
    if offset == "0" { tensor.to_owned() } else { format!("{tensor}[{offset}]") }
}
