//! Open MPI's library, opened while the program runs.
//!
//! It is opened by name instead of being linked, so a build needs no MPI, and the same program runs with and without.
//! The names and types here are those of Open MPI's interface for binaries, which versions 1.7 to 5 share: handles
//! are pointers to objects that the library exports. Other libraries have other handles; they are told apart by these
//! names and refused.

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{c_int, c_void};

/// A communicator, type, operation, request or error handler.
pub(super) type Handle = *mut c_void;

/// `MPI_THREAD_SERIALIZED`: any thread may call, one at a time.
const SERIALIZED: c_int = 2;

/// `MPI_ANY_SOURCE`.
pub(super) const ANY_SOURCE: c_int = -1;

/// Larger than any version's `MPI_Status`, whose first word is the source.
pub(super) type Status = [u64; 8];

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($t:ty),*);)*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($t),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            /// The library is Open MPI's.
            unsafe fn of(library: &Library) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the type is that of the function in Open MPI's header.
                        let symbol = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *symbol.map_err(|e| e.to_string())?
                    },)*
                })
            }
        }
    };
}

functions! {
    init_thread: "MPI_Init_thread"(*mut c_int, *mut c_void, c_int, *mut c_int);
    finalize: "MPI_Finalize"();
    comm_rank: "MPI_Comm_rank"(Handle, *mut c_int);
    comm_size: "MPI_Comm_size"(Handle, *mut c_int);
    comm_dup: "MPI_Comm_dup"(Handle, *mut Handle);
    comm_set_errhandler: "MPI_Comm_set_errhandler"(Handle, Handle);
    comm_get_attr: "MPI_Comm_get_attr"(Handle, c_int, *mut c_void, *mut c_int);
    isend: "MPI_Isend"(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    irecv: "MPI_Irecv"(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    test: "MPI_Test"(*mut Handle, *mut c_int, *mut Status);
    get_count: "MPI_Get_count"(*const Status, Handle, *mut c_int);
    cancel: "MPI_Cancel"(*mut Handle);
    iprobe: "MPI_Iprobe"(c_int, c_int, Handle, *mut c_int, *mut Status);
    recv: "MPI_Recv"(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Status);
    bcast: "MPI_Bcast"(*mut c_void, c_int, Handle, c_int, Handle);
    barrier: "MPI_Barrier"(Handle);
    allreduce: "MPI_Allreduce"(*const c_void, *mut c_void, c_int, Handle, Handle, Handle);
    allgather: "MPI_Allgather"(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle);
}

/// The attribute `MPI_TAG_UB`, as Open MPI numbers it, and what the standard promises of it.
const TAG_UB: c_int = 0;
const LEAST_TAG_UB: c_int = 32767;

/// The opened library, for good: it cannot be closed safely.
pub(super) struct Mpi {
    pub f: Functions,
    pub world: Handle,
    pub byte: Handle,
    pub float: Handle,
    pub sum: Handle,
}

// SAFETY: handles are addresses of objects that live as long as the program; whoever calls takes turns.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

/// An error for any status but success.
pub(super) fn checked(what: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what} failed with {status}")) }
}

impl Mpi {
    /// Opens the library and starts MPI, from the main thread. Errors of its calls come back as such.
    ///
    /// # Errors
    /// No library, another one than Open MPI's, or one that threads may not use.
    pub fn start() -> Result<Mpi, String> {
        let mut tried = Vec::new();
        let library = ["libmpi.so.40", "libmpi.so"].into_iter().find_map(|name| {
            // SAFETY: loading Open MPI runs its initialisers, which touch nothing of ours. Its plug-ins need its names
            // to be global.
            match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(l) => Some(l),
                Err(e) => {
                    tried.push(e.to_string());
                    None
                }
            }
        });
        let Some(library) = library else { return Err(format!("no library: {}", tried.join("; "))) };
        let object = |name: &str| -> Result<Handle, String> {
            // SAFETY: only the address is taken.
            let symbol = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
            let symbol = symbol.map_err(|e| format!("the library is not Open MPI's: {e}"))?;
            Ok(symbol.into_raw())
        };
        let (world, byte, float) =
            (object("ompi_mpi_comm_world\0")?, object("ompi_mpi_byte\0")?, object("ompi_mpi_float\0")?);
        let (sum, errors_return) = (object("ompi_mpi_op_sum\0")?, object("ompi_mpi_errors_return\0")?);
        // SAFETY: it has Open MPI's objects.
        let f = unsafe { Functions::of(&library) }?;
        std::mem::forget(library);
        let mut provided = 0;
        // SAFETY: arguments as the standard says; null stands for no command line.
        unsafe {
            let status =
                (f.init_thread)(std::ptr::null_mut(), std::ptr::null_mut(), SERIALIZED, &mut provided);
            checked("MPI_Init_thread", status)?;
            if provided < SERIALIZED {
                return Err("the library is built without threads".into());
            }
            checked("MPI_Comm_set_errhandler", (f.comm_set_errhandler)(world, errors_return))?;
        }
        Ok(Mpi { f, world, byte, float, sum })
    }

    /// Another communicator of the same ranks, whose messages are apart; it keeps the error handler.
    pub fn duplicate(&self) -> Result<Handle, String> {
        let mut new = std::ptr::null_mut();
        // SAFETY: a valid communicator and a place for another.
        checked("MPI_Comm_dup", unsafe { (self.f.comm_dup)(self.world, &mut new) })?;
        Ok(new)
    }

    /// The largest tag that a message may have.
    pub fn largest_tag(&self) -> Result<c_int, String> {
        let (mut at, mut found): (*mut c_int, c_int) = (std::ptr::null_mut(), 0);
        // SAFETY: a valid communicator and places for the answers; the attribute is a number that lives as long as MPI.
        unsafe {
            let status = (self.f.comm_get_attr)(self.world, TAG_UB, (&raw mut at).cast(), &mut found);
            checked("MPI_Comm_get_attr", status)?;
            Ok(if found != 0 && !at.is_null() { (*at).max(LEAST_TAG_UB) } else { LEAST_TAG_UB })
        }
    }

    /// Rank and number of ranks.
    pub fn place(&self) -> Result<(usize, usize), String> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: a valid communicator and places for the numbers.
        unsafe {
            checked("MPI_Comm_rank", (self.f.comm_rank)(self.world, &mut rank))?;
            checked("MPI_Comm_size", (self.f.comm_size)(self.world, &mut ranks))?;
        }
        Ok((rank as usize, ranks as usize))
    }
}
