//! Runs Ascend C sources on the host, with g++ and the emulator.
//!
//! The emulator's headers are part of this crate. A source is compiled unchanged into a shared object
//! beside a few lines that unpack the arguments, loaded, and executed block by block.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process::Command;

use libloading::Library;
use tempfile::TempDir;
use thiserror::Error;

use crate::tile::{DeviceSpec, Kernel};

/// The emulator's headers: path below the include directory, and text.
const HEADERS: [(&str, &str); 15] = [
    ("kernel_operator.h", include_str!("../../emu/kernel_operator.h")),
    ("ascendc_emu.h", include_str!("../../emu/ascendc_emu.h")),
    ("parts/error.h", include_str!("../../emu/parts/error.h")),
    ("parts/types.h", include_str!("../../emu/parts/types.h")),
    ("parts/machine.h", include_str!("../../emu/parts/machine.h")),
    ("parts/global.h", include_str!("../../emu/parts/global.h")),
    ("parts/tensor.h", include_str!("../../emu/parts/tensor.h")),
    ("parts/sync.h", include_str!("../../emu/parts/sync.h")),
    ("parts/pipe.h", include_str!("../../emu/parts/pipe.h")),
    ("parts/op.h", include_str!("../../emu/parts/op.h")),
    ("parts/move.h", include_str!("../../emu/parts/move.h")),
    ("parts/vector.h", include_str!("../../emu/parts/vector.h")),
    ("parts/cast.h", include_str!("../../emu/parts/cast.h")),
    ("parts/reduce.h", include_str!("../../emu/parts/reduce.h")),
    ("parts/launch.h", include_str!("../../emu/parts/launch.h")),
];

/// Why a source could not be run, or was rejected.
#[derive(Debug, Error)]
pub enum EmulateError {
    /// A file could not be written.
    #[error("E001: cannot write the emulator's files: {0}")]
    Io(#[from] std::io::Error),
    /// The C++ compiler could not be started.
    #[error("E002: cannot start `{compiler}`: {error}; install g++ or set CXX")]
    NoCompiler {
        /// Its name.
        compiler: String,
        /// Why.
        error: std::io::Error,
    },
    /// The source does not compile.
    #[error("E003: the source of `{kernel}` does not compile:\n{messages}")]
    Compile {
        /// Name of the kernel.
        kernel: String,
        /// The compiler's messages.
        messages: String,
    },
    /// The shared object cannot be loaded.
    #[error("E004: cannot load the compiled kernel: {0}")]
    Load(#[from] libloading::Error),
    /// Tensors or scalars do not fit the kernel's parameters.
    #[error("E005: kernel `{kernel}`: {what}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// What does not fit.
        what: String,
    },
    /// The emulator rejected what the kernel did.
    #[error("{message}")]
    Rejected {
        /// Number of the emulator's code (`EMUnn`; see `emu/parts/error.h`).
        code: i32,
        /// `EMUnn kernel, block b: instruction at file:line: …`.
        message: String,
    },
}

/// A compiled source.
#[derive(Debug)]
pub struct Emulated {
    // Unloaded before its directory goes.
    library: Library,
    _directory: TempDir,
    name: String,
    blocks: u32,
    bytes: Vec<u64>,
    scalars: usize,
    usable: u32,
}

type Call = unsafe extern "C" fn(*const *mut u8, *const f32);
type Run = unsafe extern "C" fn(
    kernel: *const std::ffi::c_char,
    call: Call,
    blocks: u32,
    tensor_count: u32,
    tensors: *const *mut u8,
    bytes: *const u64,
    scalars: *const f32,
    usable_ub: u32,
    message: *mut std::ffi::c_char,
    capacity: u64,
) -> std::ffi::c_int;

impl Emulated {
    /// Compiles the source of a kernel.
    ///
    /// # Errors
    /// If the compiler is missing or refuses the source.
    pub fn new(kernel: &Kernel, source: &str, device: &DeviceSpec) -> Result<Emulated, EmulateError> {
        let wrong =
            |what: &str| EmulateError::Arguments { kernel: kernel.name.clone(), what: what.to_owned() };
        let blocks = u32::try_from(kernel.blocks()).map_err(|_| wrong("too many blocks"))?;
        let usable = u32::try_from(device.vector_usable()).map_err(|_| wrong("impossible memory size"))?;
        let size = |p: &crate::tile::Param| u64::try_from(p.elements() * p.dtype.bytes());
        let bytes: Result<Vec<u64>, _> = kernel.params.iter().map(size).collect();
        let bytes = bytes.map_err(|_| wrong("impossible tensor size"))?;
        let directory = tempfile::tempdir()?;
        let library = compile(kernel, source, directory.path())?;
        // SAFETY: the object is the one just compiled; its initialisers are the C++ runtime's.
        let library = unsafe { Library::new(library)? };
        let (name, scalars) = (kernel.name.clone(), kernel.scalars.len());
        Ok(Emulated { library, _directory: directory, name, blocks, bytes, scalars, usable })
    }

