//! A watch over directories: the kernel reports cgroups that are made and removed, so that they need not be read.
//!
//! The modification time of a directory cannot be used: the kernel does not set it for cgroups.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Size of the event buffer in bytes: about a hundred events.
const BUFFER_LEN: usize = 8 << 10;

/// Changes of directories since the last call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirChanges {
    /// Changes in these directories, by their watches: something was made or removed.
    In(Vec<i32>),
    /// Changes that are unknown, so that everything has to be read again.
    Anywhere,
    /// Unmount of a hierarchy.
    Unmounted,
}

#[derive(Debug)]
pub(super) struct Watch {
    /// Queue of the kernel's events; `None` if the kernel allows no more queues.
    queue: Option<OwnedFd>,
    /// Whether a directory could not be watched.
    is_blind: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Self { is_blind: queue.is_none(), queue }
    }

    /// Returns whether each scan has to read everything, because a directory could not be watched.
    pub(super) fn needs_full_scan(&self) -> bool {
        self.is_blind
    }

    /// Returns a descriptor that becomes readable when a watched directory has changed.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Watches a directory. Returns the number of the watch; `None` if the directory is gone, or cannot be watched.
    pub(super) fn add(&mut self, dir: &Path) -> Option<i32> {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ONLYDIR;
        let added = inotify::add_watch(self.queue.as_ref()?, dir, flags);
        self.is_blind |= added.is_err() && dir.exists();
        added.ok()
    }

    /// Ends the watch with this number. A removed directory stays watched until this call.
    pub(super) fn remove(&self, watch_id: i32) {
        if let Some(queue) = &self.queue {
            let _ = inotify::remove_watch(queue, watch_id);
        }
    }

    /// Returns the changes of directories since the last call.
    pub(super) fn changes(&self) -> DirChanges {
        let mut changes = DirChanges::In(Vec::new());
        if self.is_blind {
            changes = DirChanges::Anywhere;
        }
        let Some(queue) = &self.queue else { return changes };
        let mut buffer = [MaybeUninit::uninit(); BUFFER_LEN];
        let mut reader = Reader::new(queue, &mut buffer);
        while let Ok(event) = reader.next() {
            changes = changes.with_event(event.wd(), event.events());
        }
        changes
    }
}

impl DirChanges {
    fn with_event(self, watch_id: i32, events: ReadFlags) -> Self {
        match self {
            _ if events.contains(ReadFlags::UNMOUNT) => Self::Unmounted,
            Self::Unmounted => self,
            _ if events.contains(ReadFlags::QUEUE_OVERFLOW) => Self::Anywhere,
            Self::In(mut dirs) if !dirs.contains(&watch_id) => {
                dirs.push(watch_id);
                Self::In(dirs)
            }
            changes => changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn made_and_removed_groups_are_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new();
        let watched = watch.add(dir.path()).unwrap();
        assert_eq!(watch.changes(), DirChanges::In(Vec::new()));
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::remove_dir(dir.path().join("a")).unwrap();
        assert_eq!(watch.changes(), DirChanges::In(vec![watched]));
        assert_eq!(watch.changes(), DirChanges::In(Vec::new()));
        watch.remove(watched);
        fs::create_dir(dir.path().join("b")).unwrap();
        // The kernel also reports the end of a watch, which has no meaning for the test.
        watch.changes();
        assert_eq!(watch.changes(), DirChanges::In(Vec::new()));
        assert_eq!(watch.add(&dir.path().join("gone")), None);
        assert!(!watch.needs_full_scan());
    }
}
