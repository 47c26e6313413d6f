//! The library behind the `msc` command: the pipeline from a user's file to a plan, the running of plans, and what
//! recognition did: explained and verified.

pub mod config;
pub mod error;
pub mod examine;
pub mod explain;
pub mod kernel_check;
pub mod kernels;
pub mod options;
pub mod pipeline;
pub mod report;
pub mod reshard;
pub mod roles;
pub mod run;
pub mod show;
pub mod spread;
pub mod stages;
pub mod verify;

pub use error::{Error, Result};