    /// Runs all blocks on the tensors' bytes and the scalars, both in the kernel's order.
    ///
    /// # Errors
    /// If the arguments do not fit, or the emulator rejects the kernel; the tensors are then in an
    /// unspecified state.
    pub fn run(&self, tensors: &mut [&mut [u8]], scalars: &[f32]) -> Result<(), EmulateError> {
        let wrong = |what: String| Err(EmulateError::Arguments { kernel: self.name.clone(), what });
        if tensors.len() != self.bytes.len() || scalars.len() != self.scalars {
            let (t, s) = (self.bytes.len(), self.scalars);
            return wrong(format!(
                "takes {t} tensors and {s} scalars, not {} and {}",
                tensors.len(),
                scalars.len()
            ));
        }
        for (n, (tensor, bytes)) in tensors.iter().zip(&self.bytes).enumerate() {
            if tensor.len() as u64 != *bytes {
                return wrong(format!("tensor {n} has {bytes} bytes, not {}", tensor.len()));
            }
        }
        let pointers: Vec<*mut u8> = tensors.iter_mut().map(|t| t.as_mut_ptr()).collect();
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        let mut message = vec![0u8; 2048];
        // SAFETY: both symbols are defined in the object with these types. The emulator keeps accesses
        // inside the tensors, whose sizes were compared above, and the message inside its capacity.
        let code = unsafe {
            let run: libloading::Symbol<'_, Run> = self.library.get(b"ascendc_emu_run\0")?;
            let call: libloading::Symbol<'_, Call> = self.library.get(b"msc_harness_call\0")?;
            run(
                name.as_ptr(),
                *call,
                self.blocks,
                self.bytes.len() as u32,
                pointers.as_ptr(),
                self.bytes.as_ptr(),
                scalars.as_ptr(),
                self.usable,
                message.as_mut_ptr().cast(),
                message.len() as u64,
            )
        };
        if code == 0 {
            return Ok(());
        }
        let end = message.iter().position(|b| *b == 0).unwrap_or(message.len());
        let message = String::from_utf8_lossy(&message[..end]).into_owned();
        Err(EmulateError::Rejected { code, message })
    }
}

fn compile(kernel: &Kernel, source: &str, directory: &Path) -> Result<std::path::PathBuf, EmulateError> {
    fs::create_dir(directory.join("parts"))?;
    for (path, text) in HEADERS {
        fs::write(directory.join(path), text)?;
    }
    fs::write(directory.join("kernel.cpp"), source)?;
    fs::write(directory.join("harness.cpp"), harness(kernel))?;
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let object = directory.join("kernel.so");
    // Symbols must not be shared between kernels loaded side by side (`-fno-gnu-unique`), and the numbers
    // must be those of separate instructions (`-ffp-contract=off`).
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O0", "-shared", "-fPIC", "-fno-gnu-unique", "-ffp-contract=off", "-I"])
        .arg(directory)
        .arg(directory.join("harness.cpp"))
        .arg("-o")
        .arg(&object)
        .output()
        .map_err(|error| EmulateError::NoCompiler { compiler, error })?;
    if output.status.success() {
        return Ok(object);
    }
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(EmulateError::Compile { kernel: kernel.name.clone(), messages })
}

/// Unpacks the arguments for the kernel function.
fn harness(kernel: &Kernel) -> String {
    let tensors = (0..kernel.params.len()).map(|n| format!("tensors[{n}]"));
    let scalars = (0..kernel.scalars.len()).map(|n| format!("scalars[{n}]"));
    let arguments: Vec<String> = tensors.chain(scalars).collect();
    format!(
        "#include \"kernel.cpp\"\n\
         extern \"C\" __attribute__((visibility(\"default\"))) void msc_harness_call(\
         uint8_t *const *tensors, const float *scalars) {{\n  \
         (void)tensors, (void)scalars;\n  {}({});\n}}\n",
        kernel.name,
        arguments.join(", ")
    )
}
