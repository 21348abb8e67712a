//! What is known of one server.

use crate::Nanos;

use super::hazard::{Hazard, Hazards};
use super::outlier::Outlier;

/// How bad it is to ask a server, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Nothing is known against it.
    Well,
    /// It was started anew, and still loads and compiles what it needs.
    Cold,
    /// A hazard that passes, and has just begun: it is likely to answer sooner than one that is cold.
    Paused,
    /// A hazard that passes, and lasts: it answers later.
    Slow,
    /// It answers with failures.
    Failing,
    /// It does not answer.
    Away,
}

impl Rank {
    /// Whether a server of this rank is asked rather than one of the other rank. Of two that have hazards which pass,
    /// neither is better, since that of either may be over first.
    pub(super) fn is_better_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Cold, Self::Paused) | (Self::Paused, Self::Slow) => false,
            _ => self < other,
        }
    }
}

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    /// All but [`Hazard::Failing`].
    hazards: Hazards,
    /// Whether it fails its requests.
    pub(super) outlier: Outlier,
    /// When it is looked for again, while it cannot be reached.
    pub(super) probe_at: Option<Nanos>,
    /// Until when it is warmed up.
    pub(super) warm_until: Option<Nanos>,
    /// Until when a hazard that passes is a pause.
    pub(super) pause_until: Option<Nanos>,
}

impl Condition {
    /// The watchers' hazards are these now; one that passes and has just begun is a pause until then. Whether the server
    /// has just come back.
    pub(super) fn set_watched(&mut self, watched: Hazards, pause_until: Nanos) -> bool {
        let has_passing = |hazards: Hazards| hazards.iter().any(Hazard::passes);
        match (has_passing(self.hazards), has_passing(watched)) {
            (false, true) => self.pause_until = Some(pause_until),
            (_, false) => self.pause_until = None,
            (true, true) => {}
        }
        let was_away = self.hazards.contains(Hazard::Restart);
        self.hazards = watched.with(Hazard::Unreachable, self.probe_at.is_some()).with(Hazard::Failing, false);
        was_away && !watched.contains(Hazard::Restart)
    }

    /// A connection failed.
    pub(super) fn unreachable(&mut self, probe_at: Nanos) {
        self.hazards = self.hazards.with(Hazard::Unreachable, true);
        self.probe_at.get_or_insert(probe_at);
    }

    /// A connection was made. Whether it has just come back.
    pub(super) fn reached(&mut self) -> bool {
        self.hazards = self.hazards.with(Hazard::Unreachable, false);
        self.probe_at.take().is_some()
    }

    pub(super) fn rank(&self) -> Rank {
        match () {
            () if self.hazards.iter().any(|hazard| !hazard.passes()) => Rank::Away,
            () if self.outlier.is_out() => Rank::Failing,
            () if self.pause_until.is_some() => Rank::Paused,
            () if !self.hazards.is_empty() => Rank::Slow,
            () if self.warm_until.is_some() => Rank::Cold,
            () => Rank::Well,
        }
    }

    /// The hazard that a swap is put down to: one that makes the server away, or a failing one, or the last.
    pub(super) fn worst(&self) -> Option<Hazard> {
        let worst = self.hazards.iter().last();
        let is_out = self.outlier.is_out() && worst.is_none_or(Hazard::passes);
        if is_out { Some(Hazard::Failing) } else { worst }
    }
}
