//! Batches of tokens, in order.
//!
//! A step that takes `B × S` tokens gets `B` samples. Of a stream, sample `k` begins at token `k·S`; where labels are
//! the ids shifted by one, its labels begin at the next token. Of rows, sample `k` is row `k`. Step `t` (from 0) takes
//! the samples `t·B … t·B + B − 1`; behind the last sample comes the first again.

use super::DataError;
use super::tokens::{Array, Arrays};
use msc_ir::{DType, Storage, Tensor, TensorType};

/// Which inputs the data are for.
#[derive(Clone, Debug)]
pub struct FeedSpec<'a> {
    /// Names and types of all inputs.
    pub inputs: &'a [(&'a str, TensorType)],
    /// The token ids.
    pub ids: usize,
    /// The labels, if the step takes any.
    pub labels: Option<usize>,
    /// Whether the step shifts labels itself.
    pub shifts_labels: bool,
    /// Size of the vocabulary; 0 if it is not known.
    pub vocabulary: u64,
}

#[derive(Debug)]
struct Source {
    input: usize,
    ty: TensorType,
    array: String,
    /// First element of a sample beyond its beginning.
    offset: u64,
    /// Elements from one sample to the next.
    pitch: u64,
    what: Option<&'static str>,
}

/// An endless sequence of batches.
#[derive(Debug)]
pub struct Feed {
    arrays: Arrays,
    sources: Vec<Source>,
    batch: u64,
    samples: u64,
    vocabulary: u64,
}

/// Names that an array of tokens may have beside that of the input.
const IDS: [&str; 5] = ["tokens", "ids", "input_ids", "inputs", "text"];
/// The same for labels.
const LABELS: [&str; 3] = ["labels", "targets", "target_ids"];

impl Feed {
    /// Batches from the arrays of a file.
    ///
    /// # Errors
    /// [`DataError::Tokens`], [`DataError::Unknown`], [`DataError::TooSmall`].
    pub fn new(arrays: Arrays, spec: &FeedSpec<'_>) -> Result<Feed, DataError> {
        let ids_type = &spec.inputs[spec.ids].1;
        let width = ids_type.shape.last().copied().unwrap_or(1).max(1);
        let batch = (ids_type.elements() / width) as u64;
        let name_of = |n: usize| spec.inputs[n].0;
        let find = |input: usize, known: &[&str]| {
            let own = arrays.contains_key(name_of(input)).then(|| name_of(input).to_string());
            own.or_else(|| known.iter().find(|k| arrays.contains_key(**k)).map(|k| k.to_string()))
        };
        let labels_name = spec.labels.map(name_of);
        let only = || {
            let name = arrays.keys().next().filter(|_| arrays.len() == 1)?;
            let labels = LABELS.contains(&name.as_str()) || labels_name == Some(name);
            (!labels).then(|| name.clone())
        };
        let Some(ids) = find(spec.ids, &IDS).or_else(only) else {
            let names: Vec<&str> = arrays.keys().map(String::as_str).collect();
            return Err(DataError::Tokens {
                message: format!("none of the arrays {} is known to hold the tokens", names.join(", ")),
                help: format!("name one of them {} or `{}`", IDS.join(", "), name_of(spec.ids)),
            });
        };
        let labels = spec.labels.and_then(|n| Some((n, find(n, &LABELS)?)));
        let shifted = labels.is_none() && spec.labels.is_some() && !spec.shifts_labels;
        let array = &arrays[&ids];
        let rows = array.shape.len() > 1;
        let own = row_width(array);
        let wanted = width as u64 + u64::from(shifted);
        // A column for labels that are not needed does no harm.
        let fits = own == wanted || (!shifted && own == wanted + 1);
        if rows && !fits {
            let label = if shifted { ", one more for the labels" } else { "" };
            return Err(DataError::Tokens {
                message: format!("rows of {own} tokens, the step takes {width}{label}"),
                help: format!("give rows of {wanted} tokens, or one stream of them"),
            });
        }
        let pitch = if rows { own } else { width as u64 };
        let samples = match rows {
            true => array.shape[0] as u64,
            false => array.len().saturating_sub(u64::from(shifted)) / pitch,
        };
        let mut sources = vec![Source {
            input: spec.ids,
            ty: ids_type.clone(),
            array: ids.clone(),
            offset: 0,
            pitch,
            what: Some("token"),
        }];
        if let Some(n) = spec.labels {
            let array = labels.as_ref().map_or(&ids, |(_, l)| l).clone();
            let ty = spec.inputs[n].1.clone();
            if ty.shape != ids_type.shape {
                return Err(DataError::Tokens {
                    message: format!("labels are {ty}, token ids are {ids_type}"),
                    help: "say which inputs they are with --ids and --labels".into(),
                });
            }
            let pitch = if labels.is_some() { width as u64 } else { pitch };
            sources.push(Source { input: n, ty, array, offset: shifted.into(), pitch, what: Some("label") });
        }
        for name in arrays.keys() {
            if sources.iter().any(|s| s.array == *name) {
                continue;
            }
            let Some(input) = spec.inputs.iter().position(|(n, _)| n == name) else {
                let hint = format!(" (an array of the data; the tokens are `{ids}`)");
                return Err(DataError::Unknown { what: "input", name: name.clone(), hint });
            };
            let ty = spec.inputs[input].1.clone();
            let elements = ty.elements() as u64;
            if elements == 0 || batch == 0 || !elements.is_multiple_of(batch) {
                return Err(DataError::Tokens {
                    message: format!("`{name}` is {ty}, which holds nothing of each of {batch} samples"),
                    help: format!("give it with --inputs, and leave it out of the data of `{ids}`"),
                });
            }
            let pitch = elements / batch;
            sources.push(Source { input, ty, array: name.clone(), offset: 0, pitch, what: None });
        }
        let feed = Feed { arrays, sources, batch, samples, vocabulary: spec.vocabulary };
        feed.check_sizes(&ids, rows, wanted)?;
        Ok(feed)
    }

