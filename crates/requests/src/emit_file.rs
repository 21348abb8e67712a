//! The file in which a process emits its requests: found among its open files, mapped, and read
//! without making it wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_formats::{
    EMIT_EVENTS, EMIT_MAGIC, EMIT_NAME, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitThread, Emitted,
};

use super::emit_owners::Owners;
use sidelane_host::procfs::own_pid;
use sidelane_host::sealed::SealedFile;

const RING_BYTES: usize = size_of::<EmitThread>() + EMIT_EVENTS * size_of::<EmitEvent>();
const FILE_BYTES: usize = size_of::<EmitHead>() + EMIT_THREADS * RING_BYTES;

/// What a thread says of itself: it took up the request `id` at `since_ns`, which is 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) owner: u32,
    pub(super) id: u64,
    pub(super) since_ns: u64,
}

/// One process's file.
pub struct EmitFile {
    file: SealedFile,
    /// How far each ring was read.
    read: Vec<u64>,
    lost: u64,
    head_lost: u64,
    owners: Arc<Owners>,
}

impl EmitFile {
    /// What the process emits from now on; `None` if it does not.
    pub(super) fn find(pid: u32) -> Option<Self> {
        Self::with_owners(pid, Arc::new(Owners::of(pid)))
    }

    /// The same file for another reader.
    pub(super) fn again(&self, pid: u32) -> Option<Self> {
        Self::with_owners(pid, Arc::clone(&self.owners))
    }

    fn with_owners(pid: u32, owners: Arc<Owners>) -> Option<Self> {
        let own = own_pid(pid)?;
        let file = SealedFile::find(pid, EMIT_NAME, FILE_BYTES).find(|file| is_of(file, own))?;
        let mut opened = Self { file, read: vec![], lost: 0, head_lost: 0, owners };
        opened.read = (0..EMIT_THREADS).map(|ring| opened.thread(ring).written.load(Ordering::Acquire)).collect();
        opened.head_lost = opened.head().lost.load(Ordering::Relaxed);
        Some(opened)
    }

    /// Reads every event since the last call, in the order of each ring, and says of which. Allocates
    /// nothing, and ends soon whatever the file says.
    pub(super) fn fetch(&mut self, mut each: impl FnMut(usize, Emitted)) {
        let mut read = std::mem::take(&mut self.read);
        for (ring, read) in read.iter_mut().enumerate().take(self.used()) {
            let written = self.thread(ring).written.load(Ordering::Acquire);
            let oldest = written.saturating_sub(EMIT_EVENTS as u64).max(*read);
            self.lost = self.lost.saturating_add(oldest - *read);
            for number in oldest..written {
                let place = (number % EMIT_EVENTS as u64) as usize;
                match self.events(ring)[place].read(number + 1) {
                    Some(event) => each(ring, Emitted { tid: self.owners.thread(ring, event.tid), ..event }),
                    None => self.lost = self.lost.saturating_add(1),
                }
            }
            *read = written.max(*read);
        }
        self.read = read;
    }

    /// Finds out which threads of this machine emit. Reads `/proc`, so not for threads that must not block.
    pub(super) fn learn_owners(&self) {
        let owner = |ring| (ring, self.thread(ring).owner.load(Ordering::Relaxed));
        self.owners.learn((0..self.used()).map(owner));
    }

    /// Each thread that emits, and what it took up last.
    pub(super) fn heads(&self) -> impl Iterator<Item = Head> {
        (0..self.used()).map(|ring| self.head_of(ring))
    }

    fn head_of(&self, ring: usize) -> Head {
        let thread = self.thread(ring);
        let since_ns = thread.running_since_ns.load(Ordering::Acquire);
        let id = thread.running.load(Ordering::Relaxed);
        Head { owner: self.owners.thread(ring, thread.owner.load(Ordering::Relaxed)), id, since_ns }
    }

