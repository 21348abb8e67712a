//! Shared memory in which watchers publish the hazards of servers, and an eventfd that wakes the proxy. `abi/hazard.h`
//! defines the format.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use sidelane_formats::{HAZARD_MAGIC, HAZARD_SERVERS, HAZARD_VERSION, HazardHead, HazardWord};
use sidelane_host::eventfd::EventFd;
use sidelane_host::shared_mapping::SharedMapping;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazards, SERVERS_MAX, Server};

const BYTES: usize = 4096;
const _: () = assert!(HAZARD_SERVERS == SERVERS_MAX, "the format has a word for each server");

/// Board with the hazards of all servers, shared by their watchers and the proxy.
#[derive(Debug)]
pub struct HazardBoard {
    memory: SharedMapping<HazardWord>,
    file: OwnedFd,
    /// Eventfd that is notified after each change.
    pub changed: EventFd,
}

impl HazardBoard {
    /// Creates a board on which no server has a hazard.
    pub fn new() -> io::Result<Self> {
        let (memory, file) = SharedMapping::in_memory(c"sidelane-hazards", BYTES / size_of::<HazardWord>())?;
        let board = Self { memory, file, changed: EventFd::new()? };
        board.head().version.store(HAZARD_VERSION, Ordering::Relaxed);
        board.head().servers.store(HAZARD_SERVERS as u32, Ordering::Relaxed);
        board.head().magic.store(HAZARD_MAGIC, Ordering::Release);
        Ok(board)
    }

    fn head(&self) -> &HazardHead {
        &self.memory.items_at(0, 1)[0]
    }

    /// Returns the word of shared memory that holds the hazards of a server.
    pub fn hazard_word(&self, server: Server) -> &HazardWord {
        &self.memory.items_at(size_of::<HazardHead>(), HAZARD_SERVERS)[server.index()]
    }

    /// Publishes the present hazards of a server, and wakes the proxy if they have changed. Only the watcher of this
    /// server may call this function.
    pub fn publish(&self, server: Server, hazards: Hazards, now: Nanos) {
        if self.hazard_word(server).store_hazards(hazards.bits(), now) {
            self.changed.notify();
        }
    }

    /// Returns the hazards of a server that were published last.
    pub fn hazards(&self, server: Server) -> Hazards {
        Hazards::from_bits(self.hazard_word(server).read().hazards)
    }

    /// Returns the file of the memory, for a watcher in another process.
    pub fn memory_file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_formats::HazardBit;
    use sidelane_policy::hedge::Hazard;

    use super::*;

    #[test]
    fn published_hazard_is_read_and_notifies_once() {
        let board = HazardBoard::new().unwrap();
        let gc: Hazards = [Hazard::JvmGc].into_iter().collect();
        board.publish(Server::ALL[1], gc, 100);
        board.publish(Server::ALL[1], gc, 200);
        assert_eq!((board.hazards(Server::FIRST), board.hazards(Server::ALL[1])), (Hazards::NONE, gc));
        assert!(board.changed.clear() && !board.changed.clear());
        assert_eq!(board.hazard_word(Server::ALL[1]).read().since_ns, 100);
    }

    #[test]
    fn hazard_bits_equal_the_hazard_numbers_of_the_policy() {
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