    fn check_sizes(&self, ids: &str, rows: bool, wanted: u64) -> Result<(), DataError> {
        if self.samples < self.batch || self.batch == 0 {
            let (found, needed) = match rows {
                true => (format!("{} rows", self.samples), format!("{} rows", self.batch)),
                false => {
                    let pitch = self.sources[0].pitch;
                    let needed = self.batch * pitch + (wanted - pitch);
                    (format!("{} tokens", self.arrays[ids].len()), format!("{needed} tokens"))
                }
            };
            return Err(DataError::TooSmall { found, needed });
        }
        for s in self.sources.iter().filter(|s| s.array != ids) {
            let array = &self.arrays[&s.array];
            if array.shape.len() > 1 && row_width(array) != s.pitch {
                return Err(DataError::Tokens {
                    message: format!(
                        "rows of {} elements in `{}`, the step takes {}",
                        row_width(array),
                        s.array,
                        s.pitch
                    ),
                    help: format!("give rows of {} elements", s.pitch),
                });
            }
            let (has, needs) = (self.arrays[&s.array].len(), self.samples * s.pitch);
            if has < needs {
                let found = format!("{has} elements in `{}`", s.array);
                let needed = format!("{} for each of the {} samples", s.pitch, self.samples);
                return Err(DataError::TooSmall { found, needed });
            }
        }
        Ok(())
    }

    /// The inputs that it gives.
    pub fn inputs(&self) -> impl Iterator<Item = usize> {
        self.sources.iter().map(|s| s.input)
    }

    /// Samples in the data.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether step `t`, from 0, comes back to the first sample after others.
    pub fn wraps(&self, t: u64) -> bool {
        let first = t * self.batch;
        first > 0
            && (first.is_multiple_of(self.samples)
                || first / self.samples != (first + self.batch - 1) / self.samples)
    }

    /// The inputs of step `t`, from 0.
    ///
    /// # Errors
    /// [`DataError::Token`]; [`DataError::Tokens`] for a value that the input's type does not hold.
    pub fn batch(&self, t: u64) -> Result<Vec<(usize, Tensor)>, DataError> {
        self.sources.iter().map(|s| Ok((s.input, self.fill(s, t)?))).collect()
    }

    fn fill(&self, s: &Source, t: u64) -> Result<Tensor, DataError> {
        let width = s.ty.elements() / self.batch as usize;
        let mut values = vec![0i64; s.ty.elements()];
        for (r, row) in values.chunks_exact_mut(width.max(1)).enumerate() {
            let sample = (t * self.batch + r as u64) % self.samples;
            let at = sample * s.pitch + s.offset;
            self.arrays[&s.array].copy(at, row);
            let Some(what) = s.what else { continue };
            // Labels below zero are those that losses ignore.
            let low = if what == "label" { i64::MIN } else { 0 };
            let high = if self.vocabulary == 0 { i64::MAX } else { self.vocabulary as i64 };
            if let Some(i) = row.iter().position(|&v| v < low || v >= high) {
                let vocabulary = if self.vocabulary == 0 { i64::MAX as u64 } else { self.vocabulary };
                return Err(DataError::Token { what, token: row[i], at: at + i as u64, vocabulary });
            }
        }
        let held = integers(s.ty.dtype, &values);
        let back = held.len() == values.len() && (0..values.len()).all(|i| held.get_i64(i) == values[i]);
        if !back && !s.ty.dtype.is_float() {
            return Err(DataError::Tokens {
                message: format!("`{}` has values that {} does not hold", s.array, s.ty.dtype.name()),
                help: "use data made for this model".into(),
            });
        }
        Ok(Tensor::new(s.ty.shape.iter().copied(), held))
    }
}

fn row_width(a: &Array) -> u64 {
    a.shape.iter().skip(1).fold(1u64, |n, &d| n.saturating_mul(d as u64))
}

/// Integers as elements of any type.
fn integers(dtype: DType, values: &[i64]) -> Storage {
    let floats = || values.iter().map(|&v| v as f64).collect::<Vec<f64>>();
    match dtype {
        DType::I64 => Storage::I64(values.to_vec()),
        other => Storage::from_f64s(other, &floats()),
    }
}
