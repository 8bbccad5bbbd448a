//! MPI: the functions and constants of an MPI library, opened at run time. It may have any of three binary interfaces: that of
//! the standard (MPI 5), Open MPI's or MPICH's, which differ in a dozen constants. Never decides what is sent.
//!
//! One thread makes all calls. Handles are as wide as a pointer here, as in the standard and in Open MPI; handles of MPICH are
//! the lower half of a pointer.
#![allow(unsafe_code)]

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut as fixed};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};
use zero_plan::Bytes;

use crate::launch;
use zero_core::device::Failure;

/// Names the library that is to be opened.
pub(super) const LIBRARY_VARIABLE: &str = "ZERO_MPI";

pub(super) type Handle = *mut c_void;

/// Room for a status, which has 20 to 32 bytes.
type Status = [u64; 8];

/// Room for a text of MPI, in bytes: more than `MPI_MAX_LIBRARY_VERSION_STRING` of any library.
const TEXT_BYTES: usize = 8192;

/// Where MPI keeps the memory that it shares between ranks of a host. Our own shared memory lies in no file system.
const SHARED_FOLDER: &str = "/dev/shm";

/// The least room that MPICH takes there for each rank: 5.0.2 takes 1057344 bytes, and 4.0.2 of Debian more than 4 MiB.
const SHARED_BYTES: usize = 1 << 20;

