//! From VHLO's fields to the attributes that StableHLO's generic form has.
//!
//! VHLO writes every field, lists of numbers as tensors, symbols as strings and enums it does not need as numbers.
//! A field missing in an older version of an op is one that has its default value, so upgrading an op is leaving
//! the field out. What a field becomes depends on its name alone, except for the groups of [`super::grouped`].

use super::attrs::API_VERSIONS;
use super::grouped;
use super::table::OpRow;
use crate::error::Code;
use crate::mlir_bytecode::decode::Decoder;
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::raw::{Attr, Attrs, DenseData, Elem, Type};
use std::borrow::Cow;

/// Properties that are lists of numbers.
const LISTS: &[&str] = &[
    "base_dilations",
    "broadcast_dimensions",
    "broadcast_sizes",
    "dimensions",
    "edge_padding_high",
    "edge_padding_low",
    "fft_length",
    "interior_padding",
    "known_expanding_dimensions",
    "known_nonexpanding_dimensions",
    "lhs_dilation",
    "limit_indices",
    "permutation",
    "rhs_dilation",
    "slice_sizes",
    "start_indices",
    "strides",
    "window_dilations",
    "window_dimensions",
    "window_reversal",
    "window_strides",
];

/// The attributes of an op at byte `at`, made of its fields.
///
/// # Errors
/// Where a field is missing or is not of its form.
pub fn attributes<'a>(
    d: &mut Decoder<'a, '_>,
    row: &OpRow,
    mut fields: Attrs<'a>,
    at: usize,
) -> Result<Attrs<'a>> {
    if !row.name.starts_with("vhlo.") {
        return Ok(fields);
    }
    let mut out = grouped::take_groups(d, row, &mut fields, at)?;
    for (name, value) in fields {
        if let Some(value) = field(d, row, &name, value, at)? {
            out.push((name, value));
        }
    }
    Ok(out)
}

/// A field's value in StableHLO; `None` where that is no attribute at all.
fn field<'a>(
    d: &mut Decoder<'a, '_>,
    row: &OpRow,
    name: &str,
    value: Attr<'a>,
    at: usize,
) -> Result<Option<Attr<'a>>> {
    if LISTS.binary_search(&name).is_ok() {
        let list = list(d, &value, name, at)?;
        let absent = name.starts_with("known_") && list.is_empty();
        return Ok((!absent).then_some(Attr::Ints(list)));
    }
    Ok(Some(match (name, value) {
        ("use_global_device_ids" | "has_dynamic_root", Attr::Bool(b)) => return Ok(b.then_some(Attr::Unit)),
        ("compare_type", Attr::Word(w)) if w == "NOTYPE" => return Ok(None),
        ("sym_visibility" | "backend_config" | "infeed_config" | "outfeed_config", Attr::Str(s))
            if s.is_empty() =>
        {
            return Ok(None);
        }
        ("backend_config", Attr::Dict(entries)) if entries.is_empty() => return Ok(None),
        (
            "operand_layouts"
            | "result_layouts"
            | "result_tilings"
            | "output_operand_aliases"
            | "layout"
            | "called_computations",
            Attr::Array(v),
        ) if v.is_empty() => return Ok(None),
        ("called_computations", Attr::Array(v)) => {
            let symbols = v.into_iter().map(|a| symbol(a, name, at)).collect::<Result<_>>()?;
            Attr::Array(symbols)
        }
        ("callee" | "decomposition", value) => symbol(value, name, at)?,
        ("api_version", Attr::Word(w)) => {
            let number = API_VERSIONS.iter().position(|v| *v == w).unwrap_or_default();
            Attr::Int(number as i64, d.types.intern(Type::Scalar(Elem::Int(32))))
        }
        ("precision_config", Attr::Array(v))
            if v.iter().all(|p| matches!(p, Attr::Word(w) if w == "DEFAULT")) =>
        {
            return Ok(None);
        }
        ("result_accuracy", Attr::Struct(_, f)) => match accuracy(&f) {
            Some(text) => Attr::Other(text.into()),
            None => return Ok(None),
        },
        ("source_target_pairs", Attr::Dense(ty, data))
            if row.canonical != "stablehlo.collective_permute" && is_empty(d, ty) =>
        {
            let _ = data;
            return Ok(None);
        }
        (_, value) => value,
    }))
}

fn is_empty(d: &Decoder<'_, '_>, ty: crate::raw::TypeId) -> bool {
    matches!(d.types.get(ty), Type::Tensor { dims, .. } if dims.contains(&Some(0)))
}

fn symbol<'a>(value: Attr<'a>, name: &str, at: usize) -> Result<Attr<'a>> {
    match value {
        Attr::Str(s) | Attr::Symbol(s) => Ok(Attr::Symbol(s)),
        other => Err(wrong(name, "a symbol", &other, at)),
    }
}

