//! List of changes to undo, in the order of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

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
    pub fn undo_matching(&self, is_selected: impl Fn(ChangeId, &Undo) -> bool) -> (Vec<ChangeId>, io::Result<()>) {
        let mine = || self.iter().rev().filter(|(change_id, undo)| is_selected(*change_id, undo));
        mine().for_each(|(_, undo)| undo.end_processes());
        let known = self.known_threads();
        let (mut undone, mut outcome) = (Vec::new(), Ok(()));
        for (change_id, undo) in mine() {
            match undo.carry_out(&known) {
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

#[cfg(test)]
mod tests;
