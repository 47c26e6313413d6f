//! Back end 1: LLVM. Runs tile kernels on the CPU, in the very tiling that the NPU gets.
//!
//! A kernel's results have the same bits on every CPU and for any number of threads: vectors have a fixed
//! number of lanes whatever the machine has, sums keep one partial result per lane, nothing is contracted
//! or reassociated, and no function of a mathematics library is called.
//!
//! Object code is a plain byte string ([`compile_object`]) that can be cached under [`cache_key`] and
//! loaded again ([`CompiledKernel::from_object`]).

mod code;
mod convert;
mod element;
mod group;
mod jit;
mod launch;
mod lower;
mod math;
mod matmul;
mod region;

use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};
use thiserror::Error;

pub use launch::{Arg, CompiledKernel, LaunchError, Scratch};

use crate::tile::Kernel;

/// Why a kernel could not be compiled. None of these is the user's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LlvmError {
    /// LLVM does not support this machine, or refused to generate code.
    #[error("L001: LLVM cannot generate code here: {0}")]
    Target(String),
    /// The object code could not be loaded.
    #[error("L002: object code could not be loaded: {0}")]
    Link(String),
    /// The code generator made a mistake, or the kernel was not verified.
    #[error("L003: code generation failed: {0}")]
    Internal(String),
}

impl From<inkwell::builder::BuilderError> for LlvmError {
    fn from(e: inkwell::builder::BuilderError) -> LlvmError {
        LlvmError::Internal(e.to_string())
    }
}

/// The machine that code is generated for: this one.
struct Host {
    cpu: String,
    features: String,
    triple: String,
}

fn host() -> Result<&'static Host, LlvmError> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        Target::initialize_native(&InitializationConfig::default())?;
        Ok(Host {
            cpu: TargetMachine::get_host_cpu_name().to_string(),
            features: TargetMachine::get_host_cpu_features().to_string(),
            triple: TargetMachine::get_default_triple().as_str().to_string_lossy().into_owned(),
        })
    });
    host.as_ref().map_err(|e| LlvmError::Target(e.clone()))
}

fn machine(host: &Host) -> Result<TargetMachine, LlvmError> {
    let triple = TargetTriple::create(&host.triple);
    let target = Target::from_triple(&triple).map_err(|e| LlvmError::Target(e.to_string()))?;
    target
        .create_target_machine(
            &triple,
            &host.cpu,
            &host.features,
            OptimizationLevel::Aggressive,
            RelocMode::PIC,
            CodeModel::JITDefault,
        )
        .ok_or_else(|| LlvmError::Target(format!("no target machine for {}", host.triple)))
}

/// The kernel as optimised LLVM IR in text form, for reading.
///
/// # Errors
/// See [`LlvmError`].
pub fn llvm_ir(kernel: &Kernel) -> Result<String, LlvmError> {
    let (host, ctx) = (host()?, Context::create());
    let code = lower::lower(&ctx, kernel, (&host.cpu, &host.features))?;
    optimise(&code, &machine(host)?)?;
    Ok(code.module.print_to_string().to_string())
}

/// Compiles a verified kernel to object code for this machine.
///
/// # Errors
/// See [`LlvmError`].
pub fn compile_object(kernel: &Kernel) -> Result<Vec<u8>, LlvmError> {
    object_for(kernel, host()?)
}

fn object_for(kernel: &Kernel, host: &Host) -> Result<Vec<u8>, LlvmError> {
    let ctx = Context::create();
    let machine = machine(host)?;
    let code = lower::lower(&ctx, kernel, (&host.cpu, &host.features))?;
    optimise(&code, &machine)?;
    let object = machine.write_to_memory_buffer(&code.module, FileType::Object);
    Ok(object.map_err(|e| LlvmError::Target(e.to_string()))?.as_slice().to_vec())
}

fn optimise(code: &code::Code<'_>, machine: &TargetMachine) -> Result<(), LlvmError> {
    code.module.set_triple(&machine.get_triple());
    code.module.set_data_layout(&machine.get_target_data().get_data_layout());
    let options = PassBuilderOptions::create();
    options.set_loop_interleaving(true);
    options.set_loop_unrolling(true);
    code.module.run_passes("default<O2>", machine, options).map_err(|e| LlvmError::Internal(e.to_string()))
}

/// Key under which object code of a kernel may be cached: it covers the kernel, this machine's CPU, the
/// LLVM version and the version of this crate.
///
/// # Errors
/// See [`LlvmError`].
pub fn cache_key(kernel: &Kernel) -> Result<String, LlvmError> {
    let host = host()?;
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    let mut hash = blake3::Hasher::new();
    let version = format!("{} llvm {major}.{minor}.{patch}", env!("CARGO_PKG_VERSION"));
    for part in [&version, &host.triple, &host.cpu, &host.features, &format!("{kernel:?}")] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    Ok(hash.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests;
