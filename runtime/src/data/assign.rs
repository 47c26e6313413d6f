//! Which tensor of a file is which input.

use super::{DataError, Tensors};
use msc_ir::{DType, Storage, Tensor, TensorType};

/// Matches tensors to inputs (or outputs): `wanted` are their names and types in order. Slots that are already
/// filled may not be given again; slots that nothing fills stay empty.
///
/// # Errors
/// [`DataError::Unknown`], [`DataError::Type`], [`DataError::Twice`].
pub fn assign(
    what: &'static str,
    wanted: &[(&str, TensorType)],
    tensors: Tensors,
    slots: &mut [Option<Tensor>],
) -> Result<(), DataError> {
    let numbered = tensors.keys().all(|k| number(k).is_some());
    for (key, t) in tensors {
        let slot = if numbered {
            number(&key).filter(|&n| n < wanted.len())
        } else {
            wanted.iter().position(|(name, _)| *name == key)
        };
        let Some(slot) = slot else {
            let hint = hint(&key, wanted);
            return Err(DataError::Unknown { what, name: key, hint });
        };
        let (name, ty) = &wanted[slot];
        let fitted = fit(name, t, ty)?;
        if slots[slot].replace(fitted).is_some() {
            return Err(DataError::Twice { name: name.to_string() });
        }
    }
    Ok(())
}

/// The number of a name that is only numbered: `in0003`, `out0003`, `arr_3`.
fn number(name: &str) -> Option<usize> {
    let digits = ["in", "out", "arr_"].iter().find_map(|p| name.strip_prefix(p))?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Names that end or start alike: exporters prefix parameter paths differently.
fn hint(key: &str, wanted: &[(&str, TensorType)]) -> String {
    let near: Vec<String> = wanted
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !name.is_empty() && (name.contains(key) || key.contains(name)))
        .take(3)
        .map(|name| format!("`{name}`"))
        .collect();
    match near.len() {
        0 => format!(" (there are {})", wanted.len()),
        _ => format!(" (there is {})", near.join(", ")),
    }
}

/// A tensor as an input of type `want`. The same type fits; so do 16-bit patterns for a bfloat16, integers of
/// another width that hold the same values (token ids are often wider in files than in models), and a
/// one-element tensor for a scalar.
///
/// # Errors
/// [`DataError::Type`].
pub fn fit(name: &str, t: Tensor, want: &TensorType) -> Result<Tensor, DataError> {
    let found = t.ty();
    let one = found.elements() == 1 && want.elements() == 1;
    let wrong = |found: String| DataError::Type { name: name.to_string(), want: want.to_string(), found };
    if found.shape != want.shape && !one {
        return Err(wrong(found.to_string()));
    }
    let data = match (&t.data, want.dtype) {
        (s, d) if s.dtype() == d => t.data,
        (Storage::U16(_), DType::BF16) => Storage::from_bytes(DType::BF16, t.data.bytes()),
        (s, d) if s.dtype().is_int() && d.is_int() => {
            let converted = t.converted(d);
            // Converted back they are the same, unless something was lost.
            let kept = converted.converted(s.dtype()).data == *s;
            let sign = (0..s.len()).all(|i| (s.get_f64(i) < 0.0) == (converted.data.get_f64(i) < 0.0));
            if !kept || !sign {
                return Err(wrong(format!("{found} with values that do not fit")));
            }
            converted.data
        }
        _ => return Err(wrong(found.to_string())),
    };
    Ok(Tensor { shape: want.shape.clone(), data })
}
