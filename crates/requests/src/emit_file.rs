//! Reader of the shared file in which a process emits its requests. The file is found among the open files of the
//! process and mapped. Reading never makes the process wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use sidelane_formats::{
    EMIT_EVENTS, EMIT_MAGIC, EMIT_NAME, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitThread, EmittedEvent,
};

use super::emit_owners::Owners;
use sidelane_host::procfs::pid_in_own_namespace;
use sidelane_host::sealed;
use sidelane_host::shared_mapping::SharedMapping;

const RING_BYTES: usize = size_of::<EmitThread>() + EMIT_EVENTS * size_of::<EmitEvent>();
const FILE_BYTES: usize = size_of::<EmitHead>() + EMIT_THREADS * RING_BYTES;

/// Entry that a thread keeps about its current request: the request `id` and its start time `since_ns`. `since_ns` is 0
/// if the thread works on no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CurrentRequest {
    pub(super) owner: u32,
    pub(super) id: u64,
    pub(super) since_ns: u64,
}

/// Mapped file of requests that one process emits.
pub struct EmitFile {
    file: SharedMapping<AtomicU8>,
    /// Number of the last event read from each ring.
    read: Vec<u64>,
    lost: u64,
    head_lost: u64,
    owners: Arc<Owners>,
}

impl EmitFile {
    /// Finds the file of a process among its open files. Returns `None` if the process emits no requests. Reading
    /// begins with the next event.
    pub(super) fn find(pid: u32) -> Option<Self> {
        Self::with_owners(pid, Arc::new(Owners::for_process(pid)))
    }

    /// Maps the file a second time, for another reader with its own read positions.
    pub(super) fn map_again(&self, pid: u32) -> Option<Self> {
        Self::with_owners(pid, Arc::clone(&self.owners))
    }

    fn with_owners(pid: u32, owners: Arc<Owners>) -> Option<Self> {
        let own = pid_in_own_namespace(pid)?;
        let file = sealed::map_sealed_files(pid, EMIT_NAME, FILE_BYTES).find(|file| was_written_by(file, own))?;
        let mut opened = Self { file, read: vec![], lost: 0, head_lost: 0, owners };
        opened.read = (0..EMIT_THREADS).map(|ring| opened.thread(ring).written.load(Ordering::Acquire)).collect();
        opened.head_lost = opened.head().lost.load(Ordering::Relaxed);
        Some(opened)
    }

    /// Calls `each` with the ring and the event for every event since the last call, in the order of each ring.
    /// Allocates nothing. Its run time is bounded, whatever the file contains.
    pub(super) fn fetch(&mut self, mut each: impl FnMut(usize, EmittedEvent)) {
        let mut read = std::mem::take(&mut self.read);
        for (ring, read) in read.iter_mut().enumerate().take(self.used_ring_count()) {
            let written = self.thread(ring).written.load(Ordering::Acquire);
            let oldest = written.saturating_sub(EMIT_EVENTS as u64).max(*read);
            self.lost = self.lost.saturating_add(oldest - *read);
            for number in oldest..written {
                let place = (number % EMIT_EVENTS as u64) as usize;
                match self.events(ring)[place].read(number + 1) {
                    Some(event) => each(ring, EmittedEvent { tid: self.owners.thread_id(ring, event.tid), ..event }),
                    None => self.lost = self.lost.saturating_add(1),
                }
            }
            *read = written.max(*read);
        }
        self.read = read;
    }

    /// Looks up which threads of this machine own the rings. Reads `/proc`, so threads that must not block do not call
    /// it.
    pub(super) fn look_up_ring_owners(&self) {
        let owner = |ring| (ring, self.thread(ring).owner.load(Ordering::Relaxed));
        self.owners.look_up_owners((0..self.used_ring_count()).map(owner));
    }

    /// Returns the current request of each thread that emits.
    pub(super) fn current_requests(&self) -> impl Iterator<Item = CurrentRequest> {
        (0..self.used_ring_count()).map(|ring| self.current_request(ring))
    }

    fn current_request(&self, ring: usize) -> CurrentRequest {
        let thread = self.thread(ring);
        let since_ns = thread.running_since_ns.load(Ordering::Acquire);
        let id = thread.running.load(Ordering::Relaxed);
        CurrentRequest { owner: self.owners.thread_id(ring, thread.owner.load(Ordering::Relaxed)), id, since_ns }
    }

    /// Returns and resets the number of lost events. An event is lost if it was overwritten before it was read, or if
    /// its thread found no free ring.
    pub(super) fn take_lost(&mut self) -> u64 {
        let head_lost = self.head().lost.load(Ordering::Relaxed);
        let lost = std::mem::take(&mut self.lost).saturating_add(head_lost.saturating_sub(self.head_lost));
        self.head_lost = head_lost;
        lost
    }

