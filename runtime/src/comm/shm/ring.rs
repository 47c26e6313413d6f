//! A stream of bytes from one process to another, through shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a ring's two counters, on cache lines of their own.
pub(super) const COUNTERS: usize = 128;

/// One writer, one reader. Counters only grow; their difference is what has been written and not yet read.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    written: &'a AtomicU64,
    read: &'a AtomicU64,
    data: *mut u8,
    capacity: usize,
}

impl<'a> Ring<'a> {
    /// # Safety
    /// `counters` are the first words of [`COUNTERS`] bytes, zero at first, and `data` is valid for reading and
    /// writing `capacity` bytes, for `'a`; one thread writes and one reads at a time.
    pub unsafe fn new(counters: &'a [AtomicU64], data: *mut u8, capacity: usize) -> Ring<'a> {
        Ring { written: &counters[0], read: &counters[COUNTERS / 16], data, capacity }
    }

    /// Copies from the bytes what there is room for; how many.
    pub fn push(&self, bytes: &[u8]) -> usize {
        let (w, r) = (self.written.load(Ordering::Relaxed), self.read.load(Ordering::Acquire));
        let n = bytes.len().min(self.capacity - (w - r) as usize);
        let at = (w % self.capacity as u64) as usize;
        let first = n.min(self.capacity - at);
        // SAFETY: inside the ring's memory, in the part that the reader does not touch until `written` says so.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data.add(at), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), self.data, n - first);
        }
        self.written.store(w + n as u64, Ordering::Release);
        n
    }

    /// Copies to `into` what there is; how many bytes.
    pub fn pop(&self, into: &mut [u8]) -> usize {
        let (w, r) = (self.written.load(Ordering::Acquire), self.read.load(Ordering::Relaxed));
        let n = into.len().min((w - r) as usize);
        let at = (r % self.capacity as u64) as usize;
        let first = n.min(self.capacity - at);
        // SAFETY: inside the ring's memory, in the part that the writer does not touch until `read` says so.
        unsafe {
            std::ptr::copy_nonoverlapping(self.data.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(self.data, into.as_mut_ptr().add(first), n - first);
        }
        self.read.store(r + n as u64, Ordering::Release);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        const CAPACITY: usize = 37;
        let counters: Vec<AtomicU64> = (0..COUNTERS / 8).map(|_| AtomicU64::new(0)).collect();
        let memory = vec![0u8; CAPACITY].into_boxed_slice();
        let data = Box::into_raw(memory) as *mut u8;
        // SAFETY: as long as the threads below.
        let ring = || unsafe { Ring::new(&counters, data, CAPACITY) };
        assert_eq!(ring().pop(&mut [0; 9]), 0);
        assert_eq!(ring().push(&[7; 50]), CAPACITY);
        assert_eq!(ring().push(&[7; 50]), 0);
        assert_eq!(ring().pop(&mut [0; 50]), CAPACITY);
        let total = 20_000;
        let byte = |n: usize| (n * 31 + n / 256) as u8;
        struct Shared<'a>(Ring<'a>);
        // SAFETY: the test has one writer and one reader.
        unsafe impl Send for Shared<'_> {}
        let (w, r) = (Shared(ring()), Shared(ring()));
        std::thread::scope(|s| {
            s.spawn(move || {
                let w = w;
                let bytes: Vec<u8> = (0..total).map(byte).collect();
                let (mut at, mut size) = (0, 0);
                while at < total {
                    size = size % 61 + 1;
                    at += w.0.push(&bytes[at..total.min(at + size)]);
                    std::thread::yield_now();
                }
            });
            let (mut at, mut size) = (0, 0);
            while at < total {
                size = size % 53 + 1;
                let mut into = vec![0; size.min(total - at)];
                let n = r.0.pop(&mut into);
                assert!(into[..n].iter().enumerate().all(|(i, &b)| b == byte(at + i)), "at {at}");
                at += n;
                std::thread::yield_now();
            }
        });
        // SAFETY: made by `into_raw` of a boxed slice of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, CAPACITY)) });
    }
}
