//! `msc-passes`: everything between import and code generation.
//!
//! Stages in order: [`simplify`], [`template`], recognise, partition, fuse, schedule, memory.

pub mod simplify;
pub mod template;
