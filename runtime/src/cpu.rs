//! The CPU device: a plan's tile kernels, compiled for this machine by LLVM.
//!
//! A kernel is launched over its whole grid on the calling thread. Results have the same bits on every CPU.
//!
//! A kernel's payload is the kernel IR as JSON. It is verified again before it is compiled: what was checked
//! stays within its tensors, whoever wrote the plan. Object code is kept in a cache folder under a key that
//! covers the kernel, the machine's CPU and LLVM's version; it is never part of a plan.

use crate::exec::{KernelArg, KernelLauncher, LaunchContext};
use crate::plan::Kernel;
use msc_codegen::llvm::{CompiledKernel, LlvmError, Scratch, cache_key, compile_object};
use msc_codegen::tile::{self, DeviceSpec};
use msc_ir::program::KernelId;
use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a plan's kernels cannot be used.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The payload is no kernel, or one that breaks a rule of the kernel IR: a bug in msc, or a plan of another
    /// version.
    #[error("MSC-K0001: kernel {name}: {message}")]
    Payload {
        /// Name of the kernel.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// LLVM failed.
    #[error("MSC-K0002: kernel {name}: {error}")]
    Compile {
        /// Name of the kernel.
        name: String,
        /// What it said.
        error: LlvmError,
    },
}

/// The user's folder for object code: `$XDG_CACHE_HOME/msc` or `~/.cache/msc`.
pub fn default_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|p| p.join("msc"))
}

/// A plan's kernels, compiled for this machine.
pub struct TileKernels {
    kernels: Vec<Bound>,
}

impl std::fmt::Debug for TileKernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TileKernels({})", self.kernels.len())
    }
}

/// A kernel and where its arguments are among those of an instruction.
struct Bound {
    compiled: CompiledKernel,
    params: Vec<Param>,
    /// Number of tensors that are read; scalars follow them, then the tensors that are written.
    loads: usize,
    scalars: usize,
    stores: usize,
}

struct Param {
    name: String,
    bytes: usize,
    load: Option<usize>,
    store: Option<usize>,
}

impl TileKernels {
    /// Compiles kernels, or takes their object code from `cache`. A cache that cannot be read or written is as
    /// good as none.
    ///
    /// # Errors
    /// See [`KernelError`].
    pub fn compile(kernels: &[Kernel], cache: Option<&Path>) -> Result<TileKernels, KernelError> {
        let kernels = kernels.iter().map(|k| bind(k, cache)).collect::<Result<_, _>>()?;
        Ok(TileKernels { kernels })
    }
}

/// The rules of the kernel IR without limits of on-chip memory: a CPU has none, and the compiler has checked the
/// kernel against its device.
fn any_device() -> DeviceSpec {
    let much = 1 << 40;
    DeviceSpec {
        name: "cpu".into(),
        vector_bytes: much,
        vector_reserved: 0,
        operand_bytes: much,
        left_bytes: much,
        right_bytes: much,
        accumulator_bytes: much,
        ..DeviceSpec::ascend_910b3()
    }
}

fn bind(k: &Kernel, cache: Option<&Path>) -> Result<Bound, KernelError> {
    let payload = |message: String| KernelError::Payload { name: k.name.clone(), message };
    let llvm = |error| KernelError::Compile { name: k.name.clone(), error };
    let tile: tile::Kernel = serde_json::from_slice(&k.payload).map_err(|e| payload(e.to_string()))?;
    tile::verify(&tile, &any_device()).map_err(|e| payload(e.to_string()))?;
    let compiled = load(&tile, cache).map_err(llvm)?;
    let (mut loads, mut stores) = (0, 0);
    let next = |counter: &mut usize, wanted: bool| {
        wanted.then(|| {
            *counter += 1;
            *counter - 1
        })
    };
    let params = tile.params.iter().map(|p| Param {
        name: p.name.clone(),
        // Verified kernels have sizes that fit.
        bytes: usize::try_from(p.elements() * p.dtype.bytes()).unwrap_or(0),
        load: next(&mut loads, p.role.readable()),
        store: next(&mut stores, p.role.writable()),
    });
    let params = params.collect();
    Ok(Bound { compiled, params, loads, scalars: tile.scalars.len(), stores })
}

