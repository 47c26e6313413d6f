//! `msc-runtime`: runs plans.
//!
//! - [`plan`]: the file format of compiled steps;
//! - [`exec`]: the executor;
//! - [`layout`]: how global tensors lie over ranks;
//! - [`cpu`]: the CPU device: kernels compiled through LLVM;
//! - [`data`]: tensors from and to files;
//! - [`comm`]: communication between ranks;
//! - [`check`]: comparison of outputs with a reference.

pub mod check;
pub mod comm;
#[cfg(feature = "cpu")]
pub mod cpu;
pub mod data;
pub mod exec;
pub mod layout;
pub mod plan;