    /// Returns the number of requests that were received, but neither started nor abandoned.
    pub(super) fn queue_len(&self) -> u64 {
        let used = self.used_ring_count();
        let sum = |count: fn(&EmitThread) -> &AtomicU64| {
            (0..used).map(|ring| count(self.thread(ring)).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        // Load `received` last: a request must never appear as started before it appears as received.
        let left = sum(|thread| &thread.started).max(sum(|thread| &thread.finished));
        sum(|thread| &thread.received).saturating_sub(left)
    }

    /// Returns the number of rings that have an owner. Rings are claimed in order, so the rings with an owner come
    /// first.
    fn used_ring_count(&self) -> usize {
        let is_free = |ring: &usize| self.thread(*ring).owner.load(Ordering::Relaxed) == 0;
        (0..EMIT_THREADS).find(is_free).unwrap_or(EMIT_THREADS)
    }

    fn head(&self) -> &EmitHead {
        &self.file.items_at::<EmitHead>(0, 1)[0]
    }

    fn thread(&self, ring: usize) -> &EmitThread {
        &self.file.items_at::<EmitThread>(size_of::<EmitHead>() + ring * RING_BYTES, 1)[0]
    }

    fn events(&self, ring: usize) -> &[EmitEvent] {
        let start = size_of::<EmitHead>() + ring * RING_BYTES + size_of::<EmitThread>();
        self.file.items_at(start, EMIT_EVENTS)
    }
}

/// Returns whether the process that calls itself `pid` wrote the file. A forked process inherits its parent's file.
fn was_written_by(file: &SharedMapping<AtomicU8>, pid: u32) -> bool {
    let head = &file.items_at::<EmitHead>(0, 1)[0];
    let sizes = [&head.version, &head.pid, &head.threads, &head.events];
    let wanted = [EMIT_VERSION, pid, EMIT_THREADS as u32, EMIT_EVENTS as u32];
    head.magic.load(Ordering::Acquire) == EMIT_MAGIC && sizes.map(|size| size.load(Ordering::Relaxed)) == wanted
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    use super::*;

    /// Serializes the tests that create an emit file: a process may have only one.
    static ONE_FILE: Mutex<()> = Mutex::new(());

    /// Creates an emit file as a service in this process would.
    fn create_emit_file() -> File {
        let name = std::ffi::CString::new(EMIT_NAME).unwrap();
        // SAFETY: plain system call; the name ends in zero, and this is the only owner of the descriptor.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_ALLOW_SEALING)) };
        file.set_len(FILE_BYTES as u64).unwrap();
        // SAFETY: plain system call on an open file.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
        let sizes = [EMIT_VERSION, std::process::id(), EMIT_THREADS as u32, EMIT_EVENTS as u32];
        sizes.iter().zip([8, 12, 16, 20]).for_each(|(size, at)| write_at(&file, at, &size.to_ne_bytes()));
        write_at(&file, 0, &EMIT_MAGIC.to_ne_bytes());
        file
    }

    fn write_at(file: &File, offset: usize, bytes: &[u8]) {
        file.write_all_at(bytes, offset as u64).unwrap();
    }

    #[test]
    fn file_with_any_counters_is_read_to_its_end() {
        let _turn = ONE_FILE.lock().unwrap();
        let file = create_emit_file();
        let mut opened = EmitFile::find(std::process::id()).expect("it is there");
        assert_eq!((opened.used_ring_count(), opened.current_requests().count(), opened.queue_len()), (0, 0, 0));
        let ring = size_of::<EmitHead>();
        for (round, written) in [u64::MAX, 5, u64::MAX].into_iter().enumerate() {
            // Overwrite the four counters, the running request and its start time; then set the owner of the ring.
            (0..6).for_each(|word| write_at(&file, ring + 8 * word, &written.to_ne_bytes()));
            write_at(&file, ring + 48, &7_u32.to_ne_bytes());
            let mut events = 0;
            opened.fetch(|_, _| events += 1);
            assert_eq!((events, opened.current_requests().count(), opened.queue_len()), (0, 1, 0));
            assert_eq!(opened.take_lost() > 0, round == 0, "round {round}");
        }
        let head = opened.current_requests().next().unwrap();
        assert_eq!(head, CurrentRequest { owner: 7, id: u64::MAX, since_ns: u64::MAX });
    }

    #[test]
    fn fuzzed_files_are_read_to_their_end() {
        let _turn = ONE_FILE.lock().unwrap();
        let file = create_emit_file();
        let mut opened = EmitFile::find(std::process::id()).expect("it is there");
        let read = vec![0; EMIT_THREADS];
        sidelane_testing::fuzz("emitted-file", |bytes| {
            write_at(&file, size_of::<EmitHead>(), &bytes[..bytes.len().min(RING_BYTES)]);
            opened.read.clone_from(&read);
            let mut events = 0;
            opened.fetch(|_, _| events += 1);
            assert!(events <= EMIT_EVENTS * EMIT_THREADS && opened.current_requests().count() <= EMIT_THREADS);
            let _ = (opened.queue_len(), opened.take_lost());
        });
    }
}
