//! Compiled kernels and their launch.

use std::ops::Range;

use thiserror::Error;

use super::jit::Loaded;
use super::lower::{ALIGN, scratch_layout};
use super::{LlvmError, compile_object};
use crate::tile::{DType, Kernel, Role};

/// A kernel ready to run on this machine. It can be shared between threads.
pub struct CompiledKernel {
    name: String,
    params: Vec<ParamLayout>,
    scalars: usize,
    blocks: u32,
    scratch_bytes: usize,
    loaded: Loaded,
}

struct ParamLayout {
    name: String,
    dtype: DType,
    bytes: usize,
    role: Role,
}

/// The memory of one tensor at a launch, row-major in the machine's byte order.
pub enum Arg<'a> {
    /// A tensor that is only read.
    In(&'a [u8]),
    /// A tensor that is written.
    Out(&'a mut [u8]),
}

/// Arguments that do not fit a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// Wrong number of tensors or scalars.
    #[error("L101: kernel `{kernel}` takes {wanted} {what}, {found} given")]
    Count {
        /// Name of the kernel.
        kernel: String,
        /// "tensors" or "scalars".
        what: &'static str,
        /// Number the kernel takes.
        wanted: usize,
        /// Number given.
        found: usize,
    },
    /// A tensor of the wrong size.
    #[error("L102: kernel `{kernel}`: tensor `{param}` has {wanted} bytes, {found} given")]
    Size {
        /// Name of the kernel.
        kernel: String,
        /// Name of the tensor.
        param: String,
        /// Bytes of the tensor.
        wanted: usize,
        /// Bytes given.
        found: usize,
    },
    /// Memory not aligned to the element size.
    #[error("L103: kernel `{kernel}`: tensor `{param}` is not aligned to its {dtype} elements")]
    Alignment {
        /// Name of the kernel.
        kernel: String,
        /// Name of the tensor.
        param: String,
        /// Its element type.
        dtype: DType,
    },
    /// A written tensor was given as read-only memory.
    #[error("L104: kernel `{kernel}` writes tensor `{param}`, which was given for reading")]
    ReadOnly {
        /// Name of the kernel.
        kernel: String,
        /// Name of the tensor.
        param: String,
    },
    /// Blocks beyond the grid.
    #[error("L105: kernel `{kernel}` has {blocks} blocks, {start}..{end} asked for")]
    Blocks {
        /// Name of the kernel.
        kernel: String,
        /// Number of blocks.
        blocks: u32,
        /// First block asked for.
        start: u32,
        /// End of the blocks asked for.
        end: u32,
    },
}

/// Memory that one thread's on-chip tiles lie in. It grows to the largest kernel that used it.
#[derive(Default)]
pub struct Scratch(Vec<Line>);

/// One vector's worth of memory; gives the scratch its alignment.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its address and size are used")] [u8; ALIGN as usize]);

impl Scratch {
    /// Memory for kernels of at most `bytes` (see [`CompiledKernel::scratch_bytes`]).
    pub fn new(bytes: usize) -> Scratch {
        let mut scratch = Scratch::default();
        scratch.at_least(bytes);
        scratch
    }

    fn at_least(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; ALIGN as usize]));
        }
        self.0.as_mut_ptr().cast()
    }
}

impl CompiledKernel {
    /// Compiles and loads a kernel that [`verify`](crate::tile::verify) accepted.
    ///
    /// # Errors
    /// See [`LlvmError`].
    pub fn compile(kernel: &Kernel) -> Result<CompiledKernel, LlvmError> {
        CompiledKernel::from_object(kernel, &compile_object(kernel)?)
    }

    /// Loads object code that [`compile_object`] made from the same kernel on the same machine.
    ///
    /// # Errors
    /// [`LlvmError::Link`] if it is not object code, or of another kernel name.
    pub fn from_object(kernel: &Kernel, object: &[u8]) -> Result<CompiledKernel, LlvmError> {
        super::host()?;
        let loaded = Loaded::new(object, &kernel.name)?;
        let size = |n: i64| usize::try_from(n).map_err(|e| LlvmError::Internal(e.to_string()));
        let mut params = Vec::new();
        for p in &kernel.params {
            let bytes = size(p.elements() * p.dtype.bytes())?;
            params.push(ParamLayout { name: p.name.clone(), dtype: p.dtype, bytes, role: p.role });
        }
        Ok(CompiledKernel {
            name: kernel.name.clone(),
            params,
            scalars: kernel.scalars.len(),
            blocks: u32::try_from(kernel.blocks()).map_err(|e| LlvmError::Internal(e.to_string()))?,
            scratch_bytes: size(scratch_layout(kernel).1)?,
            loaded,
        })
    }