macro_rules! calls {
    ($($field:ident $name:literal ($($argument:ty),*);)*) => {
        struct Calls {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// The library in which the functions lie.
            _library: Library,
        }

        impl Calls {
            fn of(path: &str, library: Library) -> Result<Self, Failure> {
                Ok(Self {
                    $($field: {
                        type Function = unsafe extern "C" fn($($argument),*) -> c_int;
                        // SAFETY: the type is that of the function of this name in the standard, with handles as wide as
                        // pointers: what is narrower takes the lower half of a register.
                        let found = unsafe { library.get::<Function>(concat!($name, "\0").as_bytes()) };
                        *found.map_err(|_| lacks(path, $name))?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

calls! {
    init "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    rank "MPI_Comm_rank" (Handle, *mut c_int);
    size "MPI_Comm_size" (Handle, *mut c_int);
    version "MPI_Get_library_version" (*mut c_char, *mut c_int);
    handle_errors "MPI_Comm_set_errhandler" (Handle, Handle);
    error_text "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    send "MPI_Isend" (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    send_answered "MPI_Issend" (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    receive "MPI_Irecv" (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    broadcast "MPI_Ibcast" (*mut c_void, c_int, Handle, c_int, Handle, *mut Handle);
    gather "MPI_Iallgather" (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle);
    test "MPI_Test" (*mut Handle, *mut c_int, *mut Status);
    abort "MPI_Abort" (Handle, c_int);
    finalize "MPI_Finalize" ();
}

/// The constants that differ between binary interfaces.
struct Abi {
    name: &'static str,
    world: Handle,
    byte: Handle,
    errors_return: Handle,
    /// `MPI_THREAD_FUNNELED`: only the thread that has called `MPI_Init_thread` makes calls.
    funneled: c_int,
}

/// An MPI library, by which this process has joined a world.
pub(super) struct Mpi {
    calls: Calls,
    abi: Abi,
    /// The file it was opened from.
    pub path: String,
    /// Its version, in its own words.
    pub version: String,
    pub rank: usize,
    pub size: usize,
}

/// A function that begins to send.
type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;

/// A request that has begun and may not have ended.
pub(super) struct MpiRequest(Handle);

impl Mpi {
    /// Opens a library and joins the world that its launcher has made. Waits until all its ranks have arrived, `here`
    /// of them on this host.
    ///
    /// # Errors
    /// Z0450 if there is no library, Z0451 if it lacks a function or a call fails, Z0331 if this host has no room for it.
    pub fn join(here: usize) -> Result<Self, Failure> {
        let (path, library) = open()?;
        let abi = Abi::of(&path, &library)?;
        let calls = Calls::of(&path, library)?;
        let mut mpi = Self { calls, abi, version: String::new(), path, rank: 0, size: 0 };
        // This may be called before `MPI_Init`.
        mpi.version = text(|to, len| {
            // SAFETY: there is room for the longest text.
            unsafe { (mpi.calls.version)(to, len) }
        });
        if mpi.version.contains("MPICH") {
            require_room(SHARED_FOLDER, here)?;
        }
        let (mut level, mut rank, mut size) = (0, 0, 0);
        let (Calls { init, handle_errors, .. }, Abi { world, errors_return, funneled, .. }) = (&mpi.calls, &mpi.abi);
        // SAFETY: as the standard has them; no other thread calls MPI, now or later.
        unsafe {
            mpi.require("MPI_Init_thread", init(null_mut(), null_mut(), *funneled, &mut level))?;
            mpi.require("MPI_Comm_set_errhandler", handle_errors(*world, *errors_return))?;
            mpi.require("MPI_Comm_rank", (mpi.calls.rank)(*world, &mut rank))?;
            mpi.require("MPI_Comm_size", (mpi.calls.size)(*world, &mut size))?;
        }
        if level < *funneled {
            return Err(failure("MPI_Init_thread", "threads are not supported", &mpi.path));
        }
        (mpi.rank, mpi.size) = (rank as usize, size as usize);
        Ok(mpi)
    }

    /// Its name and version, in a few words.
    pub fn words(&self) -> String {
        let first = self.version.split([',', '\n']).next().unwrap_or_default();
        let words = first.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{} ({words}; interface: {})", self.path, self.abi.name)
    }

    fn require(&self, call: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let why = text(|to, len| {
            // SAFETY: there is room for the longest text.
            unsafe { (self.calls.error_text)(code, to, len) }
        });
        Err(failure(call, &why, &self.path))
    }

    /// Begins to send at most as many bytes as a `c_int` can count.
    ///
    /// # Safety
    /// `from` stays as it is until the request has come to its end.
    pub unsafe fn send(&self, from: *const u8, bytes: usize, to: usize, tag: c_int) -> Result<MpiRequest, Failure> {
        // SAFETY: by the caller's promise.
        unsafe { self.begin("MPI_Isend", self.calls.send, from, bytes, to, tag) }
    }

    /// Like [`Mpi::send`], but ends only once the other rank receives.
    ///
    /// # Safety
    /// As for [`Mpi::send`].
    pub unsafe fn send_answered(
        &self,
        from: *const u8,
        bytes: usize,
        to: usize,
        tag: c_int,
    ) -> Result<MpiRequest, Failure> {
        // SAFETY: by the caller's promise.
        unsafe { self.begin("MPI_Issend", self.calls.send_answered, from, bytes, to, tag) }
    }

    /// # Safety
    /// As for [`Mpi::send`].
    unsafe fn begin(
        &self,
        name: &str,
        send: Send,
        from: *const u8,
        bytes: usize,
        to: usize,
        tag: c_int,
    ) -> Result<MpiRequest, Failure> {
        let mut request = null_mut();
        let Abi { world, byte, .. } = self.abi;
        // SAFETY: by the caller's promise.
        let code = unsafe { send(from.cast(), bytes as c_int, byte, to as c_int, tag, world, &mut request) };
        self.require(name, code)?;
        Ok(MpiRequest(request))
    }

    /// Begins to receive.
    ///
    /// # Safety
    /// Nobody reads or writes `to` until the request has come to its end.
    pub unsafe fn receive(&self, to: *mut u8, bytes: usize, from: usize, tag: c_int) -> Result<MpiRequest, Failure> {
        let mut request = null_mut();
        let Abi { world, byte, .. } = self.abi;
        // SAFETY: by the caller's promise.
        let code =
            unsafe { (self.calls.receive)(to.cast(), bytes as c_int, byte, from as c_int, tag, world, &mut request) };
        self.require("MPI_Irecv", code)?;
        Ok(MpiRequest(request))
    }

    /// Begins to gather as many bytes of each rank as `own` has, into `all`.
    ///
    /// # Safety
    /// Both stay as they are until the request has come to its end, and `all` has room for as many bytes of each rank.
    pub unsafe fn gather(&self, own: &[u8], all: &mut [u8]) -> Result<MpiRequest, Failure> {
        let mut request = null_mut();
        let Abi { world, byte, .. } = self.abi;
        let (len, gather) = (own.len() as c_int, self.calls.gather);
        // SAFETY: by the caller's promise.
        let code =
            unsafe { gather(own.as_ptr().cast(), len, byte, all.as_mut_ptr().cast(), len, byte, world, &mut request) };
        self.require("MPI_Iallgather", code)?;
        Ok(MpiRequest(request))
    }

    /// Begins to broadcast bytes of rank 0. Every rank passes the same number of bytes.
    ///
    /// # Safety
    /// They stay where they are until the request has come to its end; on ranks other than 0, nobody uses them before that.
    pub unsafe fn broadcast(&self, all: &mut [u8]) -> Result<MpiRequest, Failure> {
        let mut request = null_mut();
        let Abi { world, byte, .. } = self.abi;
        // SAFETY: by the caller's promise.
        let code = unsafe {
            (self.calls.broadcast)(all.as_mut_ptr().cast(), all.len() as c_int, byte, 0, world, &mut request)
        };
        self.require("MPI_Ibcast", code)?;
        Ok(MpiRequest(request))
    }

    /// Whether a request has ended. MPI makes progress on requests in such calls.
    pub fn has_ended(&self, request: &mut MpiRequest) -> Result<bool, Failure> {
        let (mut flag, mut status) = (0, Status::default());
        // SAFETY: a request of this library that has not come to its end, and room for a status.
        let code = unsafe { (self.calls.test)(&mut request.0, &mut flag, &mut status) };
        self.require("MPI_Test", code)?;
        Ok(flag != 0)
    }

    /// Ends all ranks of the world, this one among them, as far as the launcher reaches them.
    pub fn abort(&self, code: u8) {
        // SAFETY: as the standard has it.
        unsafe { (self.calls.abort)(self.abi.world, code.into()) };
    }

    /// Waits for all ranks.
    pub fn meet(&self) {
        let mut all = vec![0; self.size];
        // SAFETY: both live until the request has come to its end, or this process has.
        if let Ok(mut request) = unsafe { self.gather(&[0], &mut all) } {
            while matches!(self.has_ended(&mut request), Ok(false)) {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
    }

    /// Leaves the world, once all ranks do.
    pub fn leave(self) {
        // SAFETY: no request is left; nothing follows.
        unsafe { (self.calls.finalize)() };
        // Its threads and handlers may outlive that call.
        std::mem::forget(self.calls);
    }
}

impl Abi {
    fn of(path: &str, library: &Library) -> Result<Self, Failure> {
        // SAFETY: a function of the standard that may be called before `MPI_Init`, of two numbers that it writes.
        let standard = unsafe {
            let version: Result<Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>, _> =
                library.get(b"MPI_Abi_get_version\0");
            version.is_ok_and(|version| {
                let (mut major, mut minor) = (-1, -1);
                version(&mut major, &mut minor) == 0 && major == 1
            })
        };
        // The numbers of the standard's interface are in its section 20.3, those of MPICH in its mpi.h.
        if standard {
            let (world, byte, errors_return) = (fixed(0x101), fixed(0x247), fixed(0x143));
            return Ok(Self { name: "standard", world, byte, errors_return, funneled: 1024 });
        }
        // SAFETY: only the addresses are taken, of structs that live as long as the library.
        let address = |name: &str| unsafe {
            let name = format!("{name}\0");
            library.get::<*mut c_void>(name.as_bytes()).ok().map(|symbol| symbol.into_raw())
        };
        if let Some(world) = address("ompi_mpi_comm_world") {
            let own = |name| address(name).ok_or_else(|| lacks(path, name));
            let (byte, errors_return) = (own("ompi_mpi_byte")?, own("ompi_mpi_errors_return")?);
            return Ok(Self { name: "Open MPI", world, byte, errors_return, funneled: 1 });
        }
        let (world, byte, errors_return) = (fixed(0x4400_0000), fixed(0x4c00_010d), fixed(0x5400_0001));
        Ok(Self { name: "MPICH", world, byte, errors_return, funneled: 1 })
    }
}

/// The named library or, if none is named, the first that this machine has; the launcher's own are tried first.
fn open() -> Result<(String, Library), Failure> {
    let named = std::env::var(LIBRARY_VARIABLE).ok();
    let names = named.map_or_else(|| usual(&|name| std::env::var_os(name).is_some()), |name| vec![name]);
    let mut reasons = Vec::new();
    for name in &names {
        // SAFETY: an MPI library, which may run code as it is loaded. Its plugins look up its names in the global
        // scope.
        match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return Ok((name.clone(), library)),
            Err(error) => {
                let why = error.source().map_or(error.to_string(), ToString::to_string);
                reasons.push(format!("{name}: {why}"));
            }
        }
    }
    Err(Failure {
        code: "Z0450",
        what: format!("no MPI library can be opened on {}: {}", launch::host(), reasons.join("; ")),
        help: format!(
            "install Open MPI or MPICH on every host, the one whose mpirun or mpiexec starts the ranks, or name its library, \
             {LIBRARY_VARIABLE}=/path/to/libmpi.so.40"
        ),
    })
}

/// Names of libraries to try, first the library of the launcher whose variables are set: no other would see its ranks.
fn usual(is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
    let open_mpi = ["libmpi.so.40", "libmpi.so.60", "libmpi.so.80"].as_slice();
    let mpich = ["libmpi.so.12", "libmpich.so.12"].as_slice();
    let standard = ["libmpi_abi.so.1", "libmpi_abi.so.0"].as_slice();
    let is_mpich = is_set("PMI_RANK") && !is_set("OMPI_COMM_WORLD_RANK") && !is_set("PMIX_NAMESPACE");
    let order = if is_mpich { [standard, mpich, open_mpi] } else { [open_mpi, standard, mpich] };
    order.concat().into_iter().map(str::to_owned).collect()
}

/// Checks that a folder has room for the memory that MPICH lets ranks of a host share. MPICH does not check: it writes,
/// and a signal ends the rank.
fn require_room(folder: &str, ranks: usize) -> Result<(), Failure> {
    // If there is no such folder, MPI uses another one.
    let Ok(system) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let (room, least) = (system.f_bavail.saturating_mul(system.f_frsize), ranks.saturating_mul(SHARED_BYTES));
    // A tmpfs without a limit says that it has no blocks.
    if system.f_blocks == 0 || room >= least as u64 {
        return Ok(());
    }
    Err(Failure {
        code: "Z0331",
        what: format!(
            "{folder} on {} has room for {}, expected at least {}: MPICH keeps the shared memory of {ranks} ranks of a host there",
            launch::host(),
            Bytes(room as usize),
            Bytes(least)
        ),
        help: format!(
            "remove files of killed runs from {folder}, or make it larger: `mount -o remount,size=1g {folder}`, in \
             a container `--shm-size 1g`"
        ),
    })
}

fn lacks(path: &str, name: &str) -> Failure {
    Failure {
        code: "Z0451",
        what: format!("{path} on {} has no `{name}`", launch::host()),
        help: format!(
            "name an MPI library of version 3 or later: Open MPI 4 to 6, or MPICH 4 or 5, by {LIBRARY_VARIABLE}"
        ),
    }
}

fn failure(call: &str, why: &str, path: &str) -> Failure {
    Failure {
        code: "Z0451",
        what: format!("`{call}` failed on {}: {}", launch::host(), why.trim()),
        help: format!("check the output of {path} and its launcher, and whether all hosts and their network are up"),
    }
}

fn text(write: impl FnOnce(*mut c_char, &mut c_int) -> c_int) -> String {
    let (mut bytes, mut len) = ([0 as c_char; TEXT_BYTES], 0);
    write(bytes.as_mut_ptr(), &mut len);
    bytes[TEXT_BYTES - 1] = 0;
    // SAFETY: a byte of 0 ends it.
    unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_launcher_comes_first() {
        let of = |set: &[&str]| usual(&|name| set.contains(&name))[0].clone();
        assert_eq!(of(&["OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"]), "libmpi.so.40");
        assert_eq!(of(&["PMI_RANK"]), "libmpi_abi.so.1");
        assert_eq!(of(&["PMI_RANK", "PMIX_NAMESPACE"]), "libmpi.so.40");
        assert_eq!(of(&[]), "libmpi.so.40");
    }

    #[test]
    fn z0331_a_host_without_room_for_what_ranks_share_is_named() {
        let folder = std::env::temp_dir();
        let folder = folder.to_str().expect("a path");
        assert_eq!(require_room(folder, 0), Ok(()));
        assert_eq!(require_room("/nowhere", usize::MAX), Ok(()));
        let failure = require_room(folder, usize::MAX).unwrap_err();
        assert_eq!(failure.code, "Z0331");
        assert!(failure.what.starts_with(&format!("{folder} on {} has room for ", launch::host())), "{}", failure.what);
    }
}