    /// Events that were overwritten before they were read, or found no ring, since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        let head_lost = self.head().lost.load(Ordering::Relaxed);
        let lost = std::mem::take(&mut self.lost).saturating_add(head_lost.saturating_sub(self.head_lost));
        self.head_lost = head_lost;
        lost
    }

    /// Requests that were received and neither taken up nor given up.
    pub(super) fn queue_len(&self) -> u64 {
        let used = self.used();
        let sum = |count: fn(&EmitThread) -> &AtomicU64| {
            (0..used).map(|ring| count(self.thread(ring)).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        // Received last, so that none seems to have been taken up before.
        let left = sum(|thread| &thread.started).max(sum(|thread| &thread.finished));
        sum(|thread| &thread.received).saturating_sub(left)
    }

    /// The rings that have an owner: they come first.
    fn used(&self) -> usize {
        let is_free = |ring: &usize| self.thread(*ring).owner.load(Ordering::Relaxed) == 0;
        (0..EMIT_THREADS).find(is_free).unwrap_or(EMIT_THREADS)
    }

    fn head(&self) -> &EmitHead {
        &self.file.at::<EmitHead>(0, 1)[0]
    }

    fn thread(&self, ring: usize) -> &EmitThread {
        &self.file.at::<EmitThread>(size_of::<EmitHead>() + ring * RING_BYTES, 1)[0]
    }

    fn events(&self, ring: usize) -> &[EmitEvent] {
        let start = size_of::<EmitHead>() + ring * RING_BYTES + size_of::<EmitThread>();
        self.file.at(start, EMIT_EVENTS)
    }
}

/// Whether the process wrote it that calls itself `pid`, and not one that it was forked from.
fn is_of(file: &SealedFile, pid: u32) -> bool {
    let head = &file.at::<EmitHead>(0, 1)[0];
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

    /// Of two such files one would be found by both tests.
    static ONE_FILE: Mutex<()> = Mutex::new(());

    /// A file as a service of this process would have it.
    fn file_of_this_process() -> File {
        let name = std::ffi::CString::new(EMIT_NAME).unwrap();
        // SAFETY: plain system call; the name ends in zero, and this is the only owner of the descriptor.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_ALLOW_SEALING)) };
        file.set_len(FILE_BYTES as u64).unwrap();
        // SAFETY: plain system call on an open file.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
        let sizes = [EMIT_VERSION, std::process::id(), EMIT_THREADS as u32, EMIT_EVENTS as u32];
        sizes.iter().zip([8, 12, 16, 20]).for_each(|(size, at)| put(&file, at, &size.to_ne_bytes()));
        put(&file, 0, &EMIT_MAGIC.to_ne_bytes());
        file
    }

    fn put(file: &File, at: usize, bytes: &[u8]) {
        file.write_all_at(bytes, at as u64).unwrap();
    }

    #[test]
    fn file_with_any_counters_is_read_to_its_end() {
        let _turn = ONE_FILE.lock().unwrap();
        let file = file_of_this_process();
        let mut opened = EmitFile::find(std::process::id()).expect("it is there");
        assert_eq!((opened.used(), opened.heads().count(), opened.queue_len()), (0, 0, 0));
        let ring = size_of::<EmitHead>();
        for (round, written) in [u64::MAX, 5, u64::MAX].into_iter().enumerate() {
            // Its counters, its last request, and its owner.
            (0..6).for_each(|word| put(&file, ring + 8 * word, &written.to_ne_bytes()));
            put(&file, ring + 48, &7_u32.to_ne_bytes());
            let mut events = 0;
            opened.fetch(|_, _| events += 1);
            assert_eq!((events, opened.heads().count(), opened.queue_len()), (0, 1, 0));
            assert_eq!(opened.take_lost() > 0, round == 0, "round {round}");
        }
        let head = opened.heads().next().unwrap();
        assert_eq!(head, Head { owner: 7, id: u64::MAX, since_ns: u64::MAX });
    }

    #[test]
    fn fuzzed_files_are_read_to_their_end() {
        let _turn = ONE_FILE.lock().unwrap();
        let file = file_of_this_process();
        let mut opened = EmitFile::find(std::process::id()).expect("it is there");
        let read = vec![0; EMIT_THREADS];
        sidelane_testing::fuzz("emitted-file", |bytes| {
            put(&file, size_of::<EmitHead>(), &bytes[..bytes.len().min(RING_BYTES)]);
            opened.read.clone_from(&read);
            let mut events = 0;
            opened.fetch(|_, _| events += 1);
            assert!(events <= EMIT_EVENTS * EMIT_THREADS && opened.heads().count() <= EMIT_THREADS);
            let _ = (opened.queue_len(), opened.take_lost());
        });
    }
}