    /// Name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes of scratch memory that a launching thread needs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Runs some blocks on this thread, without checks.
    ///
    /// Allocates nothing if `scratch` is large enough. Different blocks may run on different threads at
    /// once, each thread with its own scratch; the launch is complete when all blocks have run.
    ///
    /// # Safety
    /// `params` are the kernel's tensors in order: each points to the tensor's bytes, aligned to its
    /// elements, valid for reading and, if written, for writing, and no two of them overlap. `scalars`
    /// has the kernel's number of scalars. `blocks` lies within `0..self.blocks()`. No other thread
    /// touches written tensors meanwhile, except by running other blocks of this launch.
    pub unsafe fn launch(
        &self,
        params: &[*mut u8],
        scalars: &[f32],
        blocks: Range<u32>,
        scratch: &mut Scratch,
    ) {
        let memory = scratch.at_least(self.scratch_bytes);
        let (first, last) = (i64::from(blocks.start), i64::from(blocks.end));
        // SAFETY: by this function's contract, and because a verified kernel stays within its tensors
        // and the scratch memory has the size of its layout.
        unsafe { (self.loaded.entry)(params.as_ptr(), scalars.as_ptr(), memory, first, last) }
    }

    /// Runs all blocks on `threads` threads (at least one, at most one per block). Results do not depend
    /// on their number.
    ///
    /// # Errors
    /// If the arguments do not fit the kernel; nothing has run then.
    pub fn run(&self, args: &mut [Arg<'_>], scalars: &[f32], threads: usize) -> Result<(), LaunchError> {
        let params = self.check(args, scalars)?;
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).clamp(1, self.blocks.max(1));
        let part = |n: u32| {
            let at = |n: u32| (u64::from(self.blocks) * u64::from(n) / u64::from(threads)) as u32;
            at(n)..at(n + 1)
        };
        let shared = Pointers(params);
        std::thread::scope(|scope| {
            for n in 1..threads {
                let shared = &shared;
                scope.spawn(move || {
                    let mut scratch = Scratch::new(self.scratch_bytes);
                    // SAFETY: checked above; slices cannot overlap a mutable one.
                    unsafe { self.launch(&shared.0, scalars, part(n), &mut scratch) }
                });
            }
            let mut scratch = Scratch::new(self.scratch_bytes);
            // SAFETY: as above.
            unsafe { self.launch(&shared.0, scalars, part(0), &mut scratch) }
        });
        Ok(())
    }

    fn check(&self, args: &mut [Arg<'_>], scalars: &[f32]) -> Result<Vec<*mut u8>, LaunchError> {
        let kernel = || self.name.clone();
        let count = |what, wanted, found| LaunchError::Count { kernel: kernel(), what, wanted, found };
        if args.len() != self.params.len() {
            return Err(count("tensors", self.params.len(), args.len()));
        }
        if scalars.len() != self.scalars {
            return Err(count("scalars", self.scalars, scalars.len()));
        }
        let mut pointers = Vec::new();
        for (arg, p) in args.iter_mut().zip(&self.params) {
            let (pointer, found) = match arg {
                Arg::In(_) if p.role.writable() => {
                    return Err(LaunchError::ReadOnly { kernel: kernel(), param: p.name.clone() });
                }
                Arg::In(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                Arg::Out(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            };
            if found != p.bytes {
                let (param, wanted) = (p.name.clone(), p.bytes);
                return Err(LaunchError::Size { kernel: kernel(), param, wanted, found });
            }
            if pointer.addr() % usize::try_from(p.dtype.bytes()).unwrap_or(1) != 0 {
                let param = p.name.clone();
                return Err(LaunchError::Alignment { kernel: kernel(), param, dtype: p.dtype });
            }
            pointers.push(pointer);
        }
        Ok(pointers)
    }
}

struct Pointers(Vec<*mut u8>);

// SAFETY: the pointers come from slices that the launching call holds until all threads have joined;
// threads write disjoint parts, because blocks of a verified kernel do.
unsafe impl Sync for Pointers {}