/// Object code from the cache, or fresh and then cached.
fn load(tile: &tile::Kernel, cache: Option<&Path>) -> Result<CompiledKernel, LlvmError> {
    let Some(folder) = cache else { return CompiledKernel::compile(tile) };
    let path = folder.join(format!("{}.o", cache_key(tile)?));
    if let Some(object) = cached(&path)
        && let Ok(kernel) = CompiledKernel::from_object(tile, &object)
    {
        return Ok(kernel);
    }
    let object = compile_object(tile)?;
    if let Err(error) = store(folder, &path, &object) {
        tracing::debug!(path = %path.display(), %error, "object code is not cached");
    }
    CompiledKernel::from_object(tile, &object)
}

/// A cached file's object code, if its hash, which precedes it, is right.
fn cached(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let object = bytes.split_off(bytes.len().min(32));
    (blake3::hash(&object).as_bytes()[..] == bytes[..]).then_some(object)
}

/// Writes a cached file whole or not at all: several runs may do so at once.
fn store(folder: &Path, path: &Path, object: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(blake3::hash(object).as_bytes())?;
    file.write_all(object)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

thread_local! {
    /// The on-chip tiles of the kernels that this thread runs.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Bound {
    /// The memory of each parameter, and the scalars.
    fn arguments(&self, args: &[KernelArg]) -> Result<(Vec<*mut u8>, Vec<f32>), String> {
        let reads = self.loads + self.scalars;
        if args.len() != reads + self.stores {
            let Bound { loads, scalars, stores, .. } = self;
            return Err(format!("takes {loads} + {scalars} + {stores} arguments, {} given", args.len()));
        }
        let mut pointers = Vec::with_capacity(self.params.len());
        for p in &self.params {
            let (load, store) = (p.load.map(|i| &args[i]), p.store.map(|i| &args[reads + i]));
            let Some(arg) = store.or(load) else { continue };
            if arg.bytes != p.bytes {
                return Err(format!("tensor {} has {} bytes, {} given", p.name, p.bytes, arg.bytes));
            }
            if load.is_some_and(|l| l.data != arg.data) {
                return Err(format!("tensor {} is updated in place, but read elsewhere", p.name));
            }
            pointers.push(arg.data);
        }
        for (i, p) in self.params.iter().enumerate().filter(|(_, p)| p.store.is_some() && p.bytes > 0) {
            let shared = pointers.iter().enumerate().find(|(j, q)| *j != i && **q == pointers[i]);
            if let Some((j, _)) = shared {
                let other = &self.params[j].name;
                return Err(format!("tensors {} and {other} have one memory", p.name));
            }
        }
        let mut scalars = Vec::with_capacity(self.scalars);
        for (n, arg) in args[self.loads..reads].iter().enumerate() {
            if arg.bytes != 4 {
                return Err(format!("scalar {n} has 4 bytes, {} given", arg.bytes));
            }
            // SAFETY: valid for reading four bytes, as the launcher's caller promises.
            scalars.push(unsafe { arg.data.cast::<f32>().read_unaligned() });
        }
        Ok((pointers, scalars))
    }
}

impl KernelLauncher for TileKernels {
    unsafe fn launch(&self, kernel: KernelId, args: &[KernelArg], _: LaunchContext) -> Result<(), String> {
        let k = self.kernels.get(kernel.0 as usize).ok_or("the kernel is not compiled")?;
        let (params, scalars) = k.arguments(args)?;
        let blocks = 0..k.compiled.blocks();
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: counts and sizes are checked above, arguments are valid and apart from each other, as the
            // caller promises, and aligned to 512 bytes.
            unsafe { k.compiled.launch(&params, &scalars, blocks, scratch) }
        });
        Ok(())
    }
}
