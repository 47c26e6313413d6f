//! State in shards: a folder with a file of blocks for each rank, and `index.json`, which says what each block is
//! (`docs/run.md`).
//!
//! A folder is read whatever layout wrote it: any block of any tensor is put together from the blocks that hold its
//! parts. What is opened has been checked: every file is there, holds what the index says and nothing else, and the
//! blocks of each tensor hold each of its elements once.

pub mod cover;
mod plan;
mod write;

pub use plan::{Placed, placed};
pub use write::{check_folder, is_folder, write, write_state};

use super::DataError;
use super::safetensors::SafetensorsFile;
use cover::{Fault, Place, covered_once};
use msc_ir::tensor::IndexSpace;
use msc_ir::types::strides;
use msc_ir::{DType, Storage, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of the index.
const INDEX: &str = "index.json";

/// Version of the folder's form.
const VERSION: u32 = 1;

/// `index.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    version: u32,
    /// Steps that led to the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    /// Axes of the layout that wrote it, for people: nothing depends on it.
    #[serde(default)]
    mesh: Vec<(String, usize)>,
    tensors: BTreeMap<String, IndexTensor>,
}

/// A tensor of the index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexTensor {
    dtype: String,
    shape: Vec<usize>,
    blocks: Vec<IndexBlock>,
}

/// A block of the index. In its file it is called as [`stored_name`] says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexBlock {
    file: String,
    start: Vec<usize>,
    shape: Vec<usize>,
}

/// An open folder.
#[derive(Debug)]
pub struct Shards {
    folder: PathBuf,
    steps: Option<u64>,
    mesh: Vec<(String, usize)>,
    files: Vec<SafetensorsFile>,
    tensors: BTreeMap<String, Pieces>,
}

#[derive(Debug)]
struct Pieces {
    ty: TensorType,
    /// Which file holds which part, and under which name.
    blocks: Vec<(usize, Place, String)>,
}

/// What the `n`-th block of a tensor in one file is called there: the first has the tensor's name. A rank has several
/// blocks of a tensor whose dimensions consist of parts that are cut each on its own.
fn stored_name(name: &str, n: usize) -> String {
    if n == 0 { name.to_string() } else { format!("{name}#{n}") }
}

fn refuse(folder: &Path, message: String, help: &str) -> DataError {
    DataError::Shards { path: folder.to_path_buf(), message, help: help.to_string() }
}

const COPY_AGAIN: &str = "copy the folder again, with all of its files, or save the state again";

