//! What the executor needs of compiled kernels and libraries.

use msc_ir::Op;
use msc_ir::program::KernelId;

/// The memory of one argument: a tensor's bytes, row-major.
#[derive(Clone, Copy, Debug)]
pub struct KernelArg {
    /// First byte; aligned to 512 bytes.
    pub data: *mut u8,
    /// Number of bytes.
    pub bytes: usize,
    /// Whether the kernel may write it.
    pub written: bool,
}

/// Who launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchContext {
    /// The rank.
    pub rank: usize,
    /// The step, from 0.
    pub step: usize,
}

/// Kernels of a plan in runnable form, and libraries. Shared by all ranks; calls come from many threads.
pub trait KernelLauncher: Send + Sync {
    /// Runs a kernel over its whole grid and returns when it is complete. Arguments are what the instruction
    /// reads, then what it writes; a tensor that is updated in place is in both.
    ///
    /// # Errors
    /// What went wrong, for the user.
    ///
    /// # Safety
    /// Each argument is valid for reading, and for writing where it says so, as long as the call lasts; no other
    /// thread writes any of it, or reads what is written. Two arguments have the same memory or none in common.
    unsafe fn launch(&self, kernel: KernelId, args: &[KernelArg], cx: LaunchContext) -> Result<(), String>;

    /// Calls a library for an op, or says that it has none; the op is then interpreted.
    ///
    /// # Errors
    /// What went wrong, for the user.
    ///
    /// # Safety
    /// As [`KernelLauncher::launch`].
    unsafe fn library(
        &self,
        name: &str,
        op: &Op,
        args: &[KernelArg],
        cx: LaunchContext,
    ) -> Option<Result<(), String>> {
        let _ = (name, op, args, cx);
        None
    }
}

/// For plans without kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKernels;

impl KernelLauncher for NoKernels {
    unsafe fn launch(&self, kernel: KernelId, _: &[KernelArg], _: LaunchContext) -> Result<(), String> {
        Err(format!("kernel {} is not compiled: this msc has no kernel compiler", kernel.0))
    }
}
