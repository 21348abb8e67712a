//! A file mapped for reading that stays readable even if the file shrinks.
//!
//! A process that maps a file gets SIGBUS when another program truncates the file. So a target could kill an observer
//! that runs as root. Here a handler replaces each lost page by a page of zeros, and the mapping reports it.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use sidelane_host::shared_mapping::SharedMapping;

/// Maximum number of mappings at a time. The observation of a target needs one for each of its libraries and
/// each of their debug files.
const GUARDS: usize = 4096;

/// Record of a mapping for the SIGBUS handler. A `start` of 0 means free, of 1 in use but not ready yet.
struct Guard {
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

static ALL: [Guard; GUARDS] =
    [const { Guard { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), lost: AtomicBool::new(false) } }; GUARDS];

impl Guard {
    fn register(start: usize, bytes: usize) -> Option<&'static Self> {
        let take =
            |guard: &&Guard| guard.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let guard = ALL.iter().find(take)?;
        guard.end.store(start + bytes, Ordering::Relaxed);
        guard.lost.store(false, Ordering::Relaxed);
        guard.start.store(start, Ordering::Release);
        Some(guard)
    }

    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start > TAKEN && (start..self.end.load(Ordering::Relaxed)).contains(&address)
    }
}

/// Part of a file, mapped shared and read-only.
pub struct Mapping {
    memory: SharedMapping<AtomicU8>,
    guard: &'static Guard,
}

impl Mapping {
    /// Maps `bytes` of `file` from `offset` on, which must be a multiple of the page size.
    pub fn new(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        HANDLER.get_or_init(install_handler).as_ref().map_err(|code| io::Error::from_raw_os_error(*code))?;
        let memory = SharedMapping::<AtomicU8>::read_only(file, offset, bytes)?;
        let guard = Guard::register(memory.as_ptr().addr(), bytes);
        let guard = guard.ok_or_else(|| {
            io::Error::other(format!("cannot map another file: the limit is {GUARDS}; observe fewer signals"))
        })?;
        Ok(Self { memory, guard })
    }

    /// Maps the whole of `file`.
    pub fn whole_file(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::new(file, 0, bytes)
    }

    /// Returns the bytes of the mapping. They may change during the read if another process writes the file.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped with this length for the life of `self`, and readable whatever happens to the
        // file.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.len()) }
    }

    /// Returns the address of the byte at `offset`; `None` if it is outside the mapping.
    pub fn address_at(&self, offset: usize) -> Option<NonNull<u8>> {
        (offset < self.memory.len()).then(|| NonNull::from(&self.memory[offset..]).cast())
    }

    /// Returns whether pages were read that the file no longer has. These pages read as zeros.
    pub fn has_lost_pages(&self) -> bool {
        self.guard.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The guard is cleared before the memory is unmapped: as soon as the addresses are free, another mapping may
        // get them.
        self.guard.start.store(FREE, Ordering::Release);
    }
}

/// Action for SIGBUS before this handler was installed, or the error number if the handler could not be installed.
static HANDLER: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

fn install_handler() -> Result<libc::sigaction, i32> {
    PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
    let last_error = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    let mut before = MaybeUninit::uninit();
    // SAFETY: an all-zero sigaction is a valid one; its fields are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both arguments point to sigactions; the handler is async-signal-safe.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &action, before.as_mut_ptr()) };
    // SAFETY: the successful call has filled in `before`.
    if done == 0 { Ok(unsafe { before.assume_init() }) } else { Err(last_error()) }
}

/// Replaces a lost page of a guarded mapping by zeros. Any other fault goes to the earlier handler.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() }.addr();
    let guard = ALL.iter().find(|guard| guard.contains(address));
    match guard {
        Some(guard) if replace_page_with_zeros(address) => guard.lost.store(true, Ordering::Relaxed),
        _ => forward_signal(signal, info, context),
    }
}

fn replace_page_with_zeros(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    let page = ptr::without_provenance_mut::<c_void>(address & !(page_bytes - 1));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the call replaces one page of a guarded mapping that could not be read, and that this process only reads.
    // A plain system call is allowed in a handler.
    unsafe { libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) == page }
}

fn forward_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = HANDLER.get().and_then(|handler| handler.as_ref().ok());
    match before {
        Some(before) if before.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: this address was installed as a handler; a handler without SA_SIGINFO ignores the further
            // arguments.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(before.sa_sigaction) };
            handler(signal, info, context);
        }
        // The instruction faults again when this handler returns, and ends the process as without the handler. SAFETY:
        // plain system call; the default action was valid before this handler was installed.
        _ => _ = unsafe { libc::signal(signal, libc::SIG_DFL) },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn shrunken_file_reads_as_zeros_and_is_reported_as_lost() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let mapping = Mapping::whole_file(&file).unwrap();
        assert_eq!((mapping.as_bytes()[9000], mapping.has_lost_pages()), (7, false));
        file.set_len(100).unwrap();
        assert_eq!((mapping.as_bytes()[9000], mapping.has_lost_pages()), (0, true));
        assert_eq!((mapping.as_bytes()[99], mapping.as_bytes()[5000]), (7, 0), "each page for itself");
    }

    #[test]
    fn dropped_mapping_frees_its_guard() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 16]).unwrap();
        for _ in 0..2 * GUARDS {
            assert_eq!(Mapping::whole_file(&file).unwrap().as_bytes(), [1; 16]);
        }
    }

    #[test]
    fn an_empty_file_cannot_be_mapped() {
        assert!(Mapping::whole_file(&tempfile::tempfile().unwrap()).is_err());
    }
}
