//! State of one server.

use crate::Nanos;

use super::hazard::{Hazard, Hazards};
use super::outlier::Outlier;

/// Rank of a server for a request, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Rank {
    /// The server has no known hazard.
    Well,
    /// The server was restarted, and still loads and compiles its code.
    Cold,
    /// A passing hazard has just begun: the server is likely to answer sooner than a cold server.
    Paused,
    /// A passing hazard lasts, so the server answers later.
    Slow,
    /// The server answers with failures.
    Failing,
    /// The server does not answer.
    Away,
}

impl Rank {
    /// All ranks, from good to bad.
    pub(super) const ALL: [Self; 6] = [Self::Well, Self::Cold, Self::Paused, Self::Slow, Self::Failing, Self::Away];

    /// Returns whether a server of this rank is preferred to a server of the rank `other`. Between two servers with
    /// passing hazards neither is better, since either hazard may end first.
    pub(super) fn is_better_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Cold, Self::Paused) | (Self::Paused, Self::Slow) => false,
            _ => self < other,
        }
    }
}

/// State of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    /// All hazards of the server except [`Hazard::Failing`].
    hazards: Hazards,
    /// Record of failed requests of the server.
    pub(super) outlier: Outlier,
    /// Time of the next probe, while the server cannot be reached.
    pub(super) probe_at: Option<Nanos>,
    /// End of the server's warm-up.
    pub(super) warm_until: Option<Nanos>,
    /// Time until which a passing hazard counts as a pause.
    pub(super) pause_until: Option<Nanos>,
}

impl Condition {
    /// Sets the hazards that the watchers report. A passing hazard that has just begun is a pause until `pause_until`.
    /// Returns whether the server has just come back.
    pub(super) fn set_watched(&mut self, watched: Hazards, pause_until: Nanos) -> bool {
        let has_passing = |hazards: Hazards| hazards.iter().any(Hazard::is_passing);
        match (has_passing(self.hazards), has_passing(watched)) {
            (false, true) => self.pause_until = Some(pause_until),
            (_, false) => self.pause_until = None,
            (true, true) => {}
        }
        let was_away = self.hazards.contains(Hazard::Restart);
        self.hazards = watched.with(Hazard::Unreachable, self.probe_at.is_some()).with(Hazard::Failing, false);
        was_away && !watched.contains(Hazard::Restart)
    }

    /// Records that a connection failed; `probe_at` is the time of the next probe.
    pub(super) fn mark_unreachable(&mut self, probe_at: Nanos) {
        self.hazards = self.hazards.with(Hazard::Unreachable, true);
        self.probe_at.get_or_insert(probe_at);
    }

    /// Records that a connection was made. Returns whether the server has just come back.
    pub(super) fn mark_reached(&mut self) -> bool {
        self.hazards = self.hazards.with(Hazard::Unreachable, false);
        self.probe_at.take().is_some()
    }

    pub(super) fn rank(&self) -> Rank {
        match () {
            () if self.hazards.iter().any(|hazard| !hazard.is_passing()) => Rank::Away,
            () if self.outlier.is_ejected() => Rank::Failing,
            () if self.pause_until.is_some() => Rank::Paused,
            () if !self.hazards.is_empty() => Rank::Slow,
            () if self.warm_until.is_some() => Rank::Cold,
            () => Rank::Well,
        }
    }

    /// Returns the hazard that is reported as the reason of a swap: `Failing` for an ejected server that has passing
    /// hazards at most, else the last hazard in the order of numbers.
    pub(super) fn worst_hazard(&self) -> Option<Hazard> {
        let worst = self.hazards.iter().last();
        let is_out = self.outlier.is_ejected() && worst.is_none_or(Hazard::is_passing);
        if is_out { Some(Hazard::Failing) } else { worst }
    }
}
