//! List of changes to undo, in the order of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use sidelane_host::thread::Thread;

use super::change::Undo;

/// Identity of one change in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangeId(pub(super) u64);

/// Changes that were made, or are about to be, and are not undone yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoList {
    entries: BTreeMap<ChangeId, Undo>,
    change_ids: u64,
}

impl UndoList {
    /// Adds a change at the end of the list.
    pub fn add(&mut self, undo: Undo) -> ChangeId {
        let change_id = ChangeId(self.change_ids);
        self.insert(change_id, undo);
        change_id
    }

    /// Adds a change under the id that it has in another list, or replaces the change that has this id.
    pub fn insert(&mut self, change_id: ChangeId, undo: Undo) {
        self.entries.insert(change_id, undo);
        self.change_ids = self.change_ids.max(change_id.0 + 1);
    }

    /// Removes a change that is undone, or that needs no undo any more.
    pub fn withdraw(&mut self, change_id: ChangeId) {
        self.entries.remove(&change_id);
    }

    /// Returns the changes, first to last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ChangeId, &Undo)> {
        self.entries.iter().map(|(change_id, undo)| (*change_id, undo))
    }

    /// Undoes all changes for which `is_selected` returns true, last to first, even if an undo fails. Returns the
    /// changes that were undone, and the first error. Processes that Sidelane started are ended first, because a group
    /// can be removed only when its processes are gone.
    ///
    /// An undo reads `/proc` and writes files of groups. A change counts as undone only if this process could open files
    /// before and after, so a process without a free descriptor keeps its changes on the list.
    pub fn undo_matching(&self, is_selected: impl Fn(ChangeId, &Undo) -> bool) -> (Vec<ChangeId>, io::Result<()>) {
        let mine = || self.iter().rev().filter(|(change_id, undo)| is_selected(*change_id, undo));
        if let Err(error) = ensure_files_can_be_opened() {
            return (Vec::new(), mine().next().map_or(Ok(()), |_| Err(error)));
        }
        mine().for_each(|(_, undo)| undo.end_processes());
        let known = self.known_threads();
        let (mut undone, mut outcome) = (Vec::new(), Ok(()));
        for (change_id, undo) in mine() {
            // Claims, and the journal, last as long as anything is left to undo.
            if outcome.is_err() && matches!(undo, Undo::Claim { .. }) {
                continue;
            }
            match undo.carry_out(&known).and_then(|()| ensure_files_can_be_opened()) {
                Ok(()) => undone.push(change_id),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        (undone, outcome)
    }

    /// Returns the threads for which the list has an undo.
    pub fn known_threads(&self) -> BTreeSet<Thread> {
        self.entries.values().filter_map(Undo::thread).collect()
    }
}

/// Number of descriptors by which [`raise_open_files_limit`] raises the limit.
const DESCRIPTORS_MORE: u64 = 1024;

/// Checks that this process can open a file. If its limit of open files is used up, raises the limit.
fn ensure_files_can_be_opened() -> io::Result<()> {
    let open = || File::open("/proc/self/stat").map(drop);
    open().or_else(|error| {
        if error.raw_os_error() != Some(libc::EMFILE) {
            return Err(error);
        }
        raise_open_files_limit()?;
        open()
    })
}

/// Raises this process's limit of open files.
pub(crate) fn raise_open_files_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = current.unwrap_or(0).max(DESCRIPTORS_MORE) + DESCRIPTORS_MORE;
    // Beyond the maximum only a privileged process may raise the limit.
    let maximum = maximum.map(|maximum| maximum.max(wanted));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?)
}

#[cfg(test)]
mod tests;
