//! Kinds of hazards, and sets of them.

use core::fmt;

/// A reason why a server is slow for a while. The number of each is its bit in `abi/hazard.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hazard {
    /// Its JVM collects garbage.
    JvmGc = 0,
    /// Its JVM has stopped all threads, for any purpose.
    Safepoint = 1,
    /// It is stopped or frozen.
    Stopped = 2,
    /// Its group has used up its quota of CPU time.
    Throttled = 3,
    /// It has ended, or was restarted and does not listen yet.
    Restart = 4,
    /// No connection to it can be made. Only the proxy notices it.
    Unreachable = 5,
    /// It fails its requests. Only the proxy notices it.
    Failing = 6,
}

impl Hazard {
    /// All hazards, by number.
    pub const ALL: [Self; 7] =
        [Self::JvmGc, Self::Safepoint, Self::Stopped, Self::Throttled, Self::Restart, Self::Unreachable, Self::Failing];

    /// Returns its name on the command line and in results.
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

    /// Returns whether the server goes on afterwards as before: it is slow or failing, and not away.
    pub fn passes(self) -> bool {
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

/// A set of hazards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hazards(u32);

impl Hazards {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Creates a set from bits by number; bits without a meaning are left out.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Hazard::ALL.len()) - 1))
    }

    /// Returns bits by number.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set with this hazard, or without it.
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

    /// Returns the hazards in the set, by number.
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
    fn a_set_has_what_was_put_in_and_nothing_unknown() {
        let set: Hazards = [Hazard::Restart, Hazard::JvmGc].into_iter().collect();
        assert!(set.contains(Hazard::JvmGc) && !set.contains(Hazard::Stopped));
        assert!(set.iter().eq([Hazard::JvmGc, Hazard::Restart]));
        assert_eq!(set.bits(), 0b1_0001);
        assert_eq!(Hazards::from_bits(0xffff_ff11), set);
        assert!(set.with(Hazard::JvmGc, false).with(Hazard::Restart, false).is_empty());
    }

    #[test]
    fn the_numbers_are_the_places_in_the_list() {
        assert!(Hazard::ALL.iter().enumerate().all(|(place, hazard)| *hazard as usize == place));
    }
}
