//! Files of tokens: `.npy`, `.npz`, Megatron's `.bin` with its `.idx`, and flat `.bin`.

use super::megatron::{Index, MAGIC};
use super::{DataError, npz};
use memmap2::Mmap;
use msc_ir::{DType, Storage, TensorType};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Integers of a file: a stream (one dimension) or samples (one a row).
#[derive(Debug)]
pub struct Array {
    /// Dimensions.
    pub shape: Vec<usize>,
    elements: Elements,
}

#[derive(Debug)]
enum Elements {
    Mapped { map: Mmap, start: usize, dtype: DType },
    Indexed { map: Mmap, index: Index },
    Owned(Storage),
}

/// The arrays of a file by name; the only one of a file without names has the empty name.
pub type Arrays = BTreeMap<String, Array>;

impl Array {
    /// Elements in all.
    pub fn len(&self) -> u64 {
        self.shape.iter().map(|&d| d as u64).product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies elements from number `at` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy(&self, at: u64, out: &mut [i64]) {
        match &self.elements {
            Elements::Owned(s) => {
                for (o, i) in out.iter_mut().zip(at as usize..) {
                    *o = s.get_i64(i);
                }
            }
            Elements::Mapped { map, start, dtype } => {
                integers(&map[start + at as usize * dtype.size_bytes()..], *dtype, out);
            }
            Elements::Indexed { map, index } => {
                let mut done = 0;
                while done < out.len() {
                    let (byte, run) = index.locate(at + done as u64);
                    let n = (run as usize).min(out.len() - done);
                    assert!(n > 0, "elements of the array");
                    integers(&map[byte as usize..], index.dtype, &mut out[done..done + n]);
                    done += n;
                }
            }
        }
    }
}

/// Little-endian integers.
fn integers(bytes: &[u8], dtype: DType, out: &mut [i64]) {
    let width = dtype.size_bytes();
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    for (o, b) in out.iter_mut().zip(bytes.chunks_exact(width)) {
        let raw = b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let unused = 64 - 8 * width as u32;
        *o = if signed { (raw << unused) as i64 >> unused } else { raw as i64 };
    }
}

fn map(path: &Path) -> Result<Option<Mmap>, DataError> {
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the mapping is read only and private; that no one truncates the file meanwhile is asked of the user.
    unsafe { Mmap::map(&file) }.map(Some).map_err(io)
}

/// Opens a file of tokens. `dtype` is needed for a flat `.bin`; other files say it themselves.
///
/// A Megatron dataset is meant by its `.bin`, its `.idx`, or the name without either.
///
/// # Errors
/// [`DataError::Io`], [`DataError::Format`], [`DataError::Tokens`].
pub fn open(path: &Path, dtype: Option<DType>) -> Result<Arrays, DataError> {
    let (idx, bin) = pair(path);
    if idx.exists() && (path == idx || path == bin || !path.exists()) && bin.exists() {
        return megatron(&idx, &bin, dtype);
    }
    let format = |message: String| DataError::Format { path: path.to_path_buf(), message };
    let Some(map) = map(path)? else { return Err(format("the file is empty".into())) };
    if map.starts_with(b"PK") {
        drop(map);
        let mut arrays = Arrays::new();
        for (name, t) in npz::read(path)? {
            if t.dtype().is_float() {
                return Err(format(format!("array `{name}` is {}, tokens are integers", t.ty())));
            }
            arrays.insert(name, Array { shape: t.shape.to_vec(), elements: Elements::Owned(t.data) });
        }
        return Ok(arrays);
    }
    if map.starts_with(b"\x93NUMPY") {
        let array = match npz::row_major(&map).map_err(format)? {
            Some((ty, _)) if ty.dtype.is_float() => {
                return Err(format(format!("the array is {ty}, tokens are integers")));
            }
            Some((TensorType { dtype, shape }, start)) => {
                Array { shape: shape.to_vec(), elements: Elements::Mapped { map, start, dtype } }
            }
            None => {
                let t = npz::read_npy(path)?;
                Array { shape: t.shape.to_vec(), elements: Elements::Owned(t.data) }
            }
        };
        return Ok(Arrays::from([(String::new(), array)]));
    }
    if map.starts_with(MAGIC) {
        return Err(format(format!("this is a Megatron index, and {} is not there", bin.display())));
    }
    let Some(dtype) = dtype else {
        return Err(DataError::Tokens {
            message: format!("{} does not say of which type its tokens are", path.display()),
            help:
                "give --data-dtype u16 (or u32, i32, i64), or the .idx file of a Megatron dataset beside it"
                    .into(),
        });
    };
    if map.len() % dtype.size_bytes() != 0 {
        return Err(format(format!("{} bytes are no whole number of {} tokens", map.len(), dtype.name())));
    }
    let shape = vec![map.len() / dtype.size_bytes()];
    let elements = Elements::Mapped { map, start: 0, dtype };
    Ok(Arrays::from([(String::new(), Array { shape, elements })]))
}

/// The index and the data that a path may mean.
fn pair(path: &Path) -> (PathBuf, PathBuf) {
    match path.extension().and_then(|e| e.to_str()) {
        Some("bin" | "idx") => (path.with_extension("idx"), path.with_extension("bin")),
        _ => {
            let with = |e: &str| {
                let mut p = path.as_os_str().to_owned();
                p.push(e);
                PathBuf::from(p)
            };
            (with(".idx"), with(".bin"))
        }
    }
}

fn megatron(idx: &Path, bin: &Path, dtype: Option<DType>) -> Result<Arrays, DataError> {
    let format = |message: String| DataError::Format { path: idx.to_path_buf(), message };
    let (Some(index), Some(map)) = (map(idx)?, map(bin)?) else {
        return Err(format("the index or its data are empty".into()));
    };
    let index = Index::parse(&index, map.len() as u64).map_err(format)?;
    if dtype.is_some_and(|d| d != index.dtype) {
        return Err(DataError::Tokens {
            message: format!("{} says that the tokens are {}", idx.display(), index.dtype.name()),
            help: "leave --data-dtype out".into(),
        });
    }
    let shape = vec![index.tokens() as usize];
    Ok(Arrays::from([(String::new(), Array { shape, elements: Elements::Indexed { map, index } })]))
}
