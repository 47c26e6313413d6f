//! The CPU device: kernels of a plan, compiled for this machine.
//!
//! A plan carries kernels in the form of the kernel IR. Here each is verified again, compiled through LLVM, and
//! launched over its whole grid on the calling thread. Results have the same bits on every CPU.

use crate::exec::{KernelArg, KernelLauncher, LaunchContext};
use crate::plan::Plan;
use msc_codegen::llvm::{CompiledKernel, LlvmError, Scratch};
use msc_codegen::tile::{self, DeviceSpec};
use msc_ir::program::KernelId;
use std::cell::RefCell;
use thiserror::Error;

/// Why a plan's kernels could not be made runnable.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The plan's kernel is not one: a damaged plan, or one of another msc.
    #[error("MSC-K0001: kernel {name}: {message}")]
    Payload {
        /// The kernel.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// LLVM refused.
    #[error("MSC-K0002: kernel {name}: {error}")]
    Compile {
        /// The kernel.
        name: String,
        /// Why.
        error: LlvmError,
    },
}

/// One kernel, and for each of its parameters the position in the instruction's arguments.
struct Runnable {
    kernel: CompiledKernel,
    argument: Vec<usize>,
    bytes: Vec<usize>,
}

/// All kernels of a plan, runnable.
pub struct TileKernels {
    kernels: Vec<Runnable>,
}

impl std::fmt::Debug for TileKernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TileKernels({})", self.kernels.len())
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

impl TileKernels {
    /// Compiles the kernels of a plan.
    ///
    /// # Errors
    /// [`KernelError`] naming the kernel.
    pub fn compile(plan: &Plan) -> Result<TileKernels, KernelError> {
        // What a kernel may use on chip was decided when the plan was made; here any amount will do.
        let device = DeviceSpec { vector_bytes: i64::MAX / 4, ..DeviceSpec::ascend_910b3() };
        let kernels = plan.kernels.iter().map(|k| {
            let payload = |message: String| KernelError::Payload { name: k.name.clone(), message };
            let tile: tile::Kernel =
                serde_json::from_slice(&k.payload).map_err(|e| payload(e.to_string()))?;
            tile::verify(&tile, &device).map_err(|e| payload(e.to_string()))?;
            let kernel = CompiledKernel::compile(&tile)
                .map_err(|error| KernelError::Compile { name: k.name.clone(), error })?;
            let reads = tile.params.iter().filter(|p| !p.role.writable()).count();
            let (mut read, mut written) = (0, reads);
            let argument = tile
                .params
                .iter()
                .map(|p| {
                    let next = if p.role.writable() { &mut written } else { &mut read };
                    *next += 1;
                    *next - 1
                })
                .collect();
            let bytes =
                tile.params.iter().map(|p| (p.elements() * p.dtype.bytes()).max(0) as usize).collect();
            Ok(Runnable { kernel, argument, bytes })
        });
        Ok(TileKernels { kernels: kernels.collect::<Result<_, _>>()? })
    }
}

impl KernelLauncher for TileKernels {
    unsafe fn launch(&self, kernel: KernelId, args: &[KernelArg], _: LaunchContext) -> Result<(), String> {
        let k =
            self.kernels.get(kernel.0 as usize).ok_or_else(|| format!("there is no kernel {}", kernel.0))?;
        if args.len() != k.argument.len() {
            return Err(format!(
                "{} takes {} tensors, has {}",
                k.kernel.name(),
                k.argument.len(),
                args.len()
            ));
        }
        let mut params = Vec::with_capacity(args.len());
        for (&a, &bytes) in k.argument.iter().zip(&k.bytes) {
            if args[a].bytes != bytes {
                return Err(format!(
                    "{}: a tensor has {} bytes, should have {bytes}",
                    k.kernel.name(),
                    args[a].bytes
                ));
            }
            params.push(args[a].data);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the arguments have the kernel's sizes, are aligned to 512 bytes, and by this function's
            // contract valid and without overlap; the kernel passed the verifier and takes no scalars.
            unsafe { k.kernel.launch(&params, &[], 0..k.kernel.blocks(), scratch) }
        });
        Ok(())
    }
}
