//! All measurements of the bench.

use std::collections::BTreeSet;

use super::cells::Cells;
use super::idle::Idle;
use super::reaction::Reactions;
use crate::experiment::sibling::Emulated;
use crate::note::Note;

/// All measurements of the bench.
pub(super) struct Measured {
    pub(super) emulated: Option<Emulated>,
    pub(super) groups: Vec<Cells>,
    pub(super) idle: Option<Idle>,
    pub(super) reactions: Option<Reactions>,
    pub(super) notes: BTreeSet<Note>,
}
