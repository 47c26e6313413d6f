//! VHLO: the versioned copy of StableHLO that portable artifacts hold, and the dialects that may be mixed in.
//!
//! Artifacts of every version from 0.9 on are upgraded to the current StableHLO as they are read: [`table`] names
//! the ops with their properties in stored order, [`attrs`] and [`types`] decode the dialect's entries, [`sdy`]
//! Shardy's, and [`canonical`] gives an op the attributes it has in StableHLO's generic form. Names carry the
//! version (`add_v1`), so the version of the artifact is needed for messages alone.

pub mod attrs;
pub mod canonical;
mod grouped;
pub mod sdy;
pub mod table;
pub mod types;

use crate::error::Code;
use crate::mlir_bytecode::container::Container;
use crate::mlir_bytecode::fault::{Fault, Result};
use crate::mlir_bytecode::tables::{OpName, Tables};

/// The newest VHLO version whose ops, attributes and types are all known.
pub const NEWEST: (u32, u32) = (1, 22);

/// The first VHLO version.
pub const OLDEST: (u32, u32) = (0, 9);

/// How to get a file that can be read.
const EXPORT_HELP: &str = "export a portable artifact: in JAX, \
    `jax.export.export(jax.jit(step))(*args).serialize()`; from a module, \
    `stablehlo.serialize_portable_artifact` or `stablehlo-translate --serialize --target=1.0.0`; or give the text \
    (`jax.jit(step).lower(*args).as_text()`)";

/// Refuses bytecode that is not a portable artifact. Bytecode of the `stablehlo` dialect itself has the same
/// container, but its contents change with every build of the library, and readers mis-decode it silently.
///
/// # Errors
/// [`Code::UnsupportedForm`], saying how to export a portable artifact.
pub fn check_portable(file: &Container<'_>, tables: &Tables<'_>) -> Result<()> {
    let foreign = |o: &&OpName| !matches!(o.dialect(), "vhlo" | "builtin" | "sdy" | "chlo");
    let Some(first) = tables.op_names.iter().find(foreign) else {
        return Ok(());
    };
    let op = tables.op_names.iter().find(|o| o.dialect() == "stablehlo").unwrap_or(first);
    let found = format!(
        "the file (written by `{}`) is MLIR bytecode with ops of the dialect `{}` (`{}`), not a StableHLO portable \
         artifact",
        file.producer,
        op.dialect(),
        op.full
    );
    let help = match op.dialect() {
        "stablehlo" => EXPORT_HELP,
        other => crate::foreign::bytecode_help(other).unwrap_or(EXPORT_HELP),
    };
    Err(Fault::new(Code::UnsupportedForm, 0, found).help(help))
}

/// What to say about the version of an artifact that holds something unknown.
pub fn version_note(version: Option<(u32, u32)>) -> String {
    let (major, minor) = NEWEST;
    match version {
        Some(v) if v > NEWEST => format!(
            "the artifact is of VHLO {}.{}; the newest known is {major}.{minor}: export for that version \
             (`stablehlo.serialize_portable_artifact(module, \"{major}.{minor}.0\")`)",
            v.0, v.1
        ),
        Some(v) => format!("the artifact says VHLO {}.{}, in which there is no such thing", v.0, v.1),
        None => format!(
            "the file does not name a VHLO version; known are {}.{} to {major}.{minor}",
            OLDEST.0, OLDEST.1
        ),
    }
}
