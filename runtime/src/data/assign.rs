//! Which tensor of a file is which input.

use super::names::{Mapped, NameMap};
use super::{DataError, Tensors};
use msc_ir::{DType, Storage, Tensor, TensorType};

/// Which input each of a file's names is.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    what: &'static str,
    wanted: &'a [(&'a str, TensorType)],
    names: Option<&'a NameMap>,
}

impl<'a> Places<'a> {
    /// Places for the inputs (or outputs: `what`) `wanted`, names and types in order. Names are mapped by `names`.
    pub fn new(
        what: &'static str,
        wanted: &'a [(&'a str, TensorType)],
        names: Option<&'a NameMap>,
    ) -> Places<'a> {
        Places { what, wanted, names }
    }

    /// The input for each name of a file, `None` for names that the mapping leaves out. A file whose names are
    /// only numbered, and not all of them an input's, goes by order.
    ///
    /// # Errors
    /// [`DataError::Unknown`].
    pub fn of(&self, keys: &[String]) -> Result<Vec<Option<usize>>, DataError> {
        // Names of inputs may be of that form themselves.
        let names = keys.iter().all(|k| self.wanted.iter().any(|(w, _)| w == k));
        let numbered = !names && keys.iter().all(|k| number(k).is_some());
        let place = |key: &String| {
            let mapped = match self.names.map_or(Mapped::Unmapped, |n| n.map(key)) {
                Mapped::Omitted => return Ok(None),
                Mapped::To(name) => Some(name),
                Mapped::Unmapped => None,
            };
            let named = |name: &str| self.wanted.iter().position(|(w, _)| *w == name);
            let found = match &mapped {
                Some(name) => named(name),
                None if numbered => number(key).filter(|&n| n < self.wanted.len()),
                None => named(key),
            };
            found.map(Some).ok_or_else(|| {
                let hint = match &mapped {
                    Some(name) => format!(", which the mapping gives for `{key}`{}", hint(name, self.wanted)),
                    None => hint(key, self.wanted),
                };
                DataError::Unknown { what: self.what, name: mapped.unwrap_or_else(|| key.clone()), hint }
            })
        };
        keys.iter().map(place).collect()
    }
}

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
    let keys: Vec<String> = tensors.keys().cloned().collect();
    let places = Places::new(what, wanted, None).of(&keys)?;
    for (t, slot) in tensors.into_values().zip(places) {
        let Some(slot) = slot else { continue };
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
    fit_as(name, t, want, false)
}

/// [`fit`], with floats of one type converted to those of another (to nearest, ties to even) if `convert`.
///
/// # Errors
/// [`DataError::Type`].
pub fn fit_as(name: &str, t: Tensor, want: &TensorType, convert: bool) -> Result<Tensor, DataError> {
    let found = t.ty();
    let one = found.elements() == 1 && want.elements() == 1;
    let floats = found.dtype.is_float() && want.dtype.is_float() && found.shape == want.shape;
    let transposed = found.shape.iter().rev().eq(want.shape.iter()) && found.shape != want.shape;
    let help = match () {
        () if floats && found.dtype != want.dtype => "\n  help: --convert rounds floats to the step's type",
        () if transposed => "\n  help: the file has it transposed; nothing is transposed on its own",
        () => "",
    };
    let wrong =
        |found: String| DataError::Type { name: name.to_string(), want: want.to_string(), found, help };
    if found.shape != want.shape && !one {
        return Err(wrong(found.to_string()));
    }
    let data = match (&t.data, want.dtype) {
        (s, d) if s.dtype() == d => t.data,
        (s, d) if convert && s.dtype().is_float() && d.is_float() => t.converted(d).data,
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
