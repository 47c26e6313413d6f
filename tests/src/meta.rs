//! Data of a fixture's folder.

use msc_frontends::npz;
use msc_ir::module::Entry;
use msc_ir::{Tensor, TensorType};
use std::path::{Path, PathBuf};

/// The pairs (result, parameter) of state in a fixture's `meta.json`; none without one.
pub fn state_pairs(dir: &Path) -> Vec<(usize, usize)> {
    let text = std::fs::read_to_string(dir.join("meta.json")).unwrap_or_default();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let pair = |p: &serde_json::Value| Some((p.get(0)?.as_u64()? as usize, p.get(1)?.as_u64()? as usize));
    let rows = json.get("state_pairs_out_in").and_then(|v| v.as_array());
    rows.map_or_else(Vec::new, |rows| rows.iter().filter_map(pair).collect())
}

/// Results that become parameters again: donated ones, or, where the file donates nothing, those of `meta.json`.
pub fn carried(entry: &Entry, dir: &Path) -> Vec<(usize, usize)> {
    let donated = entry.params.iter().enumerate().filter_map(|(p, i)| Some((i.alias? as usize, p)));
    let donated: Vec<(usize, usize)> = donated.collect();
    if donated.is_empty() { state_pairs(dir) } else { donated }
}

/// The tensors of an `.npz` in the order of their keys, of the types given.
///
/// # Errors
/// If there are others, as text.
pub fn tensors(path: &Path, types: &[TensorType]) -> Result<Vec<Tensor>, String> {
    let all = npz::read(path).map_err(|e| e.to_string())?;
    if all.len() != types.len() {
        return Err(format!(
            "{}: {} tensors where there should be {}",
            path.display(),
            all.len(),
            types.len()
        ));
    }
    all.values().zip(types).map(|(t, ty)| npz::fit(t, ty).map_err(|e| e.to_string())).collect()
}

/// The folders below `root` that hold all of `files`, in order.
///
/// # Errors
/// If `root` cannot be read.
pub fn folders(root: &Path, files: &[&str]) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    let mut out: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    out.retain(|p| files.iter().all(|f| p.join(f).is_file()));
    out.sort();
    Ok(out)
}

/// Puts `content` into a document, between the comment `<!-- NAME: … -->` and `<!-- end of NAME -->`.
///
/// # Errors
/// If the document has no such place.
pub fn write_between(path: &Path, name: &str, content: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let (open, close) = (format!("<!-- {name}:"), format!("<!-- end of {name} -->"));
    let place = || {
        let start = text.find(&open)?;
        let start = start + text[start..].find("-->")? + 3;
        Some((start, start + text[start..].find(&close)?))
    };
    let Some((start, end)) = place() else {
        return Err(std::io::Error::other(format!("nothing marks the place of `{name}`")));
    };
    std::fs::write(path, format!("{}\n\n{}\n{}", &text[..start], content.trim_end(), &text[end..]))
}