/// MLIR's text of a result accuracy; `None` for the default one.
fn accuracy(fields: &Attrs<'_>) -> Option<String> {
    let get = |name| crate::raw::attr(fields, name);
    let (
        Some(Attr::Float(atol, _)),
        Some(Attr::Float(rtol, _)),
        Some(Attr::Int(ulps, _)),
        Some(Attr::Word(mode)),
    ) = (get("atol"), get("rtol"), get("ulps"), get("mode"))
    else {
        return None;
    };
    if mode == "DEFAULT" && *atol == 0.0 && *rtol == 0.0 && *ulps == 0 {
        return None;
    }
    Some(format!(
        "#stablehlo.result_accuracy<atol = {atol:e}, rtol = {rtol:e}, ulps = {ulps}, \
         mode = #stablehlo.result_accuracy_mode<{mode}>>"
    ))
}

/// The numbers of a tensor of rank 1, or of a list.
pub(super) fn list<'a>(d: &mut Decoder<'a, '_>, value: &Attr<'a>, name: &str, at: usize) -> Result<Vec<i64>> {
    let (ty, bytes) = match value {
        Attr::Ints(v) => return Ok(v.clone()),
        Attr::Dense(ty, DenseData::Bytes(bytes)) => (*ty, bytes),
        other => return Err(wrong(name, "a tensor of integers", other, at)),
    };
    let (n, elem) = match d.types.get(ty) {
        Type::Tensor { dims, elem } => match dims[..] {
            [Some(n)] => (n, elem.clone()),
            _ => return Err(wrong(name, "a tensor of rank 1", value, at)),
        },
        _ => return Err(wrong(name, "a tensor of integers", value, at)),
    };
    // A splat may announce any number of elements, so they are charged before they are made.
    let count = usize::try_from(n).unwrap_or(usize::MAX);
    d.charge(count, at)?;
    let size = || {
        Fault::new(Code::Constant, at, format!("attribute {name}: {} bytes for {n} elements", bytes.len()))
    };
    match elem {
        Elem::Int(1) => bools(bytes, count).ok_or_else(size),
        Elem::Int(64) | Elem::Index => {
            let word = |b: &[u8]| b.try_into().map(i64::from_le_bytes).unwrap_or_default();
            if bytes.len() as u64 == n.saturating_mul(8) {
                Ok(bytes.chunks_exact(8).map(word).collect())
            } else if bytes.len() == 8 && n > 0 {
                Ok(vec![word(bytes); count])
            } else {
                Err(size())
            }
        }
        _ => Err(wrong(name, "a tensor of i64 or i1", value, at)),
    }
}

/// Booleans: one byte each, eight to a byte, or one byte for all.
fn bools(bytes: &[u8], n: usize) -> Option<Vec<i64>> {
    if n > 0 && bytes == [0xFF] {
        return Some(vec![1; n]);
    }
    if bytes.len() == n {
        return Some(bytes.iter().map(|&b| i64::from(b != 0)).collect());
    }
    if bytes.len() == n.div_ceil(8) {
        return Some((0..n).map(|i| i64::from(bytes[i / 8] >> (i % 8) & 1)).collect());
    }
    (bytes == [0]).then(|| vec![0; n])
}

/// The fault for a field that is of another form.
pub(super) fn wrong(name: &str, want: &str, got: &Attr<'_>, at: usize) -> Box<Fault> {
    let kind = match got {
        Attr::Unit => "unit",
        Attr::Bool(_) => "a boolean",
        Attr::Int(..) => "an integer",
        Attr::Float(..) => "a float",
        Attr::Str(_) => "a string",
        Attr::Word(_) => "a keyword",
        Attr::Symbol(_) => "a symbol",
        Attr::Array(_) | Attr::Ints(_) | Attr::Floats(_) => "a list",
        Attr::Dense(..) => "a tensor of another type",
        Attr::Dict(_) => "a dictionary",
        Attr::Type(_) => "a type",
        Attr::Struct(..) => "a dialect's attribute",
        Attr::Sharding(_) | Attr::Shardings(_) | Attr::Mesh(_) => "a sharding",
        Attr::Other(_) => "an attribute kept as text",
    };
    Fault::new(Code::Attribute, at, format!("attribute {name} is {kind} where {want} is needed"))
}

/// Takes a field out of a list.
pub(super) fn take<'a>(fields: &mut Attrs<'a>, name: &str) -> Option<Attr<'a>> {
    fields.iter().position(|(k, _)| k == name).map(|i| fields.remove(i).1)
}

/// A name and its value.
pub(super) fn named<'a>(name: &'static str, value: Attr<'a>) -> (Cow<'a, str>, Attr<'a>) {
    (Cow::Borrowed(name), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_lists_is_sorted() {
        assert!(LISTS.is_sorted());
    }

    /// The four forms of boolean constants in the format's description.
    #[test]
    fn booleans() {
        assert_eq!(bools(&[0xFF], 3), Some(vec![1, 1, 1]));
        assert_eq!(bools(&[0b101], 3), Some(vec![1, 0, 1]));
        assert_eq!(bools(&[1, 0, 1], 3), Some(vec![1, 0, 1]));
        assert_eq!(bools(&[0], 20), Some(vec![0; 20]));
        assert_eq!(bools(&[0, 0, 8], 20).map(|v| v.iter().position(|&b| b == 1)), Some(Some(19)));
        assert_eq!(bools(&[], 0), Some(vec![]));
        assert_eq!(bools(&[1, 2], 20), None);
        assert_eq!(bools(&[], 3), None);
    }
}
