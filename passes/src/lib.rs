//! `msc-passes`: everything between import and code generation.
//!
//! Stages in order: [`simplify`], [`template`], [`recognise`], [`partition`], [`fuse`],
//! [`schedule`], [`memory`]. Each pass's
//! module doc says what holds before and after it; `docs/add-a-pass.md` says how to add one.

pub mod cost;
pub mod error;
pub mod fuse;
pub mod memory;
pub mod partition;
pub mod recognise;
pub mod schedule;
pub mod simplify;
pub mod template;

pub use error::{PassError, Result};
