//! Kinds of hazards of a server, and sets of them.

use core::fmt;

/// Hazard: reason why a server is slow for a while. The number of each is its bit in `abi/hazard.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hazard {
    /// The server's JVM collects garbage.
    JvmGc = 0,
    /// The server's JVM has stopped all threads, for any purpose.
    Safepoint = 1,
    /// The server's process is stopped or frozen.
    Stopped = 2,
    /// The server's cgroup has used up its quota of CPU time.
    Throttled = 3,
    /// The server's process has ended, or was restarted and does not listen yet.
    Restart = 4,
    /// No connection to the server can be made. Only the proxy notices it.
    Unreachable = 5,
    /// The server fails its requests. Only the proxy notices it.
    Failing = 6,
}

impl Hazard {
    /// All hazards, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::JvmGc, Self::Safepoint, Self::Stopped, Self::Throttled, Self::Restart, Self::Unreachable, Self::Failing];

    /// Returns the name of the hazard on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::JvmGc => "jvm-gc",
            Self::Safepoint => "safepoint",
            Self::Stopped => "stopped",
            Self::Throttled => "throttled",
            Self::Restart => "restart",
            Self::Unreachable => "unreachable",
            Self::Failing => "failing",
        }
    }

    /// Returns whether the server continues after the hazard as before: it is slow or failing, and not away.
    pub fn is_passing(self) -> bool {
        !matches!(self, Self::Restart | Self::Unreachable)
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Set of hazards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hazards(u32);

impl Hazards {
    /// Empty set of hazards.
    pub const NONE: Self = Self(0);

    /// Creates a set from bits, one for each hazard's number; bits without a meaning are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Hazard::ALL.len()) - 1))
    }

    /// Returns the set as bits, one for each hazard's number.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set with `hazard` added, or removed if `is_on` is false.
    #[must_use]
    pub fn with(self, hazard: Hazard, is_on: bool) -> Self {
        if is_on { Self(self.0 | hazard.bit()) } else { Self(self.0 & !hazard.bit()) }
    }

    /// Returns whether the hazard is in the set.
    pub fn contains(self, hazard: Hazard) -> bool {
        self.0 & hazard.bit() != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the hazards in the set, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Hazard> {
        Hazard::ALL.into_iter().filter(move |hazard| self.contains(*hazard))
    }
}

impl FromIterator<Hazard> for Hazards {
    fn from_iter<I: IntoIterator<Item = Hazard>>(hazards: I) -> Self {
        hazards.into_iter().fold(Self::NONE, |set, hazard| set.with(hazard, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hazard_set_has_inserted_hazards_and_no_unknown_bits() {
        let set: Hazards = [Hazard::Restart, Hazard::JvmGc].into_iter().collect();
        assert!(set.contains(Hazard::JvmGc) && !set.contains(Hazard::Stopped));
        assert!(set.iter().eq([Hazard::JvmGc, Hazard::Restart]));
        assert_eq!(set.bits(), 0b1_0001);
        assert_eq!(Hazards::from_bits(0xffff_ff11), set);
        assert!(set.with(Hazard::JvmGc, false).with(Hazard::Restart, false).is_empty());
    }

    #[test]
    fn hazard_numbers_are_indexes_of_the_list() {
        assert!(Hazard::ALL.iter().enumerate().all(|(place, hazard)| *hazard as usize == place));
    }
}
