//! The library behind the `msc` command: the pipeline from a user's file to a plan, and the running of plans.

pub mod error;
pub mod kernel_check;
pub mod kernels;
pub mod options;
pub mod pipeline;
pub mod report;
pub mod roles;
pub mod run;
pub mod show;
pub mod stages;

pub use error::{Error, Result};
