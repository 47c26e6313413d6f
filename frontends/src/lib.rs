//! `msc-frontends`: readers of what users export, into the one IR.
//!
//! StableHLO comes as MLIR text or as MLIR bytecode. Either reader produces the [raw form](raw), and the
//! [importer](import) turns that into a [`msc_ir::Module`]. Every op keeps its place in the user's file, and the
//! user's own names, through to messages and reports.

pub mod error;
pub mod import;
pub mod mlir_bytecode;
pub mod raw;
pub mod vhlo;

pub use error::{Code, FrontendError, Result};
pub use import::{Annotations, Imported};
