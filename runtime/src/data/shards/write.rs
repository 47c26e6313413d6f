//! Writing a folder of shards.
//!
//! Files are written block after block, so that no more than one block is held beside what it comes from. The folder
//! appears under its name when it is complete.

use super::cover::Place;
use super::{INDEX, Index, IndexBlock, IndexTensor, Placed, VERSION, placed, refuse, stored_name};
use crate::data::{DataError, folder, readable, safetensors};
use crate::layout::Block;
use crate::plan::Plan;
use msc_ir::Tensor;
use msc_ir::module::Mesh;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Whether a path stands for a folder of shards: it ends in a slash, or there is a folder.
pub fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

/// Refuses a folder to be written that would replace something else than shards, or whose own folder is not there.
///
/// # Errors
/// [`DataError::Shards`], [`DataError::Io`].
pub fn check_folder(path: &Path) -> Result<(), DataError> {
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    if path.is_dir() {
        let empty = std::fs::read_dir(path).map_err(io)?.next().is_none();
        if !empty && !path.join(INDEX).is_file() {
            let message = format!("the folder holds files, and no {INDEX}: it is not replaced");
            return Err(refuse(path, message, "name a new folder, or one that msc wrote"));
        }
        return Ok(());
    }
    if path.exists() {
        return Err(refuse(path, "it is a file, not a folder".into(), "name a new folder"));
    }
    if folder(path).is_dir() {
        return Ok(());
    }
    Err(io(std::io::Error::new(std::io::ErrorKind::NotFound, "its folder is not there")))
}

/// Writes a plan's tensors, global, by name: as a folder of the plan's blocks where the path stands for a folder, else
/// as a file.
///
/// # Errors
/// As [`write()`] and [`crate::data::write`].
pub fn write_state(
    plan: &Plan,
    path: &Path,
    tensors: &[(&str, &Tensor)],
    steps: Option<u64>,
) -> Result<(), DataError> {
    if !is_folder(path) {
        return crate::data::write(path, tensors, steps);
    }
    let mut list = Vec::new();
    for (name, _) in tensors {
        let n = plan.entry().params.iter().position(|p| p.name == *name);
        let unknown = || DataError::Unknown { what: "input", name: name.to_string(), hint: String::new() };
        list.push(placed(plan, n.ok_or_else(unknown)?, path)?);
    }
    let by_name: BTreeMap<&str, &Tensor> = tensors.iter().copied().collect();
    write(path, &list, plan.mesh(), steps, |name, place| {
        let t = by_name[name];
        let mut out = vec![0u8; place.size.iter().product::<usize>() * t.dtype().size_bytes()];
        Block::new(&t.ty(), &place.start, &place.size).cut(t.data.bytes(), &mut out);
        Ok(out)
    })
}

/// Writes tensors as a folder of blocks; `part` gives the elements of each. A folder of shards of that name is replaced
/// when the new one is complete.
///
/// # Errors
/// [`DataError::Io`], those of [`check_folder`], and `part`'s own.
pub fn write(
    path: &Path,
    tensors: &[Placed],
    mesh: &Mesh,
    steps: Option<u64>,
    mut part: impl FnMut(&str, &Place) -> Result<Vec<u8>, DataError>,
) -> Result<(), DataError> {
    check_folder(path)?;
    let io = |error| DataError::Io { path: path.to_path_buf(), error };
    // A link or `.` stands for the folder itself: that is what is renamed, and what the new one must lie beside.
    let at: PathBuf = match path.is_dir() {
        true => path.canonicalize().map_err(io)?,
        false => path.components().collect(),
    };
    let new = tempfile::Builder::new().prefix(".msc").tempdir_in(folder(&at)).map_err(io)?;
    let mut ranks: BTreeMap<usize, Vec<(&Placed, &Place)>> = BTreeMap::new();
    for t in tensors {
        for (rank, place) in &t.blocks {
            ranks.entry(*rank).or_default().push((t, place));
        }
    }
    for (rank, own) in ranks {
        let mut before: BTreeMap<&str, usize> = BTreeMap::new();
        let names: Vec<String> = own
            .iter()
            .map(|(t, _)| {
                let n = before.entry(t.name.as_str()).or_default();
                *n += 1;
                stored_name(&t.name, *n - 1)
            })
            .collect();
        let blocks = own
            .iter()
            .zip(&names)
            .map(|((t, p), name)| (name.as_str(), t.ty.with_shape(p.size.iter().copied())));
        let (header, order) = safetensors::header(blocks, steps).map_err(io)?;
        let file = std::fs::File::create(new.path().join(file_name(rank))).map_err(io)?;
        let mut out = BufWriter::new(file);
        out.write_all(&header).map_err(io)?;
        for i in order {
            let (t, place) = own[i];
            let bytes = part(&t.name, place)?;
            out.write_all(&bytes).map_err(io)?;
        }
        out.into_inner().map_err(|e| io(e.into_error()))?.sync_all().map_err(io)?;
    }
    let index = serde_json::to_string_pretty(&index(tensors, mesh, steps)).map_err(|e| io(e.into()))?;
    let mut file = std::fs::File::create(new.path().join(INDEX)).map_err(io)?;
    file.write_all((index + "\n").as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    replace(new, &at).map_err(io)
}

fn file_name(rank: usize) -> String {
    format!("rank-{rank:05}.safetensors")
}

fn index(tensors: &[Placed], mesh: &Mesh, steps: Option<u64>) -> Index {
    let block = |(rank, p): &(usize, Place)| IndexBlock {
        file: file_name(*rank),
        start: p.start.to_vec(),
        shape: p.size.to_vec(),
    };
    let tensor = |t: &Placed| IndexTensor {
        dtype: t.ty.dtype.name().to_string(),
        shape: t.ty.shape.to_vec(),
        blocks: t.blocks.iter().map(block).collect(),
    };
    Index {
        version: VERSION,
        steps,
        mesh: mesh.sizes(),
        tensors: tensors.iter().map(|t| (t.name.clone(), tensor(t))).collect(),
    }
}

/// Puts a complete folder in the place of an older one.
fn replace(new: tempfile::TempDir, path: &Path) -> std::io::Result<()> {
    readable(new.path(), 0o755)?;
    // From here on what was written stays, whatever fails.
    let kept = new.keep();
    let old = match path.is_dir() {
        true => {
            let aside = tempfile::Builder::new().prefix(".msc").tempdir_in(folder(path))?;
            std::fs::rename(path, aside.path())?;
            Some(aside)
        }
        false => None,
    };
    match (std::fs::rename(&kept, path), old) {
        (Ok(()), _) => Ok(()),
        (Err(e), old) => {
            // What was there comes back; what was written is left where it is.
            if let Some(old) = old {
                std::fs::rename(old.keep(), path)?;
            }
            Err(e)
        }
    }
}
