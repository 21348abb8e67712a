//! Settings of the Hurry-up policy, and their defaults.

use crate::Nanos;

/// Mapping of threads to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// Threads run on all cores; long requests move to big ones.
    #[default]
    HurryUp,
    /// Threads run on all cores, and each stays on its core: the paper's "Linux mapping". The core that a request gets
    /// is a matter of chance.
    Static,
    /// Threads run on big cores only.
    AllBig,
    /// Threads run on little cores only.
    AllLittle,
    /// Threads run where the kernel places them: they are not changed.
    Kernel,
}

/// Times at which the policy scans for long requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanTimes {
    /// The policy scans at each event, and at the moment at which a request exceeds its threshold. A request moves when
    /// it is due, not up to one sampling time later, and a service without requests costs nothing.
    Events,
    /// The paper's loop: the policy scans at most once in this time (`SAMPLING_TIME`).
    Sampling(Nanos),
}

/// Rules for cases that the paper leaves open. With all rules off, the policy is Algorithm 1 as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A request is not moved off a big core for one that has been under way for a shorter time. As printed, it is
    /// moved. Two long requests then change cores again and again, and the one that was nearly done is late.
    pub spare_longer: bool,
    /// Big cores without a thread are chosen first, so that no thread has to leave.
    pub empty_first: bool,
    /// Big cores whose threads are between requests are chosen after empty ones, so that no request has to leave.
    pub between_first: bool,
    /// Time for which a request stays on its core after a move. Caches are cold after a move, so a request that moves
    /// all the time gets slower on any core.
    pub rest_ns: Nanos,
    /// If requests move as they start, the thread that takes the next request waits on a big core.
    pub preplace: bool,
    /// Threads are bound to cores only if there are not more threads than cores (`oversubscription.rs`).
    pub float_oversubscribed: bool,
    /// One request moves in a round. Each move changes which cores are big, so the new sizes are needed before the next
    /// move.
    pub one_by_one: bool,
}

impl Options {
    /// Options of Algorithm 1 as printed.
    pub const PAPER: Self = Self {
        spare_longer: false,
        empty_first: false,
        between_first: false,
        rest_ns: 0,
        preplace: false,
        float_oversubscribed: false,
        one_by_one: false,
    };
}

impl Default for Options {
    /// Returns all options switched on except `one_by_one`. The rest time is long compared with a move and with filling
    /// a cache.
    fn default() -> Self {
        Self {
            spare_longer: true,
            empty_first: true,
            between_first: true,
            rest_ns: 1_000_000,
            preplace: true,
            float_oversubscribed: true,
            one_by_one: false,
        }
    }
}

/// Time on a little core after which a request is long (`MIGRATION_THRESHOLD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Constant threshold.
    Given(Nanos),
    /// Learnt threshold: the one with which the last requests would have had the lowest percentile.
    Learnt(Learning),
}

/// Settings for learning the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Threshold that is used until enough requests were seen.
    pub first_ns: Nanos,
    /// Percentile of the time on threads that is minimized, in hundredths: 9000 is p90.
    pub percentile_e2: u32,
    /// Speed of a little core, in thousandths of the speed of a big core.
    pub little_speed_milli: u32,
    /// Cost of a move for a request, as time on a big core.
    pub move_ns: Nanos,
}

impl Default for Learning {
    /// Returns the paper's first threshold and percentile (§IV-A), the core speeds of Juno, and a move cost of
    /// refilling a first-level cache.
    fn default() -> Self {
        Self { first_ns: 50_000_000, percentile_e2: 9000, little_speed_milli: 310, move_ns: 50_000 }
    }
}

impl Learning {
    /// Returns the settings for this percentile, in hundredths, and this speed of little cores, if it is known.
    pub fn with_percentile(percentile_e2: u32, little_speed_milli: Option<u32>) -> Self {
        let usual = Self::default();
        let little_speed_milli = little_speed_milli.unwrap_or(usual.little_speed_milli);
        Self { percentile_e2, little_speed_milli, ..usual }
    }
}

/// All settings of the Hurry-up policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Mapping of threads to cores.
    pub mapping: Mapping,
    /// Times at which the policy scans for long requests.
    pub scan_times: ScanTimes,
    /// Time on a little core after which a request is long.
    pub threshold: Threshold,
    /// Rules for cases that the paper leaves open.
    pub options: Options,
}

impl Config {
    /// Settings of Algorithm 1 as printed, with the times of the paper's Figures 6 and 8 (§IV-B).
    pub const PAPER: Self = Self {
        mapping: Mapping::HurryUp,
        scan_times: ScanTimes::Sampling(25_000_000),
        threshold: Threshold::Given(50_000_000),
        options: Options::PAPER,
    };
}

impl Default for Config {
    /// Returns event-driven scans, a learnt threshold and the default options.
    fn default() -> Self {
        Self {
            mapping: Mapping::HurryUp,
            scan_times: ScanTimes::Events,
            threshold: Threshold::Learnt(Learning::default()),
            options: Options::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_little_core_speed_defaults_to_that_of_juno() {
        let of = |speed| Learning { percentile_e2: 9500, little_speed_milli: speed, ..Learning::default() };
        assert_eq!([Some(250), None].map(|speed| Learning::with_percentile(9500, speed)), [of(250), of(310)]);
    }
}
