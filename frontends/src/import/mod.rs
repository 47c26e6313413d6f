//! The importer: raw form → [`msc_ir::Module`].

mod annotations;

pub use annotations::{Annotations, MeshDecl, ShardingHint, Site};

use crate::error::Result;
use crate::raw::RawModule;

/// What a reader returns.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program, at global shapes.
    pub module: msc_ir::Module,
    /// What the source says about sharding.
    pub annotations: Annotations,
}

/// Imports a raw module: every function becomes a graph, `main` (or the only public function) the entry.
///
/// # Errors
/// An error with the op's place for every op, attribute or type that msc does not hold, and where a type in the
/// source is not the inferred one.
pub fn import(raw: &RawModule<'_>) -> Result<Imported> {
    let _ = raw;
    Err(crate::FrontendError::new(crate::Code::Internal, "the importer is not there yet"))
}
