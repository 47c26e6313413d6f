//! Shared memory of the processes of one machine: a file in memory that each of them maps.
//!
//! Processes find a file by its name. Who is the last to come removes the name, so that a run leaves nothing
//! behind, however it ends.

use memmap2::{MmapOptions, MmapRaw};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// How long a process may hold the lock under which processes come together; it takes microseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Where names are: memory on Linux.
pub(in crate::comm) fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// Mapped shared memory.
pub(in crate::comm) struct Segment {
    map: MmapRaw,
}

impl Segment {
    /// The whole memory as words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading and writing, aligned to pages, as long as `self` lives; atomics may be shared
        // between threads and processes.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / 8) }
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }
}

/// An opened file that no one else is changing: others that come wait until this is dropped.
pub(in crate::comm) struct Locked {
    file: File,
    path: PathBuf,
}

impl Locked {
    /// Opens the file of a name, or makes an empty one, and locks it.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::TimedOut`] if another process holds the lock for too long.
    pub fn open(path: &Path) -> io::Result<Locked> {
        let since = Instant::now();
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)?;
            // SAFETY: an open file; the call touches no memory.
            while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                let e = io::Error::last_os_error();
                if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    return Err(e);
                }
                if since.elapsed() > LOCK_PATIENCE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            // The name may have been removed, or given to another file, before the lock was ours.
            let (ours, named) = (file.metadata()?, std::fs::symlink_metadata(path));
            if named.is_ok_and(|n| (n.dev(), n.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Locked { file, path: path.to_path_buf() });
            }
        }
    }

    /// Bytes of the file.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Maps the file, made as long as `bytes` if it is empty: then all bytes are zero.
    ///
    /// # Errors
    /// What the system says, above all that there is not as much memory: pages are taken here, and not found
    /// missing later.
    pub fn map(&self, bytes: usize) -> io::Result<Segment> {
        if self.len()? == 0 {
            let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: an open file; the call touches no memory of ours.
            let e = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, length) };
            if e != 0 {
                let _ = self.file.set_len(0);
                return Err(io::Error::from_raw_os_error(e));
            }
        }
        if self.len()? < bytes as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Segment { map: MmapOptions::new().len(bytes).map_raw(&self.file)? })
    }

    /// Removes the name; who has mapped the file keeps it.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Locked {
    /// A mapping keeps the opened file, and with it a lock that is not given back.
    fn drop(&mut self) {
        // SAFETY: an open file; the call touches no memory.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}
