//! Reference losses.

use crate::error::{Error, Result};
use std::path::Path;

/// Reads `values[step][output]` from a JSON file.
pub(super) fn losses(path: &Path) -> Result<Vec<Vec<f64>>> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::Io { path: path.to_path_buf(), error })?;
    let malformed = |e: String| Error::Usage(format!("{}: {e}", path.display()));
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    let rows =
        json.get("values").and_then(|v| v.as_array()).ok_or_else(|| malformed("no array `values`".into()))?;
    let row =
        |r: &serde_json::Value| -> Option<Vec<f64>> { r.as_array()?.iter().map(|x| x.as_f64()).collect() };
    rows.iter()
        .map(|r| row(r).ok_or_else(|| malformed("`values` is not a list of lists of numbers".into())))
        .collect()
}
