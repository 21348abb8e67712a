//! All measurements of the bench.

use std::collections::BTreeSet;

use super::cells::Cells;
use super::idle::Idle;
use super::reaction::Reactions;
use crate::experiment::sibling::Emulated;
use sidelane_diagnostics::note::Note;

/// All measurements of the bench.
pub(super) struct Measured {
    pub(super) emulated: Option<Emulated>,
    pub(super) groups: Vec<Cells>,
    pub(super) idle: Option<Idle>,
    /// One for each way of hearing that was tried.
    pub(super) reactions: Vec<Reactions>,
    pub(super) notes: BTreeSet<Note>,
}
