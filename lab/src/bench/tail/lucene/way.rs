//! The ways to run the server: each has the remedies of those before it, and one more.

use sidelane_stats::rounds::Patience;

/// A way to run the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it comes: Nagle's algorithm, a heap that is touched when it is used
    Plain,
    /// With TCP_NODELAY
    Nodelay,
    /// With AlwaysPreTouch, too
    Pretouch,
    /// With a second server behind `sidelane proxy`, too
    Backup,
}

impl Way {
    pub(super) const ALL: [Way; 4] = [Way::Plain, Way::Nodelay, Way::Pretouch, Way::Backup];
    /// With every remedy.
    pub const TREATED: Way = Way::Backup;

    /// The ways to measure: in a hurry the first and the last one.
    pub(super) fn of(patience: Patience) -> impl Iterator<Item = Way> {
        Way::ALL.into_iter().filter(move |way| !patience.quick || [Way::Plain, Way::TREATED].contains(way))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Nodelay => "nodelay",
            Way::Pretouch => "pretouch",
            Way::Backup => "backup",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Nodelay => "TCP_NODELAY",
            Way::Pretouch => "+ AlwaysPreTouch",
            Way::Backup => "+ a backup server",
        }
    }

    pub(super) fn has_nodelay(self) -> bool {
        self != Way::Plain
    }

    pub(super) fn has_pretouch(self) -> bool {
        !matches!(self, Way::Plain | Way::Nodelay)
    }
}
