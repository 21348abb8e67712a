//! The page in which watchers tell of hazards, and the bell that wakes the proxy. `abi/hazard.h` is the format.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sidelane_formats::{HAZARD_MAGIC, HAZARD_SERVERS, HAZARD_VERSION, HazardHead, HazardWord, view};
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazards, Server};

const BYTES: usize = 4096;

/// The page and its bell. Watchers and proxy share it.
#[derive(Debug)]
pub struct HazardPage {
    memory: NonNull<u8>,
    file: OwnedFd,
    bell: OwnedFd,
}

// SAFETY: the mapping belongs to this value, holds atomics, and all accesses are atomic.
unsafe impl Send for HazardPage {}
// SAFETY: as above.
unsafe impl Sync for HazardPage {}

impl HazardPage {
    /// A page on which no server has a hazard.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create(c"sidelane-hazards", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
        let memory = unsafe { mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, &file, 0)? };
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let page = Self { memory: NonNull::new(memory.cast()).expect("mmap returns no null pointer"), file, bell };
        page.head().version.store(HAZARD_VERSION, Ordering::Relaxed);
        page.head().servers.store(HAZARD_SERVERS as u32, Ordering::Relaxed);
        page.head().magic.store(HAZARD_MAGIC, Ordering::Release);
        Ok(page)
    }

    fn head(&self) -> &HazardHead {
        // SAFETY: mapped for reading and writing as long as self; all accesses are atomic.
        let heads = unsafe { view::<HazardHead>(self.memory.as_ptr(), size_of::<HazardHead>()) };
        &heads.expect("a page is aligned")[0]
    }

    /// The word of a server.
    pub fn word(&self, server: Server) -> &HazardWord {
        // SAFETY: as in `head`; the words follow it, and the page has room for more of them.
        let words = unsafe {
            let start = self.memory.as_ptr().add(size_of::<HazardHead>());
            view::<HazardWord>(start, HAZARD_SERVERS * size_of::<HazardWord>())
        };
        &words.expect("a page is aligned")[server.index()]
    }

    /// For the one watcher of this server: it has these hazards from now on. Wakes the proxy if that is news.
    pub fn tell(&self, server: Server, hazards: Hazards, now: Nanos) {
        if self.word(server).tell(hazards.bits(), now) {
            // It fails only if the proxy has not looked for 2^64 rings.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// What the watchers of this server told last.
    pub fn hazards(&self, server: Server) -> Hazards {
        Hazards::from_bits(self.word(server).read().hazards)
    }

    /// The bell is heard: it is silent until it rings again.
    pub fn silence(&self) {
        // It fails if it has not rung.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Readable when it has rung.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The memory, for a watcher in another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for HazardPage {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference outlives self.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use sidelane_formats::HazardBit;
    use sidelane_policy::hedge::Hazard;

    use super::*;

    #[test]
    fn what_is_told_is_read_and_rings_once() {
        let page = HazardPage::new().unwrap();
        let gc: Hazards = [Hazard::JvmGc].into_iter().collect();
        page.tell(Server::Second, gc, 100);
        page.tell(Server::Second, gc, 200);
        assert_eq!((page.hazards(Server::First), page.hazards(Server::Second)), (Hazards::NONE, gc));
        let mut rung = [0; 8];
        rustix::io::read(page.bell(), &mut rung).unwrap();
        assert_eq!(u64::from_ne_bytes(rung), 1);
        assert_eq!(page.word(Server::Second).read().since_ns, 100);
    }

    #[test]
    fn numbers_on_the_page_are_those_of_the_policy() {
        let pairs = [
            (HazardBit::JvmGc, Hazard::JvmGc),
            (HazardBit::Safepoint, Hazard::Safepoint),
            (HazardBit::Stopped, Hazard::Stopped),
            (HazardBit::Throttled, Hazard::Throttled),
            (HazardBit::Restart, Hazard::Restart),
        ];
        assert!(pairs.into_iter().all(|(bit, hazard)| bit as u32 == hazard as u32));
    }
}
