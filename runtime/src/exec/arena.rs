//! A rank's memory.

use msc_ir::program::ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed memory at an address that is a multiple of [`ALIGNMENT`]. It hands out pointers only: which threads
/// may touch which bytes when is the program's business.
pub(super) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the arena itself is not changed after creation; its users order their accesses.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Memory of `bytes` bytes, or `None` if the system does not give it.
    pub fn new(bytes: u64) -> Option<Arena> {
        let size = usize::try_from(bytes).ok()?.max(1);
        let layout = Layout::from_size_align(size, ALIGNMENT as usize).ok()?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Arena { base, layout })
    }

    /// The byte at an offset.
    ///
    /// # Panics
    /// If `at + bytes` lies outside: checked plans do not ask for it.
    pub fn at(&self, at: u64, bytes: usize) -> *mut u8 {
        let inside = usize::try_from(at).ok().and_then(|a| a.checked_add(bytes));
        assert!(inside.is_some_and(|end| end <= self.layout.size()), "an address of the arena");
        // SAFETY: inside the allocation.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
