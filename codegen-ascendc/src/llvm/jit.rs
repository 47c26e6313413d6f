//! Object code to callable code: LLVM's ORC JIT through its C interface.

use std::ffi::{CStr, CString};

use llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcCreateLLJITBuilder, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddObjectFile,
    LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITLookup, LLVMOrcLLJITRef,
};

use super::LlvmError;

/// A kernel's entry function: `params`, `scalars`, `scratch`, first block, last block (exclusive).
pub(super) type Entry = unsafe extern "C" fn(*const *mut u8, *const f32, *mut u8, i64, i64);

/// Loaded object code. It stays loaded as long as this value lives.
pub(super) struct Loaded {
    jit: LLVMOrcLLJITRef,
    pub entry: Entry,
}

// SAFETY: after construction nothing is asked of the JIT but to be disposed of, once, at the end; the
// code it holds is immutable and keeps no state.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Links `object` and finds `symbol`.
    pub fn new(object: &[u8], symbol: &str) -> Result<Loaded, LlvmError> {
        let name = CString::new(symbol).map_err(|e| LlvmError::Internal(e.to_string()))?;
        // SAFETY: plain calls of LLVM's C interface in the order it documents. Ownership: the builder
        // passes to the JIT, the buffer (a copy of `object`) passes to the JIT, error values pass to
        // `check`. On failure after creation the JIT is disposed of by `Partial`.
        unsafe {
            let mut jit = std::ptr::null_mut();
            check(LLVMOrcCreateLLJIT(&mut jit, LLVMOrcCreateLLJITBuilder()))?;
            let jit = Partial(jit);
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
                object.as_ptr().cast(),
                object.len(),
                c"kernel".as_ptr(),
            );
            check(LLVMOrcLLJITAddObjectFile(jit.0, LLVMOrcLLJITGetMainJITDylib(jit.0), buffer))?;
            let mut address = 0;
            check(LLVMOrcLLJITLookup(jit.0, &mut address, name.as_ptr()))?;
            let address = usize::try_from(address).map_err(|e| LlvmError::Internal(e.to_string()))?;
            if address == 0 {
                return Err(LlvmError::Internal(format!("`{symbol}` has no address")));
            }
            // SAFETY: the symbol is the function that `lower::entry` emitted with this signature.
            let entry = std::mem::transmute::<usize, Entry>(address);
            Ok(Loaded { jit: jit.keep(), entry })
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        dispose(self.jit);
    }
}

/// A JIT that is not fully set up.
struct Partial(LLVMOrcLLJITRef);

impl Partial {
    fn keep(self) -> LLVMOrcLLJITRef {
        let jit = self.0;
        std::mem::forget(self);
        jit
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        dispose(self.0);
    }
}

fn dispose(jit: LLVMOrcLLJITRef) {
    // SAFETY: called once per JIT, by its owner. An error here leaves nothing to be done; it is consumed.
    unsafe {
        let _ = check(LLVMOrcDisposeLLJIT(jit));
    }
}

/// Consumes an LLVM error value.
///
/// # Safety
/// `error` is null or an error value that no one else owns.
unsafe fn check(error: LLVMErrorRef) -> Result<(), LlvmError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the message is a C string owned by us until it is disposed of.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(LlvmError::Link(text))
    }
}