impl Shards {
    /// Opens a folder and checks it.
    ///
    /// # Errors
    /// [`DataError::Shards`]: a folder that is none of this form, files that are missing or hold something else, gaps
    /// and overlaps; [`DataError::Io`] and [`DataError::Format`] for damaged files.
    pub fn open(folder: &Path) -> Result<Shards, DataError> {
        let path = folder.join(INDEX);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let help =
                    "give a folder that `msc run --save DIR --save-shards` or `msc reshard` wrote, or a file";
                return Err(refuse(folder, format!("it has no {INDEX}"), help));
            }
            Err(error) => return Err(DataError::Io { path, error }),
        };
        let index: Index = serde_json::from_slice(&text)
            .map_err(|e| refuse(folder, format!("{INDEX} is not read: {e}"), COPY_AGAIN))?;
        if index.version != VERSION {
            let message = format!("{INDEX} is of version {}, this msc reads {VERSION}", index.version);
            return Err(refuse(folder, message, "use the msc that wrote it"));
        }
        let mut out = Shards {
            folder: folder.to_path_buf(),
            steps: index.steps,
            mesh: index.mesh,
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let names = out.open_files(&index.tensors)?;
        for (name, t) in index.tensors {
            let checked = out.pieces(&name, &t, &names)?;
            out.tensors.insert(name, checked);
        }
        out.nothing_else(&names)?;
        Ok(out)
    }

    fn refuse(&self, message: String) -> DataError {
        refuse(&self.folder, message, COPY_AGAIN)
    }

    /// Opens every file that the index names.
    fn open_files(
        &mut self,
        tensors: &BTreeMap<String, IndexTensor>,
    ) -> Result<BTreeMap<String, usize>, DataError> {
        let mut names = BTreeMap::new();
        for (tensor, block) in tensors.iter().flat_map(|(n, t)| t.blocks.iter().map(move |b| (n, b))) {
            if names.contains_key(&block.file) {
                continue;
            }
            // A file of this folder and nowhere else.
            let path = Path::new(&block.file);
            if path.file_name() != Some(path.as_os_str())
                || path.extension().is_none_or(|e| e != "safetensors")
            {
                return Err(self.refuse(format!(
                    "{INDEX} names the file `{}`, which is none of this folder's",
                    block.file
                )));
            }
            let whole = self.folder.join(path);
            if !whole.is_file() {
                let message = format!("the file {} is missing; it holds a part of `{tensor}`", block.file);
                return Err(self.refuse(message));
            }
            names.insert(block.file.clone(), self.files.len());
            self.files.push(SafetensorsFile::open(&whole)?);
        }
        Ok(names)
    }

    /// Checks a tensor of the index.
    fn pieces(
        &self,
        name: &str,
        t: &IndexTensor,
        files: &BTreeMap<String, usize>,
    ) -> Result<Pieces, DataError> {
        let dtype = DType::ALL.into_iter().find(|d| d.name() == t.dtype);
        let Some(dtype) = dtype else {
            return Err(self.refuse(format!(
                "`{name}`: {INDEX} says the element type `{}`, which there is not",
                t.dtype
            )));
        };
        let ty = TensorType::new(dtype, t.shape.iter().copied());
        if ty.checked_bytes().is_none() {
            return Err(self.refuse(format!("`{name}`: {INDEX} says a shape without a size: {:?}", t.shape)));
        }
        let mut blocks: Vec<(usize, Place, String)> = Vec::new();
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        for b in &t.blocks {
            let place =
                Place { start: b.start.iter().copied().collect(), size: b.shape.iter().copied().collect() };
            if !place.fits(&t.shape) {
                let message = format!(
                    "`{name}`: the block of {} at {:?} of shape {:?} is not in a tensor of shape {:?}",
                    b.file, b.start, b.shape, t.shape
                );
                return Err(self.refuse(message));
            }
            let Some(&file) = files.get(&b.file) else { continue };
            let want = TensorType::new(dtype, b.shape.iter().copied());
            let n = before.entry(file).or_default();
            let stored = stored_name(name, *n);
            *n += 1;
            let (found, _) = self.files[file].view(&stored)?;
            if found != want {
                let message = format!("`{name}`: {} holds {found}, {INDEX} says {want}", b.file);
                return Err(self.refuse(message));
            }
            blocks.push((file, place, stored));
        }
        let places: Vec<Place> = blocks.iter().map(|(_, p, _)| p.clone()).collect();
        covered_once(&ty.shape, &places).map_err(|fault| {
            let file = |n: usize| t.blocks[n].file.as_str();
            self.refuse(match fault {
                Fault::Gap(at) => format!("`{name}`: no file holds {at} of {ty}"),
                Fault::Overlap(a, b, at) => {
                    format!("`{name}`: both {} and {} hold {at} of {ty}", file(a), file(b))
                }
                Fault::TooIrregular => format!("`{name}`: its {} blocks are no layout", places.len()),
            })
        })?;
        Ok(Pieces { ty, blocks })
    }

    /// Refuses tensors of the files that the index does not know: they would be lost.
    fn nothing_else(&self, names: &BTreeMap<String, usize>) -> Result<(), DataError> {
        let known: BTreeSet<(&str, usize)> =
            self.tensors.values().flat_map(|t| t.blocks.iter().map(|(f, _, n)| (n.as_str(), *f))).collect();
        for (file, &n) in names {
            if let Some(name) = self.files[n].names().iter().find(|name| !known.contains(&(name.as_str(), n)))
            {
                return Err(self.refuse(format!("{file} holds `{name}`, of which {INDEX} says nothing")));
            }
        }
        Ok(())
    }

    /// The steps that led to the state.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// Axes of the layout that wrote it.
    pub fn mesh(&self) -> &[(String, usize)] {
        &self.mesh
    }

    /// The names of its tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    /// The global type of a tensor.
    pub fn ty(&self, name: &str) -> Option<&TensorType> {
        self.tensors.get(name).map(|t| &t.ty)
    }

    /// A whole tensor.
    ///
    /// # Errors
    /// [`DataError::Shards`] if there is none of this name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, DataError> {
        let ty = self.ty(name).ok_or_else(|| self.refuse(format!("there is no tensor `{name}`")))?;
        let bytes = self.part(name, &Place::whole(&ty.shape))?;
        Ok(Tensor::new(ty.shape.iter().copied(), Storage::from_bytes(ty.dtype, &bytes)))
    }

    /// The elements of a part of a tensor, row-major.
    ///
    /// # Errors
    /// [`DataError::Shards`] if there is no such tensor or part.
    pub fn part(&self, name: &str, part: &Place) -> Result<Vec<u8>, DataError> {
        let t = self.tensors.get(name).filter(|t| part.fits(&t.ty.shape));
        let t = t.ok_or_else(|| self.refuse(format!("there is no {part} of `{name}`")))?;
        let width = t.ty.dtype.size_bytes();
        let mut out = vec![0u8; part.size.iter().product::<usize>() * width];
        for (file, place, stored) in &t.blocks {
            let Some(common) = place.common(part) else { continue };
            let (_, bytes) = self.files[*file].view(stored)?;
            copy(bytes, place, &mut out, part, &common, width);
        }
        Ok(out)
    }
}

/// Copies what two boxes of one tensor have in common from one's elements to the other's.
fn copy(from: &[u8], source: &Place, to: &mut [u8], target: &Place, common: &Place, width: usize) {
    let at = |place: &Place, ix: &[usize], st: &[usize]| -> usize {
        ix.iter().enumerate().map(|(d, i)| (i + common.start[d] - place.start[d]) * st[d]).sum()
    };
    let (s, t) = (strides(&source.size), strides(&target.size));
    // Rows of the last dimension are contiguous in both.
    let mut outer = common.size.to_vec();
    let row = outer.last_mut().map_or(1, |n| std::mem::replace(n, 1)) * width;
    for ix in IndexSpace::new(&outer) {
        let (a, b) = (at(source, &ix, &s) * width, at(target, &ix, &t) * width);
        to[b..b + row].copy_from_slice(&from[a..a + row]);
    }
}
