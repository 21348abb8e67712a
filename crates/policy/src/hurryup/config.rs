//! What the user chooses, and what is usual.

use crate::Nanos;

/// How threads are mapped to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// On all cores, and long requests move to big ones.
    #[default]
    HurryUp,
    /// On all cores, and they stay there: the paper's "Linux mapping". Which core a request meets is a matter of chance.
    Static,
    /// On big cores only.
    AllBig,
    /// On little cores only.
    AllLittle,
    /// Wherever the kernel puts them: nothing is done to threads.
    Kernel,
}

/// When the policy looks for long requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// Whenever something happens, and at the moment at which a request passes its threshold. A request moves when it
    /// is due, not up to one sampling time later, and a service without requests costs nothing.
    Events,
    /// The paper's loop: at most once in so long (`SAMPLING_TIME`), whatever happens.
    Sampling(Nanos),
}

/// What the paper leaves open. All off is Algorithm 1 as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A request is never taken off a big core for one that has been here for a shorter time. As printed, it is: two
    /// long requests then change places again and again, and the one that was nearly done is the later one.
    pub spare_longer: bool,
    /// Big cores without a thread come first: no thread has to leave.
    pub empty_first: bool,
    /// Then big cores whose threads are between requests: no request has to leave.
    pub between_first: bool,
    /// A request that has changed its core stays there for so long: caches are cold after a move, so a request that
    /// moves all the time gets slower on any core.
    pub rest_ns: Nanos,
    /// If requests move as they start, the thread that takes the next one waits on a big core.
    pub ahead: bool,
    /// Threads are bound to cores only while there are no more of them than cores (`crowd.rs`).
    pub float_crowds: bool,
    /// One request moves in a round: which cores are big changes with it, so it has to be told anew before the next one.
    pub one_by_one: bool,
}

impl Options {
    /// Algorithm 1 as printed.
    pub const PAPER: Self = Self {
        spare_longer: false,
        empty_first: false,
        between_first: false,
        rest_ns: 0,
        ahead: false,
        float_crowds: false,
        one_by_one: false,
    };
}

impl Default for Options {
    /// All of them, and a rest that is long beside a move and filling a cache.
    fn default() -> Self {
        Self {
            spare_longer: true,
            empty_first: true,
            between_first: true,
            rest_ns: 1_000_000,
            ahead: true,
            float_crowds: true,
            one_by_one: false,
        }
    }
}

/// The time on a little core after which a request is long (`MIGRATION_THRESHOLD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Always the same.
    Given(Nanos),
    /// The one with which the last requests would have had the lowest percentile.
    Learnt(Learning),
}

/// How the threshold is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// The threshold until enough requests were seen.
    pub first_ns: Nanos,
    /// The percentile of the time on threads that is to be as low as possible, in hundredths: 9000 is p90.
    pub percentile_e2: u32,
    /// How fast a little core is, in thousandths of a big one.
    pub little_speed_milli: u32,
    /// What a move costs a request, as time on a big core.
    pub move_ns: Nanos,
}

impl Default for Learning {
    /// The paper's threshold at first and its percentile (§IV-A), cores as different as Juno's, and a cold first-level
    /// cache after a move.
    fn default() -> Self {
        Self { first_ns: 50_000_000, percentile_e2: 9000, little_speed_milli: 310, move_ns: 50_000 }
    }
}

impl Learning {
    /// For this percentile, in hundredths, on cores that are so different, if that is known.
    pub fn of(percentile_e2: u32, little_speed_milli: Option<u32>) -> Self {
        let usual = Self::default();
        let little_speed_milli = little_speed_milli.unwrap_or(usual.little_speed_milli);
        Self { percentile_e2, little_speed_milli, ..usual }
    }
}

/// All tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How threads are mapped.
    pub mapping: Mapping,
    /// When it looks.
    pub looks: Looks,
    /// From when on a request is long.
    pub threshold: Threshold,
    /// What the paper leaves open.
    pub options: Options,
}

impl Config {
    /// Algorithm 1 as printed, with the times of the paper's Figures 6 and 8 (§IV-B).
    pub const PAPER: Self = Self {
        mapping: Mapping::HurryUp,
        looks: Looks::Sampling(25_000_000),
        threshold: Threshold::Given(50_000_000),
        options: Options::PAPER,
    };
}

impl Default for Config {
    /// Event-driven, with a learnt threshold and all options.
    fn default() -> Self {
        Self {
            mapping: Mapping::HurryUp,
            looks: Looks::Events,
            threshold: Threshold::Learnt(Learning::default()),
            options: Options::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_cores_of_unknown_speed_are_as_slow_as_junos() {
        let of = |speed| Learning { percentile_e2: 9500, little_speed_milli: speed, ..Learning::default() };
        assert_eq!([Some(250), None].map(|speed| Learning::of(9500, speed)), [of(250), of(310)]);
    }
}
